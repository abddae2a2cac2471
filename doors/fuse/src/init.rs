//! The first words: which protocol, which abilities.

use crate::abi::{InHeader, InitIn, InitOut, MAJOR, MINOR, MINOR_MIN, OutHeader, init, opcode};
use crate::session::receive;
use crate::sys;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use zerocopy::{FromBytes, IntoBytes};

/// Pages of 4 KiB in a request, unless the kernel is told otherwise.
const PAGE_BYTES: u32 = 4096;
/// Asynchronous reads and writes of programs, and pages written back, that the kernel may have under way at once. There is one limit
/// for all, and pages must find a place even when many others wait for locks: only the number of threads is the limit. (For users
/// other than root the kernel has a lower one, `max_user_bgreq` of its module.)
const BACKGROUND_MAX: u16 = u16::MAX;

/// What was agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Largest write or read, bytes.
    pub(crate) write_bytes_max: u32,
    /// Whether the kernel waits for its queues to get entries.
    pub(crate) rings: bool,
}

/// Answers the kernel's first request.
pub(crate) fn agree(
    device: &OwnedFd,
    write_bytes_max: u32,
    (acl, rings): (bool, bool),
) -> io::Result<Agreed> {
    let mut memory = vec![0_u8; 2 * 4096 + 4096];
    loop {
        let bytes = match receive(device.as_fd(), &mut memory) {
            Ok(bytes) => bytes,
            Err(libc::EINTR | libc::EAGAIN | libc::ENOENT) => continue,
            Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
        };
        let broken = || io::Error::other("the kernel's first request is no INIT");
        let (header, rest) = InHeader::read_from_prefix(&memory[..bytes]).map_err(|_| broken())?;
        if header.opcode != opcode::INIT {
            return Err(broken());
        }
        // Kernels before 7.36 send a shorter structure.
        let mut asked = InitIn::default();
        let length = rest.len().min(size_of::<InitIn>());
        asked.as_mut_bytes()[..length].copy_from_slice(&rest[..length]);
        let (answer, agreed) = choose(&asked, write_bytes_max.min(kernel_limit()), (acl, rings));
        send(device, header.unique, &answer)?;
        if asked.major > MAJOR {
            // It tries again with our version.
            continue;
        }
        if asked.major < MAJOR || asked.minor < MINOR_MIN {
            let (major, minor) = (asked.major, asked.minor);
            let text =
                format!("the kernel speaks FUSE {major}.{minor}, {MAJOR}.{MINOR_MIN} or later is needed");
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        return Ok(agreed);
    }
}

/// Most bytes of a request that the kernel allows.
fn kernel_limit() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").unwrap_or_default();
    text.trim().parse().unwrap_or(256_u32).saturating_mul(PAGE_BYTES)
}

fn choose(asked: &InitIn, write_bytes_max: u32, (acl, rings): (bool, bool)) -> (InitOut, Agreed) {
    let offered = u64::from(asked.flags) | u64::from(asked.flags2) << 32;
    // Not ATOMIC_O_TRUNC: the kernel would write old pages of a mapping back after the file was cut and before it drops them.
    // Not ASYNC_READ: reads ahead would count among what the kernel has under way in the background, and when all of those wait for
    // holds of others, the pages that these wait for could not be written back.
    let mut wanted = init::POSIX_LOCKS
        | init::FLOCK_LOCKS
        | init::BIG_WRITES
        | init::DONT_MASK
        | init::ASYNC_DIO
        | init::PARALLEL_DIROPS
        | init::MAX_PAGES
        | init::EXPLICIT_INVAL_DATA
        | init::HANDLE_KILLPRIV_V2
        | init::SETXATTR_EXT
        | init::INIT_EXT
        | init::DIRECT_IO_ALLOW_MMAP;
    if acl {
        wanted |= init::POSIX_ACL;
    }
    if rings {
        wanted |= init::OVER_IO_URING;
    }
    let flags = offered & wanted;
    let write_bytes_max = if flags & init::MAX_PAGES != 0 { write_bytes_max } else { 32 * PAGE_BYTES };
    let pages = write_bytes_max.div_ceil(PAGE_BYTES);
    let low = |flags: u64| u32::try_from(flags & u64::from(u32::MAX)).expect("masked");
    let answer = InitOut {
        major: MAJOR,
        minor: MINOR.min(asked.minor),
        max_readahead: asked.max_readahead,
        flags: low(flags),
        flags2: low(flags >> 32),
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: write_bytes_max,
        time_gran: 1,
        max_pages: u16::try_from(pages).unwrap_or(u16::MAX),
        ..InitOut::default()
    };
    (answer, Agreed { write_bytes_max, rings: flags & init::OVER_IO_URING != 0 })
}

fn send(device: &OwnedFd, unique: u64, answer: &InitOut) -> io::Result<()> {
    let bytes = size_of::<OutHeader>() + size_of::<InitOut>();
    let header = OutHeader { len: u32::try_from(bytes).expect("short"), error: 0, unique };
    let mut message = header.as_bytes().to_vec();
    message.extend_from_slice(answer.as_bytes());
    // SAFETY: an open device and a buffer of the length that is given.
    let sent = unsafe { libc::write(device.as_raw_fd(), message.as_ptr().cast(), message.len()) };
    if sent < 0 { Err(io::Error::from_raw_os_error(sys::errno())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_offers_is_taken() {
        let asked = InitIn { major: 7, minor: 99, flags: u32::MAX, flags2: u32::MAX, ..InitIn::default() };
        let (answer, agreed) = choose(&asked, 1 << 20, (true, false));
        assert_eq!((answer.minor, answer.max_pages, answer.max_write), (MINOR, 256, 1 << 20));
        assert_eq!(agreed, Agreed { write_bytes_max: 1 << 20, rings: false });
        assert_eq!(answer.flags2, 1 << 4, "direct IO beside shared mappings, nothing else");
        let (answer, agreed) = choose(&asked, 1 << 20, (true, true));
        assert_eq!((answer.flags2, agreed.rings), (1 << 4 | 1 << 9, true));
        let poor = InitIn { major: 7, minor: 39, ..InitIn::default() };
        let (answer, agreed) = choose(&poor, 1 << 20, (true, true));
        assert_eq!((answer.flags, answer.flags2, answer.minor), (0, 0, 39));
        assert_eq!(agreed, Agreed { write_bytes_max: 128 << 10, rings: false });
    }
}
