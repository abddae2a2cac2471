//! The words of a script.

use crate::call::Call;
use crate::net::Wire;
use ccpfs_types::{Extent, LockMode};
use std::collections::BTreeMap;

/// Who a command is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// `c1`.
    Client(u64),
    /// `s0`.
    Server(usize),
}

pub(crate) fn node(word: &str) -> Result<Node, String> {
    let unknown = || format!("'{word}' is neither a client (c1) nor a server (s0) nor a command");
    match (word.strip_prefix('c'), word.strip_prefix('s')) {
        (Some(number), _) => number.parse().map(Node::Client).map_err(|_| unknown()),
        (None, Some(index)) => index.parse().map(Node::Server).map_err(|_| unknown()),
        (None, None) => Err(unknown()),
    }
}

/// `c1->s0` or `s0->c1`: the client's number, the server's index, and whether it goes to the server.
pub(crate) fn link(word: &str) -> Result<(u64, usize, bool), String> {
    let wrong = || format!("'{word}' is no way between a client and a server: c1->s0 or s0->c1");
    let (from, to) = word.split_once("->").ok_or_else(wrong)?;
    match (node(from)?, node(to)?) {
        (Node::Client(number), Node::Server(index)) => Ok((number, index, true)),
        (Node::Server(index), Node::Client(number)) => Ok((number, index, false)),
        (Node::Client(_), Node::Client(_)) | (Node::Server(_), Node::Server(_)) => Err(wrong()),
    }
}

pub(crate) fn channel(word: &str) -> Result<Wire, String> {
    match word {
        "control" => Ok(Wire::Control),
        "callback" => Ok(Wire::Callback),
        "bulk" => Ok(Wire::Bulk),
        _ => Err(format!("'{word}' is no connection: control, callback or bulk")),
    }
}

/// `8192`, `8K`, `1M`, `1G`, `EOF`.
pub(crate) fn size(word: &str) -> Result<u64, String> {
    let wrong = || format!("'{word}' is no number of bytes");
    if word == "EOF" {
        return Ok(Extent::EOF);
    }
    let (digits, unit) = match word.char_indices().last() {
        Some((at, 'K')) => (&word[..at], 1 << 10),
        Some((at, 'M')) => (&word[..at], 1 << 20),
        Some((at, 'G')) => (&word[..at], 1 << 30),
        _ => (word, 1),
    };
    digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit)).ok_or_else(wrong)
}

/// `0..8K`.
fn extent(word: &str) -> Result<Extent, String> {
    let wrong = || format!("'{word}' is no range of bytes such as 0..8K");
    let (start, end) = word.split_once("..").ok_or_else(wrong)?;
    Extent::new(size(start)?, size(end)?).ok_or_else(wrong)
}

pub(crate) fn index(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_| format!("'{word}' is no number"))
}

/// `5s`.
pub(crate) fn seconds(word: &str) -> Result<u64, String> {
    word.strip_suffix('s')
        .and_then(|digits| digits.parse().ok())
        .ok_or(format!("'{word}' is no time such as 5s"))
}

fn mode(word: &str) -> Result<LockMode, String> {
    let found = LockMode::ALL.into_iter().find(|mode| mode.to_string() == word);
    found.ok_or(format!("'{word}' is no lock mode"))
}

/// What a program does.
pub(crate) fn call(words: &[&str]) -> Result<Call, String> {
    match words {
        ["write", range] => Ok(Call::Write { extent: extent(range)?, mode: None, each: 0 }),
        ["write", range, "as", name] => {
            Ok(Call::Write { extent: extent(range)?, mode: Some(mode(name)?), each: 0 })
        }
        ["write", range, "each", stride] => {
            Ok(Call::Write { extent: extent(range)?, mode: None, each: size(stride)? })
        }
        ["append", length] => match size(length)? {
            0 => Err(String::from("an append has bytes")),
            length => Ok(Call::Append { length }),
        },
        ["read", range] => Ok(Call::Read { extent: extent(range)? }),
        ["truncate", length] => Ok(Call::Truncate { size: size(length)? }),
        ["fsync"] => Ok(Call::Fsync),
        ["size"] => Ok(Call::Size),
        ["unlink"] => Ok(Call::Unlink),
        _ => Err(format!("a client does not know '{}'", words.join(" "))),
    }
}

/// `name=value` words of a command.
pub(crate) struct Arguments<'a> {
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(words: &[&'a str]) -> Result<Arguments<'a>, String> {
        let pairs =
            words.iter().map(|word| word.split_once('=').ok_or(format!("'{word}' is not name=value")));
        Ok(Arguments { values: pairs.collect::<Result<_, _>>()? })
    }

    pub(crate) fn text(&mut self, name: &str, default: &'a str) -> &'a str {
        self.values.remove(name).unwrap_or(default)
    }

    /// A number of bytes or of anything else.
    pub(crate) fn number(&mut self, name: &str, default: u64) -> Result<u64, String> {
        self.values.remove(name).map_or(Ok(default), size)
    }

    pub(crate) fn index(&mut self, name: &str, default: usize) -> Result<usize, String> {
        self.values.remove(name).map_or(Ok(default), index)
    }

    /// Nothing is left that nobody knows.
    pub(crate) fn all_known(&self) -> Result<(), String> {
        match self.values.keys().next() {
            Some(name) => Err(format!("a cluster has no '{name}'")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_and_ranges_are_not_empty() {
        assert_eq!(size("8K"), Ok(8192));
        assert_eq!(size("EOF"), Ok(u64::MAX));
        assert!(size("K").is_err() && size("-1").is_err());
        assert_eq!(extent("1M..EOF"), Ok(Extent::to_eof(1 << 20)));
        assert!(extent("5..5").is_err());
    }

    #[test]
    fn calls_are_read_with_their_modes() {
        let as_nbw = Call::Write { extent: Extent::new(0, 4).unwrap(), mode: Some(LockMode::Nbw), each: 0 };
        assert_eq!(call(&["write", "0..4", "as", "NBW"]), Ok(as_nbw));
        assert!(call(&["write", "0..4", "as", "EX"]).is_err());
        assert_eq!(node("c12"), Ok(Node::Client(12)));
        assert!(node("x").is_err());
    }
}
