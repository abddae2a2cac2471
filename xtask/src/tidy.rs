//! `cargo xtask tidy`: first lines, lengths, banned words, links between documents.

use crate::ratchet::{self, Lengths};
use crate::source::Source;
use crate::tree::{self, TextFile};
use crate::verdict;
use std::fs;
use std::path::Path;

/// A function fits on a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// A file without its tests.
const FILE_LINES_MAX: usize = 500;
/// Where the exceptions from the two lengths are listed.
const EXCEPTIONS: &str = "xtask/tidy-exceptions.txt";

/// Where a banned word is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Rust code, without comments and strings.
    Code,
    /// Rust code of tests, without comments and strings; a reason on the line or the line above lifts the ban.
    TestCode {
        /// The comment that lifts it.
        excuse: &'static str,
    },
    /// Every line of every text file.
    Text,
}

/// A banned word and why.
struct Ban {
    word: &'static str,
    scope: Scope,
    reason: &'static str,
}

/// The words are put together from halves where this file would otherwise breach its own rule.
const BANS: [Ban; 11] = [
    Ban { word: "#[ignore", scope: Scope::Code, reason: "a test that does not run proves nothing" },
    Ban {
        word: "#[should_panic",
        scope: Scope::Code,
        reason: "any panic passes; catch it and look at what it says",
    },
    Ban { word: "todo!", scope: Scope::Code, reason: "unfinished work does not land" },
    Ban { word: "unimplemented!", scope: Scope::Code, reason: "unfinished work does not land" },
    Ban {
        word: "sleep(",
        scope: Scope::TestCode { excuse: "// tidy: sleep" },
        reason: "wait for the event itself, or say `// tidy: sleep` and why",
    },
    Ban { word: concat!("FIX", "ME"), scope: Scope::Text, reason: "fix it, or write down what is missing" },
    Ban { word: concat!("XX", "X"), scope: Scope::Text, reason: "fix it, or write down what is missing" },
    Ban { word: concat!("TO", "DO"), scope: Scope::Text, reason: "do it, or write down what is missing" },
    Ban { word: concat!("/wo", "rk/"), scope: Scope::Text, reason: "a path of one machine" },
    Ban { word: concat!("/ro", "ot/"), scope: Scope::Text, reason: "a path of one machine" },
    Ban { word: concat!("/ho", "me/"), scope: Scope::Text, reason: "a path of one machine" },
];

/// Runs the check over the workspace at `root`; `bless` rewrites the list of exceptions first.
pub(crate) fn run(root: &Path, bless: bool) -> Result<String, String> {
    let files = tree::text_files(root)?;
    let mut breaches = Vec::new();
    let mut found = Lengths::new();
    for file in &files {
        breaches.extend(banned_words(file));
        if file.path.ends_with(".rs") {
            breaches.extend(first_line(file));
            found.extend(over_long(file));
        }
        if file.path.ends_with(".md") {
            breaches.extend(document(root, file));
        }
    }
    let (lengths, note) = check_lengths(&root.join(EXCEPTIONS), &found, bless)?;
    breaches.extend(lengths);
    verdict("tidy", &breaches, format!("{note}tidy: {} files, all in order", files.len()))
}

/// Breaches of the ratchet, and a note to print. As long as there is no list, lengths are only reported.
fn check_lengths(list: &Path, found: &Lengths, bless: bool) -> Result<(Vec<String>, String), String> {
    let listed = match fs::read_to_string(list) {
        Ok(text) => Some(ratchet::parse(&text).map_err(|e| format!("{EXCEPTIONS}: {e}"))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("{EXCEPTIONS}: {error}")),
    };
    if bless {
        let blessed = listed.map_or_else(|| found.clone(), |listed| ratchet::shrink(&listed, found));
        fs::write(list, ratchet::print(&blessed)).map_err(|e| format!("{EXCEPTIONS}: {e}"))?;
        return Ok((ratchet::compare(&blessed, found), String::new()));
    }
    match listed {
        Some(listed) => Ok((ratchet::compare(&listed, found), String::new())),
        None => {
            let lines: Vec<String> =
                found.iter().map(|(key, length)| format!("note: {key}: {length} lines\n")).collect();
            Ok((Vec::new(), lines.concat()))
        }
    }
}

/// The first line of a Rust file says what the file is.
fn first_line(file: &TextFile) -> Option<String> {
    let text = file.text.lines().next().unwrap_or("");
    let said = text.strip_prefix("//! ").is_some_and(|rest| !rest.trim().is_empty());
    (!said).then(|| format!("{}:1: the first line is not `//! what this file is`", file.path))
}

/// Functions and files over the line, outside of tests.
fn over_long(file: &TextFile) -> Lengths {
    let source = Source::new(&file.path, &file.text);
    let mut lengths = Lengths::new();
    let product_lines = source.product_lines();
    if product_lines > FILE_LINES_MAX {
        lengths.insert(format!("file {}", file.path), product_lines);
    }
    for function in &source.functions {
        if function.lines > FUNCTION_LINES_MAX && !source.is_test_line(function.first_line) {
            let longest = lengths.entry(format!("function {} {}", file.path, function.name)).or_default();
            *longest = function.lines.max(*longest);
        }
    }
    lengths
}

/// Lines that hold a banned word.
fn banned_words(file: &TextFile) -> Vec<String> {
    let mut breaches = Vec::new();
    let source = file.path.ends_with(".rs").then(|| Source::new(&file.path, &file.text));
    let lines: Vec<&str> = file.text.lines().collect();
    let code_lines: Vec<&str> = source.as_ref().map_or_else(Vec::new, |source| source.code.lines().collect());
    for (number, line) in lines.iter().enumerate() {
        let code = code_lines.get(number).copied().unwrap_or("");
        for ban in &BANS {
            let breach = match ban.scope {
                Scope::Text => contains_word(line, ban.word),
                Scope::Code => contains_word(code, ban.word),
                Scope::TestCode { excuse } => {
                    let above = number.checked_sub(1).map_or("", |above| lines[above]);
                    contains_word(code, ban.word)
                        && source.as_ref().is_some_and(|source| source.is_test_line(number))
                        && !line.contains(excuse)
                        && !above.contains(excuse)
                }
            };
            if breach {
                breaches.push(format!("{}:{}: `{}`: {}", file.path, number + 1, ban.word, ban.reason));
            }
        }
    }
    breaches
}

/// Whether `line` holds `word`, and not as the middle of a longer word.
fn contains_word(line: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(is_word);
        let behind = line[at + word.len()..].chars().next().is_some_and(is_word);
        let cut_in_front = word.starts_with(is_word) && before;
        let cut_behind = word.ends_with(is_word) && behind;
        !cut_in_front && !cut_behind
    })
}

/// A document has one title, and its links to other files lead somewhere.
fn document(root: &Path, file: &TextFile) -> Vec<String> {
    let mut breaches = Vec::new();
    let prose = without_code_blocks(&file.text);
    let titles = prose.iter().filter(|(_, line)| line.starts_with("# ")).count();
    if titles != 1 {
        breaches.push(format!("{}: {titles} titles (`# `); a document has one", file.path));
    }
    let folder = root.join(&file.path);
    let folder = folder.parent().unwrap_or(root);
    for (number, line) in prose {
        for target in links(line) {
            let path = target.split('#').next().unwrap_or("");
            let outside = target.contains("://") || target.starts_with("mailto:") || path.is_empty();
            if !outside && !folder.join(path).exists() {
                breaches.push(format!("{}:{}: the link to {target} leads nowhere", file.path, number + 1));
            }
        }
    }
    breaches
}

/// Numbered lines of a document that are not inside a fenced block.
fn without_code_blocks(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut prose = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose.push((number, line));
        }
    }
    prose
}

/// Targets of `[text](target)` in a line.
fn links(line: &str) -> Vec<&str> {
    line.match_indices("](")
        .filter_map(|(at, opening)| line[at + opening.len()..].split_once(')').map(|(target, _)| target))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source;

    fn file(path: &str, text: &str) -> TextFile {
        TextFile { path: path.to_owned(), text: text.to_owned() }
    }

    fn bans(path: &str, text: &str) -> usize {
        banned_words(&file(path, text)).len()
    }

    #[test]
    fn a_file_must_say_what_it_is() {
        assert_eq!(first_line(&file("a.rs", "//! Locks.\nfn a() {}\n")), None);
        for text in ["", "fn a() {}\n", "//!\n", "// Locks.\n", "//! \n"] {
            assert!(first_line(&file("a.rs", text)).is_some(), "{text:?}");
        }
    }

    #[test]
    fn planted_bans_are_found_in_code_only() {
        assert_eq!(
            bans("a.rs", "//! x\n#[ignore]\nfn a() { todo!() }\n#[should_panic(expected = \"\")]\n"),
            3
        );
        assert_eq!(bans("a.rs", "//! #[ignore]\nlet s = \"todo!()\"; // unimplemented!\n"), 0);
        assert_eq!(bans("a.md", "`#[ignore]` is banned\n"), 0);
    }

    #[test]
    fn sleeping_in_a_test_needs_a_reason() {
        assert_eq!(bans("crates/x/tests/a.rs", "//! x\nfn a() { thread::sleep(t); }\n"), 1);
        assert_eq!(bans("crates/x/tests/a.rs", "//! x\nsleep(t); // tidy: sleep, polls a process\n"), 0);
        assert_eq!(bans("crates/x/tests/a.rs", "//! x\n// tidy: sleep, polls a process\nsleep(t);\n"), 0);
        assert_eq!(bans("crates/x/src/a.rs", "//! x\nfn a() { sleep(t); }\n"), 0);
        assert_eq!(
            bans("crates/x/src/a.rs", "//! x\n#[cfg(test)]\nmod tests {\n fn a() { sleep(t); }\n}\n"),
            1
        );
    }

    #[test]
    fn notes_to_self_and_paths_of_a_machine_are_found_in_any_text() {
        for ban in BANS.iter().filter(|ban| ban.scope == Scope::Text) {
            assert_eq!(bans("a.md", &format!("see {} here\n", ban.word)), 1, "{}", ban.word);
            assert_eq!(bans("a.sh", &format!("# {}\n", ban.word)), 1, "{}", ban.word);
        }
        assert_eq!(bans("a.sh", &format!("mktemp a.{0}{0}\n", concat!("XX", "X"))), 0);
        assert_eq!(bans("a.md", "crates/network/home.rs\n"), 0);
    }

    #[test]
    fn only_product_code_over_the_line_is_long() {
        let body = "    x();\n".repeat(70);
        let long = format!("//! x\nfn a() {{\n{body}}}\n");
        assert_eq!(over_long(&file("a.rs", &long)), Lengths::from([("function a.rs a".to_owned(), 72)]));
        assert!(over_long(&file("tests/a.rs", &long)).is_empty());
        let fits = format!("//! x\nfn a() {{\n{}}}\n", "    x();\n".repeat(68));
        assert!(over_long(&file("a.rs", &fits)).is_empty());
        let many = "const A: u8 = 1;\n".repeat(501);
        assert_eq!(over_long(&file("a.rs", &many)), Lengths::from([("file a.rs".to_owned(), 501)]));
    }

    #[test]
    fn the_list_is_made_once_and_then_only_shrinks() {
        let folder = std::env::temp_dir().join(format!("xtask-tidy-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let list = folder.join("exceptions.txt");
        let one = Lengths::from([("function a.rs a".to_owned(), 80)]);
        let two = Lengths::from([("function a.rs a".to_owned(), 75), ("file b.rs".to_owned(), 600)]);

        let (breaches, note) = check_lengths(&list, &one, false).unwrap();
        assert!(breaches.is_empty() && note.contains("80 lines"), "without a list lengths are a note");
        assert!(check_lengths(&list, &one, true).unwrap().0.is_empty());
        assert!(check_lengths(&list, &one, false).unwrap().0.is_empty());
        assert_eq!(check_lengths(&list, &two, false).unwrap().0.len(), 2, "one grew, one shrank");
        assert_eq!(
            check_lengths(&list, &two, true).unwrap().0.len(),
            1,
            "blessing does not excuse the new one"
        );
        assert_eq!(ratchet::parse(&fs::read_to_string(&list).unwrap()).unwrap().len(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn documents_have_one_title_and_no_dead_links() {
        let root = crate::workspace_root();
        let good = "# A\n[x](Cargo.toml) [y](https://example.invalid/z) [z](#below)\n```\n# no title\n[q](gone.md)\n```\n";
        assert_eq!(document(&root, &file("a.md", good)), Vec::<String>::new());
        assert_eq!(document(&root, &file("a.md", "# A\n# B\n[x](gone.md#a)\n")).len(), 2);
    }

    #[test]
    fn masked_code_keeps_its_line_numbers() {
        let text = "//! x\nlet a = \"\n\n\"; todo!();\n";
        assert!(banned_words(&file("a.rs", text))[0].starts_with("a.rs:4:"));
        assert_eq!(source::mask(text).lines().count(), text.lines().count());
    }
}
