//! One client process: its files, its threads, and who is told what.

use super::operation::Op;
use super::range_lock::RangeLock;
use super::session::Slot;
use super::stripe::Stripe;
use crate::engine::{ClientEvent, Engine, Who};
use crate::history::OpId;
use crate::net::{Bulk, Frame};
use ccpfs_types::{Extent, FileId, Layout, LockId, OperationId, RequestId, ResourceId, Sn};
use ccpfs_wire::Message;
use ccpfs_writeback::{BarrierId, Budget};

/// EIO of Linux.
pub(crate) const EIO: i32 = 5;

/// Bits of a number that name the thread it belongs to.
const THREAD_BITS: u32 = 16;

/// What a thread is told.
#[derive(Debug)]
pub(crate) enum Note {
    Answer {
        operation: OperationId,
        answer: Result<(LockId, Sn), i32>,
    },
    Void {
        operation: OperationId,
    },
    Missing {
        operation: OperationId,
        extents: Vec<Extent>,
    },
    Measured {
        operation: OperationId,
        end: u64,
    },
    BarrierDone {
        barrier: BarrierId,
    },
    /// Send this over the session of the lock.
    Ask {
        operation: OperationId,
        message: Message,
    },
    /// An answer on the control connection, and how many bytes came with it.
    Reply {
        request: RequestId,
        message: Message,
        bytes: u64,
    },
    /// The session ended before the answer came.
    NoReply {
        request: RequestId,
    },
    /// There is a session with this shard now, or there is none to be had.
    Session {
        target: u32,
        errno: Option<i32>,
    },
    /// Its turn on a range of a file.
    Turn,
    /// There may be room.
    Room,
    /// What took time is done.
    Timer,
}

/// An application thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadState {
    pub(crate) op: Option<Box<Op>>,
    /// The call in progress, for history.
    pub(crate) call: Option<OpId>,
    pub(crate) inbox: Vec<Note>,
    pub(crate) resuming: bool,
    /// Errors of each file that this thread's handle has reported.
    pub(crate) seen_errors: Vec<u64>,
}

/// One open file.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) layout: Layout,
    pub(crate) stripes: Vec<Option<Box<Stripe>>>,
    pub(crate) ranges: RangeLock,
    /// How many errors of flushes there were, and the last one.
    pub(crate) errors: (u64, i32),
    pub(crate) first_target: u64,
    /// What the last question for the size found of truncates.
    pub(crate) cuts: Vec<u64>,
}

/// The accounts of dirty data.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) dirty_bytes: u64,
    pub(crate) budget: Budget,
    pub(crate) flushing: bool,
    pub(crate) failures: (u64, i32),
    pub(crate) waiting: Vec<u32>,
}

/// One client process.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) node: u32,
    pub(crate) life: u32,
    /// Its number in history: each process has its own.
    pub(crate) process: u32,
    pub(crate) up: bool,
    pub(crate) frozen_until_ns: u64,
    number: u64,
    pub(crate) serial: u64,
    pub(crate) sessions: Vec<Slot>,
    pub(crate) files: Vec<File>,
    pub(crate) threads: Vec<ThreadState>,
    pub(crate) room: Room,
    woken: Vec<u32>,
    background_free_ns: u64,
    pub(crate) effects: Vec<ccpfs_cached_stripe::Effect>,
}

/// The identity of a file of a world.
pub(crate) fn file_id(file: u32) -> FileId {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&file.to_le_bytes());
    FileId(bytes)
}

/// Which shard has a stripe.
pub(crate) fn target_of(file: u32, stripe: u32, targets: u32) -> u32 {
    let place = (file_id(file).hash64() % u64::from(targets) + u64::from(stripe)) % u64::from(targets);
    u32::try_from(place).expect("below the number of targets")
}

impl Client {
    pub(crate) fn new(engine: &mut Engine, node: u32, life: u32, threads: u32) -> Client {
        let process = engine.processes;
        engine.processes += 1;
        let targets = engine.config.targets();
        let files: Vec<File> = engine
            .layouts
            .iter()
            .zip(0_u32..)
            .map(|(layout, file)| File {
                layout: *layout,
                stripes: (0..layout.stripe_count()).map(|_| None).collect(),
                ranges: RangeLock::default(),
                errors: (0, 0),
                first_target: u64::from(target_of(file, 0, targets)),
                cuts: Vec::new(),
            })
            .collect();
        let settings = engine.config.client;
        let budget =
            Budget { dirty_bytes_min: settings.dirty_bytes_min, dirty_bytes_max: settings.dirty_bytes_max };
        let thread = || ThreadState { seen_errors: vec![0; files.len()], ..ThreadState::default() };
        let client = Client {
            node,
            life,
            process,
            up: true,
            frozen_until_ns: 0,
            number: 0,
            serial: 0,
            sessions: (0..targets).map(|_| Slot::default()).collect(),
            threads: (0..threads).map(|_| thread()).collect(),
            files,
            room: Room { dirty_bytes: 0, budget, flushing: false, failures: (0, 0), waiting: Vec::new() },
            woken: Vec::new(),
            background_free_ns: 0,
            effects: Vec::new(),
        };
        let first = engine.jitter(settings.tick_ns);
        engine.client_event(engine.now_ns() + first, node, life, ClientEvent::Tick);
        client
    }

    pub(crate) fn who(&self) -> Who {
        Who::Client(self.node)
    }

    /// A number above all before, which names a thread.
    pub(crate) fn number(&mut self, thread: u32) -> u64 {
        self.number += 1;
        (self.number << THREAD_BITS) | u64::from(thread)
    }

    /// A number below all that will be taken.
    pub(crate) fn peek_number(&self) -> u64 {
        (self.number + 1) << THREAD_BITS
    }

    fn thread_of(number: u64) -> u32 {
        u32::try_from(number & ((1 << THREAD_BITS) - 1)).expect("a few bits")
    }

    /// Tells the thread that a number names.
    pub(crate) fn tell_owner(&mut self, number: u64, note: Note) {
        self.tell(Self::thread_of(number), note);
    }

    pub(crate) fn owner_call(&self, number: u64) -> Option<OpId> {
        self.threads.get(Self::thread_of(number) as usize)?.call
    }

    pub(crate) fn tell(&mut self, thread: u32, note: Note) {
        self.threads[thread as usize].inbox.push(note);
        self.woken.push(thread);
    }

    /// Takes the first note of the thread's inbox that `pick` wants.
    pub(crate) fn take_note<T>(
        &mut self,
        thread: u32,
        mut pick: impl FnMut(&mut Note) -> Option<T>,
    ) -> Option<T> {
        let inbox = &mut self.threads[thread as usize].inbox;
        for at in 0..inbox.len() {
            if let Some(found) = pick(&mut inbox[at]) {
                inbox.remove(at);
                return Some(found);
            }
        }
        None
    }

    /// Lets the threads that were told something go on, a little later.
    pub(crate) fn wake(&mut self, engine: &mut Engine) {
        while let Some(thread) = self.woken.pop() {
            let state = &mut self.threads[thread as usize];
            if !state.resuming && !state.inbox.is_empty() && state.op.is_some() {
                state.resuming = true;
                let delay = engine.jitter(engine.config.client.wake_jitter_ns);
                engine.client_event(
                    engine.now_ns() + delay,
                    self.node,
                    self.life,
                    ClientEvent::Resume { thread },
                );
            }
        }
    }

    pub(crate) fn event(&mut self, engine: &mut Engine, what: ClientEvent) {
        match what {
            ClientEvent::Next { .. } => unreachable!("the world asks the applications"),
            ClientEvent::Resume { thread } => {
                self.threads[thread as usize].resuming = false;
                self.advance(engine, thread);
            }
            ClientEvent::Timer { thread } => {
                self.threads[thread as usize].inbox.push(Note::Timer);
                self.advance(engine, thread);
            }
            ClientEvent::Call { thread, work } => {
                self.begin_call(engine, thread, work);
                self.advance(engine, thread);
            }
            ClientEvent::Flush { target, serial } => self.pump(engine, target, serial),
            ClientEvent::Send { target, serial, messages } => {
                self.send_all(engine, target, serial, messages);
            }
            ClientEvent::Handle(frame) => self.handle(engine, frame),
            ClientEvent::Connect { target } => self.connect(engine, target),
            ClientEvent::Tick => self.tick(engine),
        }
        self.wake(engine);
    }

    /// A frame from a server. What the background thread takes waits for its turn.
    pub(crate) fn deliver(&mut self, engine: &mut Engine, frame: Frame) {
        let cost = engine.config.client.callback_ns;
        let control = engine.net.connection(frame.connection).channel == ccpfs_wire::Channel::Control;
        if cost == 0 || control {
            self.handle(engine, frame);
        } else {
            self.background_free_ns = self.background_free_ns.max(engine.now_ns()) + cost;
            let (at_ns, node, life) = (self.background_free_ns, self.node, self.life);
            engine.client_event(at_ns, node, life, ClientEvent::Handle(frame));
        }
        self.wake(engine);
    }

    /// Time passes: unused locks age, dirty data do not stay dirty for ever, silent servers are given up.
    fn tick(&mut self, engine: &mut Engine) {
        for file in 0..self.files.len() {
            for stripe in 0..self.files[file].stripes.len() {
                let bound = self.files[file].stripes[stripe].as_ref().is_some_and(|s| s.session.is_some());
                if bound {
                    self.step(engine, file, stripe, ccpfs_cached_stripe::Input::Tick);
                }
            }
        }
        self.flush_everything(engine);
        self.watch(engine);
        let next = engine.now_ns() + engine.config.client.tick_ns;
        engine.client_event(next, self.node, self.life, ClientEvent::Tick);
    }

    /// The stripe, made if this is its first use.
    pub(crate) fn stripe(&mut self, file: usize, stripe: usize) -> &mut Stripe {
        let targets = self.sessions.len() as u64;
        let File { stripes, first_target, .. } = &mut self.files[file];
        let target = u32::try_from((*first_target + stripe as u64) % targets).expect("targets are few");
        let number = u32::try_from(stripe).expect("stripes are few");
        let file = file_id(u32::try_from(file).expect("files are few"));
        stripes[stripe]
            .get_or_insert_with(|| Box::new(Stripe::new(ResourceId { file, stripe: number }, target)))
    }

    pub(crate) fn target(&self, file: usize, stripe: usize) -> u32 {
        let place = (self.files[file].first_target + stripe as u64) % self.sessions.len() as u64;
        u32::try_from(place).expect("targets are few")
    }

    /// The place of a resource among the files.
    pub(crate) fn place(&self, resource: ResourceId) -> Option<(usize, usize)> {
        let mut number = [0; 4];
        number.copy_from_slice(&resource.file.0[..4]);
        let file = usize::try_from(u32::from_le_bytes(number)).ok()?;
        let stripe = usize::try_from(resource.stripe).ok()?;
        (stripe < self.files.get(file)?.stripes.len()).then_some((file, stripe))
    }

    /// What the pages hold of these extents, one after the other.
    pub(crate) fn sample(&self, file: usize, stripe: usize, extents: impl Iterator<Item = Extent>) -> Bulk {
        let mut bulk = Bulk::default();
        let memory = self.files[file].stripes[stripe].as_ref().map(|stripe| &stripe.memory);
        for extent in extents {
            let mut at = extent.start();
            for (part, tag) in memory.into_iter().flat_map(|memory| memory.within(extent)) {
                if part.start() > at {
                    bulk.push(part.start() - at, super::stripe::GARBAGE);
                }
                bulk.push(part.length(), tag);
                at = part.end();
            }
            if at < extent.end() {
                bulk.push(extent.end() - at, super::stripe::GARBAGE);
            }
        }
        bulk
    }
}
