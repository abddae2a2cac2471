//! Memory for incoming bulk: a bounded pool whose buffers come back when they are dropped, on any thread.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wake::WakeTarget;

/// Buffers are rounded up to this many bytes, so that allocations fit other requests later.
const ROUNDING_BYTES: usize = 4096;

/// A bounded pool of byte buffers, shared by clones.
///
/// Buffers in use plus buffers kept for reuse stay within `bytes_max`; the one exception is a
/// buffer larger than the whole pool, which is given out while nothing else is in use (so that a small pool can
/// slow a server down, but never stop it). Reused memory is not cleared. A provider with registered
/// memory allocates its own region behind the same type.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<PoolShared>,
}

struct PoolShared {
    bytes_max: usize,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    used_bytes: usize,
    kept_bytes: usize,
    /// Unused allocations by size.
    kept: BTreeMap<usize, Vec<Box<[u8]>>>,
    /// Ports that found the pool exhausted and want to hear of the next return.
    waiting: Vec<Arc<WakeTarget>>,
}

impl BufferPool {
    /// A pool that holds at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> BufferPool {
        BufferPool { shared: Arc::new(PoolShared { bytes_max, state: Mutex::default() }) }
    }

    /// A buffer of exactly `bytes` bytes with arbitrary contents, or `None` while the pool is exhausted.
    pub fn try_take(&self, bytes: usize) -> Option<Buffer> {
        let mut state = self.shared.lock();
        self.take(&mut state, bytes)
    }

    /// Like [`BufferPool::try_take`]; on `None`, `target` is woken by the next buffer that comes back.
    pub(crate) fn take_or_wait(&self, bytes: usize, target: &Arc<WakeTarget>) -> Option<Buffer> {
        let mut state = self.shared.lock();
        let taken = self.take(&mut state, bytes);
        if taken.is_none() && !state.waiting.iter().any(|known| Arc::ptr_eq(known, target)) {
            state.waiting.push(target.clone());
        }
        taken
    }

    /// Bytes in buffers that are in use at this moment.
    pub fn used_bytes(&self) -> usize {
        self.shared.lock().used_bytes
    }

    /// The limit given at creation, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.shared.bytes_max
    }

    fn take(&self, state: &mut PoolState, bytes: usize) -> Option<Buffer> {
        let needed = bytes.max(1).next_multiple_of(ROUNDING_BYTES);
        let fitting = state.kept.range(needed..=needed * 2).next().map(|(size, _)| *size);
        let storage = match fitting {
            Some(size) => state.take_kept(size),
            None => {
                if state.used_bytes > 0 && state.used_bytes + needed > self.shared.bytes_max {
                    return None;
                }
                state.drop_kept_above(self.shared.bytes_max.saturating_sub(state.used_bytes + needed));
                vec![0; needed].into_boxed_slice()
            }
        };
        state.used_bytes += storage.len();
        Some(Buffer { storage: Some(storage), bytes, pool: self.shared.clone() })
    }
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("BufferPool")
            .field("bytes_max", &self.shared.bytes_max)
            .field("used_bytes", &self.used_bytes())
            .finish_non_exhaustive()
    }
}

impl PoolShared {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // The state is consistent between any two statements that can panic, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, storage: Box<[u8]>) {
        let waiting = {
            let mut state = self.lock();
            state.used_bytes -= storage.len();
            if state.used_bytes + state.kept_bytes + storage.len() <= self.bytes_max {
                state.kept_bytes += storage.len();
                state.kept.entry(storage.len()).or_default().push(storage);
            }
            std::mem::take(&mut state.waiting)
        };
        for target in waiting {
            target.nudge();
        }
    }
}

impl PoolState {
    fn take_kept(&mut self, size: usize) -> Box<[u8]> {
        let list = self.kept.get_mut(&size).expect("the size was found under this lock");
        let storage = list.pop().expect("empty lists are removed");
        if list.is_empty() {
            self.kept.remove(&size);
        }
        self.kept_bytes -= storage.len();
        storage
    }

    fn drop_kept_above(&mut self, bytes: usize) {
        while self.kept_bytes > bytes {
            let size = *self.kept.keys().next_back().expect("kept bytes are in lists");
            drop(self.take_kept(size));
        }
    }
}

/// A piece of pool memory with one owner; it goes back to its pool when dropped.
///
/// To share one between threads, wrap it in an `Arc`.
pub struct Buffer {
    /// Present until drop.
    storage: Option<Box<[u8]>>,
    bytes: usize,
    pool: Arc<PoolShared>,
}

impl Buffer {
    /// Shortens the visible part to `bytes`; does nothing if it is shorter already.
    pub fn truncate(&mut self, bytes: usize) {
        self.bytes = self.bytes.min(bytes);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let storage = self.storage.as_deref().expect("storage is taken by drop only");
        &storage[..self.bytes]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let storage = self.storage.as_deref_mut().expect("storage is taken by drop only");
        &mut storage[..self.bytes]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(storage) = self.storage.take() {
            self.pool.give_back(storage);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Buffer").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exhausted_pool_gives_nothing_until_a_buffer_returns() {
        let pool = BufferPool::new(64 << 10);
        let first = pool.try_take(40 << 10).unwrap();
        assert!(pool.try_take(40 << 10).is_none());
        let small = pool.try_take(100).unwrap();
        assert_eq!(small.len(), 100);
        drop(first);
        assert!(pool.try_take(40 << 10).is_some());
    }

    #[test]
    fn memory_is_reused_without_clearing() {
        let pool = BufferPool::new(1 << 20);
        let mut buffer = pool.try_take(5000).unwrap();
        buffer.fill(7);
        let address = buffer.as_ptr();
        drop(buffer);
        let again = pool.try_take(8000).unwrap();
        assert_eq!(again.as_ptr(), address);
        assert_eq!(again[4999], 7);
    }

    #[test]
    fn a_buffer_larger_than_the_pool_is_given_out_alone_and_not_kept() {
        let pool = BufferPool::new(4096);
        let large = pool.try_take(1 << 20).unwrap();
        assert!(pool.try_take(1).is_none());
        drop(large);
        assert_eq!(pool.used_bytes(), 0);
        assert_eq!(pool.shared.lock().kept_bytes, 0);
        let _small = pool.try_take(1).unwrap();
        assert!(pool.try_take(1 << 20).is_none());
    }

    #[test]
    fn kept_memory_of_other_sizes_makes_room() {
        let pool = BufferPool::new(64 << 10);
        let small: Vec<Buffer> = (0..16).map(|_| pool.try_take(4096).unwrap()).collect();
        drop(small);
        let large = pool.try_take(64 << 10).unwrap();
        assert_eq!(large.len(), 64 << 10);
        assert_eq!(pool.shared.lock().kept_bytes, 0);
    }

    #[test]
    fn an_empty_or_truncated_buffer_shows_only_its_bytes() {
        let pool = BufferPool::new(64 << 10);
        assert!(pool.try_take(0).unwrap().is_empty());
        let mut buffer = pool.try_take(10).unwrap();
        buffer.truncate(3);
        buffer.truncate(8);
        assert_eq!(buffer.len(), 3);
    }
}
