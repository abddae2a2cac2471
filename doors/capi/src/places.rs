//! Exported functions about where files are: which paths are ours, layouts, lengths, and what was counted.

use crate::calls::{handle, offset, path};
use crate::reply::{Failure, reply, string};
use crate::session::session;
use ccpfs_client::FsError;
use libc::{c_char, c_int, off_t};
use std::fs;
use std::io;
use std::path::Path;

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_is_path(name: *const c_char) -> c_int {
    reply(|| {
        // SAFETY: as the caller promises.
        let path = unsafe { path(name) }?;
        let client = session().client()?;
        if !is_inside(&client.config().namespace, &path) {
            return Ok(0);
        }
        match fs::metadata(&path) {
            Err(error) => Ok(c_int::from(error.kind() == io::ErrorKind::NotFound)),
            Ok(found) if found.is_file() => Ok(c_int::from(is_ours(client.stub(&path)))),
            Ok(_) => Ok(0),
        }
    })
}

/// Whether a file is a stub, or shall be one as far as can be seen. Only an ordinary file is none: who may not read it hears that from the
/// open, and so does who finds it of another cluster; one that somebody has deleted since it was seen would be created.
fn is_ours<T>(stub: Result<T, FsError>) -> bool {
    !matches!(stub, Err(FsError::CorruptStub { .. }))
}

/// Whether a file of that name lies, or would lie, in the namespace: the directory decides, after symbolic links.
fn is_inside(root: &Path, path: &Path) -> bool {
    let Ok(root) = root.canonicalize() else { return false };
    let found = path.canonicalize().or_else(|_| match (path.parent(), fs::read_link(path)) {
        // A link that leads to nothing: a file would be created where it points to.
        (Some(folder), Ok(target)) => folder.join(target).parent().unwrap_or(folder).canonicalize(),
        (Some(folder), Err(_)) => folder.canonicalize(),
        (None, _) => Err(io::ErrorKind::NotFound.into()),
    });
    found.is_ok_and(|found| found.starts_with(root))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_layout(number: c_int, stripe_count: *mut u32, stripe_bytes: *mut u64) -> c_int {
    reply(|| {
        let layout = handle(number)?.file.layout();
        // SAFETY: as the caller promises: each is null or leads to a number.
        unsafe {
            if let Some(count) = stripe_count.as_mut() {
                *count = layout.stripe_count();
            }
            if let Some(bytes) = stripe_bytes.as_mut() {
                *bytes = layout.stripe_bytes();
            }
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_allocate(number: c_int, at: off_t, length: off_t) -> c_int {
    reply(|| {
        let length = offset(length)?;
        if length == 0 {
            return Err(Failure::new(libc::EINVAL, "the length is 0"));
        }
        handle(number)?.file.allocate(offset(at)?, length, false)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_statistic(name: *const c_char, value: *mut u64) -> c_int {
    reply(|| {
        // SAFETY: as the caller promises.
        let (name, value) = unsafe { (string(name, "the name")?, value.as_mut()) };
        let named = session().client()?.statistics().named();
        let found = named.iter().find(|(known, _)| known.as_bytes() == name.to_bytes());
        let (_, count) =
            found.ok_or_else(|| Failure::new(libc::EINVAL, "nothing of that name is counted"))?;
        *value.ok_or_else(|| Failure::new(libc::EFAULT, "the value is NULL"))? = *count;
        Ok(0)
    })
}
