//! Exported functions that read and write several parts of a file in one call.

use crate::calls::{CALL_BYTES_MAX, handle};
use crate::handles::Held;
use crate::regions::{region_of, simple_region_of};
use crate::reply::{Failure, reply, string};
use ccpfs_client::{LockStyle, Region};
use ccpfs_types::Extent;
use libc::{c_char, c_int, c_void, size_t, ssize_t};
use std::slice;
use std::sync::PoisonError;

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

/// Most sections of a region that is one operation although nobody asks for that.
const SECTIONS_MAX: usize = 8;

/// Parts that need not be atomic and are best done as one operation: they lie regularly, and so need few locks, which those of other
/// clients in between do not meet, and which serve whoever reads them back in the same way.
fn simple(parts: &[Part]) -> Option<(Vec<&Part>, Region)> {
    if parts.len() < 2 {
        return None;
    }
    let sorted = in_order(parts)?;
    let region = simple_region_of(&extents(&sorted), SECTIONS_MAX)?;
    Some((sorted, region))
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

/// Writes parts by `write` until one is cut short by an error that comes after its first bytes.
fn write_each(
    parts: &[Part],
    mut write: impl FnMut(&[u8], u64) -> Result<usize, Failure>,
) -> Result<ssize_t, Failure> {
    let mut total = 0;
    for part in parts.iter().filter(|part| part.length > 0) {
        // SAFETY: the parts are those of a call, whose caller promised it.
        let written = write(unsafe { part.bytes() }, part.offset)?;
        total += written;
        if written < part.length {
            break;
        }
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
        if let Some((sorted, region)) = simple(parts) {
            return read_sorted(&held, parts, &sorted, &region);
        }
        read_each(parts, |bytes, at| Ok(held.file.read_at(bytes, at)?))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_write_parts(number: c_int, list: *const Part, count: size_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let parts = unsafe { parts(list, count) }?;
        let total = match simple(parts) {
            Some((sorted, region)) => write_sorted(&held, &sorted, &region)?,
            None => write_each(parts, |bytes, at| Ok(held.file.write_at(bytes, at)?))?,
        };
        finish_write(&held)?;
        Ok(total)
    })
}

/// The parts that are not empty, in the order of their offsets, if none overlaps the next.
fn in_order(parts: &[Part]) -> Option<Vec<&Part>> {
    let mut sorted: Vec<&Part> = parts.iter().filter(|part| part.length > 0).collect();
    if !sorted.is_sorted_by_key(|part| part.offset) {
        sorted.sort_by_key(|part| part.offset);
    }
    let disjoint = sorted.windows(2).all(|pair| pair[0].offset + pair[0].length as u64 <= pair[1].offset);
    disjoint.then_some(sorted)
}

fn extents(parts: &[&Part]) -> Vec<Extent> {
    parts.iter().filter_map(|part| Extent::new(part.offset, part.offset + part.length as u64)).collect()
}

/// The memory of all parts, if it is in one piece.
fn one_piece(parts: &[&Part]) -> Option<(*mut c_void, usize)> {
    let first = parts.first()?;
    let mut end = first.memory.cast::<u8>();
    for part in parts {
        if part.memory.cast::<u8>() != end {
            return None;
        }
        end = end.wrapping_add(part.length);
    }
    Some((first.memory, parts.iter().map(|part| part.length).sum()))
}

/// How the locks are asked for: as the handle says, else as the configuration does.
fn style_of(held: &Held<'_>) -> Option<LockStyle> {
    *held.style.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_region(held: &Held<'_>, region: &Region, bytes: &[u8]) -> Result<usize, Failure> {
    Ok(match style_of(held) {
        Some(style) => held.file.write_region_with(region, bytes, style)?,
        None => held.file.write_region(region, bytes)?,
    })
}

fn read_region(held: &Held<'_>, region: &Region, bytes: &mut [u8]) -> Result<usize, Failure> {
    Ok(match style_of(held) {
        Some(style) => held.file.read_region_with(region, bytes, style)?,
        None => held.file.read_region(region, bytes)?,
    })
}

fn write_atomic(held: &Held<'_>, parts: &[Part]) -> Result<ssize_t, Failure> {
    let parts =
        in_order(parts).ok_or_else(|| Failure::new(libc::EINVAL, "parts of an atomic write overlap"))?;
    let Some(region) = region_of(&extents(&parts)) else { return Ok(0) };
    write_sorted(held, &parts, &region)
}

/// Writes parts that are sorted and make up the region.
fn write_sorted(held: &Held<'_>, parts: &[&Part], region: &Region) -> Result<ssize_t, Failure> {
    if let Some((memory, length)) = one_piece(parts) {
        // SAFETY: the parts are those of a call, whose caller promised it.
        let bytes = unsafe { slice::from_raw_parts(memory.cast(), length) };
        return Ok(signed(write_region(held, region, bytes)?));
    }
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.length).sum());
    for part in parts {
        // SAFETY: the parts are those of a call, whose caller promised it.
        bytes.extend_from_slice(unsafe { part.bytes() });
    }
    Ok(signed(write_region(held, region, &bytes)?))
}

fn read_atomic(held: &Held<'_>, parts: &[Part]) -> Result<ssize_t, Failure> {
    let Some(sorted) = in_order(parts) else { return read_hull(held, parts) };
    let Some(region) = region_of(&extents(&sorted)) else { return Ok(0) };
    read_sorted(held, parts, &sorted, &region)
}

/// Reads parts that, sorted, make up the region.
fn read_sorted(
    held: &Held<'_>,
    parts: &[Part],
    sorted: &[&Part],
    region: &Region,
) -> Result<ssize_t, Failure> {
    // Parts in another order are counted in theirs, below.
    let in_place = one_piece(sorted).filter(|_| parts.is_sorted_by_key(|part| part.offset));
    if let Some((memory, length)) = in_place {
        // SAFETY: the parts are those of a call, whose caller promised it; the client writes the bytes and reads none.
        let bytes = unsafe { slice::from_raw_parts_mut(memory.cast(), length) };
        return Ok(signed(read_region(held, region, bytes)?));
    }
    let mut bytes = vec![0; sorted.iter().map(|part| part.length).sum()];
    let got = read_region(held, region, &mut bytes)?;
    let mut rest = &bytes[..got];
    // The end of the file, if it was met: behind the last byte that was found.
    let mut end = u64::MAX;
    for part in sorted {
        let there = part.length.min(rest.len());
        // SAFETY: as above.
        let to = unsafe { part.bytes_mut() };
        to[..there].copy_from_slice(&rest[..there]);
        rest = &rest[there..];
        if there < part.length {
            end = end.min(part.offset + there as u64);
        }
    }
    Ok(signed(bytes_below(parts, end)))
}

/// How many bytes of the parts, in their order, lie below `end`, up to the first that does not.
fn bytes_below(parts: &[Part], end: u64) -> usize {
    let mut total = 0;
    for part in parts {
        let there = end.saturating_sub(part.offset).min(part.length as u64);
        total += usize::try_from(there).expect("no more than the part");
        if there < part.length as u64 {
            break;
        }
    }
    total
}

/// Parts that overlap: one read of everything between the first and the last byte.
fn read_hull(held: &Held<'_>, parts: &[Part]) -> Result<ssize_t, Failure> {
    let ends = parts.iter().filter_map(|part| Extent::new(part.offset, part.offset + part.length as u64));
    let Some(hull) = ends.reduce(Extent::hull) else { return Ok(0) };
    let length = usize::try_from(hull.length()).ok().filter(|length| *length <= CALL_BYTES_MAX);
    let length =
        length.ok_or_else(|| Failure::new(libc::EINVAL, "parts of an atomic read lie too far apart"))?;
    let mut bytes = vec![0; length];
    let got = held.file.read_at(&mut bytes, hull.start())? as u64;
    let end = if got < hull.length() { hull.start() + got } else { u64::MAX };
    for part in parts.iter().filter(|part| part.offset < end) {
        let there =
            usize::try_from((end - part.offset).min(part.length as u64)).expect("no more than the part");
        let from = usize::try_from(part.offset - hull.start()).expect("inside of the hull");
        // SAFETY: the parts are those of a call, whose caller promised it.
        let to = unsafe { part.bytes_mut() };
        to[..there].copy_from_slice(&bytes[from..from + there]);
    }
    Ok(signed(bytes_below(parts, end)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_read_atomic(number: c_int, list: *const Part, count: size_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        read_atomic(&held, unsafe { parts(list, count) }?)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_write_atomic(number: c_int, list: *const Part, count: size_t) -> ssize_t {
    reply(|| {
        let held = handle(number)?;
        // SAFETY: as the caller promises.
        let total = write_atomic(&held, unsafe { parts(list, count) }?)?;
        finish_write(&held)?;
        Ok(total)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_lock_style(number: c_int, kind: *const c_char, protocol: *const c_char) -> c_int {
    reply(|| {
        let held = handle(number)?;
        let unknown = |error: &dyn std::fmt::Display| Failure::new(libc::EINVAL, error.to_string());
        // SAFETY: as the caller promises.
        let (kind, protocol) = unsafe { (string(kind, "the kind")?, string(protocol, "the protocol")?) };
        let kind = kind.to_string_lossy().parse().map_err(|e| unknown(&e))?;
        let protocol = protocol.to_string_lossy().parse().map_err(|e| unknown(&e))?;
        *held.style.lock().unwrap_or_else(PoisonError::into_inner) = Some(LockStyle { kind, protocol });
        Ok(0)
    })
}
