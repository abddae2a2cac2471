//! Listing directories.
//!
//! Positions are those of the namespace's file system, which keeps them stable while names come and go.

use crate::abi::{Dirent, ReadIn};
use crate::exchange::Errno;
use crate::handles::{Content, Listing};
use crate::inodes::Inode;
use crate::mount::Mount;
use crate::sys;
use std::ffi::CStr;
use std::os::fd::AsFd;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of one look into a directory.
const LOOK_BYTES: usize = 32 << 10;

/// An entry as `getdents64` packs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry<'a> {
    number: u64,
    /// The position behind it.
    next: i64,
    kind: u8,
    name: &'a [u8],
}

/// How an entry of `getdents64` begins; its name follows.
#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
struct Head {
    number: u64,
    next: i64,
    length: u16,
    kind: u8,
}

/// Takes the first entry off what `getdents64` gave.
fn split_entry(bytes: &[u8]) -> Option<(Entry<'_>, &[u8])> {
    let (head, _) = Head::read_from_prefix(bytes).ok()?;
    let Head { number, next, length, kind } = head;
    let (entry, rest) = bytes.split_at_checked(usize::from(length))?;
    let name = CStr::from_bytes_until_nul(entry.get(size_of::<Head>()..)?).ok()?.to_bytes();
    Some((Entry { number, next, kind, name }, rest))
}

/// Packs an entry for the kernel; `None` when it does not fit.
fn pack(entry: &Entry<'_>, to: &mut [u8]) -> Option<usize> {
    let header = Dirent {
        ino: entry.number,
        off: entry.next.cast_unsigned(),
        namelen: u32::try_from(entry.name.len()).ok()?,
        kind: u32::from(entry.kind),
    };
    let start = size_of::<Dirent>();
    let end = start + entry.name.len();
    let room = to.get_mut(..end.next_multiple_of(8))?;
    room[..start].copy_from_slice(header.as_bytes());
    room[start..end].copy_from_slice(entry.name);
    room[end..].fill(0);
    Some(room.len())
}

impl Mount {
    /// READDIR: entries from a position on, as many as fit.
    pub(crate) fn read_directory(&self, asked: &ReadIn, to: &mut [u8]) -> Result<usize, Errno> {
        let handle = self.handles.get(asked.fh)?;
        let Content::Directory(listing) = &handle.content else { return Err(libc::ENOTDIR) };
        let mut listing = listing.lock().expect("no code panics under this lock");
        let from = asked.offset.cast_signed();
        if listing.position != from || from == 0 {
            // From the start always anew: that is how a directory is looked at again.
            sys::seek(listing.fd.as_fd(), from, libc::SEEK_SET)?;
            listing.position = from;
        }
        fill(&handle.inode, &mut listing, to)
    }
}

fn fill(directory: &Inode, listing: &mut Listing, to: &mut [u8]) -> Result<usize, Errno> {
    let mut look = vec![0_u8; LOOK_BYTES.min(to.len().max(4096))];
    let mut filled = 0;
    loop {
        let found = sys::entries(listing.fd.as_fd(), &mut look)?;
        if found == 0 {
            return Ok(filled);
        }
        let mut rest = &look[..found];
        while let Some((entry, others)) = split_entry(rest) {
            rest = others;
            if !Mount::is_hidden(directory, entry.name) {
                match pack(&entry, &mut to[filled..]) {
                    Some(bytes) => filled += bytes,
                    None => {
                        // The descriptor stands further on than what the kernel gets.
                        sys::seek(listing.fd.as_fd(), listing.position, libc::SEEK_SET)?;
                        return Ok(filled);
                    }
                }
            }
            listing.position = entry.next;
        }
        if filled > 0 {
            return Ok(filled);
        }
        // Nothing but hidden names so far: an empty answer would end the listing.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry in the form of `getdents64`.
    fn raw(number: u64, next: i64, kind: u8, name: &[u8]) -> Vec<u8> {
        let length = (19 + name.len() + 1).next_multiple_of(8);
        let mut bytes = vec![0; length];
        bytes[0..8].copy_from_slice(number.as_bytes());
        bytes[8..16].copy_from_slice(next.as_bytes());
        bytes[16..18].copy_from_slice(u16::try_from(length).unwrap().as_bytes());
        bytes[18] = kind;
        bytes[19..19 + name.len()].copy_from_slice(name);
        bytes
    }

    #[test]
    fn entries_are_taken_apart_and_packed_again() {
        let mut bytes = raw(7, 100, libc::DT_REG, b"a");
        bytes.extend(raw(8, 200, libc::DT_DIR, b"longer-name"));
        let (first, rest) = split_entry(&bytes).unwrap();
        assert_eq!(first, Entry { number: 7, next: 100, kind: libc::DT_REG, name: b"a" });
        let (second, rest) = split_entry(rest).unwrap();
        assert_eq!(second.name, b"longer-name");
        assert!(rest.is_empty() && split_entry(rest).is_none());
        let mut room = [0xff; 64];
        assert_eq!(pack(&second, &mut room), Some(40));
        assert_eq!((room[0], room[8], room[16], room[24]), (8, 200, 11, b'l'));
        assert_eq!(room[24 + 11..40], [0; 5]);
    }

    #[test]
    fn an_entry_that_does_not_fit_is_not_packed() {
        let entry = Entry { number: 1, next: 2, kind: 0, name: b"name" };
        assert_eq!(pack(&entry, &mut [0; 31]), None);
        assert_eq!(pack(&entry, &mut [0; 32]), Some(32));
    }
}
