//! The output of a walk: who does what, indented under what caused it, and on the right the file where it is decided.

use std::fmt::Write;

/// Where the right-hand column begins.
const PLACE_COLUMN: usize = 90;

/// One line.
#[derive(Clone, Debug)]
struct Line {
    depth: usize,
    text: String,
    place: &'static str,
}

/// The lines since they were last taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    lines: Vec<Line>,
    depth: usize,
    /// Whether to print the right-hand column.
    places: bool,
}

impl Log {
    pub(crate) fn new(places: bool) -> Log {
        Log { places, ..Log::default() }
    }

    /// Adds a line; `place` is the file where this is decided, or nothing.
    pub(crate) fn say(&mut self, place: &'static str, text: impl Into<String>) {
        self.lines.push(Line { depth: self.depth, text: text.into(), place });
    }

    /// What is said from here on follows from the last line, until [`Log::back`].
    pub(crate) fn deeper(&mut self) {
        self.depth += 1;
    }

    pub(crate) fn back(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// The lines as text; the log is empty afterwards.
    pub(crate) fn take(&mut self) -> String {
        self.depth = 0;
        let mut text = String::new();
        for Line { depth, text: line, place } in std::mem::take(&mut self.lines) {
            let line = format!("{}{line}", "  ".repeat(depth));
            if self.places && !place.is_empty() {
                // Characters, not bytes: nothing wider than a column is ever printed.
                let gap = PLACE_COLUMN.saturating_sub(line.chars().count()).max(2);
                writeln!(text, "{line}{}{place}", " ".repeat(gap))
                    .expect("writing to a string does not fail");
            } else {
                writeln!(text, "{line}").expect("writing to a string does not fail");
            }
        }
        text
    }
}
