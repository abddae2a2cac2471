//! The length ratchet: what is over the line today may shrink, and nothing else may grow past it.
//!
//! The list of exceptions holds one line per item: its length and its key, for example
//! `612 file crates/x/src/a.rs` or `83 function crates/x/src/a.rs step`.

use std::collections::BTreeMap;

/// Length in lines by key. Two functions of one name in one file count as the longer one.
pub(crate) type Lengths = BTreeMap<String, usize>;

/// The first lines of the list of exceptions.
const HEADER: &str = "\
# Functions over 70 lines and files over 500 (without tests). This list may only shrink:
# cut an item, then run `cargo xtask tidy --bless`.
";

/// Reads the list of exceptions.
pub(crate) fn parse(text: &str) -> Result<Lengths, String> {
    let mut lengths = Lengths::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let parsed = line.split_once(' ').and_then(|(length, key)| Some((key, length.parse().ok()?)));
        let (key, length) =
            parsed.ok_or_else(|| format!("line {}: expected `LENGTH KEY`, found `{line}`", number + 1))?;
        lengths.insert(key.to_owned(), length);
    }
    Ok(lengths)
}

/// Writes the list of exceptions.
pub(crate) fn print(lengths: &Lengths) -> String {
    let lines: Vec<String> = lengths.iter().map(|(key, length)| format!("{length} {key}\n")).collect();
    format!("{HEADER}{}", lines.concat())
}

/// What differs between the list and what was found: growth, and entries that are too high by now.
pub(crate) fn compare(listed: &Lengths, found: &Lengths) -> Vec<String> {
    let mut breaches = Vec::new();
    for (key, length) in found {
        match listed.get(key) {
            None => breaches.push(format!("{key}: {length} lines is over the line; cut it")),
            Some(limit) if length > limit => {
                breaches.push(format!(
                    "{key}: grew from {limit} to {length} lines; an exception may only shrink"
                ));
            }
            Some(_) => {}
        }
    }
    for (key, limit) in listed {
        if found.get(key).is_none_or(|length| length < limit) {
            breaches.push(format!("{key}: shrank below {limit}; run `cargo xtask tidy --bless`"));
        }
    }
    breaches
}

/// The list after blessing: entries of the old list at their present length. Nothing new, nothing raised.
pub(crate) fn shrink(listed: &Lengths, found: &Lengths) -> Lengths {
    listed.iter().filter_map(|(key, limit)| Some((key.clone(), *found.get(key)?.min(limit)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(entries: &[(&str, usize)]) -> Lengths {
        entries.iter().map(|(key, length)| ((*key).to_owned(), *length)).collect()
    }

    #[test]
    fn a_printed_list_reads_back_as_itself() {
        let list = lengths(&[("file a.rs", 612), ("function b.rs step", 83)]);
        assert_eq!(parse(&print(&list)).unwrap(), list);
        assert!(parse("x file a.rs\n").unwrap_err().contains("line 1"));
    }

    #[test]
    fn new_items_and_growth_are_breaches() {
        let listed = lengths(&[("function a.rs f", 80)]);
        assert_eq!(compare(&listed, &listed), Vec::<String>::new());
        assert!(compare(&listed, &lengths(&[("function a.rs f", 81)]))[0].contains("grew from 80 to 81"));
        assert!(
            compare(&listed, &lengths(&[("function a.rs f", 80), ("file b.rs", 501)]))[0].contains("cut it")
        );
    }

    #[test]
    fn an_item_that_shrank_must_be_blessed() {
        let listed = lengths(&[("function a.rs f", 80), ("file b.rs", 600)]);
        let found = lengths(&[("function a.rs f", 75)]);
        assert_eq!(compare(&listed, &found).len(), 2);
        assert_eq!(shrink(&listed, &found), lengths(&[("function a.rs f", 75)]));
    }

    #[test]
    fn blessing_neither_adds_nor_raises() {
        let listed = lengths(&[("function a.rs f", 80)]);
        let found = lengths(&[("function a.rs f", 99), ("file b.rs", 501)]);
        assert_eq!(shrink(&listed, &found), listed);
    }
}
