//! Verbs about open files: their contents, sizes and positions.

use crate::sys::{Answer, Outcome, Words, sys, value};
use std::mem::MaybeUninit;

/// Carries out a verb of this file.
pub(crate) fn perform(verb: &str, words: &mut Words, payload: &[u8]) -> Option<Outcome> {
    contents(verb, words, payload).or_else(|| sizes(verb, words)).or_else(|| descriptors(verb, words))
}

/// Reads and writes.
fn contents(verb: &str, words: &mut Words, payload: &[u8]) -> Option<Outcome> {
    let (from, length) = (payload.as_ptr().cast(), payload.len());
    Some(match verb {
        "write" => sys!(libc::write(words.number(), from, length)),
        "pwrite" => {
            // Direct IO of some file systems wants aligned memory.
            let (mut buffer, start) = aligned(length);
            buffer[start..start + length].copy_from_slice(payload);
            let from = buffer[start..].as_ptr().cast();
            sys!(libc::pwrite(words.number(), from, length, words.number()))
        }
        "writev" => {
            let (fd, cut) = (words.number(), words.number::<usize>());
            let parts = [slice(&payload[..cut]), slice(&payload[cut..])];
            sys!(libc::writev(fd, parts.as_ptr(), 2))
        }
        "pwritev2" => {
            let (fd, offset, flags) = (words.number(), words.number(), words.number());
            let part = slice(payload);
            sys!(libc::pwritev2(fd, &raw const part, 1, offset, flags))
        }
        "read" => {
            let fd = words.number();
            into_buffer(words.number(), |to, length| sys!(libc::read(fd, to, length)))
        }
        "pread" => {
            let fd = words.number();
            let length = words.number();
            let offset = words.number();
            into_buffer(length, |to, length| sys!(libc::pread(fd, to, length, offset)))
        }
        "copy_file_range" => copy_file_range(words),
        "sendfile" => {
            let (to, from) = (words.number(), words.number());
            let mut offset: i64 = words.number();
            sys!(libc::sendfile(to, from, &raw mut offset, words.number()))
        }
        _ => return None,
    })
}

fn slice(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// Lets `call` fill a buffer and answers what it filled.
pub(crate) fn into_buffer(length: usize, call: impl FnOnce(*mut libc::c_void, usize) -> Outcome) -> Outcome {
    let (mut buffer, start) = aligned(length);
    let got = call(buffer[start..].as_mut_ptr().cast(), length)?.value;
    let end = start + usize::try_from(got).expect("calls fill no negative number of bytes");
    buffer.truncate(end);
    buffer.drain(..start);
    Ok(Answer { value: got, bytes: buffer })
}

/// A buffer with room for `length` bytes from a page's beginning, and where that is.
fn aligned(length: usize) -> (Vec<u8>, usize) {
    const PAGE: usize = 4096;
    let buffer = vec![0_u8; length + PAGE];
    let start = buffer.as_ptr().align_offset(PAGE);
    (buffer, start)
}

fn copy_file_range(words: &mut Words) -> Outcome {
    let from = words.number();
    let mut from_offset: i64 = words.number();
    let to = words.number();
    let mut to_offset: i64 = words.number();
    let length = words.number();
    sys!(libc::copy_file_range(from, &raw mut from_offset, to, &raw mut to_offset, length, 0))
}

/// Sizes, space and durability.
fn sizes(verb: &str, words: &mut Words) -> Option<Outcome> {
    Some(match verb {
        "ftruncate" => sys!(libc::ftruncate(words.number(), words.number())),
        "truncate" => {
            let path = words.path();
            sys!(libc::truncate(path.as_ptr(), words.number()))
        }
        "fallocate" => sys!(libc::fallocate(words.number(), words.number(), words.number(), words.number())),
        "lseek" => sys!(libc::lseek(words.number(), words.number(), words.number())),
        "fsync" => sys!(libc::fsync(words.number())),
        "fdatasync" => sys!(libc::fdatasync(words.number())),
        "syncfs" => sys!(libc::syncfs(words.number())),
        "fstat" => {
            let mut stat = MaybeUninit::<libc::stat>::zeroed();
            let fd = words.number();
            sys!(libc::fstat(fd, stat.as_mut_ptr())).and_then(|_| stat_text(&stat))
        }
        "futimens" => {
            let fd = words.number();
            let times = times(words);
            sys!(libc::futimens(fd, times.as_ptr()))
        }
        _ => return None,
    })
}

/// Two times, each of seconds and nanoseconds; nanoseconds may be `UTIME_NOW` or `UTIME_OMIT`.
pub(crate) fn times(words: &mut Words) -> [libc::timespec; 2] {
    [(); 2].map(|()| libc::timespec { tv_sec: words.number(), tv_nsec: words.number() })
}

/// What a stat call found, in words.
pub(crate) fn stat_text(stat: &MaybeUninit<libc::stat>) -> Outcome {
    // SAFETY: it was zeroed, and a structure of integers is valid with any bytes.
    let s = unsafe { stat.assume_init_ref() };
    crate::sys::text(&format!(
        "{} {} {} {} {} {} {} {} {} {} {} {}",
        s.st_dev,
        s.st_ino,
        s.st_mode,
        s.st_nlink,
        s.st_uid,
        s.st_gid,
        s.st_size,
        s.st_blocks,
        s.st_mtime,
        s.st_mtime_nsec,
        s.st_ctime,
        s.st_ctime_nsec,
    ))
}

/// Descriptors as such.
fn descriptors(verb: &str, words: &mut Words) -> Option<Outcome> {
    Some(match verb {
        "open" => {
            let path = words.path();
            sys!(libc::open(path.as_ptr(), words.number(), words.number::<libc::mode_t>()))
        }
        "openat" => {
            let directory = words.number();
            let path = words.path();
            sys!(libc::openat(directory, path.as_ptr(), words.number(), words.number::<libc::mode_t>()))
        }
        "close" => sys!(libc::close(words.number())),
        "dup" => sys!(libc::dup(words.number())),
        "dup2" => sys!(libc::dup2(words.number(), words.number())),
        "getfl" => sys!(libc::fcntl(words.number(), libc::F_GETFL)),
        "setfl" => sys!(libc::fcntl(words.number(), libc::F_SETFL, words.number::<i32>())),
        "fionread" => {
            let mut bytes = 0_i32;
            let fd = words.number();
            sys!(libc::ioctl(fd, libc::FIONREAD, &raw mut bytes)).and_then(|_| value(i64::from(bytes)))
        }
        "nothing" => value(0),
        _ => return None,
    })
}
