//! Scripts: paragraphs of comments and commands, each followed by `----` and the output that is expected.

use std::fmt::Write;

/// The line between commands and output.
const RULER: &str = "----";

/// A paragraph of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Comments and commands as they are written.
    pub(crate) lines: Vec<String>,
    /// Number of the first line, from 1.
    pub(crate) first_line: usize,
    /// Whether there are commands: then there is output, if only an empty one.
    pub(crate) runs: bool,
}

impl Block {
    /// The commands with their line numbers.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = self.lines.iter().enumerate();
        numbered
            .filter(|(_, line)| is_command(line))
            .map(|(at, line)| (self.first_line + at, line.split('#').next().unwrap_or("").trim()))
    }
}

fn is_command(line: &str) -> bool {
    !line.is_empty() && !line.starts_with('#')
}

/// Cuts a script into paragraphs. The expected output is left out: a run makes it anew.
pub(crate) fn parse(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    let mut in_output = false;
    let mut first_line = 1;
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            finish(&mut blocks, &mut lines, first_line);
            in_output = false;
            first_line = at + 2;
        } else if line == RULER {
            in_output = true;
        } else if !in_output {
            lines.push(line.trim_end().to_owned());
        }
    }
    finish(&mut blocks, &mut lines, first_line);
    blocks
}

fn finish(blocks: &mut Vec<Block>, lines: &mut Vec<String>, first_line: usize) {
    if lines.is_empty() {
        return;
    }
    let lines = std::mem::take(lines);
    let runs = lines.iter().any(|line| is_command(line));
    blocks.push(Block { lines, first_line, runs });
}

/// The script with the output of each paragraph.
pub(crate) fn render(blocks: &[(Block, String)]) -> String {
    let mut text = String::new();
    for (at, (block, output)) in blocks.iter().enumerate() {
        if at > 0 {
            text.push('\n');
        }
        for line in &block.lines {
            writeln!(text, "{line}").expect("writing to a string does not fail");
        }
        if block.runs {
            writeln!(text, "{RULER}").expect("writing to a string does not fail");
            text.push_str(output);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_comes_back_as_it_was_written() {
        let text = "# What it tells.\n\n# why\none two # note\nthree\n----\nout\n\nfour\n----\n";
        let blocks = parse(text);
        assert_eq!(blocks.len(), 3);
        assert!(!blocks[0].runs);
        assert_eq!(blocks[1].commands().collect::<Vec<_>>(), [(4, "one two"), (5, "three")]);
        assert_eq!(blocks[2].commands().collect::<Vec<_>>(), [(9, "four")]);
        let outputs = ["", "out\n", ""].map(str::to_owned);
        let rendered: Vec<(Block, String)> = blocks.into_iter().zip(outputs).collect();
        assert_eq!(render(&rendered), text);
    }
}
