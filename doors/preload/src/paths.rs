//! Is this path under the namespace? Names only; what is there is asked of the kernel.

use crate::real;
use crate::reply::Errno;
use crate::session::{self, Settings};
use libc::{AT_FDCWD, c_int};
use std::ffi::{CStr, CString, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};

/// What is known of the working directory.
const UNKNOWN: u8 = 0;
/// Neither inside a root nor above one: a relative path without `..` leads nowhere near.
const UNRELATED: u8 = 1;
/// Inside a root: a relative path without `..` stays there.
const INSIDE: u8 = 2;
/// Above a root.
const ABOVE: u8 = 3;

static WORKING_DIRECTORY: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The working directory has changed.
pub(crate) fn forget_working_directory() {
    WORKING_DIRECTORY.store(UNKNOWN, Ordering::Release);
}

/// Whether a path, relative to the directory `at`, lies under the namespace, going by its name alone.
pub(crate) fn is_in_namespace(settings: &Settings, at: c_int, path: &CStr) -> bool {
    let name = path.to_bytes();
    if name.is_empty() {
        return false;
    }
    if name[0] == b'/' {
        return if is_plain(name) {
            is_below_a_root(settings, name)
        } else {
            is_below_a_root(settings, &normalise(name))
        };
    }
    if at == AT_FDCWD && !has_parent_step(name) {
        match working_directory(settings) {
            UNRELATED => return false,
            INSIDE => return true,
            _ => {}
        }
    }
    absolute(at, path).is_ok_and(|full| is_below_a_root(settings, &normalise(full.as_bytes())))
}

/// The path from the root directory. It is not normalised: the kernel goes through every step.
///
/// # Errors
/// `ENOENT` for an empty path; the errno when the directory is not there.
pub(crate) fn absolute(at: c_int, path: &CStr) -> Result<CString, Errno> {
    let name = path.to_bytes();
    if name.is_empty() {
        return Err(libc::ENOENT);
    }
    if name[0] == b'/' {
        return Ok(path.to_owned());
    }
    let mut full = if at == AT_FDCWD { current_directory()? } else { directory_of(at)? };
    full.push(b'/');
    full.extend_from_slice(name);
    CString::new(full).map_err(|_| libc::EINVAL)
}

/// As [`absolute`], for Rust.
///
/// # Errors
/// As [`absolute`].
pub(crate) fn absolute_path(at: c_int, path: &CStr) -> Result<PathBuf, Errno> {
    Ok(PathBuf::from(OsString::from_vec(absolute(at, path)?.into_bytes())))
}

/// The target of a symbolic link, from the root directory; `None` when `path` is no symbolic link.
pub(crate) fn link_target(at: c_int, path: &CStr) -> Option<CString> {
    let full = absolute(at, path).ok()?;
    let target = read_link(&full).ok()?;
    if target.first() == Some(&b'/') {
        return CString::new(target).ok();
    }
    let full = full.to_bytes();
    let directory = full.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let mut joined = full[..=directory].to_vec();
    joined.extend_from_slice(&target);
    CString::new(joined).ok()
}

/// A path without symbolic links, `.` and `..`; `None` when it leads nowhere.
pub(crate) fn resolved(path: &CStr) -> Option<Vec<u8>> {
    let _inside = crate::inside::Inside::enter();
    // SAFETY: the path is a string; the answer is ours to free.
    unsafe {
        let found = libc::realpath(path.as_ptr(), std::ptr::null_mut());
        if found.is_null() {
            return None;
        }
        let name = normalise(CStr::from_ptr(found).to_bytes());
        libc::free(found.cast());
        Some(name)
    }
}

fn working_directory(settings: &Settings) -> u8 {
    let known = WORKING_DIRECTORY.load(Ordering::Acquire);
    if known != UNKNOWN {
        return known;
    }
    let Ok(directory) = current_directory() else { return UNKNOWN };
    let directory = normalise(&directory);
    let state = if is_below_a_root(settings, &directory) {
        INSIDE
    } else if settings.roots.iter().any(|root| is_below(&directory, root)) {
        ABOVE
    } else {
        UNRELATED
    };
    WORKING_DIRECTORY.store(state, Ordering::Release);
    state
}

fn current_directory() -> Result<Vec<u8>, Errno> {
    let mut room = vec![0_u8; 4096];
    // SAFETY: the buffer has the length that is given.
    let found = unsafe { libc::getcwd(room.as_mut_ptr().cast(), room.len()) };
    if found.is_null() {
        return Err(real::errno());
    }
    let length = room.iter().position(|byte| *byte == 0).unwrap_or(room.len());
    room.truncate(length);
    Ok(room)
}

/// The path by which the kernel knows a descriptor.
///
/// # Errors
/// The errno of asking.
pub(crate) fn name_of_descriptor(fd: c_int) -> Result<Vec<u8>, Errno> {
    directory_of(fd)
}

fn directory_of(at: c_int) -> Result<Vec<u8>, Errno> {
    let link = CString::new(format!("/proc/self/fd/{at}")).expect("no zero byte");
    read_link(&link)
}

fn read_link(link: &CStr) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0_u8; 4096];
    // SAFETY: the buffer has the length that is given.
    let length = unsafe { libc::readlink(link.as_ptr(), room.as_mut_ptr().cast(), room.len()) };
    let length = usize::try_from(length).map_err(|_| real::errno())?;
    room.truncate(length);
    Ok(room)
}

/// Whether an absolute path has no `.`, `..` or empty steps.
fn is_plain(path: &[u8]) -> bool {
    path[1..].split(|byte| *byte == b'/').all(|step| !matches!(step, b"" | b"." | b".."))
}

fn has_parent_step(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|step| step == b"..")
}

/// An absolute path without `.`, `..`, empty steps and trailing slash; the root directory is empty.
pub(crate) fn normalise(path: &[u8]) -> Vec<u8> {
    let mut steps: Vec<&[u8]> = Vec::new();
    for step in path.split(|byte| *byte == b'/') {
        match step {
            b"" | b"." => {}
            b".." => {
                steps.pop();
            }
            name => steps.push(name),
        }
    }
    let mut plain = Vec::with_capacity(path.len());
    for step in steps {
        plain.push(b'/');
        plain.extend_from_slice(step);
    }
    plain
}

fn is_below_a_root(settings: &Settings, path: &[u8]) -> bool {
    settings.roots.iter().any(|root| is_below(root, path))
}

/// Whether `path` is `root` or below it.
fn is_below(root: &[u8], path: &[u8]) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether a path lies under the namespace of this process.
pub(crate) fn is_ours(at: c_int, path: &CStr) -> bool {
    session::settings().is_some_and(|settings| is_in_namespace(settings, at, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalising_follows_dots_and_drops_slashes() {
        for (path, plain) in
            [("/", ""), ("/a//b/./c/", "/a/b/c"), ("/a/../b", "/b"), ("/..", ""), ("/a/b/../../c/..", "")]
        {
            assert_eq!(normalise(path.as_bytes()), plain.as_bytes(), "{path}");
        }
    }

    #[test]
    fn a_name_that_merely_starts_like_the_root_is_outside() {
        assert!(is_below(b"/mnt/ccpfs", b"/mnt/ccpfs"));
        assert!(is_below(b"/mnt/ccpfs", b"/mnt/ccpfs/a"));
        assert!(!is_below(b"/mnt/ccpfs", b"/mnt/ccpfs2/a"));
        assert!(!is_below(b"/mnt/ccpfs", b"/mnt"));
        assert!(is_below(b"", b"/anything"));
    }

    #[test]
    fn plain_paths_are_recognised() {
        assert!(is_plain(b"/a/b.c/..d"));
        for path in ["/a/../b", "/a//b", "/a/./b", "/a/"] {
            assert!(!is_plain(path.as_bytes()), "{path}");
        }
    }
}
