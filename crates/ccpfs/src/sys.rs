//! What the command asks of the operating system beyond the standard library. The only unsafe code of the command.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A signal that the command sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Please end.
    Terminate,
    /// End at once.
    Kill,
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP do not end the process but are noted for [`interrupted`], so that children
/// and temporary directories are cleaned up on the ordinary way out.
pub(crate) fn catch_interrupts() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let handler: extern "C" fn(libc::c_int) = note_interrupt;
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// Whether a signal asked the process to stop.
pub(crate) fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

fn termination_signals() -> libc::sigset_t {
    // SAFETY: `sigset_t` is plain data for which all zeros is a value, and `sigemptyset` fills it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is a valid, writable signal set.
    unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
    }
    set
}

/// Keeps SIGTERM and SIGINT from this thread and all that it starts from now on; [`termination_within`] takes them.
pub(crate) fn block_termination() {
    let set = termination_signals();
    // SAFETY: `set` is valid; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
}

/// Waits at most this many milliseconds for a signal that [`block_termination`] holds back; tells whether it came.
pub(crate) fn termination_within(timeout_ms: u32) -> bool {
    let set = termination_signals();
    let timeout = libc::timespec {
        tv_sec: libc::time_t::from(timeout_ms / 1000),
        tv_nsec: libc::c_long::from(timeout_ms % 1000) * 1_000_000,
    };
    // SAFETY: set and time-out are valid for the call; no details about the signal are asked for.
    unsafe { libc::sigtimedwait(&raw const set, std::ptr::null_mut(), &raw const timeout) > 0 }
}

/// Nanoseconds of the clock that all processes of the machine share and nobody sets.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid and writable.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).expect("the clock counts from the machine's start");
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).expect("0 to 999,999,999")
}

/// Sleeps until the monotonic clock shows this time; not at all if it has passed.
pub(crate) fn wait_until_ns(at_ns: u64) {
    let time = libc::timespec {
        tv_sec: libc::time_t::try_from(at_ns / 1_000_000_000).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::try_from(at_ns % 1_000_000_000).expect("below 10^9"),
    };
    loop {
        // SAFETY: `time` is valid; with an absolute time no remainder is written.
        let slept = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &raw const time,
                std::ptr::null_mut(),
            )
        };
        if slept != libc::EINTR {
            return;
        }
    }
}

/// Ends this process when the thread that started it ends, or did already: `parent` is the process it expects.
pub(crate) fn die_with_parent(parent: u32) {
    // SAFETY: sets a property of this process; no memory is involved.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) };
    if std::os::unix::process::parent_id() != parent {
        std::process::exit(1);
    }
}

/// Makes this process the leader of a session of its own, so that the terminal's signals do not reach it.
///
/// # Errors
/// When it leads a process group already.
pub(crate) fn start_session() -> io::Result<()> {
    // SAFETY: no memory is involved.
    if unsafe { libc::setsid() } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether this process is the machine's administrator.
pub(crate) fn is_root() -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() == 0 }
}

/// Lets go of the standard streams: errors go to the log, if there is one.
pub(crate) fn leave_terminal(log: Option<&File>) {
    let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") else { return };
    let errors = log.unwrap_or(&nothing);
    for (from, to) in [(&nothing, 0), (&nothing, 1), (errors, 2)] {
        // SAFETY: two descriptors; the standard stream's number means the other file from now on.
        unsafe { libc::dup2(from.as_raw_fd(), to) };
    }
}

/// Waits until a process, which need not be a child, has ended.
pub(crate) fn wait_for_process(pid: u32) {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return };
    // SAFETY: plain integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let Ok(fd) = i32::try_from(fd) else { return };
    if fd < 0 {
        return;
    }
    let mut wanted = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure of ours, and a descriptor that nobody else knows.
    unsafe {
        while libc::poll(&raw mut wanted, 1, -1) < 0 {}
        libc::close(fd);
    }
}

/// Waits until one of these descriptors is readable or has an error to report; whether one is in time.
pub(crate) fn wait_readable_any(descriptors: &[i32], patience: Duration) -> bool {
    let entry = |fd: &i32| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut wanted: Vec<libc::pollfd> = descriptors.iter().map(entry).collect();
    let count = libc::nfds_t::try_from(wanted.len()).expect("descriptors are few");
    let timeout = libc::c_int::try_from(patience.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the array is ours and as long as said.
    unsafe { libc::poll(wanted.as_mut_ptr(), count, timeout) > 0 }
}

/// Sends a signal.
///
/// # Errors
/// When there is no such process, or it belongs to somebody else.
pub(crate) fn send_signal(pid: u32, signal: Signal) -> io::Result<()> {
    let number = match signal {
        Signal::Terminate => libc::SIGTERM,
        Signal::Kill => libc::SIGKILL,
    };
    // 0 and negative numbers mean groups.
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: no memory is involved.
    if unsafe { libc::kill(pid, number) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Free and total bytes of the file system that a path is on; `None` when the system does not say.
pub(crate) fn space_bytes(path: &Path) -> Option<(u64, u64)> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all zeros is a value of this plain structure.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte, and the structure is ours to write.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut found) } != 0 {
        return None;
    }
    Some((found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize))
}

/// Memory that has been touched, in huge pages where the system has them, as the clients' page pool.
pub(crate) fn touched_memory(bytes: usize) -> Vec<u8> {
    const PAGE_BYTES: usize = 4096;
    let mut memory: Vec<u8> = Vec::with_capacity(bytes + PAGE_BYTES);
    let gap = memory.as_ptr().align_offset(PAGE_BYTES);
    // SAFETY: the range lies in memory of ours; the advice changes how it is mapped, not what it holds. It may be refused.
    unsafe {
        let start = memory.as_mut_ptr().add(gap);
        libc::madvise(start.cast(), bytes / PAGE_BYTES * PAGE_BYTES, libc::MADV_HUGEPAGE);
    }
    memory.resize(bytes, 1);
    memory
}

/// Writes what the file system of an open file or directory still has to write, so that it disturbs nothing later.
///
/// # Errors
/// When the device fails.
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as `file` is borrowed.
    if unsafe { libc::syncfs(file.as_raw_fd()) } != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Bytes of memory that could be used now without swapping; `None` when the system does not say.
pub(crate) fn memory_available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_back() {
        let first = monotonic_ns();
        assert!(first > 0 && monotonic_ns() >= first);
    }

    #[test]
    fn signals_go_to_single_processes_only() {
        assert!(send_signal(0, Signal::Terminate).is_err());
        assert!(send_signal(u32::MAX, Signal::Kill).is_err());
    }

    #[test]
    fn free_space_is_a_part_of_the_total() {
        let (free, total) = space_bytes(Path::new("/")).unwrap();
        assert!(free <= total && total > 0);
        assert_eq!(space_bytes(Path::new("/no/such/folder")), None);
    }

    #[test]
    fn touched_memory_has_the_asked_size() {
        for bytes in [0, 1, 4096, 5_000_000] {
            let memory = touched_memory(bytes);
            assert!(memory.len() == bytes && memory.iter().all(|byte| *byte == 1));
        }
    }

    #[test]
    fn available_memory_is_known_here() {
        assert!(memory_available_bytes().unwrap() > 1 << 20);
    }
}
