//! Identifiers: each its own type, so that no two can be exchanged by mistake.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u64);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($letter, "{}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

number!(
    /// One life of one client: drawn anew (64 random bits) whenever a client starts or has been evicted, never used again.
    ///
    /// It is the *incarnation* of DESIGN section 10: locks, flushes and releases belong to a `ClientId`, and a server that
    /// has evicted one takes nothing more from it.
    ClientId, "c"
);
number!(
    /// A lock, numbered by its server per resource; never used again for that resource within one life of the server. Two
    /// resources may use the same number at the same time: [`ResourceId`] and `LockId` together name a lock.
    LockId, "lock"
);
number!(
    /// A request of one client to one server, numbered by the client; never used again on the same connection.
    RequestId, "req"
);
number!(
    /// A call in progress inside a client (one `read` or `write`), numbered by the client.
    OperationId, "op"
);
number!(
    /// A group of clients that have agreed to keep out of each other's way themselves: a number that they choose.
    GroupId, "group"
);
number!(
    /// Sequence number of a lock grant (paper III-A1): orders the writes of one resource.
    Sn, "sn"
);

impl ClientId {
    /// The server itself, when it takes a lock on its own behalf (to force flushes, DESIGN section 5).
    pub const SERVER: ClientId = ClientId(0);
}

impl GroupId {
    /// No group: locks as the table of modes has them.
    pub const NONE: GroupId = GroupId(0);
}

impl Sn {
    /// The next sequence number.
    #[must_use]
    pub const fn next(self) -> Sn {
        Sn(self.0 + 1)
    }

    /// The first number of a server's life. The epoch (persisted, rising at each start) fills the high 24 bits, so
    /// that numbers rise across restarts (I2) with room for 10^12 grants per resource and life.
    #[must_use]
    pub const fn first_of_epoch(epoch: u64) -> Sn {
        assert!(epoch < 1 << 24, "a server has at most 16,777,215 lives");
        Sn(epoch << 40)
    }
}

/// A file: 128 random bits, drawn when it is created.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub [u8; 16]);

impl FileId {
    /// 64 well-mixed bits of the identifier, for placement.
    #[must_use]
    pub fn hash64(&self) -> u64 {
        let mut value: u64 = 0xcbf2_9ce4_8422_2325;
        for byte in self.0 {
            value = (value ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        value ^ (value >> 32)
    }
}

impl fmt::Debug for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// The lock resource of one stripe of one file; also the name of the stripe's data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// The file.
    pub file: FileId,
    /// Which stripe of it, from 0.
    pub stripe: u32,
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.file, self.stripe)
    }
}
