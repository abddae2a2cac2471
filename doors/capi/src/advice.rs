//! Exported functions of advice: locks ahead of time, what will be read, what is not needed any more; and group locks.

use crate::calls::{handle, offset};
use crate::reply::{Failure, reply};
use ccpfs_client::{Advised, AheadMode};
use ccpfs_types::Extent;
use libc::{c_int, off_t, size_t};
use std::num::NonZeroU64;
use std::slice;

/// `struct ccpfs_advice` of the header.
#[repr(C)]
struct Advice {
    start: u64,
    end: u64,
    result: c_int,
}

const SENT: c_int = 0;
const DIFFERENT: c_int = 1;
const SAME: c_int = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn ccpfs_lockahead(number: c_int, list: *mut Advice, count: size_t, write: c_int) -> c_int {
    reply(|| {
        let held = handle(number)?;
        if list.is_null() || count == 0 || count > ccpfs_client::ADVICES_MAX {
            return Err(Failure::new(libc::EINVAL, "the number of advices is out of range"));
        }
        // SAFETY: as the caller promises.
        let advices = unsafe { slice::from_raw_parts_mut(list, count) };
        let empty = || Failure::new(libc::EINVAL, "an advice is about no byte");
        let extents: Vec<Extent> = advices
            .iter()
            .map(|advice| Extent::new(advice.start, advice.end).ok_or_else(empty))
            .collect::<Result<_, _>>()?;
        let mode = if write == 0 { AheadMode::Read } else { AheadMode::Write };
        for (advice, result) in advices.iter_mut().zip(held.file.lockahead(&extents, mode)?) {
            advice.result = match result {
                Ok(Advised::Sent) => SENT,
                Ok(Advised::Same) => SAME,
                Ok(Advised::Different) => DIFFERENT,
                Err(error) => -error.to_errno(),
            };
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_lock_expansion(number: c_int, expand: c_int) -> c_int {
    reply(|| {
        handle(number)?.file.set_lock_expansion(expand != 0);
        Ok(0)
    })
}

fn extent(start: off_t, length: off_t) -> Result<Option<Extent>, Failure> {
    let (start, length) = (offset(start)?, offset(length)?);
    Ok(Extent::new(start, start.saturating_add(length)))
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_will_read(number: c_int, start: off_t, length: off_t) -> c_int {
    reply(|| {
        let held = handle(number)?;
        if let Some(extent) = extent(start, length)? {
            held.file.will_read(extent)?;
        }
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_dont_need(number: c_int, start: off_t, length: off_t) -> c_int {
    reply(|| {
        let held = handle(number)?;
        if let Some(extent) = extent(start, length)? {
            held.file.dont_need(extent)?;
        }
        Ok(0)
    })
}

fn group(number: u64) -> Result<NonZeroU64, Failure> {
    NonZeroU64::new(number).ok_or_else(|| Failure::new(libc::EINVAL, "0 is no group"))
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_group_lock(number: c_int, id: u64) -> c_int {
    reply(|| {
        handle(number)?.file.group_lock(group(id)?)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
extern "C" fn ccpfs_group_unlock(number: c_int, id: u64) -> c_int {
    reply(|| {
        handle(number)?.file.group_unlock(group(id)?)?;
        Ok(0)
    })
}
