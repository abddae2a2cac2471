//! Verbs about mapped memory. Bytes are moved by system calls on the mapping, so that a page that cannot be had is an
//! error (`EFAULT`) instead of a signal.

use crate::files::into_buffer;
use crate::sys::{Outcome, Words, errno, sys, value};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Mappings by their number: address and length.
static MAPS: Mutex<BTreeMap<i64, (usize, usize)>> = Mutex::new(BTreeMap::new());

/// Carries out a verb of this file.
pub(crate) fn perform(verb: &str, words: &mut Words, payload: &[u8]) -> Option<Outcome> {
    Some(match verb {
        "mmap" => map(words),
        "load" => {
            let (at, _) = place(words);
            into_buffer(words.number(), |to, length| {
                through(|pipe| move_bytes(pipe, at, to as usize, length))
            })
        }
        "store" => {
            let (at, _) = place(words);
            let (from, length) = (payload.as_ptr() as usize, payload.len());
            through(|file| move_bytes(file, from, at, length))
        }
        "msync" => {
            let (at, _) = place(words);
            sys!(libc::msync(at as *mut libc::c_void, words.number(), words.number()))
        }
        "munmap" => {
            let number: i64 = words.number();
            let (address, length) = MAPS
                .lock()
                .expect("no verb panics with the map")
                .remove(&number)
                .expect("the mapping exists");
            sys!(libc::munmap(address as *mut libc::c_void, length))
        }
        _ => return None,
    })
}

/// `mmap FD PROT FLAGS OFFSET LENGTH`.
fn map(words: &mut Words) -> Outcome {
    let fd = words.number();
    let (protection, flags) = (words.number(), words.number());
    let (offset, length) = (words.number(), words.number());
    // SAFETY: the kernel chooses the place.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, fd, offset) };
    if address == libc::MAP_FAILED {
        return Err(errno());
    }
    let mut maps = MAPS.lock().expect("no verb panics with the map");
    let number = maps.last_key_value().map_or(1, |(number, _)| number + 1);
    maps.insert(number, (address as usize, length));
    value(number)
}

/// The address that `NUMBER OFFSET` means, and the bytes from there to the end of the mapping.
fn place(words: &mut Words) -> (usize, usize) {
    let number: i64 = words.number();
    let offset: usize = words.number();
    let (address, length) = MAPS.lock().expect("no verb panics with the map")[&number];
    assert!(offset < length, "the offset lies in the mapping");
    (address + offset, length - offset)
}

/// Lets `work` use a file in memory.
fn through(work: impl FnOnce(i32) -> Outcome) -> Outcome {
    let file = sys!(libc::memfd_create(c"agent".as_ptr(), libc::MFD_CLOEXEC))?.value;
    let file = i32::try_from(file).expect("a descriptor");
    let outcome = work(file);
    sys!(libc::close(file))?;
    outcome
}

/// Moves bytes from one address to the other through a file in memory.
fn move_bytes(file: i32, from: usize, to: usize, length: usize) -> Outcome {
    let written = sys!(libc::pwrite(file, from as *const libc::c_void, length, 0))?.value;
    if usize::try_from(written) != Ok(length) {
        return Err(libc::EFAULT);
    }
    sys!(libc::pread(file, to as *mut libc::c_void, length, 0))
}
