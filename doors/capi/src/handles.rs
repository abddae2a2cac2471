//! The table of open handles: small numbers for open files.
//!
//! A call holds its own entry for reading, so calls on different handles share nothing, and closing waits for the
//! calls that others have begun.

use crate::reply::Failure;
use ccpfs_client::{File, LockStyle};
use libc::c_int;
use std::sync::{Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// An open file.
pub(crate) struct Handle {
    /// The client's file.
    pub(crate) file: File,
    /// Every write goes to the end.
    pub(crate) appends: bool,
    /// Every write waits for the devices.
    pub(crate) syncs: bool,
    /// How locks of atomic operations on several parts are asked for, if not as the configuration says.
    pub(crate) style: Mutex<Option<LockStyle>>,
}

type Entry = RwLock<Option<Handle>>;
/// Entries that are made at once.
const CHUNK: usize = 1024;
const CHUNKS: usize = 64;

/// The handles of the process.
pub(crate) struct Handles {
    chunks: [OnceLock<Box<[Entry]>>; CHUNKS],
    numbers: Mutex<Numbers>,
}

/// Which numbers are free.
struct Numbers {
    /// Numbers that were used before.
    free: Vec<usize>,
    /// All from here on were never used. 0 never is, so that a forgotten initialisation is noticed.
    next: usize,
}

/// The calling thread's hold on an open handle.
pub(crate) struct Held<'a>(RwLockReadGuard<'a, Option<Handle>>);

impl std::ops::Deref for Held<'_> {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        self.0.as_ref().expect("checked when it was taken")
    }
}

fn no_handle(handle: c_int) -> Failure {
    Failure::new(libc::EBADF, format!("{handle} is no open handle"))
}

impl Handles {
    /// An empty table.
    pub(crate) const fn new() -> Handles {
        Handles {
            chunks: [const { OnceLock::new() }; CHUNKS],
            numbers: Mutex::new(Numbers { free: Vec::new(), next: 1 }),
        }
    }

    fn entry(&self, number: usize) -> Option<&Entry> {
        let chunk = self.chunks.get(number / CHUNK)?.get()?;
        chunk.get(number % CHUNK)
    }

    /// Enters an open file.
    ///
    /// # Errors
    /// `EMFILE` when the table is full; the file is closed then.
    pub(crate) fn enter(&self, opened: Handle) -> Result<c_int, Failure> {
        let number = {
            let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            match numbers.free.pop() {
                Some(number) => number,
                None if numbers.next < CHUNK * CHUNKS => {
                    numbers.next += 1;
                    numbers.next - 1
                }
                None => return Err(Failure::new(libc::EMFILE, "too many handles are open")),
            }
        };
        let chunk =
            self.chunks[number / CHUNK].get_or_init(|| (0..CHUNK).map(|_| RwLock::new(None)).collect());
        let mut entry = chunk[number % CHUNK].write().unwrap_or_else(PoisonError::into_inner);
        *entry = Some(opened);
        Ok(c_int::try_from(number).expect("the table is small"))
    }

    /// The open file of a handle; it is not closed while the answer lives.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn get(&self, handle: c_int) -> Result<Held<'_>, Failure> {
        let entry = usize::try_from(handle).ok().and_then(|number| self.entry(number));
        let held = entry.ok_or_else(|| no_handle(handle))?.read().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() { Ok(Held(held)) } else { Err(no_handle(handle)) }
    }

    /// Takes a handle out of the table.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn remove(&self, handle: c_int) -> Result<Handle, Failure> {
        let number = usize::try_from(handle).map_err(|_| no_handle(handle))?;
        let entry = self.entry(number).ok_or_else(|| no_handle(handle))?;
        let opened = entry.write().unwrap_or_else(PoisonError::into_inner).take();
        let opened = opened.ok_or_else(|| no_handle(handle))?;
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).free.push(number);
        Ok(opened)
    }

    /// Takes every handle out of the table.
    pub(crate) fn remove_all(&self) -> Vec<Handle> {
        let used = self.numbers.lock().unwrap_or_else(PoisonError::into_inner).next;
        let numbers = (1..used).filter_map(|number| c_int::try_from(number).ok());
        numbers.filter_map(|handle| self.remove(handle).ok()).collect()
    }
}
