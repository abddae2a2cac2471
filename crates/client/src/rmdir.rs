//! Removing directories: one that holds nothing but its default layout counts as empty.

use crate::client::Client;
use crate::directory::{DIRECTORY_LAYOUT, join, namespace_error};
use crate::error::FsError;
use crate::sys::{self, Place};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;

/// How often a directory is tried that others remove or fill at the same time.
const ATTEMPTS: u32 = 64;

impl Client {
    /// Removes a directory that is empty but for its default layout.
    ///
    /// # Errors
    /// As `rmdir(2)`.
    pub fn rmdir_at(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), FsError> {
        let place = Place { dir, name };
        let fail = |e| namespace_error("rmdir", &place.path(), e);
        for _ in 0..ATTEMPTS {
            let error = match sys::unlink(place, libc::AT_REMOVEDIR) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let not_empty = matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST));
            let Some(hidden) = hidden_names(place).unwrap_or_default().filter(|_| not_empty) else {
                return Err(fail(error));
            };
            match remove_with(place, &hidden) {
                Ok(()) => return Ok(()),
                // Somebody else has put the layout aside, and removes the directory or puts it back; or has made a file.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTEMPTY)) => {}
                Err(error) => return Err(fail(error)),
            }
        }
        Err(fail(io::Error::from_raw_os_error(libc::ENOTEMPTY)))
    }
}

/// What is in a directory, if that is nothing but its default layout, and what was left behind of others by killed processes.
fn hidden_names(place: Place<'_>) -> io::Result<Option<Vec<CString>>> {
    let directory = sys::open(place, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW, 0)?;
    let path = sys::path_of_descriptor(directory.as_fd());
    let path = Place { dir: sys::WORKING_DIRECTORY, name: &path }.path();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name().into_vec();
        if !is_ours(&name) {
            return Ok(None);
        }
        names.push(CString::new(name).expect("a name without zero bytes"));
    }
    Ok(Some(names))
}

/// Whether a name is that of a default layout, or of one that was just being written or put aside. Anything else is somebody's file.
fn is_ours(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(DIRECTORY_LAYOUT.to_bytes()) else { return false };
    let random = rest.strip_prefix(b"-aside-").or_else(|| rest.strip_prefix(b"."));
    rest.is_empty()
        || random.is_some_and(|random| random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit))
}

/// Removes a directory with the hidden names in it. The layout waits beside the directory, to be put back if somebody makes a file
/// there meanwhile.
fn remove_with(place: Place<'_>, hidden: &[CString]) -> io::Result<()> {
    let is_layout = |name: &&CString| name.as_c_str() == DIRECTORY_LAYOUT;
    for name in hidden.iter().filter(|name| !is_layout(name)) {
        let left_behind = join(place.name, name);
        // It may be gone by now.
        let _ = sys::unlink(Place { dir: place.dir, name: &left_behind }, 0);
    }
    if !hidden.iter().any(|name| is_layout(&name)) {
        return sys::unlink(place, libc::AT_REMOVEDIR);
    }
    let (layout, aside) = (join(place.name, DIRECTORY_LAYOUT), aside(place.name)?);
    let layout = Place { dir: place.dir, name: &layout };
    let aside = Place { dir: place.dir, name: &aside };
    sys::rename(layout, aside, 0)?;
    let removed = sys::unlink(place, libc::AT_REMOVEDIR);
    // Another layout may have been set meanwhile, which stays; or somebody else has removed the directory.
    if removed.is_ok() || put_back(aside, layout).is_err() {
        let _ = sys::unlink(aside, 0);
    }
    removed
}

/// A name beside a directory that nobody else uses; it does not lead through the directory, which goes.
fn aside(directory: &CStr) -> io::Result<CString> {
    let path = directory.to_bytes();
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let plain = CString::new(&path[..end]).expect("a part of a string without zero bytes");
    let (parent, _) = Place { dir: sys::WORKING_DIRECTORY, name: &plain }.split();
    let mut random = [0; 8];
    sys::random_bytes(&mut random)?;
    let layout = DIRECTORY_LAYOUT.to_str().expect("plain letters");
    let name = format!("{layout}-aside-{:016x}", u64::from_le_bytes(random));
    Ok(join(&parent, &CString::new(name).expect("no zero byte")))
}

fn put_back(aside: Place<'_>, layout: Place<'_>) -> io::Result<()> {
    match sys::rename(aside, layout, libc::RENAME_NOREPLACE) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => sys::rename(aside, layout, 0),
        other => other,
    }
}
