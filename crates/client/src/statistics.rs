//! What a client has counted since it started.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts of one client since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Statistics {
            $($(#[$doc])* pub $name: u64),*
        }

        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64),*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> Statistics {
                Statistics { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }

        impl Statistics {
            /// Names and values, in a fixed order.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// What was counted since `before`.
            #[must_use]
            pub fn since(&self, before: &Statistics) -> Statistics {
                Statistics { $($name: self.$name.wrapping_sub(before.$name)),* }
            }
        }
    };
}

counters! {
    /// Lock requests sent to servers.
    lock_requests,
    /// Operations on a stripe that found a cached lock.
    lock_hits,
    /// Revocations received.
    revocations,
    /// Locks granted while CANCELING write locks overlapped them.
    early_grants,
    /// Locks granted CANCELING.
    early_revocations,
    /// Grants that replaced locks of ours by a stronger one.
    upgrades,
    /// Locks lowered to a weaker mode while canceled.
    downgrades,
    /// Nanoseconds that operations waited for locks.
    lock_wait_ns,
    /// Bytes given to write calls.
    bytes_written,
    /// Bytes returned by read calls.
    bytes_read,
    /// Bytes fetched from servers.
    bytes_fetched,
    /// Bytes sent to servers.
    bytes_flushed,
    /// Flush messages sent.
    flush_rpcs,
    /// Extents in them.
    flush_extents,
    /// Read messages sent.
    read_rpcs,
    /// Glimpses sent.
    glimpses,
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
