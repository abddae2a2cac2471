//! What programs ask of a client.

use crate::{places, text};
use ccpfs_dlm::client::Intent;
use ccpfs_types::{Extent, LockMode};

/// What a program asks for; extents are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Write {
        extent: Extent,
        /// The mode to take instead of the least restrictive one.
        mode: Option<LockMode>,
        /// The stride at which it desires more than it requires; 0: all that follows.
        each: u64,
    },
    Append {
        length: u64,
    },
    Read {
        extent: Extent,
    },
    Truncate {
        size: u64,
    },
    Fsync,
    Size,
    Unlink,
}

impl Call {
    /// First letter of its name: `w1`, `r1`.
    pub(crate) const fn letter(self) -> char {
        match self {
            Call::Write { .. } | Call::Append { .. } => 'w',
            Call::Read { .. } => 'r',
            Call::Truncate { .. } => 't',
            Call::Fsync => 'f',
            Call::Size => 's',
            Call::Unlink => 'u',
        }
    }

    pub(crate) fn text(self) -> String {
        match self {
            Call::Write { extent, mode, each } => {
                let mode = mode.map(|mode| format!(" as {mode}")).unwrap_or_default();
                let each = if each > 0 { format!(" each {}", text::size(each)) } else { String::new() };
                format!("write {}{mode}{each}", text::extent(extent))
            }
            Call::Append { length } => format!("append {}", text::size(length)),
            Call::Read { extent } => format!("read {}", text::extent(extent)),
            Call::Truncate { size } => format!("truncate to {}", text::size(size)),
            Call::Fsync => String::from("fsync"),
            Call::Size => String::from("size"),
            Call::Unlink => String::from("unlink"),
        }
    }

    /// What it locks, and what for.
    pub(crate) const fn wish(self) -> Option<(Intent, Extent)> {
        match self {
            Call::Write { extent, .. } => Some((Intent::Write, extent)),
            Call::Append { .. } => Some((Intent::ReadThenWrite, Extent::WHOLE)),
            Call::Read { extent } => Some((Intent::Read, extent)),
            Call::Truncate { size } => Some((Intent::ReadThenWrite, Extent::to_eof(size))),
            Call::Fsync | Call::Size | Call::Unlink => None,
        }
    }

    /// Where the product does it.
    pub(crate) const fn place(self) -> &'static str {
        match self {
            Call::Write { .. } | Call::Append { .. } => places::WRITE,
            Call::Read { .. } => places::READ,
            Call::Truncate { .. } | Call::Fsync | Call::Size | Call::Unlink => places::SHARED,
        }
    }
}
