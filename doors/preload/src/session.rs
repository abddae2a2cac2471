//! The client of this process: configured at the first ccPFS question, started at the first ccPFS file.
//!
//! *What*: settings and client behind pointers that are set once per life. A life ends with `fork`: the
//! child begins another one without a client, because the parent's client has no threads in the child. What belonged to an
//! earlier life is left alone, never dropped, because its locks may be held by threads that do not exist here.

use crate::inside::Inside;
use crate::reply::Errno;
use crate::{open, paths, real};
use ccpfs_client::{Client, ClientConfig, FsError};
use std::cell::UnsafeCell;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// What is known about the file system without asking a server.
pub(crate) struct Settings {
    /// For starting the client.
    config: ClientConfig,
    /// The namespace directory as configured, and without symbolic links when that differs. No trailing slash.
    pub(crate) roots: Vec<Vec<u8>>,
    /// Device of the namespace directory.
    pub(crate) device: u64,
}

/// The client of one life of the process.
struct Started {
    life: u32,
    client: Client,
}

static LIFE: AtomicU32 = AtomicU32::new(1);
static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(ptr::null_mut());
static STARTED: AtomicPtr<Started> = AtomicPtr::new(ptr::null_mut());
/// The configuration was looked at and cannot be used.
static WITHOUT: AtomicBool = AtomicBool::new(false);
/// The program is past its own exit handlers: whatever it still writes must reach the servers at once.
static EXITING: AtomicBool = AtomicBool::new(false);
/// A line about the first failure has been printed.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Set for child processes after this one has said that the configuration cannot be used.
pub(crate) const QUIET_VARIABLE: &str = "CCPFS_PRELOAD_QUIET";

/// Serialises what happens once. A mutex of the C library, because it must be put right in a forked child.
struct Exclusive(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made for sharing.
unsafe impl Sync for Exclusive {}

static EXCLUSIVE: Exclusive = Exclusive(UnsafeCell::new(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP));

/// Held while something is done that must not happen twice, or not while the process forks.
pub(crate) struct Held(());

impl Held {
    /// Waits for the mutex. The same thread may take it again.
    pub(crate) fn take() -> Held {
        // SAFETY: the mutex is static.
        unsafe { libc::pthread_mutex_lock(EXCLUSIVE.0.get()) };
        Held(())
    }

    /// In the child of a fork, whose parent took the mutex before: nobody holds it.
    fn reset_in_child() {
        // SAFETY: the child has one thread, this one.
        unsafe { *EXCLUSIVE.0.get() = libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP };
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(EXCLUSIVE.0.get()) };
    }
}

/// Before a fork: nothing is half done.
pub(crate) fn before_fork() {
    mem::forget(Held::take());
    hand_on();
}

/// Before another process begins with this one's descriptors: files that are open stay so for it.
pub(crate) fn hand_on() {
    if let Some(client) = started() {
        let _inside = Inside::enter();
        client.before_fork();
    }
}

/// After that, in this process.
pub(crate) fn handed_on() {
    if let Some(client) = started() {
        let saved = real::errno();
        let _inside = Inside::enter();
        client.after_fork_in_parent();
        real::set_errno(saved);
    }
}

/// After a fork, in the parent.
pub(crate) fn after_fork_in_parent() {
    handed_on();
    drop(Held(()));
}

/// After a fork, in the child: a new life.
pub(crate) fn after_fork_in_child() {
    Held::reset_in_child();
    STARTED.store(ptr::null_mut(), Ordering::Release);
    LIFE.fetch_add(1, Ordering::AcqRel);
}

/// The number of this life; files attached in another life cannot be used.
#[inline]
pub(crate) fn life() -> u32 {
    LIFE.load(Ordering::Acquire)
}

/// Whether writes must reach the servers before they return, because nothing of the program runs later.
pub(crate) fn is_exiting() -> bool {
    EXITING.load(Ordering::Acquire)
}

/// The settings; `None` when there is no usable configuration, which is said on standard error once.
#[inline]
pub(crate) fn settings() -> Option<&'static Settings> {
    let settings = SETTINGS.load(Ordering::Acquire);
    if settings.is_null() {
        return load_settings();
    }
    // SAFETY: settings are never freed.
    Some(unsafe { &*settings })
}

#[cold]
fn load_settings() -> Option<&'static Settings> {
    if WITHOUT.load(Ordering::Acquire) {
        return None;
    }
    let saved = real::errno();
    let _inside = Inside::enter();
    let _held = Held::take();
    if SETTINGS.load(Ordering::Acquire).is_null() {
        match read_settings() {
            Ok(settings) => SETTINGS.store(Box::into_raw(Box::new(settings)), Ordering::Release),
            Err(reason) => {
                WITHOUT.store(true, Ordering::Release);
                if std::env::var_os(QUIET_VARIABLE).is_none() {
                    tell(&format!("running without ccPFS: {reason}"));
                }
            }
        }
    }
    real::set_errno(saved);
    // SAFETY: settings are never freed.
    unsafe { SETTINGS.load(Ordering::Acquire).as_ref() }
}

fn read_settings() -> Result<Settings, String> {
    // A program may have emptied its environment on the way to starting another one.
    let remembered = crate::spawn::config_at_start().filter(|_| std::env::var_os("CCPFS_CONFIG").is_none());
    let config = ClientConfig::load(remembered.as_deref()).map_err(|e| e.to_string())?;
    let namespace = config.namespace.clone();
    let resolved = namespace
        .canonicalize()
        .map_err(|e| format!("the namespace {} cannot be reached: {e}", namespace.display()))?;
    let device = std::os::unix::fs::MetadataExt::dev(
        &resolved.metadata().map_err(|e| format!("the namespace {}: {e}", resolved.display()))?,
    );
    let mut roots = vec![
        paths::normalise(namespace.as_os_str().as_bytes()),
        paths::normalise(resolved.as_os_str().as_bytes()),
    ];
    roots.dedup();
    Ok(Settings { config, roots, device })
}

/// After `chroot`: the namespace is below another name, or below none. `root` is the new root directory, normalised.
pub(crate) fn root_changed(root: &[u8]) {
    let Some(former) = settings() else { return };
    let _inside = Inside::enter();
    let _held = Held::take();
    let below = |name: &Vec<u8>| {
        let rest = name.strip_prefix(root)?;
        (rest.is_empty() || rest[0] == b'/').then(|| rest.to_vec())
    };
    let roots = former.roots.iter().filter_map(below).collect();
    let changed = Settings { config: former.config.clone(), roots, device: former.device };
    SETTINGS.store(Box::into_raw(Box::new(changed)), Ordering::Release);
}

/// Whether this process has said that it runs without ccPFS.
pub(crate) fn is_without() -> bool {
    WITHOUT.load(Ordering::Acquire)
}

/// The client; starts it.
///
/// # Errors
/// `EIO` without a usable configuration; the errno of the start.
pub(crate) fn client() -> Result<&'static Client, Errno> {
    if let Some(client) = started() {
        return Ok(client);
    }
    let settings = settings().ok_or(libc::EIO)?;
    let _held = Held::take();
    if let Some(client) = started() {
        return Ok(client);
    }
    let _inside = Inside::enter();
    let client = Client::start(settings.config.clone()).map_err(|e| failed(&e))?;
    let started = Box::new(Started { life: life(), client });
    STARTED.store(Box::into_raw(started), Ordering::Release);
    crate::process::take_over_inherited();
    self::started().ok_or(libc::EIO)
}

/// The client, if this life has one.
pub(crate) fn started() -> Option<&'static Client> {
    // SAFETY: clients are never freed.
    let started = unsafe { STARTED.load(Ordering::Acquire).as_ref() }?;
    (started.life == life()).then_some(&started.client)
}

/// Waits until everything written so far is with the servers.
///
/// # Errors
/// The errno of the flush.
pub(crate) fn flush_all() -> Result<(), Errno> {
    match started() {
        Some(client) => {
            let _inside = Inside::enter();
            client.flush_all().map_err(|e| failed(&e))
        }
        None => Ok(()),
    }
}

/// Before this program is replaced by another one: everything goes to the servers, and locks are given back. The client
/// still works if the new program cannot be started after all.
///
/// # Errors
/// The errno of the flush.
pub(crate) fn leave() -> Result<(), Errno> {
    match started() {
        Some(client) => {
            let _inside = Inside::enter();
            client.shutdown().map_err(|e| failed(&e)).inspect_err(|errno| tell_lost(*errno))
        }
        None => Ok(()),
    }
}

/// The last chance to report an error that no call of the program will.
fn tell_lost(errno: Errno) {
    tell(&format!("data were lost at the end of the program: {}", std::io::Error::from_raw_os_error(errno)));
}

/// At the end of the process: everything goes to the servers, the servers are told, and what is written after this goes
/// straight through.
pub(crate) fn finish() {
    EXITING.store(true, Ordering::Release);
    if started().is_none() {
        return;
    }
    let saved = real::errno();
    let finished = crate::reply::guarded(|| {
        open::close_removed();
        started().map_or(Ok(()), |client| client.shutdown().map_err(|e| failed(&e)))
    });
    if let Err(errno) = finished {
        tell_lost(errno);
    }
    real::set_errno(saved);
}

/// The errno of an error. The first one that says that the file system does not work is also printed, because an errno
/// cannot say which server is meant.
pub(crate) fn failed(error: &FsError) -> Errno {
    let errno = error.to_errno();
    let broken =
        matches!(errno, libc::EIO | libc::ETIMEDOUT | libc::ECONNREFUSED | libc::EPROTO | libc::EINVAL);
    if broken && !TOLD.swap(true, Ordering::AcqRel) {
        tell(&error.to_string());
    }
    errno
}

/// Prints a line on the kernel's standard error, unless that is a ccPFS file.
fn tell(line: &str) {
    if crate::table::is_known(libc::STDERR_FILENO) {
        return;
    }
    let words: Vec<&str> = line.lines().map(str::trim).filter(|part| !part.is_empty()).collect();
    let line = format!("ccpfs: {}\n", words.join(" "));
    // SAFETY: the buffer is the string's.
    unsafe { real::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
