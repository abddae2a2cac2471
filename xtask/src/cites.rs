//! `cargo xtask cites`: for each numbered clause of a document, where code asserts it and where tests check it.
//!
//! A clause is a heading such as `### I3. …` in `docs/protocol.md`. Code cites it as `//= protocol.md#I3`, a test
//! as `//= protocol.md#I3 type=test`; lines `//# …` below a citation quote the clause and must match its text.

use crate::source::Source;
use crate::tree::{self, TextFile};
use crate::verdict;
use std::collections::BTreeMap;
use std::path::Path;

/// A document whose clauses may be cited.
struct Document {
    /// Its name in citations; it lies in `docs/`.
    name: &'static str,
    /// First letter of its clauses.
    letter: char,
    /// Whether a clause without any citation is a breach.
    required: bool,
}

const DOCUMENTS: [Document; 2] = [
    Document { name: "protocol.md", letter: 'I', required: true },
    Document { name: "semantics.md", letter: 'S', required: false },
];

/// What is known about one clause.
#[derive(Debug, Default, PartialEq, Eq)]
struct Clause {
    title: String,
    /// The text under the heading, in one line.
    text: String,
    asserted: Vec<String>,
    tested: Vec<String>,
}

/// Clauses by (document, number); the number sorts as a number.
type Clauses = BTreeMap<(&'static str, u32), Clause>;

/// One `//=` line.
#[derive(Debug, PartialEq, Eq)]
struct Citation {
    document: String,
    clause: String,
    is_test: bool,
    /// File and line (from 1).
    place: String,
    /// The text of the `//#` lines below, in one line.
    quote: String,
}

/// Runs the check over the workspace at `root`.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let files = tree::text_files(root)?;
    let mut clauses = Clauses::new();
    for document in &DOCUMENTS {
        let path = format!("docs/{}", document.name);
        match files.iter().find(|file| file.path == path) {
            Some(file) => clauses.extend(parse_clauses(document, &file.text)),
            None if document.required => return Err(format!("{path} is missing")),
            None => {}
        }
    }
    // This program writes citations in strings and comments without meaning them.
    let sources = files.iter().filter(|file| file.path.ends_with(".rs") && !file.path.starts_with("xtask/"));
    let mut breaches = Vec::new();
    for citation in sources.flat_map(citations) {
        breaches.extend(enter(&mut clauses, citation));
    }
    breaches.extend(uncited(&clauses));
    verdict("cites", &breaches, String::new())
        .map(|_| table(&clauses))
        .map_err(|report| format!("{}\n{report}", table(&clauses)))
}

/// Headings `### I3. Title` and the text below each.
fn parse_clauses(document: &Document, text: &str) -> Clauses {
    let mut clauses = Clauses::new();
    let mut current = None;
    for line in text.lines() {
        if line.starts_with('#') {
            let heading = line.trim_start_matches('#').trim();
            current = heading.split_once(". ").and_then(|(number, title)| {
                let number: u32 = number.strip_prefix(document.letter)?.parse().ok()?;
                Some((number, title))
            });
            if let Some((number, title)) = current {
                clauses
                    .insert((document.name, number), Clause { title: title.to_owned(), ..Clause::default() });
            }
        } else if let Some((number, _)) = current
            && let Some(clause) = clauses.get_mut(&(document.name, number))
        {
            clause.text = one_line(&format!("{} {line}", clause.text));
        }
    }
    clauses
}

/// Words with single spaces, without the marks of emphasis.
fn one_line(text: &str) -> String {
    text.replace(['*', '`'], "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// All citations of a file.
fn citations(file: &TextFile) -> Vec<Citation> {
    if !file.text.contains("//=") {
        return Vec::new();
    }
    let source = Source::new(&file.path, &file.text);
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(target) = line.strip_prefix("//= ") else { continue };
        let mut words = target.split_whitespace();
        let (document, clause) = words.next().and_then(|word| word.split_once('#')).unwrap_or((target, ""));
        let document = document.strip_prefix("docs/").unwrap_or(document);
        let quote: Vec<&str> =
            lines[number + 1..].iter().map_while(|line| line.strip_prefix("//#")).collect();
        found.push(Citation {
            document: document.to_owned(),
            clause: clause.to_owned(),
            is_test: words.any(|word| word == "type=test") || source.is_test_line(number),
            place: format!("{}:{}", file.path, number + 1),
            quote: one_line(&quote.join(" ")),
        });
    }
    found
}

/// Enters a citation under its clause, or says why it cannot be.
fn enter(clauses: &mut Clauses, citation: Citation) -> Option<String> {
    let Citation { document, clause: name, is_test, place, quote } = citation;
    let key = DOCUMENTS.iter().find(|known| known.name == document).and_then(|known| {
        let number = name.strip_prefix(known.letter)?.parse().ok()?;
        Some((known.name, number))
    });
    let Some(clause) = key.and_then(|key| clauses.get_mut(&key)) else {
        return Some(format!("{place}: cites {document}#{name}, which does not exist"));
    };
    let quoted_wrongly = !clause.text.contains(&quote);
    let list = if is_test { &mut clause.tested } else { &mut clause.asserted };
    list.push(place.clone());
    quoted_wrongly.then(|| format!("{place}: {document}#{name} does not say \"{quote}\""))
}

/// Clauses of required documents that nobody cites, as breaches.
fn uncited(clauses: &Clauses) -> Vec<String> {
    uncited_keys(clauses)
        .into_iter()
        .filter(|key| is_required(key.0))
        .map(|key| {
            format!("{} ({}): neither asserted nor tested anywhere", name_of(key), clauses[&key].title)
        })
        .collect()
}

fn uncited_keys(clauses: &Clauses) -> Vec<(&'static str, u32)> {
    let nowhere = |clause: &Clause| clause.asserted.is_empty() && clause.tested.is_empty();
    clauses.iter().filter(|(_, clause)| nowhere(clause)).map(|(key, _)| *key).collect()
}

fn is_required(name: &str) -> bool {
    DOCUMENTS.iter().any(|document| document.name == name && document.required)
}

fn name_of((document, number): (&str, u32)) -> String {
    let letter = DOCUMENTS.iter().find(|known| known.name == document).map_or('?', |known| known.letter);
    format!("{document}#{letter}{number}")
}

/// The overview: each clause with its places. Clauses that need no citation and have none share a line.
fn table(clauses: &Clauses) -> String {
    let mut out = String::new();
    let uncited = uncited_keys(clauses);
    for (key, clause) in clauses.iter().filter(|(key, _)| is_required(key.0) || !uncited.contains(key)) {
        out += &format!("{} {}\n", name_of(*key), clause.title);
        for (word, places) in [("asserted", &clause.asserted), ("tested", &clause.tested)] {
            let places =
                if places.is_empty() { "nowhere".to_owned() } else { places.join("\n             ") };
            out += &format!("    {word:<8} {places}\n");
        }
    }
    let names: Vec<String> =
        uncited.iter().filter(|key| !is_required(key.0)).map(|key| name_of(*key)).collect();
    if !names.is_empty() {
        out += &format!("not cited, and need not be: {}\n", names.join(" "));
    }
    out.truncate(out.trim_end().len());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: &str = "# Protocol\n\n## Invariants\n\n### I1. One at a time\n\nTwo locks **in use** are\n\
        compatible.\n\n### I10. Ten\n\nText.\n\n## More\n\nProse.\n";

    fn protocol() -> Clauses {
        parse_clauses(&DOCUMENTS[0], PROTOCOL)
    }

    fn cite(path: &str, text: &str) -> (Clauses, Vec<String>) {
        let mut clauses = protocol();
        let found = citations(&TextFile { path: path.to_owned(), text: text.to_owned() });
        let breaches = found.into_iter().filter_map(|citation| enter(&mut clauses, citation)).collect();
        (clauses, breaches)
    }

    #[test]
    fn headings_with_numbers_are_clauses() {
        let clauses = protocol();
        assert_eq!(clauses.keys().copied().collect::<Vec<_>>(), [("protocol.md", 1), ("protocol.md", 10)]);
        assert_eq!(clauses[&("protocol.md", 1)].text, "Two locks in use are compatible.");
        assert_eq!(clauses[&("protocol.md", 10)].text, "Text.", "text of the next section is not part of it");
    }

    #[test]
    fn citations_are_sorted_into_asserted_and_tested() {
        let text = "//! x\n//= protocol.md#I1\nfn a() {}\n//= protocol.md#I1 type=test\n#[cfg(test)]\nmod tests {\n\
            //= docs/protocol.md#I10\nfn b() {}\n}\n";
        let (clauses, breaches) = cite("crates/x/src/a.rs", text);
        assert_eq!(breaches, Vec::<String>::new());
        assert_eq!(clauses[&("protocol.md", 1)].asserted, ["crates/x/src/a.rs:2"]);
        assert_eq!(clauses[&("protocol.md", 1)].tested, ["crates/x/src/a.rs:4"]);
        assert_eq!(clauses[&("protocol.md", 10)].tested, ["crates/x/src/a.rs:7"]);
        assert_eq!(uncited(&clauses), Vec::<String>::new());
        assert!(table(&clauses).contains("I10"));
    }

    #[test]
    fn a_clause_without_any_citation_is_a_breach() {
        let (clauses, _) = cite("a.rs", "//! x\n//= protocol.md#I10\n");
        assert_eq!(uncited(&clauses).len(), 1);
        assert!(uncited(&clauses)[0].contains("protocol.md#I1 "));
    }

    #[test]
    fn planted_citations_of_nothing_are_breaches() {
        for text in ["//= protocol.md#I7\n", "//= protocol.md\n", "//= gone.md#I1\n", "//= protocol.md#J1\n"]
        {
            assert_eq!(cite("a.rs", text).1.len(), 1, "{text}");
        }
    }

    #[test]
    fn a_quote_must_stand_in_the_clause() {
        let right = "//= protocol.md#I1\n//# Two locks in use\n//# are compatible.\nfn a() {}\n";
        assert_eq!(cite("a.rs", right).1, Vec::<String>::new());
        let wrong = "//= protocol.md#I1\n//# Two locks are compatible.\n";
        assert!(cite("a.rs", wrong).1[0].contains("does not say"));
    }
}
