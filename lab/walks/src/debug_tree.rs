//! Reads the derived `Debug` text of a rule's state, so that `show` can print what the rules keep to themselves.
//!
//! Rules offer few questions about their state, and every question is a promise. The laboratory reads the derived text instead: a
//! field that is renamed makes a walk differ, and nothing else.

use std::fmt::Debug;

/// A value as `Debug` writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// A word: a number, a unit variant, or a type that prints itself.
    Word(String),
    /// `Name { field: value, .. }`.
    Structure(Vec<(String, Tree)>),
    /// `Name(value, ..)`, or a tuple without a name.
    Tuple(Vec<Tree>),
    /// `[value, ..]`, or a set.
    List(Vec<Tree>),
    /// `{key: value, ..}`.
    Map(Vec<(Tree, Tree)>),
}

impl Tree {
    /// The tree of any value with a derived `Debug`.
    pub(crate) fn of(value: &impl Debug) -> Tree {
        let text = format!("{value:?}");
        let mut reader = Reader { rest: &text };
        reader.value()
    }

    /// A field of a structure. A word if there is no such field: the walk shows it.
    pub(crate) fn field(&self, name: &str) -> Tree {
        match self {
            Tree::Structure(fields) => fields.iter().find(|(field, _)| field == name).map(|(_, v)| v.clone()),
            Tree::Word(_) | Tree::Tuple(_) | Tree::List(_) | Tree::Map(_) => None,
        }
        .unwrap_or_else(|| Tree::Word(format!("(no field {name})")))
    }

    /// The entries of a map; none of anything else.
    pub(crate) fn entries(&self) -> Vec<(Tree, Tree)> {
        match self {
            Tree::Map(entries) => entries.clone(),
            Tree::Word(_) | Tree::Structure(_) | Tree::Tuple(_) | Tree::List(_) => Vec::new(),
        }
    }

    /// The members of a list or tuple; none of anything else.
    pub(crate) fn members(&self) -> Vec<Tree> {
        match self {
            Tree::List(members) | Tree::Tuple(members) => members.clone(),
            Tree::Word(_) | Tree::Structure(_) | Tree::Map(_) => Vec::new(),
        }
    }

    /// The word inside, through any number of one-member tuples (`Some(Extent(0..8))`).
    pub(crate) fn word(&self) -> String {
        match self {
            Tree::Word(word) => word.clone(),
            Tree::Tuple(members) => members.iter().map(Tree::word).collect::<Vec<_>>().join(" "),
            Tree::Structure(_) | Tree::List(_) | Tree::Map(_) => String::from("(not a word)"),
        }
    }

    /// The number inside: of `7`, `sn7`, `lock7`, `JobId(7)`.
    pub(crate) fn number(&self) -> u64 {
        let word = self.word();
        word.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(u64::MAX)
    }

    /// Whether the word is `true`.
    pub(crate) fn is_true(&self) -> bool {
        self.word() == "true"
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn value(&mut self) -> Tree {
        self.skip_space();
        if self.take("[") {
            return Tree::List(self.values("]"));
        }
        if self.take("(") {
            return Tree::Tuple(self.values(")"));
        }
        if self.take("{") {
            return self.map();
        }
        let word = self.word();
        if self.take("(") {
            return Tree::Tuple(self.values(")"));
        }
        let after_word = self.rest;
        self.skip_space();
        if self.take("{") {
            return self.structure();
        }
        // What prints itself may do so in several words.
        let end = after_word.find(|c| ",:{}[]()".contains(c)).unwrap_or(after_word.len());
        let (more, rest) = after_word.split_at(end);
        self.rest = rest;
        Tree::Word(word + more.trim_end())
    }

    fn values(&mut self, end: &str) -> Vec<Tree> {
        let mut values = Vec::new();
        while !self.at_end(end) {
            values.push(self.value());
        }
        values
    }

    fn structure(&mut self) -> Tree {
        let mut fields = Vec::new();
        while !self.at_end("}") {
            let name = self.word();
            self.take(":");
            fields.push((name, self.value()));
        }
        Tree::Structure(fields)
    }

    fn map(&mut self) -> Tree {
        let (mut keys, mut entries) = (Vec::new(), Vec::new());
        while !self.at_end("}") {
            let key = self.value();
            if self.take(":") {
                entries.push((key, self.value()));
            } else {
                keys.push(key);
            }
        }
        if keys.is_empty() { Tree::Map(entries) } else { Tree::List(keys) }
    }

    /// Takes a comma, then says whether the brackets close (or the text ends) here.
    fn at_end(&mut self, end: &str) -> bool {
        self.skip_space();
        self.take(",");
        self.skip_space();
        self.take(end) || self.rest.is_empty()
    }

    fn word(&mut self) -> String {
        let ends = |c: char| c.is_whitespace() || ",:{}[]()".contains(c);
        let end = self.rest.find(ends).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.to_owned()
    }

    fn take(&mut self, what: &str) -> bool {
        match self.rest.strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Debug)]
    #[allow(dead_code, reason = "read through Debug")]
    struct Sample {
        map: BTreeMap<u64, (u64, Option<i32>)>,
        set: BTreeSet<u8>,
        unit: Option<()>,
        inner: Vec<Inner>,
        on: bool,
        several: core::fmt::Arguments<'static>,
    }

    #[derive(Debug)]
    #[allow(dead_code, reason = "read through Debug")]
    enum Inner {
        Unit,
        Tuple(i8),
        Named { value: u8 },
    }

    #[test]
    fn every_kind_of_value_is_read_back() {
        let sample = Sample {
            map: BTreeMap::from([(3, (4, Some(-5)))]),
            set: BTreeSet::from([7, 8]),
            unit: None,
            inner: vec![Inner::Unit, Inner::Tuple(-1), Inner::Named { value: 9 }],
            on: true,
            several: format_args!("0+4096 each 8192 x .."),
        };
        let tree = Tree::of(&sample);
        let [(key, value)] = &tree.field("map").entries()[..] else { panic!("one entry") };
        assert_eq!((key.number(), value.members()[0].number()), (3, 4));
        assert_eq!(value.members()[1].word(), "-5");
        assert_eq!(tree.field("set").members().len(), 2);
        assert_eq!(tree.field("unit").word(), "None");
        assert_eq!(tree.field("inner").members()[0].word(), "Unit");
        assert_eq!(tree.field("inner").members()[2].field("value").number(), 9);
        assert!(tree.field("on").is_true());
        assert_eq!(tree.field("several").word(), "0+4096 each 8192 x ..");
        assert_eq!(tree.field("missing").word(), "(no field missing)");
    }
}
