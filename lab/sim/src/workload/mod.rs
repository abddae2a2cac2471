//! What the applications of a world do.

pub mod plan;

use crate::history::Call;
use ccpfs_region::Region;
use std::rc::Rc;

/// One call of an application thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A call that the checkers know.
    Call(Call),
    /// One write of several pieces, which others see whole or not at all.
    WriteRegion {
        /// The file.
        file: u32,
        /// Its bytes.
        region: Rc<Region>,
    },
    /// Sends what is dirty to the servers and waits for the answers, without making them durable.
    Flush {
        /// The file.
        file: u32,
    },
}

/// What a thread does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A call, after some time.
    Call {
        /// How long it thinks before, nanoseconds.
        after_ns: u64,
        /// What it calls.
        work: Work,
    },
    /// It waits until every thread of every client waits or is done.
    Barrier,
    /// Nothing more.
    Done,
}

/// A thread of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Thread {
    /// Its client node.
    pub client: u32,
    /// Which of the client's threads.
    pub thread: u32,
}

/// The applications.
pub trait Workload {
    /// What `thread` does next. Asked again after each call and each barrier.
    fn next(&mut self, thread: Thread, now_ns: u64) -> Next;

    /// The call in progress has all its locks.
    fn locked(&mut self, thread: Thread, now_ns: u64) {
        let _ = (thread, now_ns);
    }

    /// A call has returned: an error, or how many bytes it moved (the size for a question of size).
    fn returned(&mut self, thread: Thread, work: &Work, result: Result<u64, i32>, now_ns: u64) {
        let _ = (thread, work, result, now_ns);
    }

    /// All threads wait at a barrier, or are done; they go on now.
    fn barrier(&mut self, now_ns: u64) {
        let _ = now_ns;
    }
}
