//! The queue of pages to drop, and the threads that drop them.
//!
//! Dropping waits for the kernel, which may have to write pages through us first; the client's thread that hears of a wish
//! for a lock must not wait, so it leaves word here.

use crate::mount::Mount;
use crate::pages::Drop;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;

/// Windows whose pages are dropped at once. Each is slow only as long as data are on their way.
const THREADS: usize = 4;

/// What is to be dropped, oldest first. Cheap to clone; all clones are the same queue.
#[derive(Clone, Default)]
pub(crate) struct Drops {
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Waiting {
    drops: VecDeque<Drop>,
    ended: bool,
}

impl Drops {
    /// Adds one; never waits for anything but the queue.
    pub(crate) fn push(&self, what: Drop) {
        self.queue.waiting.lock().expect("no code panics under this lock").drops.push_back(what);
        self.queue.changed.notify_one();
    }

    /// The next one; `None` when the mount has ended.
    fn next(&self) -> Option<Drop> {
        let mut waiting = self.queue.waiting.lock().expect("no code panics under this lock");
        loop {
            if let Some(what) = waiting.drops.pop_front() {
                return Some(what);
            }
            if waiting.ended {
                return None;
            }
            waiting = self.queue.changed.wait(waiting).expect("no code panics under this lock");
        }
    }

    /// Waits until the queue is empty and the threads have ended.
    pub(crate) fn end(&self) {
        self.queue.waiting.lock().expect("no code panics under this lock").ended = true;
        self.queue.changed.notify_all();
        let threads =
            std::mem::take(&mut *self.queue.threads.lock().expect("no code panics under this lock"));
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread that drops pages has failed");
            }
        }
    }

    /// Starts the threads that work for a mount.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub(crate) fn start(&self, mount: &Arc<Mount>) -> std::io::Result<()> {
        for _ in 0..THREADS {
            let (drops, mount): (Drops, Weak<Mount>) = (self.clone(), Arc::downgrade(mount));
            let named = std::thread::Builder::new().name("ccpfs-drop".to_owned()).stack_size(512 << 10);
            let thread = named.spawn(move || {
                while let Some(what) = drops.next() {
                    let Some(mount) = mount.upgrade() else { return };
                    mount.drop_pages(what);
                }
            })?;
            self.queue.threads.lock().expect("no code panics under this lock").push(thread);
        }
        Ok(())
    }
}
