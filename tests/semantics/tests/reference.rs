//! Random operations on names against a model of a file system in memory, two agents taking turns.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_semantics::{Agent, Door, Errno, Stage, flags, is_long};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::{BTreeMap, BTreeSet};

/// Symbolic links that are followed before a path counts as a loop.
const LINKS_MAX: usize = 40;

#[derive(Clone, Debug)]
enum Operation {
    Create(String),
    Write(String, u16),
    Truncate(String, u16),
    Read(String),
    Mkdir(String),
    Rename(String, String),
    Replace(String, String, bool),
    Link(String, String),
    Symlink(String, String),
    Unlink(String),
    Rmdir(String),
    Chmod(String, u32),
    List(String),
    Stat(String),
    ReadLink(String),
}

#[derive(Clone, Debug)]
enum Node {
    File(Vec<u8>),
    Directory(BTreeMap<String, usize>),
    Symlink(String),
}

#[derive(Clone, Debug)]
struct Inode {
    node: Node,
    mode: u32,
}

/// The model: inodes by number; 0 is the root.
#[derive(Clone, Debug)]
struct Model {
    inodes: Vec<Inode>,
}

/// What an operation shows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shown {
    Nothing,
    Bytes(Vec<u8>),
    Names(Vec<String>),
    /// Permissions, links (not of directories), size (not of directories).
    Attributes(u32, u64, u64),
}

type Outcome = Result<Shown, i32>;

/// The last name of a path, in its directory, and what it names.
struct Place {
    directory: usize,
    name: String,
    inode: Option<usize>,
}

impl Model {
    fn new() -> Model {
        Model { inodes: vec![Inode { node: Node::Directory(BTreeMap::new()), mode: 0o755 }] }
    }

    fn entries(&self, directory: usize) -> Result<&BTreeMap<String, usize>, i32> {
        match &self.inodes[directory].node {
            Node::Directory(entries) => Ok(entries),
            Node::File(_) | Node::Symlink(_) => Err(libc::ENOTDIR),
        }
    }

    fn is_directory(&self, inode: usize) -> bool {
        matches!(self.inodes[inode].node, Node::Directory(_))
    }

    /// Walks from `from`; follows the last name if it is a symbolic link and `follow`.
    fn walk(&self, from: usize, path: &str, follow: bool, depth: usize) -> Result<Place, i32> {
        let mut directory = from;
        let mut names = path.split('/').peekable();
        loop {
            let name = names.next().ok_or(libc::ENOENT)?;
            let is_last = names.peek().is_none();
            let inode = self.entries(directory)?.get(name).copied();
            let link = match inode.map(|inode| &self.inodes[inode].node) {
                Some(Node::Symlink(target)) if !is_last || follow => Some(target.clone()),
                Some(Node::Symlink(_) | Node::File(_) | Node::Directory(_)) | None => None,
            };
            if let Some(target) = link {
                if depth == LINKS_MAX {
                    return Err(libc::ELOOP);
                }
                let place = self.walk(directory, &target, true, depth + 1)?;
                if is_last {
                    return Ok(place);
                }
                directory = place.inode.ok_or(libc::ENOENT)?;
                self.entries(directory)?;
                continue;
            }
            if is_last {
                return Ok(Place { directory, name: name.to_owned(), inode });
            }
            directory = inode.ok_or(libc::ENOENT)?;
            self.entries(directory)?;
        }
    }

    fn place(&self, path: &str, follow: bool) -> Result<Place, i32> {
        self.walk(0, path, follow, 0)
    }

    fn existing(&self, path: &str, follow: bool) -> Result<usize, i32> {
        self.place(path, follow)?.inode.ok_or(libc::ENOENT)
    }

    fn enter(&mut self, place: &Place, inode: usize) {
        if let Node::Directory(entries) = &mut self.inodes[place.directory].node {
            entries.insert(place.name.clone(), inode);
        }
    }

    fn remove(&mut self, place: &Place) {
        if let Node::Directory(entries) = &mut self.inodes[place.directory].node {
            entries.remove(&place.name);
        }
    }

    fn make(&mut self, path: &str, node: Node, mode: u32) -> Outcome {
        let place = self.place(path, false)?;
        if place.inode.is_some() {
            return Err(libc::EEXIST);
        }
        self.inodes.push(Inode { node, mode });
        self.enter(&place, self.inodes.len() - 1);
        Ok(Shown::Nothing)
    }

    fn links(&self, inode: usize) -> u64 {
        let names = self.inodes.iter().filter_map(|other| match &other.node {
            Node::Directory(entries) => Some(entries.values().filter(|named| **named == inode).count()),
            Node::File(_) | Node::Symlink(_) => None,
        });
        names.sum::<usize>() as u64
    }

    /// Whether `inode` is `directory` or lies on the way to it.
    fn holds(&self, inode: usize, directory: usize) -> bool {
        inode == directory
            || self
                .entries(inode)
                .is_ok_and(|entries| entries.values().any(|child| self.holds(*child, directory)))
    }

    fn rename(&mut self, from: &str, to: &str, how: u32) -> Outcome {
        let (old, new) = (self.place(from, false)?, self.place(to, false)?);
        let source = old.inode.ok_or(libc::ENOENT)?;
        if how == libc::RENAME_NOREPLACE && new.inode.is_some() {
            return Err(libc::EEXIST);
        }
        if how == libc::RENAME_EXCHANGE && new.inode.is_none() {
            return Err(libc::ENOENT);
        }
        if self.is_directory(source) && self.holds(source, new.directory) {
            return Err(libc::EINVAL);
        }
        let Some(target) = new.inode else {
            self.remove(&old);
            self.enter(&new, source);
            return Ok(Shown::Nothing);
        };
        let is_exchange = how == libc::RENAME_EXCHANGE;
        if self.is_directory(target) && self.holds(target, old.directory) {
            return Err(if is_exchange { libc::EINVAL } else { libc::ENOTEMPTY });
        }
        if source == target {
            return Ok(Shown::Nothing);
        }
        if is_exchange {
            self.enter(&old, target);
            self.enter(&new, source);
            return Ok(Shown::Nothing);
        }
        match (self.is_directory(source), self.entries(target)) {
            (true, Err(_)) => return Err(libc::ENOTDIR),
            (false, Ok(_)) => return Err(libc::EISDIR),
            (true, Ok(entries)) if !entries.is_empty() => return Err(libc::ENOTEMPTY),
            (true, Ok(_)) | (false, Err(_)) => {}
        }
        self.remove(&old);
        self.enter(&new, source);
        Ok(Shown::Nothing)
    }

    fn perform(&mut self, operation: &Operation) -> Outcome {
        match operation {
            Operation::Create(path) => self.make(path, Node::File(Vec::new()), 0o644),
            Operation::Mkdir(path) => self.make(path, Node::Directory(BTreeMap::new()), 0o755),
            Operation::Symlink(target, path) => self.make(path, Node::Symlink(target.clone()), 0o777),
            Operation::Write(path, length) => self.write(path, *length),
            Operation::Truncate(path, length) => self.truncate(path, *length),
            Operation::Read(path) => match &self.inodes[self.existing(path, true)?].node {
                Node::File(bytes) => Ok(Shown::Bytes(bytes.clone())),
                Node::Directory(_) | Node::Symlink(_) => Err(libc::EISDIR),
            },
            Operation::Rename(from, to) => self.rename(from, to, 0),
            Operation::Replace(from, to, exchange) => {
                self.rename(from, to, if *exchange { libc::RENAME_EXCHANGE } else { libc::RENAME_NOREPLACE })
            }
            Operation::Link(from, to) => self.link(from, to),
            Operation::Unlink(path) => self.unlink(path),
            Operation::Rmdir(path) => self.rmdir(path),
            Operation::Chmod(path, mode) => {
                let inode = self.existing(path, true)?;
                self.inodes[inode].mode = *mode;
                Ok(Shown::Nothing)
            }
            Operation::List(path) => {
                let names = self.entries(self.existing(path, true)?)?.keys().cloned().collect();
                Ok(Shown::Names(names))
            }
            Operation::Stat(path) => {
                let inode = self.existing(path, false)?;
                Ok(match &self.inodes[inode].node {
                    Node::File(bytes) => {
                        Shown::Attributes(self.inodes[inode].mode, self.links(inode), bytes.len() as u64)
                    }
                    Node::Symlink(target) => {
                        Shown::Attributes(self.inodes[inode].mode, self.links(inode), target.len() as u64)
                    }
                    Node::Directory(_) => Shown::Attributes(self.inodes[inode].mode, 0, 0),
                })
            }
            Operation::ReadLink(path) => match &self.inodes[self.existing(path, false)?].node {
                Node::Symlink(target) => Ok(Shown::Bytes(target.clone().into_bytes())),
                Node::File(_) | Node::Directory(_) => Err(libc::EINVAL),
            },
        }
    }

    fn write(&mut self, path: &str, length: u16) -> Outcome {
        let place = self.place(path, true)?;
        let bytes = contents(length);
        match place.inode {
            None => {
                self.inodes.push(Inode { node: Node::File(bytes), mode: 0o644 });
                self.enter(&place, self.inodes.len() - 1);
            }
            Some(inode) if self.is_directory(inode) => return Err(libc::EISDIR),
            Some(inode) => self.inodes[inode].node = Node::File(bytes),
        }
        Ok(Shown::Nothing)
    }

    fn truncate(&mut self, path: &str, length: u16) -> Outcome {
        let inode = self.existing(path, true)?;
        match &mut self.inodes[inode].node {
            Node::File(bytes) => bytes.resize(usize::from(length), 0),
            Node::Directory(_) | Node::Symlink(_) => return Err(libc::EISDIR),
        }
        Ok(Shown::Nothing)
    }

    fn link(&mut self, from: &str, to: &str) -> Outcome {
        let inode = self.existing(from, false)?;
        let place = self.place(to, false)?;
        if place.inode.is_some() {
            return Err(libc::EEXIST);
        }
        if self.is_directory(inode) {
            return Err(libc::EPERM);
        }
        self.enter(&place, inode);
        Ok(Shown::Nothing)
    }

    fn unlink(&mut self, path: &str) -> Outcome {
        let place = self.place(path, false)?;
        if self.is_directory(place.inode.ok_or(libc::ENOENT)?) {
            return Err(libc::EISDIR);
        }
        self.remove(&place);
        Ok(Shown::Nothing)
    }

    fn rmdir(&mut self, path: &str) -> Outcome {
        let place = self.place(path, false)?;
        if !self.entries(place.inode.ok_or(libc::ENOENT)?)?.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.remove(&place);
        Ok(Shown::Nothing)
    }

    /// All paths, without following links.
    fn paths(&self, directory: usize, prefix: &str, found: &mut Vec<String>) {
        for (name, inode) in self.entries(directory).into_iter().flatten() {
            let path = format!("{prefix}{name}");
            if self.is_directory(*inode) {
                self.paths(*inode, &format!("{path}/"), found);
            }
            found.push(path);
        }
    }
}

fn contents(length: u16) -> Vec<u8> {
    (0..length).map(|n| u8::try_from(n % 251).unwrap() | 1).collect()
}

/// Carries out an operation below `root`.
fn perform(agent: &Agent, root: &str, operation: &Operation) -> Outcome {
    let at = |path: &String| format!("{root}/{path}");
    let done = |result: Result<(), Errno>| result.map(|()| Shown::Nothing).map_err(|e| e.0);
    match operation {
        Operation::Create(path) => done(agent.open(&at(path), flags::NEW).and_then(|fd| agent.close(fd))),
        Operation::Write(path, length) => done(agent.put(&at(path), &contents(*length))),
        Operation::Truncate(path, length) => done(agent.truncate(&at(path), u64::from(*length))),
        Operation::Read(path) => agent.get(&at(path)).map(Shown::Bytes).map_err(|e| e.0),
        Operation::Mkdir(path) => done(agent.name_mode("mkdir", &at(path), 0o755)),
        Operation::Rename(from, to) => done(agent.rename(&at(from), &at(to))),
        Operation::Replace(from, to, exchange) => {
            let flags = if *exchange { libc::RENAME_EXCHANGE } else { libc::RENAME_NOREPLACE };
            done(agent.names_flags("renameat2", &at(from), &at(to), flags))
        }
        Operation::Link(from, to) => done(agent.names("link", &at(from), &at(to))),
        Operation::Symlink(target, path) => done(agent.names("symlink", target, &at(path))),
        Operation::Unlink(path) => done(agent.unlink(&at(path))),
        Operation::Rmdir(path) => done(agent.name("rmdir", &at(path))),
        Operation::Chmod(path, mode) => done(agent.name_mode("chmod", &at(path), *mode)),
        Operation::List(path) => agent.readdir(&at(path)).map(Shown::Names).map_err(|e| e.0),
        Operation::Stat(path) => {
            let stat = agent.lstat(&at(path)).map_err(|e| e.0)?;
            Ok(if stat.mode & libc::S_IFMT == libc::S_IFDIR {
                Shown::Attributes(stat.permissions(), 0, 0)
            } else {
                Shown::Attributes(stat.permissions(), stat.nlink, stat.size)
            })
        }
        Operation::ReadLink(path) => {
            agent.readlink(&at(path)).map(|target| Shown::Bytes(target.into_bytes())).map_err(|e| e.0)
        }
    }
}

/// Paths over few names, so that they meet.
fn path() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c"), Just("d")];
    proptest::collection::vec(name, 1..4).prop_map(|names| names.join("/"))
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => path().prop_map(Operation::Create),
        3 => (path(), 0_u16..2_000).prop_map(|(path, length)| Operation::Write(path, length)),
        1 => (path(), 0_u16..2_000).prop_map(|(path, length)| Operation::Truncate(path, length)),
        2 => path().prop_map(Operation::Read),
        5 => path().prop_map(Operation::Mkdir),
        4 => (path(), path()).prop_map(|(from, to)| Operation::Rename(from, to)),
        1 => (path(), path(), any::<bool>()).prop_map(|(from, to, exchange)| Operation::Replace(from, to, exchange)),
        2 => (path(), path()).prop_map(|(from, to)| Operation::Link(from, to)),
        1 => (path(), path()).prop_map(|(target, path)| Operation::Symlink(target, path)),
        2 => path().prop_map(Operation::Unlink),
        1 => path().prop_map(Operation::Rmdir),
        1 => (path(), 0_u32..0o1000).prop_map(|(path, mode)| Operation::Chmod(path, mode)),
        1 => path().prop_map(Operation::List),
        2 => path().prop_map(Operation::Stat),
        1 => path().prop_map(Operation::ReadLink),
    ]
}

/// Plays operations, the agents taking turns, and compares each outcome and the whole tree at the end.
fn compare(stage: &Stage, root: &str, operations: &[(bool, Operation)]) -> Result<(), TestCaseError> {
    let mut model = Model::new();
    stage.a.name_mode("mkdir", root, 0o755).unwrap();
    for (number, (by_second, operation)) in operations.iter().enumerate() {
        let agent = if *by_second { &stage.b } else { &stage.a };
        let expected = model.perform(operation);
        let mut outcome = perform(agent, root, operation);
        if outcome == Err(libc::ESTALE)
            && let Operation::Rename(from, to) | Operation::Replace(from, to, _) = operation
        {
            // A kernel cannot take over, in the middle of a rename, that another client has moved a directory; a look can.
            let _ = agent.lstat(&format!("{root}/{from}"));
            let _ = agent.lstat(&format!("{root}/{to}"));
            outcome = perform(agent, root, operation);
        }
        prop_assert_eq!(outcome, expected, "operation {}: {:?}", number, operation);
    }
    let mut paths = Vec::new();
    model.paths(0, "", &mut paths);
    let looks = paths.iter().flat_map(|path| {
        [Operation::Stat(path.clone()), Operation::List(path.clone()), Operation::Read(path.clone())]
    });
    for look in looks {
        let expected = model.perform(&look);
        prop_assert_eq!(perform(&stage.a, root, &look), expected.clone(), "in the end: {:?}", look);
        prop_assert_eq!(perform(&stage.b, root, &look), expected, "in the end: {:?}", look);
    }
    let names: BTreeSet<String> = stage.b.readdir(root).unwrap().into_iter().collect();
    prop_assert_eq!(names, model.entries(0).unwrap().keys().cloned().collect::<BTreeSet<_>>());
    Ok(())
}

//= semantics.md#S14 type=test
fn names_follow_the_model(stage: &Stage) {
    let config =
        Config { cases: if is_long() { 1_000 } else { 40 }, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = proptest::collection::vec((any::<bool>(), operation()), 1..150);
    let number = std::cell::Cell::new(0);
    let outcome = runner.run(&strategy, |operations| {
        number.set(number.get() + 1);
        compare(stage, &format!("case-{}", number.get()), &operations)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn on_a_plain_directory() {
    Stage::play((Door::Plain, Door::Plain), "names_follow_the_model", names_follow_the_model);
}

#[test]
fn on_two_mounts() {
    Stage::play((Door::Mount(0), Door::Mount(1)), "names_follow_the_model", names_follow_the_model);
}

#[test]
fn on_a_mount_and_under_the_preload_library() {
    Stage::play((Door::Mount(0), Door::Preload), "names_follow_the_model", names_follow_the_model);
}

#[test]
fn under_the_preload_library() {
    Stage::play((Door::Preload, Door::Preload), "names_follow_the_model", names_follow_the_model);
}
