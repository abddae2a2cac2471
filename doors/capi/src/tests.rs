//! The header and the library agree; handles come and go.

use crate::handles::Handles;
use std::collections::BTreeSet;

/// Words that start with the prefix of the interface and are followed by an opening parenthesis.
fn functions(text: &str, before: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.lines()
        .filter(|line| !line.starts_with(" *") && !line.starts_with("/*"))
        .flat_map(|line| line.match_indices("ccpfs_").map(move |(at, _)| (&line[..at], &line[at..])))
        .filter(|(head, _)| head.ends_with(before) || before.is_empty())
        .filter_map(|(_, tail)| {
            let end = tail.find(|c| !is_word(c))?;
            tail[end..].starts_with('(').then(|| tail[..end].to_owned())
        })
        .collect()
}

#[test]
fn the_header_declares_exactly_what_the_library_exports() {
    let declared = functions(include_str!("../include/ccpfs.h"), "");
    let sources = concat!(
        include_str!("advice.rs"),
        include_str!("calls.rs"),
        include_str!("parts.rs"),
        include_str!("places.rs")
    );
    let exported = functions(sources, "extern \"C\" fn ");
    assert!(declared.len() > 20);
    assert_eq!(declared, exported);
}

#[test]
fn numbers_that_are_no_handles_are_refused() {
    let handles = Handles::new();
    for number in [-1, 0, 1, 70_000, i32::MAX] {
        assert_eq!(handles.get(number).err().map(|e| e.errno()), Some(libc::EBADF), "{number}");
        assert_eq!(handles.remove(number).err().map(|e| e.errno()), Some(libc::EBADF), "{number}");
    }
    assert!(handles.remove_all().is_empty());
}
