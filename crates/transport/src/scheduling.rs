//! Asking the scheduler to wake a thread soon: threads that answer others do little, but others wait for it.

/// `struct sched_attr` of Linux, first version.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// Shortest slice that Linux grants.
const SLICE_NS: u64 = 100_000;

/// Asks for short time slices for the calling thread, and so for an early turn when it wakes up beside threads that
/// compute (Linux 6.12 and later; elsewhere nothing changes). Needs no privilege and takes no time from anybody.
pub fn prefer_latency() {
    let size = u32::try_from(size_of::<Attributes>()).expect("a small structure");
    let mut attributes = Attributes {
        size,
        policy: 0,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime_ns: 0,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: reads the calling thread's attributes into our own structure of the size that is said.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    // Policy 0 is SCHED_OTHER; a thread that somebody gave another policy keeps it.
    if got != 0 || attributes.policy != 0 {
        return;
    }
    attributes.size = size;
    attributes.runtime_ns = SLICE_NS;
    // SAFETY: passes our own structure for the calling thread. A kernel that does not know slices ignores or refuses it.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}
