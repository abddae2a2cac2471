//! The C interface, loaded as a C program would have it linked. Besides `sys`, the only unsafe code of the command.

use crate::failure::{Context, Failure};
use libc::{c_char, c_int, c_void, mode_t, off_t, size_t, ssize_t};
use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

type Init = unsafe extern "C" fn(*const c_char) -> c_int;
type Open = unsafe extern "C" fn(*const c_char, c_int, mode_t) -> c_int;
type Handle = unsafe extern "C" fn(c_int) -> c_int;
type Read = unsafe extern "C" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
type Write = unsafe extern "C" fn(c_int, *const c_void, size_t, off_t) -> ssize_t;
type Stat = unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int;
type Unlink = unsafe extern "C" fn(*const c_char) -> c_int;

/// `libccpfs.so` in this process; it stays for the process's life.
pub(super) struct Library {
    open: Open,
    close: Handle,
    sync: Handle,
    read: Read,
    write: Write,
    stat: Stat,
    unlink: Unlink,
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::from)
}

fn checked(result: ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn done(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn position(offset: u64) -> io::Result<off_t> {
    off_t::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// A function of a loaded library.
fn symbol(library: *mut c_void, name: &CStr) -> Result<*mut c_void, Failure> {
    // SAFETY: a handle from `dlopen` that is never closed, and a string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    let missing = || Failure::new(format!("the C library has no {}", name.to_string_lossy()));
    if found.is_null() { Err(missing()) } else { Ok(found) }
}

impl Library {
    /// Loads the library and lets it read its configuration.
    pub(super) fn load(path: &Path, config: &Path) -> Result<Library, Failure> {
        let failed = || format!("cannot load {}", path.display());
        let name = c_path(path).context(failed)?;
        // SAFETY: a string; the library's initialisers are those of Rust's standard library.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(Failure::new(failed()));
        }
        let find = |name| symbol(library, name);
        let init = find(c"ccpfs_init")?;
        // SAFETY: the types are those of `ccpfs.h`, which the library keeps.
        let (init, loaded) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Init>(init),
                Library {
                    open: std::mem::transmute::<*mut c_void, Open>(find(c"ccpfs_open")?),
                    close: std::mem::transmute::<*mut c_void, Handle>(find(c"ccpfs_close")?),
                    sync: std::mem::transmute::<*mut c_void, Handle>(find(c"ccpfs_fsync")?),
                    read: std::mem::transmute::<*mut c_void, Read>(find(c"ccpfs_pread")?),
                    write: std::mem::transmute::<*mut c_void, Write>(find(c"ccpfs_pwrite")?),
                    stat: std::mem::transmute::<*mut c_void, Stat>(find(c"ccpfs_stat")?),
                    unlink: std::mem::transmute::<*mut c_void, Unlink>(find(c"ccpfs_unlink")?),
                },
            )
        };
        let config = c_path(config).context(failed)?;
        // SAFETY: a string.
        done(unsafe { init(config.as_ptr()) }).context(|| "ccpfs_init".to_owned())?;
        Ok(loaded)
    }

    /// `ccpfs_open`.
    pub(super) fn open(&self, path: &Path, flags: c_int, mode: mode_t) -> io::Result<c_int> {
        let path = c_path(path)?;
        // SAFETY: a string.
        let handle = unsafe { (self.open)(path.as_ptr(), flags, mode) };
        done(handle).map(|()| handle)
    }

    /// `ccpfs_close`.
    pub(super) fn close(&self, handle: c_int) -> io::Result<()> {
        // SAFETY: no memory is involved.
        done(unsafe { (self.close)(handle) })
    }

    /// `ccpfs_fsync`.
    pub(super) fn sync(&self, handle: c_int) -> io::Result<()> {
        // SAFETY: no memory is involved.
        done(unsafe { (self.sync)(handle) })
    }

    /// `ccpfs_pread`.
    pub(super) fn read_at(&self, handle: c_int, to: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = position(offset)?;
        // SAFETY: a buffer of the length that is given.
        checked(unsafe { (self.read)(handle, to.as_mut_ptr().cast(), to.len(), offset) })
    }

    /// `ccpfs_pwrite`.
    pub(super) fn write_at(&self, handle: c_int, from: &[u8], offset: u64) -> io::Result<usize> {
        let offset = position(offset)?;
        // SAFETY: a buffer of the length that is given.
        checked(unsafe { (self.write)(handle, from.as_ptr().cast(), from.len(), offset) })
    }

    /// `ccpfs_stat`.
    pub(super) fn stat(&self, path: &Path) -> io::Result<libc::stat> {
        let path = c_path(path)?;
        // SAFETY: all zeros is a value of this plain structure.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: a string, and a structure of ours.
        done(unsafe { (self.stat)(path.as_ptr(), &raw mut found) })?;
        Ok(found)
    }

    /// `ccpfs_unlink`.
    pub(super) fn unlink(&self, path: &Path) -> io::Result<()> {
        let path = c_path(path)?;
        // SAFETY: a string.
        done(unsafe { (self.unlink)(path.as_ptr()) })
    }
}
