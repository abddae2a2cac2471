//! Is this path under the namespace? Names only; what is there is asked of the kernel.

use crate::real;
use crate::reply::Errno;
use crate::session::{self, Settings};
use libc::{AT_FDCWD, c_int};
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
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

/// Paths up to this length are passed on as they are: what the client makes of them stays shorter than the kernel takes.
const PASSED_BYTES_MAX: usize = 3072;

/// A name and the directory that it is relative to, for the client.
pub(crate) struct Place<'a> {
    /// `AT_FDCWD` or an open directory.
    at: c_int,
    name: &'a CStr,
    /// `at` was opened for this, and ends with it.
    is_own: bool,
}

impl<'a> Place<'a> {
    /// The place of a path. What a program passes with an absolute path means nothing.
    ///
    /// # Errors
    /// `EBADF`, `ENOENT` and so on, as the kernel says of the directory.
    pub(crate) fn of(at: c_int, path: &'a CStr) -> Result<Place<'a>, Errno> {
        let bytes = path.to_bytes();
        let at = if bytes.first() == Some(&b'/') { AT_FDCWD } else { at };
        if at < 0 && at != AT_FDCWD {
            return Err(libc::EBADF);
        }
        let end = bytes.iter().rposition(|byte| *byte != b'/').unwrap_or(0);
        let slash = bytes[..end].iter().rposition(|byte| *byte == b'/');
        let Some(slash) = slash.filter(|_| bytes.len() > PASSED_BYTES_MAX) else {
            return Ok(Place { at, name: path, is_own: false });
        };
        let folder = CString::new(&bytes[..=slash]).map_err(|_| libc::EINVAL)?;
        let how = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        // SAFETY: the path is a string.
        let at = real::checked(unsafe { real::openat64(at, folder.as_ptr(), how, 0) })?;
        let name = CStr::from_bytes_with_nul(&path.to_bytes_with_nul()[slash + 1..]);
        Ok(Place { at, name: name.expect("the end of a string"), is_own: true })
    }

    /// The directory.
    pub(crate) fn folder(&self) -> BorrowedFd<'_> {
        // SAFETY: open while this lives, by the program during its call or by this.
        unsafe { BorrowedFd::borrow_raw(self.at) }
    }

    /// The name in it, which may have several steps.
    pub(crate) fn name(&self) -> &'a CStr {
        self.name
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_own {
            real::close_plain(self.at);
        }
    }
}

/// The target of a symbolic link, from where `path` begins; `None` when `path` is no symbolic link.
pub(crate) fn link_target(at: c_int, path: &CStr) -> Option<CString> {
    let target = read_link_at(at, path).ok()?;
    let path = path.to_bytes();
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) if target.first() != Some(&b'/') => {
            CString::new([&path[..=slash], target.as_slice()].concat()).ok()
        }
        _ => CString::new(target).ok(),
    }
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
    read_link_at(AT_FDCWD, link)
}

fn read_link_at(at: c_int, link: &CStr) -> Result<Vec<u8>, Errno> {
    let mut room = vec![0_u8; 4096];
    // SAFETY: the buffer has the length that is given.
    let length = unsafe { libc::readlinkat(at, link.as_ptr(), room.as_mut_ptr().cast(), room.len()) };
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
    fn only_the_last_step_of_a_long_path_is_passed_on_and_only_of_a_long_one() {
        let named =
            |path: &CStr| Place::of(AT_FDCWD, path).map(|place| (place.name().to_owned(), place.is_own));
        assert_eq!(named(c"a/b"), Ok((c"a/b".to_owned(), false)));
        let long = |end: &str| CString::new(format!("/{}{end}", "./".repeat(2000))).expect("no zero byte");
        for end in ["f", "f//", "f/", "."] {
            assert_eq!(named(&long(end)), Ok((CString::new(end).expect("no zero byte"), true)));
        }
        assert_eq!(named(&long("no/f")), Err(libc::ENOENT));
        assert_eq!(Place::of(-1, c"f").map(|_| ()), Err(libc::EBADF));
        assert!(Place::of(-1, c"/f").is_ok());
    }

    #[test]
    fn plain_paths_are_recognised() {
        assert!(is_plain(b"/a/b.c/..d"));
        for path in ["/a/../b", "/a//b", "/a/./b", "/a/"] {
            assert!(!is_plain(path.as_bytes()), "{path}");
        }
    }
}
