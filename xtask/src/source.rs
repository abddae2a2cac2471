//! A small lexer for Rust files: code without comments and strings, functions, test regions.
//!
//! It knows just enough of the language to count braces and to tell code from text; it does not parse.

use std::ops::Range;

/// A Rust file, cut into what the checks need.
pub(crate) struct Source {
    /// The text with the bytes of comments, strings and character literals replaced by spaces; line breaks stay.
    pub(crate) code: String,
    /// Functions with a body that do not lie inside another function.
    pub(crate) functions: Vec<Function>,
    /// Lines (from 0) that belong to tests; the whole file for a test file.
    test_lines: Vec<Range<usize>>,
    line_starts: Vec<usize>,
}

/// A function with a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Its name without a path.
    pub(crate) name: String,
    /// Line of the word `fn`, from 0.
    pub(crate) first_line: usize,
    /// Lines from the word `fn` to the closing brace.
    pub(crate) lines: usize,
}

impl Source {
    /// Reads a file. `path` decides whether all of it is test code.
    pub(crate) fn new(path: &str, text: &str) -> Source {
        let code = mask(text);
        let line_starts: Vec<usize> =
            std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut source = Source { code, functions: Vec::new(), test_lines: Vec::new(), line_starts };
        source.test_lines = if is_test_path(path) {
            std::iter::once(0..source.line_starts.len()).collect()
        } else {
            find_test_items(&source.code)
                .into_iter()
                .map(|bytes| source.line_of(bytes.start)..source.line_of(bytes.end) + 1)
                .collect()
        };
        source.functions = find_functions(&source);
        source
    }

    /// Whether a line (from 0) belongs to test code.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.test_lines.iter().any(|range| range.contains(&line))
    }

    /// Lines outside of tests.
    pub(crate) fn product_lines(&self) -> usize {
        let lines = self.line_starts.len() - 1;
        (0..lines).filter(|line| !self.is_test_line(*line)).count()
    }

    /// The line (from 0) of a byte of the file.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= at) - 1
    }
}

/// Whether a path names a file that holds only tests.
fn is_test_path(path: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    folders.split('/').any(|folder| folder == "tests" || folder == "tests_support")
        || stem == "tests"
        || stem.starts_with("twin_")
        || stem.ends_with("_tests")
        || stem.ends_with("_test")
}

/// Replaces comments, strings and character literals by spaces of the same length.
pub(crate) fn mask(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_or_comment_end(bytes, at);
        if end > at {
            for byte in &mut out[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            at = end;
        } else {
            at = word_end(bytes, at);
        }
    }
    String::from_utf8(out).expect("whole literals were replaced by ASCII")
}

/// Where the word, or the single byte, that starts at `at` ends.
fn word_end(bytes: &[u8], at: usize) -> usize {
    let end = at + bytes[at..].iter().take_while(|byte| is_word(**byte)).count();
    end.max(at + 1)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The end of the comment or literal that starts at `at`; `at` itself when none does.
fn literal_or_comment_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    if rest.starts_with(b"//") {
        return at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }
    if rest.starts_with(b"/*") {
        return block_comment_end(bytes, at);
    }
    let prefix = ["br", "cr", "b", "c", "r", ""]
        .into_iter()
        .find(|prefix| {
            rest.starts_with(prefix.as_bytes()) && matches!(rest.get(prefix.len()), Some(b'"' | b'#' | b'\''))
        })
        .unwrap_or("");
    let open = at + prefix.len();
    match bytes.get(open) {
        Some(b'"' | b'#') if prefix.ends_with('r') => raw_string_end(bytes, open).unwrap_or(at),
        Some(b'"') => quoted_end(bytes, open, b'"'),
        Some(b'\'') if prefix.is_empty() || prefix == "b" => character_end(bytes, open).unwrap_or(at),
        _ => at,
    }
}

fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let (mut depth, mut here) = (0usize, at);
    while here < bytes.len() {
        if bytes[here..].starts_with(b"/*") {
            depth += 1;
            here += 2;
        } else if bytes[here..].starts_with(b"*/") {
            depth -= 1;
            here += 2;
            if depth == 0 {
                return here;
            }
        } else {
            here += 1;
        }
    }
    here
}

/// End of `"…"` or `#"…"#` with any number of hashes; `None` for a raw identifier such as `r#type`.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let hashes = bytes[at..].iter().take_while(|byte| **byte == b'#').count();
    if bytes.get(at + hashes) != Some(&b'"') {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.resize(hashes + 1, b'#');
    let body = at + hashes + 1;
    let found = bytes[body..].windows(closing.len()).position(|window| window == closing);
    Some(found.map_or(bytes.len(), |position| body + position + closing.len()))
}

fn quoted_end(bytes: &[u8], open: usize, quote: u8) -> usize {
    let mut here = open + 1;
    while here < bytes.len() {
        if bytes[here] == quote {
            return here + 1;
        }
        here += if bytes[here] == b'\\' { 2 } else { 1 };
    }
    bytes.len()
}

/// End of a character literal; `None` for a lifetime.
fn character_end(bytes: &[u8], open: usize) -> Option<usize> {
    match bytes.get(open + 1)? {
        b'\\' => Some(quoted_end(bytes, open, b'\'')),
        _ => {
            let width = 1 + bytes[open + 2..].iter().take_while(|byte| **byte & 0xc0 == 0x80).count();
            let closing = open + 1 + width;
            (bytes.get(closing) == Some(&b'\'')).then_some(closing + 1)
        }
    }
}

/// Byte ranges of the items under `#[cfg(test)]` and the like.
fn find_test_items(code: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (start, _) in code.match_indices("#[cfg(") {
        let condition = &code[start + "#[cfg(".len()..];
        let condition = &condition[..condition.find(']').unwrap_or(condition.len())];
        let for_tests = ["test)", "all(test,", "any(test,"].iter().any(|form| condition.starts_with(form));
        let inside = found.last().is_some_and(|range| range.contains(&start));
        if for_tests && !inside {
            found.push(start..item_end(code, start));
        }
    }
    found
}

/// End of the item that starts at `from`: its closing brace, or the semicolon before any brace.
fn item_end(code: &str, from: usize) -> usize {
    match body_of(code, from) {
        Body::Braces(range) => range.end,
        Body::None(semicolon) => semicolon,
    }
}

enum Body {
    /// From the opening brace to behind the closing one.
    Braces(Range<usize>),
    /// The item ends at this byte without a body.
    None(usize),
}

/// The first braces outside of parentheses and brackets after `from`.
fn body_of(code: &str, from: usize) -> Body {
    let bytes = code.as_bytes();
    let mut nesting = 0usize;
    for at in from..bytes.len() {
        match bytes[at] {
            b'(' | b'[' => nesting += 1,
            b')' | b']' => nesting = nesting.saturating_sub(1),
            b';' if nesting == 0 => return Body::None(at),
            b'{' if nesting == 0 => return Body::Braces(at..closing_brace(bytes, at) + 1),
            _ => {}
        }
    }
    Body::None(bytes.len().saturating_sub(1))
}

fn closing_brace(bytes: &[u8], open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in bytes.iter().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    bytes.len().saturating_sub(1)
}

fn find_functions(source: &Source) -> Vec<Function> {
    let code = source.code.as_bytes();
    let mut functions = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let end = word_end(code, at);
        if &code[at..end] != b"fn" {
            at = end;
            continue;
        }
        let name_start = end + code[end..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        let name_end = if name_start < code.len() { word_end(code, name_start) } else { name_start };
        let name = &source.code[name_start..name_end];
        if !name.starts_with(|first: char| first.is_alphabetic() || first == '_') {
            at = end; // A type such as `fn(u32)`.
            continue;
        }
        at = match body_of(&source.code, name_end) {
            Body::None(end) => end,
            Body::Braces(body) => {
                let (first_line, last_line) = (source.line_of(at), source.line_of(body.end - 1));
                let lines = last_line - first_line + 1;
                functions.push(Function { name: name.to_owned(), first_line, lines });
                body.end
            }
        };
    }
    functions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_become_spaces_of_the_same_length() {
        let text =
            "let a = \"{ \\\" }\"; // {\nlet b = '{'; /* { /* { */ } */ let c = r#\"}\"\"#; let d = b\"}\";";
        let code = mask(text);
        assert_eq!(code.len(), text.len());
        assert_eq!(code.matches(['{', '}', '"', '\'']).count(), 0);
        assert_eq!(code.split_whitespace().filter(|word| *word == "let").count(), 4);
        assert_eq!(code.matches('\n').count(), 1);
    }

    #[test]
    fn lifetimes_and_raw_identifiers_stay_code() {
        let text = "fn f<'a>(x: &'a str, r#type: char) -> &'a str { if r#type == '\\'' { x } else { x } }";
        let code = mask(text);
        assert!(code.contains("<'a>") && code.contains("r#type") && !code.contains("\\'"));
        assert_eq!(Source::new("a.rs", text).functions.len(), 1);
    }

    #[test]
    fn characters_of_several_bytes_are_recognised() {
        assert_eq!(mask("a('é', '{', '√') {").trim_end(), "a(    ,    ,      ) {");
    }

    #[test]
    fn a_function_reaches_from_its_keyword_to_its_closing_brace() {
        let text = "impl A {\n    pub fn b(\n        c: fn(u8) -> [u8; 2],\n    ) {\n        let s = \"}\";\n    }\n}\n";
        let source = Source::new("a.rs", text);
        assert_eq!(source.functions, [Function { name: "b".to_owned(), first_line: 1, lines: 5 }]);
    }

    #[test]
    fn declarations_without_a_body_are_no_functions() {
        let source = Source::new("a.rs", "trait T {\n fn a(&self) -> u8;\n fn b(&self) {\n }\n}\n");
        assert_eq!(source.functions.iter().map(|f| f.name.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_nested_function_counts_in_its_parent() {
        let source = Source::new("a.rs", "fn a() {\n fn b() {\n }\n}\nfn c() {}\n");
        assert_eq!(
            source.functions.iter().map(|f| (f.name.as_str(), f.lines)).collect::<Vec<_>>(),
            [("a", 4), ("c", 1)]
        );
    }

    #[test]
    fn test_modules_are_test_lines_and_nothing_else_is() {
        let text =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(test)]\nmod more;\n";
        let source = Source::new("crates/x/src/a.rs", text);
        let lines: Vec<bool> = (0..8).map(|line| source.is_test_line(line)).collect();
        assert_eq!(lines, [false, true, true, true, true, false, true, true]);
        assert_eq!(source.product_lines(), 2);
    }

    #[test]
    fn files_of_tests_are_all_test_lines() {
        for path in ["crates/x/tests/a.rs", "crates/x/src/foo/tests.rs", "crates/x/src/twin_map.rs"] {
            assert_eq!(Source::new(path, "fn a() {}\n").product_lines(), 0, "{path}");
        }
        assert_eq!(Source::new("crates/x/src/testing.rs", "fn a() {}\n").product_lines(), 1);
    }

    #[test]
    fn unclosed_text_does_not_hang_or_panic() {
        for text in ["fn a() {", "\"abc", "/* abc", "r#\"abc", "'", "'\\", "fn", "#[cfg(test)]", "b'"] {
            Source::new("a.rs", text);
        }
    }
}
