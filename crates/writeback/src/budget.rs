//! How much dirty data a client may have (paper IV-C1).

/// Thresholds for the dirty data of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Above this many bytes, flushing begins in the background.
    pub dirty_bytes_min: u64,
    /// At this many bytes, writers wait.
    pub dirty_bytes_max: u64,
}

/// What an amount of dirty data asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Nothing.
    Calm,
    /// Flush in the background.
    Flush,
    /// Flush, and let writers wait.
    Wait,
}

impl Budget {
    /// What `dirty_bytes` ask for.
    #[must_use]
    pub const fn verdict(&self, dirty_bytes: u64) -> Verdict {
        if dirty_bytes >= self.dirty_bytes_max {
            Verdict::Wait
        } else if dirty_bytes > self.dirty_bytes_min {
            Verdict::Flush
        } else {
            Verdict::Calm
        }
    }
}
