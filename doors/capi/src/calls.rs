//! The exported functions, in the order of `include/ccpfs.h`.

use crate::handles::{Handle, Held};
use crate::reply::{Failure, last_words, reply, string};
use crate::session::session;
use ccpfs_client::OpenOptions;
use ccpfs_types::Layout;
use libc::{c_char, c_int, c_void, iovec, mode_t, off_t, size_t, ssize_t};
use std::ffi::{CStr, OsStr};
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Mutex;

/// Most bytes of one call.
pub(crate) const CALL_BYTES_MAX: usize = 0x7fff_f000;
/// Most buffers of one call.
const BUFFERS_MAX: c_int = 1024;

pub(crate) fn path_of(text: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(text.to_bytes()))
}

/// # Safety
/// `path` is null or a string.
pub(crate) unsafe fn path(path: *const c_char) -> Result<PathBuf, Failure> {
    // SAFETY: as the caller promises.
    let text = unsafe { string(path, "the path") }?;
    if text.is_empty() {
        return Err(Failure::new(libc::ENOENT, "the path is empty"));
    }
    std::path::absolute(path_of(text))
        .map_err(|e| Failure::new(e.raw_os_error().unwrap_or(libc::ENOENT), e.to_string()))
}

pub(crate) fn offset(at: off_t) -> Result<u64, Failure> {
    u64::try_from(at).map_err(|_| Failure::new(libc::EINVAL, "the offset is negative"))
}

pub(crate) fn handle(number: c_int) -> Result<Held<'static>, Failure> {
    session().handles.get(number)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_init(config_path: *const c_char) -> c_int {
    reply(|| {
        let config = if config_path.is_null() {
            None
        } else {
            // SAFETY: as the caller promises.
            Some(path_of(unsafe { string(config_path, "the configuration") }?))
        };
        session().init(config).map(|()| 0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_finalize() -> c_int {
    reply(|| session().finish().map(|()| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_open(name: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as the caller promises.
    reply(|| open(&unsafe { path(name) }?, flags, mode, None))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_open_striped(
    name: *const c_char,
    flags: c_int,
    mode: mode_t,
    stripe_count: u32,
    stripe_bytes: u64,
) -> c_int {
    reply(|| {
        let layout = Layout::new(stripe_count, stripe_bytes)
            .ok_or_else(|| Failure::new(libc::EINVAL, "the layout is out of range"))?;
        // SAFETY: as the caller promises.
        open(&unsafe { path(name) }?, flags, mode, Some(layout))
    })
}

fn open(path: &Path, flags: c_int, mode: mode_t, layout: Option<Layout>) -> Result<c_int, Failure> {
    let has = |flag: c_int| flags & flag == flag;
    let access = flags & libc::O_ACCMODE;
    let options = OpenOptions {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        append: has(libc::O_APPEND),
        create: has(libc::O_CREAT),
        exclusive: has(libc::O_CREAT | libc::O_EXCL),
        truncate: has(libc::O_TRUNC) && access != libc::O_RDONLY,
        mode,
        layout,
        ..OpenOptions::default()
    };
    let file = session().client()?.open(path, &options)?;
    // O_SYNC contains O_DSYNC.
    let opened = Handle { file, appends: options.append, syncs: has(libc::O_DSYNC), style: Mutex::new(None) };
    session().handles.enter(opened)
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_close(number: c_int) -> c_int {
    reply(|| {
        session().handles.remove(number)?.file.close()?;
        Ok(0)
    })
}

fn check_length(lengths: impl Iterator<Item = usize>) -> Result<usize, Failure> {
    let total = lengths.fold(0_usize, usize::saturating_add);
    if total > CALL_BYTES_MAX { Err(Failure::new(libc::EINVAL, "too much for one call")) } else { Ok(total) }
}

/// # Safety
/// `from` leads to `count` bytes that may be read, or is null.
unsafe fn buffer<'a>(from: *const c_void, count: size_t) -> Result<IoSlice<'a>, Failure> {
    if count == 0 {
        return Ok(IoSlice::new(&[]));
    }
    if from.is_null() {
        return Err(Failure::new(libc::EFAULT, "a buffer is NULL"));
    }
    check_length([count].into_iter())?;
    // SAFETY: as the caller promises.
    Ok(IoSlice::new(unsafe { slice::from_raw_parts(from.cast(), count) }))
}

/// # Safety
/// `to` leads to `count` bytes that may be written, or is null.
unsafe fn buffer_mut<'a>(to: *mut c_void, count: size_t) -> Result<IoSliceMut<'a>, Failure> {
    if count == 0 {
        return Ok(IoSliceMut::new(&mut []));
    }
    if to.is_null() {
        return Err(Failure::new(libc::EFAULT, "a buffer is NULL"));
    }
    check_length([count].into_iter())?;
    // SAFETY: as the caller promises; the client writes the bytes and reads none.
    Ok(IoSliceMut::new(unsafe { slice::from_raw_parts_mut(to.cast(), count) }))
}

/// # Safety
/// `list` leads to `count` entries, or is null.
unsafe fn entries<'a>(list: *const iovec, count: c_int) -> Result<&'a [iovec], Failure> {
    if !(0..=BUFFERS_MAX).contains(&count) {
        return Err(Failure::new(libc::EINVAL, "the number of buffers is out of range"));
    }
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(Failure::new(libc::EFAULT, "the list of buffers is NULL"));
    }
    // SAFETY: as the caller promises.
    let entries = unsafe { slice::from_raw_parts(list, usize::try_from(count).expect("not negative")) };
    check_length(entries.iter().map(|entry| entry.iov_len))?;
    Ok(entries)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_pread(number: c_int, to: *mut c_void, count: size_t, at: off_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let mut to = unsafe { buffer_mut(to, count) }?;
        Ok(held.file.read_at(&mut to, offset(at)?)?.cast_signed())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_preadv(number: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let entries = unsafe { entries(list, count) }?;
        let mut buffers = entries
            .iter()
            // SAFETY: as the caller promises.
            .map(|entry| unsafe { buffer_mut(entry.iov_base, entry.iov_len) })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(held.file.read_vectored_at(&mut buffers, offset(at)?)?.cast_signed())
    })
}

/// Writes, at `at` or at the end of the file. Returns how many bytes, and where.
fn write(held: &Held<'_>, from: &[IoSlice<'_>], at: Option<u64>) -> Result<(ssize_t, off_t), Failure> {
    let total = check_length(from.iter().map(|buffer| buffer.len()))?;
    let (written, start) = match at {
        Some(at) => (held.file.write_vectored_at(from, at)?, at),
        None => (total, held.file.append(from)?.saturating_sub(total as u64)),
    };
    if held.syncs {
        held.file.sync()?;
    }
    Ok((written.cast_signed(), start.cast_signed()))
}

fn place(held: &Held<'_>, at: off_t) -> Result<Option<u64>, Failure> {
    let at = offset(at)?;
    Ok(if held.appends { None } else { Some(at) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_pwrite(number: c_int, from: *const c_void, count: size_t, at: off_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let from = unsafe { buffer(from, count) }?;
        Ok(write(&held, &[from], place(&held, at)?)?.0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_pwritev(number: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let entries = unsafe { entries(list, count) }?;
        let buffers = entries
            .iter()
            // SAFETY: as the caller promises.
            .map(|entry| unsafe { buffer(entry.iov_base, entry.iov_len) })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(write(&held, &buffers, place(&held, at)?)?.0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_append(
    number: c_int,
    from: *const c_void,
    count: size_t,
    where_put: *mut off_t,
) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let from = unsafe { buffer(from, count) }?;
        let (written, start) = write(&held, &[from], None)?;
        // SAFETY: null, or an offset of the caller.
        if let Some(place) = unsafe { where_put.as_mut() } {
            *place = start;
        }
        Ok(written)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_flush(number: c_int) -> c_int {
    reply(|| {
        handle(number)?.file.flush()?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_fsync(number: c_int) -> c_int {
    reply(|| {
        handle(number)?.file.sync()?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_fdatasync(number: c_int) -> c_int {
    ccpfs_fsync(number)
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_ftruncate(number: c_int, size: off_t) -> c_int {
    reply(|| {
        handle(number)?.file.truncate(offset(size)?)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_truncate(name: *const c_char, size: off_t) -> c_int {
    reply(|| {
        // SAFETY: as the caller promises.
        let path = unsafe { path(name) }?;
        session().client()?.truncate(&path, offset(size)?)?;
        Ok(0)
    })
}

/// # Safety
/// `to` is null or leads to a structure.
unsafe fn give(found: libc::stat, to: *mut libc::stat) -> Result<c_int, Failure> {
    if to.is_null() {
        return Err(Failure::new(libc::EFAULT, "the attributes are NULL"));
    }
    // SAFETY: as the caller promises.
    unsafe { to.write(found) };
    Ok(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_fstat(number: c_int, to: *mut libc::stat) -> c_int {
    // SAFETY: as the caller promises.
    reply(|| unsafe { give(handle(number)?.file.stat()?, to) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_stat(name: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: as the caller promises.
    reply(|| unsafe { give(session().client()?.stat(&path(name)?, true)?, to) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_lstat(name: *const c_char, to: *mut libc::stat) -> c_int {
    // SAFETY: as the caller promises.
    reply(|| unsafe { give(session().client()?.stat(&path(name)?, false)?, to) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_unlink(name: *const c_char) -> c_int {
    reply(|| {
        // SAFETY: as the caller promises.
        let path = unsafe { path(name) }?;
        session().client()?.unlink(&path)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_rename(from: *const c_char, to: *const c_char) -> c_int {
    reply(|| {
        // SAFETY: as the caller promises.
        let (from, to) = unsafe { (path(from)?, path(to)?) };
        session().client()?.rename(&from, &to)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_error_message() -> *const c_char {
    last_words()
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version holds no zero byte"),
        };
    VERSION.as_ptr()
}
