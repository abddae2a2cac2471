//! The client of this process: configured by `ccpfs_init` or at the first call, ended by `ccpfs_finalize` or `exit`.

use crate::handles::Handles;
use crate::reply::Failure;
use ccpfs_client::{Client, ClientConfig};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, Once, PoisonError, RwLock};

/// All that a process has; a forked child gets another one.
pub(crate) struct Session {
    client: RwLock<Option<Client>>,
    /// Open files.
    pub(crate) handles: Handles,
    starting: Mutex<()>,
}

static SESSION: AtomicPtr<Session> = AtomicPtr::new(ptr::null_mut());

/// The session of this process.
pub(crate) fn session() -> &'static Session {
    let known = SESSION.load(Ordering::Acquire);
    // SAFETY: sessions are never freed.
    if let Some(session) = unsafe { known.as_ref() } {
        return session;
    }
    register_handlers();
    let fresh = Box::into_raw(Box::new(Session {
        client: RwLock::new(None),
        handles: Handles::new(),
        starting: Mutex::new(()),
    }));
    if SESSION.compare_exchange(ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire).is_err() {
        // SAFETY: it was not published.
        drop(unsafe { Box::from_raw(fresh) });
    }
    session()
}

fn register_handlers() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handlers are functions of this library. A shared library's are dropped when it is unloaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(after_fork_in_child));
            libc::atexit(at_exit);
        }
    });
}

/// The parent's client has no threads in the child, and its locks may be held for ever: it is left alone.
extern "C" fn after_fork_in_child() {
    SESSION.store(ptr::null_mut(), Ordering::Release);
}

extern "C" fn at_exit() {
    crate::reply::reply(|| {
        if !SESSION.load(Ordering::Acquire).is_null() {
            session().finish()?;
        }
        Ok(0)
    });
}

impl Session {
    /// The client; starts it with the configuration that the environment names.
    ///
    /// # Errors
    /// When the configuration or the namespace cannot be used.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        if let Some(client) = self.started() {
            return Ok(client);
        }
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        match self.started() {
            Some(client) => Ok(client),
            None => self.start(None),
        }
    }

    /// Starts the client with the configuration at `path`, or the one that the environment names.
    ///
    /// # Errors
    /// As [`Session::client`]; `EALREADY` when there is a client.
    pub(crate) fn init(&self, path: Option<&Path>) -> Result<(), Failure> {
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.started().is_some() {
            return Err(Failure::new(libc::EALREADY, "ccPFS has been initialised before"));
        }
        self.start(path).map(|_| ())
    }

    fn started(&self) -> Option<Client> {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start(&self, path: Option<&Path>) -> Result<Client, Failure> {
        let client = Client::start(ClientConfig::load(path)?)?;
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = Some(client.clone());
        Ok(client)
    }

    /// Closes all handles and ends the client.
    ///
    /// # Errors
    /// The first error of closing and flushing.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        let closed: Vec<_> =
            self.handles.remove_all().into_iter().map(|handle| handle.file.close()).collect();
        let client = self.client.write().unwrap_or_else(PoisonError::into_inner).take();
        let ended = client.map_or(Ok(()), |client| client.shutdown());
        closed.into_iter().collect::<Result<(), _>>()?;
        Ok(ended?)
    }
}
