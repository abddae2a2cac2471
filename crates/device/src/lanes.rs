//! The files of one object: one as long as it is short, several that its bytes take turns in when it has grown.
//!
//! *What*: a file takes one write at a time, and all clients of a shared file write into the same few objects. So an object beyond
//! [`CHUNK_BYTES`] lies in [`LANES`] files: chunk `i` belongs to lane `i mod 4`, and the chunks of a lane follow each other in its
//! file. Lane 0 is the object's first file, `NAME`; the others are `NAME.1`, `NAME.2` and `NAME.3`.
//! *Invariants*: `NAME.1` exists from before the first byte beyond the first chunk is written until the object goes. An object without
//! it is one file, however long: those of older servers are.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use ccpfs_types::Extent;

use crate::sys;

/// Bytes that lie together in one lane.
pub(crate) const CHUNK_BYTES: u64 = 4 << 20;
/// Files that a long object lies in.
pub(crate) const LANES: usize = 4;

/// Bytes of a round through all lanes.
const ROUND_BYTES: u64 = CHUNK_BYTES * LANES as u64;

/// The open files of an object.
#[derive(Debug)]
pub(crate) struct Object {
    first: File,
    others: OnceLock<[File; LANES - 1]>,
    /// Held by whoever uses the first file as the only one: when there are others its bytes mean something else.
    shape: RwLock<()>,
    /// It is an older server's, longer than a chunk: it stays one file as long as it is open.
    stays_one: AtomicBool,
    /// Who writes to a lane: waiting for it here costs less than inside the system, and can be put off.
    turns: [Mutex<()>; LANES],
}

/// The only file of an object, which gets no others as long as this lives.
pub(crate) struct Only<'a> {
    file: &'a File,
    _shape: RwLockReadGuard<'a, ()>,
}

impl Deref for Only<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        self.file
    }
}

/// A part of an object that lies in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) lane: usize,
    /// Where in the lane's file.
    pub(crate) at: u64,
    pub(crate) bytes: usize,
}

/// Cuts `bytes` bytes of an object from `offset` on at the borders of chunks.
pub(crate) fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = Piece> {
    let (mut offset, mut left) = (offset, bytes);
    std::iter::from_fn(move || {
        let room = CHUNK_BYTES - offset % CHUNK_BYTES;
        let bytes = usize::try_from(room).map_or(left, |room| room.min(left));
        let chunk = offset / CHUNK_BYTES;
        let lane = usize::try_from(chunk % LANES as u64).expect("lanes are few");
        let piece = Piece { lane, at: share(offset, lane), bytes };
        offset += bytes as u64;
        left -= bytes;
        (bytes > 0).then_some(piece)
    })
}

/// How many of an object's first `length` bytes lie in a lane.
pub(crate) fn share(length: u64, lane: usize) -> u64 {
    let rest = (length % ROUND_BYTES).saturating_sub(lane as u64 * CHUNK_BYTES);
    length / ROUND_BYTES * CHUNK_BYTES + rest.min(CHUNK_BYTES)
}

/// Where in the object the byte at `at` of a lane's file lies.
pub(crate) fn place(lane: usize, at: u64) -> u64 {
    let chunk = (at / CHUNK_BYTES).saturating_mul(LANES as u64).saturating_add(lane as u64);
    chunk.saturating_mul(CHUNK_BYTES).saturating_add(at % CHUNK_BYTES)
}

/// The name of a lane's file.
pub(crate) fn lane_path(first: &Path, lane: usize) -> PathBuf {
    let mut name = first.as_os_str().to_owned();
    if lane > 0 {
        name.push(format!(".{lane}"));
    }
    PathBuf::from(name)
}

fn open(path: &Path, create: bool) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(create).truncate(false).open(path)
}

/// Opens the files of the lanes but the first, making what is missing; the one that tells that they exist last, if the others do.
fn open_others(first: &Path) -> io::Result<[File; LANES - 1]> {
    let third = open(&lane_path(first, 3), true)?;
    let second = open(&lane_path(first, 2), true)?;
    Ok([open(&lane_path(first, 1), true)?, second, third])
}

impl Object {
    /// Opens an object that exists; `None` if there is none.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Object>> {
        let first = match open(path, false) {
            Ok(first) => first,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let object = Object::of(first);
        if lane_path(path, 1).try_exists()? {
            object.others.set(open_others(path)?).expect("nobody else has it yet");
        }
        Ok(Some(object))
    }

    /// Makes an object that did not exist.
    pub(crate) fn create(path: &Path) -> io::Result<Object> {
        // What a crash in the middle of a removal may have left is none of it.
        remove_others(path)?;
        Ok(Object::of(open(path, true)?))
    }

    fn of(first: File) -> Object {
        Object {
            first,
            others: OnceLock::new(),
            shape: RwLock::new(()),
            stays_one: AtomicBool::new(false),
            turns: Default::default(),
        }
    }

    /// How many files are open.
    pub(crate) fn file_count(&self) -> usize {
        if self.others.get().is_some() { LANES } else { 1 }
    }

    /// Whether bytes up to `end` can be written as things are.
    pub(crate) fn reaches(&self, end: u64) -> bool {
        end <= CHUNK_BYTES || self.others.get().is_some() || self.stays_one.load(Ordering::Relaxed)
    }

    /// Makes the lanes of an object that has begun to be a long one. Nobody else may do so meanwhile. False if it stays one file.
    pub(crate) fn spread(&self, path: &Path) -> io::Result<bool> {
        if self.others.get().is_none() {
            if self.first.metadata()?.len() > CHUNK_BYTES {
                self.stays_one.store(true, Ordering::Relaxed);
                return Ok(false);
            }
            // What was begun once and not ended is none of it.
            remove_others(path)?;
            let others = open_others(path)?;
            // Else a power cut could leave the second chunk of the first lane without the name that says what it is.
            path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())?;
            let _nobody_uses_it_alone = self.shape.write().unwrap_or_else(PoisonError::into_inner);
            self.others.set(others).expect("nobody else does so");
        }
        Ok(true)
    }

    /// All files, by lane: one, or all.
    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        std::iter::once(&self.first).chain(self.others.get().into_iter().flatten())
    }

    /// The only file, if it is one, for as long as the caller needs it to be.
    pub(crate) fn only(&self) -> Option<Only<'_>> {
        if self.others.get().is_some() {
            return None;
        }
        let shape = self.shape.read().unwrap_or_else(PoisonError::into_inner);
        self.others.get().is_none().then_some(Only { file: &self.first, _shape: shape })
    }

    pub(crate) fn file(&self, lane: usize) -> &File {
        match (lane, self.others.get()) {
            (0, _) | (_, None) => &self.first,
            (lane, Some(others)) => &others[lane - 1],
        }
    }

    /// Calls `write` for each lane in `wanted`, while nobody else writes to it: first for those that are free.
    pub(crate) fn by_turns(
        &self,
        mut wanted: Vec<usize>,
        mut write: impl FnMut(usize) -> io::Result<()>,
    ) -> io::Result<()> {
        while !wanted.is_empty() {
            let before = wanted.len();
            let mut result = Ok(());
            wanted.retain(|lane| match self.turns[*lane].try_lock() {
                Err(TryLockError::WouldBlock) => true,
                Ok(_turn) => {
                    result = std::mem::replace(&mut result, Ok(())).and_then(|()| write(*lane));
                    false
                }
                Err(TryLockError::Poisoned(poisoned)) => {
                    let _turn: MutexGuard<'_, ()> = poisoned.into_inner();
                    result = std::mem::replace(&mut result, Ok(())).and_then(|()| write(*lane));
                    false
                }
            });
            result?;
            if wanted.len() == before {
                let lane = wanted.swap_remove(0);
                let _turn = self.turns[lane].lock().unwrap_or_else(PoisonError::into_inner);
                write(lane)?;
            }
        }
        Ok(())
    }

    /// Length in bytes.
    pub(crate) fn length(&self) -> io::Result<u64> {
        if let Some(only) = self.only() {
            return Ok(only.metadata()?.len());
        }
        let mut length = 0;
        for (lane, file) in self.files().enumerate() {
            length = length.max(end_of(lane, file.metadata()?.len()));
        }
        Ok(length)
    }

    /// Sets the length; the object reaches so far, or is one file.
    pub(crate) fn set_length(&self, length: u64) -> io::Result<()> {
        if let Some(only) = self.only() {
            return only.set_len(length);
        }
        self.files().enumerate().try_for_each(|(lane, file)| file.set_len(share(length, lane)))
    }

    /// The first byte of data at or after `at`, and the end of the data there within its chunk.
    pub(crate) fn next_data(&self, at: u64) -> io::Result<Option<Extent>> {
        let mut next: Option<(u64, usize, u64)> = None;
        for (lane, file) in self.files().enumerate() {
            let from = share(at, lane);
            let found = match sys::seek(file, from, true) {
                // A file system that knows no holes.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                    (from < file.metadata()?.len()).then_some(from)
                }
                other => other?.map(|found| found.max(from)),
            };
            let here = found.map(|found| (place(lane, found), lane, found));
            next = match (next, here) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
        let Some((start, lane, found)) = next else { return Ok(None) };
        let chunk_end = (found / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES);
        let hole = match sys::seek(self.file(lane), found, false) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => chunk_end,
            other => other?.unwrap_or(chunk_end),
        };
        Ok(Extent::with_length(start, hole.clamp(found + 1, chunk_end) - found))
    }
}

/// One past the object's last byte that a lane's file of this length has.
pub(crate) fn end_of(lane: usize, length: u64) -> u64 {
    length.checked_sub(1).map_or(0, |last| place(lane, last).saturating_add(1))
}

/// Removes the files of all lanes but the first, also those of a beginning that was cut short; whether there were any.
pub(crate) fn remove_others(first: &Path) -> io::Result<bool> {
    if lane_path(first, 1).try_exists()? {
        // What is left of the object if this is cut short must not look like one long file.
        match OpenOptions::new().write(true).open(first) {
            Ok(file) if file.metadata()?.len() > CHUNK_BYTES => file.set_len(CHUNK_BYTES)?,
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    let mut removed = false;
    for lane in (1..LANES).rev() {
        match std::fs::remove_file(lane_path(first, lane)) {
            Ok(()) => removed = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSETS: [u64; 9] = [
        0,
        1,
        CHUNK_BYTES - 1,
        CHUNK_BYTES,
        3 * CHUNK_BYTES + 5,
        ROUND_BYTES - 1,
        ROUND_BYTES,
        7 * CHUNK_BYTES + 9,
        (i64::MAX as u64) - 1,
    ];

    #[test]
    fn every_byte_of_an_object_has_one_place_and_lies_there() {
        for offset in OFFSETS {
            let piece = pieces(offset, 1).next().unwrap();
            assert_eq!(place(piece.lane, piece.at), offset);
            assert_eq!(end_of(piece.lane, piece.at + 1), offset + 1);
            for lane in 0..LANES {
                assert!(lane == piece.lane || share(offset, lane) == share(offset + 1, lane));
                assert!(place(lane, share(offset, lane)) >= offset, "the first one that is not before it");
            }
            let total: u64 = (0..LANES).map(|lane| share(offset, lane)).sum();
            let longest = (0..LANES).map(|lane| end_of(lane, share(offset, lane))).max().unwrap();
            assert_eq!((total, longest), (offset, offset), "what is cut off everywhere is what is left");
        }
    }

    #[test]
    fn pieces_are_cut_at_chunks_and_follow_each_other() {
        let mut at = CHUNK_BYTES - 10;
        let all: Vec<Piece> = pieces(at, 2 * CHUNK_BYTES as usize).collect();
        assert_eq!(all.iter().map(|piece| piece.bytes).collect::<Vec<_>>(), [10, 4 << 20, (4 << 20) - 10]);
        for piece in all {
            assert_eq!(place(piece.lane, piece.at), at);
            at += piece.bytes as u64;
        }
        assert_eq!(pieces(5, 0).count(), 0);
    }

    #[test]
    fn an_object_that_was_one_long_file_stays_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        let object = Object::create(&path).unwrap();
        assert!(object.reaches(CHUNK_BYTES) && !object.reaches(CHUNK_BYTES + 1));
        object.set_length(CHUNK_BYTES + 1).unwrap();
        assert!(!object.spread(&path).unwrap());
        let object = Object::open(&path).unwrap().unwrap();
        assert_eq!((object.file_count(), object.length().unwrap()), (1, CHUNK_BYTES + 1));
    }

    #[test]
    fn what_a_removal_leaves_that_is_cut_short_is_the_begin_of_the_object() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        let object = Object::create(&path).unwrap();
        assert!(object.spread(&path).unwrap());
        object.set_length(ROUND_BYTES + 5).unwrap();
        assert!(remove_others(&path).unwrap());
        let left = Object::open(&path).unwrap().unwrap();
        assert_eq!((left.file_count(), left.length().unwrap()), (1, CHUNK_BYTES));
        assert!(!remove_others(&path).unwrap(), "there are none any more");
        std::fs::remove_file(&path).unwrap();
        assert!(!remove_others(&path).unwrap());
    }
}
