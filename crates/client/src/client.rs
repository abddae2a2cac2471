//! A client: the sessions, files and memory of one process.

use crate::background::{Background, Served};
use crate::closed::Closed;
use crate::config::ClientConfig;
use crate::directory::Directory;
use crate::error::FsError;
use crate::flush_loop;
use crate::opened::Inode;
use crate::opens::{Byte, Opens};
use crate::pages::Pool;
use crate::room::Room;
use crate::session::{Patience, Receiver, Session};
use crate::shared::FileShared;
use crate::statistics::{Counters, Statistics, add};
use crate::stripe::{Outbox, Stripe, count_grant};
use ccpfs_cached_stripe::Input;
use ccpfs_namespace::Stub;
use ccpfs_transport::{Address, ConnectOptions};
use ccpfs_types::limits::RELEASES_MAX;
use ccpfs_types::{FileId, OperationId, RequestId, ResourceId};
use ccpfs_wire::{Message, encode_into};
use ccpfs_writeback::Budget;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};
use std::time::{Duration, Instant};

/// Files without an open handle whose caches and locks are kept.
const CLOSED_FILES_MAX: usize = 1024;
/// How often unused locks grow a tick older.
pub(crate) const TICK: Duration = Duration::from_secs(10);

/// A client of a ccPFS cluster. Cheap to clone; all clones are the same client.
///
/// Starting one opens no connection and starts no thread: that happens at the first use of a file.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<ClientInner>,
}

/// The place of the session with one shard.
#[derive(Default)]
struct Slot {
    session: Option<Arc<Session>>,
    /// When connecting failed last, and what was said: threads that waited for that attempt do not try again one by one.
    failed: Option<(Instant, String)>,
}

pub(crate) struct ClientInner {
    pub(crate) config: ClientConfig,
    pub(crate) targets: Vec<Address>,
    pub(crate) directory: Directory,
    /// Who has which file open, over all clients.
    pub(crate) opens: Opens,
    /// The namespace is on NFS, which keeps removed files under another name while they are open here.
    pub(crate) nfs: bool,
    /// Files with handles, by their stubs' inodes.
    pub(crate) inodes: Mutex<HashMap<Inode, Arc<FileShared>>>,
    pub(crate) pool: OnceLock<Pool>,
    sessions: Vec<Mutex<Slot>>,
    files: RwLock<HashMap<FileId, Arc<FileShared>>>,
    closed: Mutex<Closed>,
    pub(crate) counters: Counters,
    next_number: AtomicU64,
    pub(crate) room: Room,
    background: Mutex<Option<Background>>,
    me: Weak<ClientInner>,
}

impl Client {
    /// A client for this configuration.
    ///
    /// # Errors
    /// When the namespace directory does not exist or cannot be used.
    pub fn start(config: ClientConfig) -> Result<Client, FsError> {
        let root = &config.namespace;
        let targets = config.targets();
        let target_count = u32::try_from(targets.len()).expect("the configuration limits servers and shards");
        let opens = Opens::start(root);
        let directory = Directory::start(root, target_count, config.layout)?;
        let nfs = crate::sys::is_nfs(root);
        let budget =
            Budget { dirty_bytes_min: config.dirty_bytes_min, dirty_bytes_max: config.dirty_bytes_max };
        let inner = Arc::new_cyclic(|me| ClientInner {
            sessions: targets.iter().map(|_| Mutex::default()).collect(),
            targets,
            directory,
            opens,
            nfs,
            inodes: Mutex::default(),
            pool: OnceLock::new(),
            files: RwLock::default(),
            closed: Mutex::default(),
            counters: Counters::default(),
            next_number: AtomicU64::new(1),
            room: Room::new(budget),
            background: Mutex::new(None),
            me: me.clone(),
            config,
        });
        Ok(Client { inner })
    }

    /// What the client was started with.
    #[must_use]
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// What the client has counted since its start.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.inner.counters.snapshot()
    }

    /// Touches the part of the page pool that the configuration says, before the first write needs it.
    ///
    /// # Errors
    /// When the system refuses the memory.
    pub fn prepare(&self) -> Result<(), FsError> {
        self.inner.pool().map(|_| ())
    }

    /// Sends everything dirty to the servers and waits for their acknowledgement (not for their devices).
    ///
    /// # Errors
    /// The first error of any file.
    pub fn flush_all(&self) -> Result<(), FsError> {
        let files: Vec<_> = self.inner.all_files();
        let results: Vec<_> = files.iter().map(|file| file.flush(&self.inner)).collect();
        results.into_iter().collect()
    }

    /// Flushes everything, gives back all locks and ends the connections. The client can still be used afterwards.
    ///
    /// # Errors
    /// As [`Client::flush_all`]; the connections are ended all the same.
    pub fn shutdown(&self) -> Result<(), FsError> {
        let flushed = self.flush_all();
        self.inner.seal_all();
        for slot in &self.inner.sessions {
            let session = slot.lock().expect("no code panics under this lock").session.take();
            if let Some(session) = session {
                // In this order: nobody begins anything under its locks, whoever used them knows, the server may give them away.
                session.retire();
                if session.forget_once() {
                    self.inner.forget_session(&session);
                }
                session.goodbye();
            }
        }
        let mut background = self.inner.background.lock().expect("no code panics under this lock");
        // Another thread may have begun a new session meanwhile, which must be looked after.
        if background.as_ref().is_some_and(Background::is_idle)
            && let Some(background) = background.take()
        {
            background.stop();
        }
        flushed
    }

    /// What shard `target` has counted: names and values.
    ///
    /// # Errors
    /// When there is no such target or it cannot be reached.
    pub fn status(&self, target: u32) -> Result<Vec<(String, u64)>, FsError> {
        let session = self.inner.session(target)?;
        let request = self.inner.request();
        session.send_request(request, &Message::Status { request }, Vec::new())?;
        let (answer, _) = self.inner.wait_reply(&session, request)?;
        let Message::StatusReply { names, values, .. } = answer else { return Err(unexpected(&answer)) };
        Ok(names.into_iter().zip(values).collect())
    }
}

pub(crate) fn unexpected(message: &Message) -> FsError {
    tracing::warn!("a server answered with {}", message.name());
    FsError::Server { operation: "request", errno: libc::EPROTO }
}

impl ClientInner {
    pub(crate) fn pool(&self) -> Result<&Pool, FsError> {
        if let Some(pool) = self.pool.get() {
            return Ok(pool);
        }
        let pool = Pool::new(self.config.cache_bytes, self.config.prefault_bytes)
            .map_err(|_| FsError::argument("the page pool (client.cache) cannot be mapped", libc::ENOMEM))?;
        Ok(self.pool.get_or_init(|| pool))
    }

    /// The pool of a client that has cached something.
    pub(crate) fn the_pool(&self) -> &Pool {
        self.pool.get().expect("whoever has a lock or a page has made the pool")
    }

    pub(crate) fn weak(&self) -> Weak<ClientInner> {
        self.me.clone()
    }

    pub(crate) fn request(&self) -> RequestId {
        RequestId(self.next_number.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn operation(&self) -> OperationId {
        OperationId(self.next_number.fetch_add(1, Ordering::Relaxed))
    }

    /// The next number, without taking it: every number taken later is at least as high.
    pub(crate) fn peek_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// The session with a shard; connects if there is none.
    pub(crate) fn session(&self, target: u32) -> Result<Arc<Session>, FsError> {
        let index = usize::try_from(target).expect("targets are few");
        let slot = self.sessions.get(index).ok_or(FsError::argument("no such server", libc::EINVAL))?;
        let began = Instant::now();
        let mut slot = slot.lock().expect("no code panics under this lock");
        if let Some(session) = slot.session.as_ref().filter(|session| !session.is_dead()) {
            return Ok(Arc::clone(session));
        }
        if let Some((_, reason)) = slot.failed.as_ref().filter(|(at, _)| *at > began) {
            return Err(FsError::Unreachable {
                address: self.targets[index].clone(),
                reason: reason.clone(),
            });
        }
        let patience = Patience {
            connect_timeout: Duration::from_millis(self.config.connect_timeout_ms),
            server_timeout: self.server_timeout(),
            options: ConnectOptions {
                busy_poll: Duration::from_micros(self.config.busy_poll_us),
                stall_timeout: self.server_timeout(),
            },
        };
        match Session::open(target, &self.targets[index], patience) {
            Ok(session) => {
                let session = Arc::new(session);
                *slot = Slot { session: Some(Arc::clone(&session)), failed: None };
                Ok(session)
            }
            Err(error) => {
                if let FsError::Unreachable { reason, .. } = &error {
                    slot.failed = Some((Instant::now(), reason.clone()));
                }
                Err(error)
            }
        }
    }

    /// Silence after which a server that owes an answer counts as lost.
    pub(crate) fn server_timeout(&self) -> Duration {
        Duration::from_millis(self.config.server_timeout_ms)
    }

    pub(crate) fn wait_reply(
        &self,
        session: &Arc<Session>,
        request: RequestId,
    ) -> Result<(Message, usize), FsError> {
        let answer = session.wait_reply(request, self);
        if answer.is_err() {
            self.session_lost(session);
            session.abandon(request);
        }
        answer
    }

    /// The shared state of a file, with one more handle; made if this is its first use. Counted under the lock of the map, so
    /// that a file with a handle is never taken out of it: its grants and revocations would find nobody.
    pub(crate) fn open_file(&self, stub: Stub) -> Arc<FileShared> {
        {
            let files = self.files.read().expect("no code panics under this lock");
            if let Some(file) = files.get(&stub.file) {
                file.handles.fetch_add(1, Ordering::SeqCst);
                return Arc::clone(file);
            }
        }
        let mut files = self.files.write().expect("no code panics under this lock");
        let file = files.entry(stub.file).or_insert_with(|| FileShared::new(stub));
        file.handles.fetch_add(1, Ordering::SeqCst);
        Arc::clone(file)
    }

    /// The shared state of a file to ask the servers about it. If it is not in use here it is not remembered either.
    pub(crate) fn peek_file(&self, stub: Stub) -> Arc<FileShared> {
        self.find_file(stub.file).unwrap_or_else(|| FileShared::new(stub))
    }

    pub(crate) fn find_file(&self, file: FileId) -> Option<Arc<FileShared>> {
        self.files.read().expect("no code panics under this lock").get(&file).cloned()
    }

    pub(crate) fn all_files(&self) -> Vec<Arc<FileShared>> {
        self.files.read().expect("no code panics under this lock").values().cloned().collect()
    }

    pub(crate) fn find_stripe(&self, resource: ResourceId) -> Option<Arc<Stripe>> {
        let file = self.find_file(resource.file)?;
        file.stripes.get(usize::try_from(resource.stripe).ok()?).cloned()
    }

    /// Remembers that a file has no handle any more; forgets the one closed longest ago if there are many.
    pub(crate) fn note_closed(&self, file: FileId) {
        let oldest = {
            let mut closed = self.closed.lock().expect("no code panics under this lock");
            closed.enter(file, CLOSED_FILES_MAX)
        };
        let Some(file) = oldest.and_then(|file| self.find_file(file)) else { return };
        if file.handles() > 0 {
            return; // in use again: it comes back at its next close
        }
        file.retire(self);
        self.forget_file(file.stub.file, FileShared::is_idle);
        let stays = self.find_file(file.stub.file).is_some_and(|file| file.handles() == 0);
        if stays {
            // Something is still on its way to the servers: its turn comes again.
            let mut closed = self.closed.lock().expect("no code panics under this lock");
            closed.enter(file.stub.file, usize::MAX);
        }
    }

    /// Takes a file out of the map if it has no handle and `may_go` says so.
    pub(crate) fn forget_file(&self, file: FileId, may_go: impl FnOnce(&FileShared) -> bool) {
        let gone = {
            let mut files = self.files.write().expect("no code panics under this lock");
            let goes = files.get(&file).is_some_and(|known| known.handles() == 0 && may_go(known));
            if goes { files.remove(&file) } else { None }
        };
        if gone.is_some_and(|gone| std::mem::take(&mut gone.opened().writing)) {
            self.opens.let_go(file, Byte::Writing);
        }
    }

    /// Sends what a step left to send and wakes whom it concerns.
    pub(crate) fn dispatch(&self, stripe: &Arc<Stripe>, out: Outbox) {
        let Outbox {
            session,
            control,
            callback,
            releases,
            flush,
            flush_soon,
            freed,
            errno,
            dirty_delta,
            wanted,
        } = out;
        if dirty_delta != 0 {
            self.change_dirty(dirty_delta, stripe);
        }
        if !wanted.is_empty()
            && let Some(file) = stripe.file.upgrade()
        {
            file.holds.tell(&wanted);
        }
        if let Some(errno) = errno {
            self.note_failure(errno);
        }
        if freed {
            self.wake_writers();
        }
        if let Some(session) = session.filter(|session| !session.is_dead())
            && self.send(&session, &control, callback, releases).is_err()
        {
            self.session_lost(&session);
        } else if flush || flush_soon {
            flush_loop::schedule(self, stripe, flush);
        }
    }

    fn send(
        &self,
        session: &Arc<Session>,
        control: &[Message],
        mut callback: Vec<Message>,
        releases: Vec<ccpfs_wire::LockRef>,
    ) -> Result<(), FsError> {
        let mut batch = Vec::with_capacity(128);
        if !control.is_empty() {
            // A lock may be revoked as soon as it is granted: the callback connection must be there before.
            self.callback(session)?;
            add(&self.counters.lock_requests, control.len() as u64);
            control.iter().for_each(|message| encode_into(message, &mut batch));
            session.send_control(&batch)?;
        }
        callback
            .extend(releases.chunks(RELEASES_MAX).map(|locks| Message::Release { locks: locks.to_vec() }));
        if !callback.is_empty() {
            let downgrades = callback.iter().filter(|m| matches!(m, Message::Convert { .. })).count();
            add(&self.counters.downgrades, downgrades as u64);
            batch.clear();
            callback.iter().for_each(|message| encode_into(message, &mut batch));
            let connection = self.callback(session)?;
            connection.send(&batch, &[]).map_err(|_| session.lost())?;
        }
        Ok(())
    }

    fn callback<'a>(
        &self,
        session: &'a Arc<Session>,
    ) -> Result<&'a Arc<dyn ccpfs_transport::Connection>, FsError> {
        let (connection, opened) = session.callback()?;
        if opened {
            self.serve(session);
        }
        Ok(connection)
    }

    /// Lets the background thread look at the connections of a session (again).
    pub(crate) fn serve(&self, session: &Arc<Session>) {
        let mut background = self.background.lock().expect("no code panics under this lock");
        let background = background.get_or_insert_with(|| Background::start(self.me.clone()));
        background.add(Served { session: Arc::clone(session) });
    }

    /// A session has ended: all its locks are gone, and what was dirty under them.
    pub(crate) fn session_lost(&self, session: &Arc<Session>) {
        session.kill();
        if session.forget_once() {
            tracing::warn!(server = %session.address, "connection lost; locks and unflushed data there are gone");
            self.forget_session(session);
        }
    }

    fn forget_session(&self, session: &Arc<Session>) {
        let jobs = std::mem::take(&mut session.flushes.lock().expect("no code panics under this lock").jobs);
        // Stripes of files that were removed may be known by their last flush only.
        let mut stripes: Vec<Arc<Stripe>> = jobs.into_values().collect();
        for file in self.all_files() {
            stripes.extend(file.stripes.iter().filter(|stripe| stripe.target == session.target).cloned());
        }
        for stripe in &stripes {
            let mut out = Outbox::default();
            let mut inner = stripe.lock();
            if inner.is_of(session) {
                inner.lose(stripe, self, &mut out);
            }
            drop(inner);
            self.dispatch(stripe, out);
        }
    }

    /// An answer to a lock request has arrived.
    fn granted(&self, resource: ResourceId, message: Message) {
        let Some(stripe) = self.find_stripe(resource) else { return };
        let mut out = Outbox::default();
        stripe.lock().step(&stripe, self, Input::Message(message), &mut out);
        self.dispatch(&stripe, out);
    }

    /// Time passes: unused locks age, and dirty data do not stay dirty for ever.
    pub(crate) fn tick(&self) {
        for file in self.all_files() {
            for stripe in &file.stripes {
                let mut out = Outbox::default();
                stripe.lock().step(stripe, self, Input::Tick, &mut out);
                self.dispatch(stripe, out);
            }
        }
        self.flush_everything();
    }
}

impl Receiver for ClientInner {
    #[allow(clippy::wildcard_enum_match_arm, reason = "whatever does not belong on this channel is reported")]
    fn message(&self, session: &Session, message: Message) {
        match message {
            Message::Grant { request, resource, granted } => {
                count_grant(&self.counters, &granted);
                self.granted(resource, Message::Grant { request, resource, granted });
            }
            Message::Denied { resource, .. } => self.granted(resource, message),
            Message::Pong { .. } | Message::Goodbye {} => {}
            other => {
                tracing::warn!(server = %session.address, "unexpected {} on the control connection", other.name())
            }
        }
    }
}

impl Drop for ClientInner {
    fn drop(&mut self) {
        for slot in &self.sessions {
            if let Some(session) = slot.lock().expect("no code panics under this lock").session.take() {
                session.kill();
            }
        }
        if let Some(background) = self.background.lock().expect("no code panics under this lock").take() {
            background.stop();
        }
    }
}
