//! Verbs about names, directories and attributes.

use crate::files::{into_buffer, stat_text, times};
use crate::sys::{Answer, Outcome, Words, errno, sys, text, value};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::Mutex;

/// Open directories by their number.
static DIRECTORIES: Mutex<BTreeMap<i64, Directory>> = Mutex::new(BTreeMap::new());

/// A stream of libc.
struct Directory(*mut libc::DIR);

// SAFETY: a stream may be used by one thread after another; the map's mutex sees to that.
unsafe impl Send for Directory {}

/// Carries out a verb of this file.
pub(crate) fn perform(verb: &str, words: &mut Words, payload: &[u8]) -> Option<Outcome> {
    entries(verb, words)
        .or_else(|| attributes(verb, words))
        .or_else(|| extended(verb, words, payload))
        .or_else(|| directories(verb, words))
}

/// Making, moving and removing names.
fn entries(verb: &str, words: &mut Words) -> Option<Outcome> {
    Some(match verb {
        "rename" => {
            let (from, to) = (words.path(), words.path());
            sys!(libc::rename(from.as_ptr(), to.as_ptr()))
        }
        "renameat2" => {
            let (from, to) = (words.path(), words.path());
            let here = libc::AT_FDCWD;
            sys!(libc::renameat2(here, from.as_ptr(), here, to.as_ptr(), words.number()))
        }
        "link" => {
            let (from, to) = (words.path(), words.path());
            sys!(libc::link(from.as_ptr(), to.as_ptr()))
        }
        "linkat" => {
            let (from, to) = (words.path(), words.path());
            let here = libc::AT_FDCWD;
            sys!(libc::linkat(here, from.as_ptr(), here, to.as_ptr(), words.number()))
        }
        "symlink" => {
            let (target, path) = (words.path(), words.path());
            sys!(libc::symlink(target.as_ptr(), path.as_ptr()))
        }
        "readlink" => {
            let path = words.path();
            into_buffer(4096, |to, length| sys!(libc::readlink(path.as_ptr(), to.cast(), length)))
        }
        "unlink" => sys!(libc::unlink(words.path().as_ptr())),
        "rmdir" => sys!(libc::rmdir(words.path().as_ptr())),
        "mkdir" => {
            let path = words.path();
            sys!(libc::mkdir(path.as_ptr(), words.number()))
        }
        "mkfifo" => {
            let path = words.path();
            sys!(libc::mkfifo(path.as_ptr(), words.number()))
        }
        "mknod" => {
            let path = words.path();
            sys!(libc::mknod(path.as_ptr(), words.number(), 0))
        }
        "chdir" => sys!(libc::chdir(words.path().as_ptr())),
        "access" => {
            let path = words.path();
            sys!(libc::access(path.as_ptr(), words.number()))
        }
        _ => return None,
    })
}

/// Attributes of inodes.
fn attributes(verb: &str, words: &mut Words) -> Option<Outcome> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    Some(match verb {
        "stat" => {
            let path = words.path();
            sys!(libc::stat(path.as_ptr(), stat.as_mut_ptr())).and_then(|_| stat_text(&stat))
        }
        "lstat" => {
            let path = words.path();
            sys!(libc::lstat(path.as_ptr(), stat.as_mut_ptr())).and_then(|_| stat_text(&stat))
        }
        "chmod" => {
            let path = words.path();
            sys!(libc::chmod(path.as_ptr(), words.number()))
        }
        "fchmod" => sys!(libc::fchmod(words.number(), words.number())),
        "chown" => {
            let path = words.path();
            sys!(libc::chown(path.as_ptr(), words.number(), words.number()))
        }
        "utimens" => {
            let path = words.path();
            let times = times(words);
            sys!(libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0))
        }
        "statfs" => {
            let path = words.path();
            let mut found = MaybeUninit::<libc::statvfs>::zeroed();
            sys!(libc::statvfs(path.as_ptr(), found.as_mut_ptr())).and_then(|_| {
                // SAFETY: it was zeroed, and a structure of integers is valid with any bytes.
                let found = unsafe { found.assume_init_ref() };
                text(&format!("{} {} {}", found.f_bsize, found.f_blocks, found.f_namemax))
            })
        }
        _ => return None,
    })
}

/// Extended attributes.
fn extended(verb: &str, words: &mut Words, payload: &[u8]) -> Option<Outcome> {
    const SIZE: usize = 1 << 16;
    let (from, length) = (payload.as_ptr().cast(), payload.len());
    Some(match verb {
        "setxattr" => {
            let (path, name) = (words.path(), words.path());
            sys!(libc::setxattr(path.as_ptr(), name.as_ptr(), from, length, words.number()))
        }
        "fsetxattr" => {
            let fd = words.number();
            let name = words.path();
            sys!(libc::fsetxattr(fd, name.as_ptr(), from, length, words.number()))
        }
        "getxattr" => {
            let (path, name) = (words.path(), words.path());
            into_buffer(SIZE, |to, length| sys!(libc::getxattr(path.as_ptr(), name.as_ptr(), to, length)))
        }
        "fgetxattr" => {
            let fd = words.number();
            let name = words.path();
            into_buffer(SIZE, |to, length| sys!(libc::fgetxattr(fd, name.as_ptr(), to, length)))
        }
        "listxattr" => {
            let path = words.path();
            into_buffer(SIZE, |to, length| sys!(libc::listxattr(path.as_ptr(), to.cast(), length)))
        }
        "removexattr" => {
            let (path, name) = (words.path(), words.path());
            sys!(libc::removexattr(path.as_ptr(), name.as_ptr()))
        }
        _ => return None,
    })
}

/// Reading directories: at once (`readdir`), or entry by entry.
fn directories(verb: &str, words: &mut Words) -> Option<Outcome> {
    Some(match verb {
        "readdir" => open(&words.path()).and_then(|directory| {
            let mut names = Vec::new();
            while let Some(name) = next(&directory)? {
                names.push(name);
            }
            // SAFETY: the stream is open and used by nobody else.
            unsafe { libc::closedir(directory.0) };
            names.retain(|name| name != b"." && name != b"..");
            names.sort();
            Ok(Answer { value: i64::try_from(names.len()).expect("few names"), bytes: names.join(&b'\n') })
        }),
        "opendir" => open(&words.path()).map(|directory| {
            let mut directories = DIRECTORIES.lock().expect("no verb panics with the map");
            let number = directories.last_key_value().map_or(1, |(number, _)| number + 1);
            directories.insert(number, directory);
            Answer { value: number, bytes: Vec::new() }
        }),
        "nextdir" => {
            let directories = DIRECTORIES.lock().expect("no verb panics with the map");
            let directory = &directories[&words.number()];
            next(directory)
                .map(|name| Answer { value: i64::from(name.is_some()), bytes: name.unwrap_or_default() })
        }
        "rewinddir" => {
            let directories = DIRECTORIES.lock().expect("no verb panics with the map");
            // SAFETY: streams of the map are open.
            unsafe { libc::rewinddir(directories[&words.number()].0) };
            value(0)
        }
        "closedir" => {
            let mut directories = DIRECTORIES.lock().expect("no verb panics with the map");
            let directory = directories.remove(&words.number()).expect("the stream is open");
            sys!(libc::closedir(directory.0))
        }
        _ => return None,
    })
}

fn open(path: &CStr) -> Result<Directory, i32> {
    // SAFETY: the path is a string.
    let stream = unsafe { libc::opendir(path.as_ptr()) };
    if stream.is_null() { Err(errno()) } else { Ok(Directory(stream)) }
}

/// The next name of a stream.
fn next(directory: &Directory) -> Result<Option<Vec<u8>>, i32> {
    // SAFETY: the stream is open; the location of errno is that of this thread.
    let entry = unsafe {
        *libc::__errno_location() = 0;
        libc::readdir(directory.0)
    };
    if entry.is_null() {
        return if errno() == 0 { Ok(None) } else { Err(errno()) };
    }
    // SAFETY: an entry is valid until the next call, and its name ends with a zero.
    Ok(Some(unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) }.to_bytes().to_vec()))
}
