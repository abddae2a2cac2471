//! Whether this machine and this process can talk to the kernel over rings, and on which processors.

use crate::exchange::Errno;
use crate::options::Rings;
use crate::sys;
use crate::uring_entry::Entry;
use std::fs::File;
use std::os::fd::AsFd;

/// Switches the rings of the kernel's FUSE on and off; absent in kernels that have none.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// Processors that this machine could have. The kernel has a queue for each.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// Processors that run.
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// Most processors that are thought of.
const PROCESSORS_MAX: usize = 8192;

/// Whether to offer the kernel rings.
///
/// # Errors
/// When they are asked for by `io_uring=on` and cannot be had: why.
pub(crate) fn decide(choice: Rings) -> Result<bool, String> {
    match (choice, obstacle()) {
        (Rings::Off, _) => Ok(false),
        (Rings::Auto | Rings::On, None) => Ok(true),
        (Rings::Auto, Some(why)) => {
            tracing::debug!("no io_uring: {why}");
            Ok(false)
        }
        (Rings::On, Some(why)) => Err(format!("io_uring=on: {why}")),
    }
}

/// What stands against rings.
fn obstacle() -> Option<String> {
    match std::fs::read_to_string(PARAMETER).map(|text| text.trim() == "Y") {
        Ok(true) => {}
        Ok(false) => return Some(format!("{PARAMETER} is N; root can write Y into it")),
        Err(_) => return Some("this kernel has no FUSE over io_uring (6.14 or later is needed)".to_owned()),
    }
    let online = processors(&std::fs::read_to_string(ONLINE).unwrap_or_default());
    let allowed = allowed_processors();
    if let Some(missing) = online.iter().find(|one| !allowed.contains(one)) {
        // A queue can only be moved on by a thread on its processor.
        return Some(format!("this process may not run on processor {missing} (taskset, cpuset)"));
    }
    let made = File::open("/dev/null").and_then(|file| Entry::new(file.as_fd(), 0, 1));
    made.err()
        .map(|error| format!("this system allows no rings (kernel.io_uring_disabled, seccomp): {error}"))
}

/// How many queues the kernel has.
pub(crate) fn queue_count() -> usize {
    processors(&std::fs::read_to_string(POSSIBLE).unwrap_or_default()).len().max(1)
}

/// The numbers in a list of the kernel's, such as `0-3,8`.
fn processors(list: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) {
            found.extend(first..=last.min(PROCESSORS_MAX));
        }
    }
    found
}

const WORD_BITS: usize = libc::c_ulong::BITS as usize;

fn allowed_processors() -> Vec<usize> {
    let mut words = vec![0 as libc::c_ulong; PROCESSORS_MAX / WORD_BITS];
    // SAFETY: memory of the length that is given; the kernel writes no more than its own number of processors needs.
    let got = unsafe { libc::sched_getaffinity(0, size_of_val(&*words), words.as_mut_ptr().cast()) };
    let is_set = |one: &usize| words[one / WORD_BITS] & (1 << (one % WORD_BITS)) != 0;
    if got < 0 { Vec::new() } else { (0..PROCESSORS_MAX).filter(is_set).collect() }
}

/// Lets the calling thread run on one processor only.
///
/// # Errors
/// `EINVAL` when the processor does not run, or not for this process.
pub(crate) fn stay_on(processor: u16) -> Result<(), Errno> {
    let processor = usize::from(processor);
    let mut words = vec![0 as libc::c_ulong; processor / WORD_BITS + 1];
    words[processor / WORD_BITS] = 1 << (processor % WORD_BITS);
    // SAFETY: memory of the length that is given.
    let set = unsafe { libc::sched_setaffinity(0, size_of_val(&*words), words.as_ptr().cast()) };
    sys::checked(set).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(processors("0\n"), [0]);
        assert_eq!(processors("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(processors(""), [0_usize; 0]);
        assert!(processors("0-99999999999").len() <= PROCESSORS_MAX + 1);
    }

    #[test]
    fn a_thread_can_be_put_on_a_processor() {
        let first = u16::try_from(allowed_processors()[0]).unwrap();
        let there = std::thread::spawn(move || stay_on(first).map(|()| allowed_processors()));
        assert_eq!(there.join().unwrap(), Ok(vec![usize::from(first)]));
        assert_eq!(stay_on(8191), Err(libc::EINVAL));
    }

    #[test]
    fn off_is_always_possible() {
        assert_eq!(decide(Rings::Off), Ok(false));
        if let Err(why) = decide(Rings::On) {
            assert!(why.starts_with("io_uring=on: "), "{why}");
            assert_eq!(decide(Rings::Auto), Ok(false));
        }
    }
}
