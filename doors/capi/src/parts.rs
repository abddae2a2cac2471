//! Exported functions that read and write several parts of a file in one call.

use crate::calls::{CALL_BYTES_MAX, handle};
use crate::handles::Held;
use crate::reply::{Failure, reply};
use ccpfs_client::{Hold, HoldMode};
use ccpfs_types::Extent;
use libc::{c_int, c_void, size_t, ssize_t};
use std::slice;
use std::sync::Arc;

/// `struct ccpfs_part` of the header.
#[repr(C)]
struct Part {
    offset: u64,
    memory: *mut c_void,
    length: size_t,
}

impl Part {
    /// # Safety
    /// The memory may be read for as long as the answer is used.
    unsafe fn bytes(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: as the caller promises.
        unsafe { slice::from_raw_parts(self.memory.cast(), self.length) }
    }

    /// # Safety
    /// The memory may be written, and nobody else uses it, for as long as the answer is used.
    #[expect(clippy::mut_from_ref, reason = "the part says where the memory is, it does not hold it")]
    unsafe fn bytes_mut(&self) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: as the caller promises; the client writes the bytes and reads none.
        unsafe { slice::from_raw_parts_mut(self.memory.cast(), self.length) }
    }
}

/// # Safety
/// `list` leads to `count` parts, whose memory may be used as the call says, or is null.
unsafe fn parts<'a>(list: *const Part, count: size_t) -> Result<&'a [Part], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(Failure::new(libc::EFAULT, "the list of parts is NULL"));
    }
    // SAFETY: as the caller promises.
    let parts = unsafe { slice::from_raw_parts(list, count) };
    for part in parts {
        if part.length > CALL_BYTES_MAX || part.offset.checked_add(part.length as u64).is_none() {
            return Err(Failure::new(libc::EINVAL, "a part is too long"));
        }
        if part.length > 0 && part.memory.is_null() {
            return Err(Failure::new(libc::EFAULT, "a part has no memory"));
        }
    }
    Ok(parts)
}

fn signed(total: usize) -> ssize_t {
    total.cast_signed()
}

/// Reads parts by `read` until one is cut short by the end of the file.
fn read_each(
    parts: &[Part],
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Failure>,
) -> Result<ssize_t, Failure> {
    let mut total = 0;
    for part in parts.iter().filter(|part| part.length > 0) {
        // SAFETY: the parts are those of a call, whose caller promised it.
        let got = read(unsafe { part.bytes_mut() }, part.offset)?;
        total += got;
        if got < part.length {
            break;
        }
    }
    Ok(signed(total))
}

fn write_each(
    parts: &[Part],
    mut write: impl FnMut(&[u8], u64) -> Result<usize, Failure>,
) -> Result<ssize_t, Failure> {
    let mut total = 0;
    for part in parts.iter().filter(|part| part.length > 0) {
        // SAFETY: the parts are those of a call, whose caller promised it.
        total += write(unsafe { part.bytes() }, part.offset)?;
    }
    Ok(signed(total))
}

fn finish_write(held: &Held<'_>) -> Result<(), Failure> {
    if held.syncs {
        held.file.sync()?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_read_parts(number: c_int, list: *const Part, count: size_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let parts = unsafe { parts(list, count) }?;
        read_each(parts, |bytes, at| Ok(held.file.read_at(bytes, at)?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_write_parts(number: c_int, list: *const Part, count: size_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let parts = unsafe { parts(list, count) }?;
        let total = write_each(parts, |bytes, at| Ok(held.file.write_at(bytes, at)?))?;
        finish_write(&held)?;
        Ok(total)
    })
}

/// The bounds of all parts that are not empty.
fn bounds(parts: &[Part]) -> Option<Extent> {
    parts
        .iter()
        .filter_map(|part| Extent::new(part.offset, part.offset + part.length as u64))
        .reduce(Extent::hull)
}

/// Locks on all of the parts, for as long as the answer lives.
fn hold(held: &Held<'_>, extent: Extent, mode: HoldMode) -> Result<Hold, Failure> {
    // It ends with the call: whoever wants the locks has not to wait for anything else.
    Ok(held.file.hold(extent, mode, Arc::new(|_| {}))?)
}

fn refuse_overlaps(parts: &[Part]) -> Result<(), Failure> {
    let mut spans: Vec<(u64, u64)> = parts
        .iter()
        .filter(|part| part.length > 0)
        .map(|part| (part.offset, part.offset + part.length as u64))
        .collect();
    spans.sort_unstable();
    if spans.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Err(Failure::new(libc::EINVAL, "parts of an atomic write overlap"));
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_read_atomic(number: c_int, list: *const Part, count: size_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let parts = unsafe { parts(list, count) }?;
        if let [part] = parts {
            return read_each(slice::from_ref(part), |bytes, at| Ok(held.file.read_at(bytes, at)?));
        }
        let Some(extent) = bounds(parts) else { return Ok(0) };
        let locks = hold(&held, extent, HoldMode::Read)?;
        read_each(parts, |bytes, at| Ok(locks.read_at(bytes, at)?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_write_atomic(number: c_int, list: *const Part, count: size_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let parts = unsafe { parts(list, count) }?;
        let total = if let [part] = parts {
            write_each(slice::from_ref(part), |bytes, at| Ok(held.file.write_at(bytes, at)?))?
        } else {
            refuse_overlaps(parts)?;
            let Some(extent) = bounds(parts) else { return Ok(0) };
            let locks = hold(&held, extent, HoldMode::Write)?;
            write_each(parts, |bytes, at| Ok(locks.write_at(bytes, at)?))?
        };
        finish_write(&held)?;
        Ok(total)
    })
}
