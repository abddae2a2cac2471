//! The ccPFS client: caches, locks and flushes for one process.
