//! Making things in the name of whoever asked: owner, group and umask of a new file are the caller's.
//!
//! User, group, umask and capabilities are a thread's own for the kernel. A thread that serves a mount keeps the power to
//! pass permission checks, which the kernel has made already (with groups that are not known here), and gives up the
//! one to exceed quotas.

use crate::abi::InHeader;
use crate::sys;
use std::marker::PhantomData;

/// Version of the capability structures below.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// The right to use reserved space and to exceed quotas.
const CAP_SYS_RESOURCE: u32 = 24;
/// Changing user ids leaves capabilities alone.
const SECBIT_NO_SETUID_FIXUP: libc::c_ulong = 1 << 2;

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Prepares the calling thread for [`Caller`]; returns whether it can take on other users.
pub(crate) fn prepare_thread() -> bool {
    // SAFETY: from here on the thread has its own umask and working directory; nothing of the process depends on sharing.
    if unsafe { libc::unshare(libc::CLONE_FS) } != 0 || !sys::is_root() {
        return false;
    }
    // SAFETY: sets a property of this thread; no memory is involved.
    if unsafe { libc::prctl(libc::PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) } != 0 {
        return false;
    }
    drop_capability(CAP_SYS_RESOURCE);
    true
}

fn drop_capability(capability: u32) {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut data = [CapabilityData::default(); 2];
    // SAFETY: two structures of ours, as the version says.
    if unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) } != 0 {
        return;
    }
    data[0].effective &= !(1 << capability);
    // SAFETY: as above. If it is refused, quotas do not bind whoever uses the mount.
    unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) };
}

/// While it lives, this thread makes files in the name of a caller.
pub(crate) struct Caller {
    switched: bool,
    /// It is about the thread that made it.
    here: PhantomData<*const ()>,
}

impl Caller {
    /// Takes on user and group of a request, and the umask that came with it.
    pub(crate) fn take(can_switch: bool, header: &InHeader, umask: u32) -> Caller {
        // SAFETY: the umask is this thread's own.
        unsafe { libc::umask(umask & 0o777) };
        // Group first, as it should be; with the capabilities kept, the order does not matter.
        if can_switch {
            set_ids(header.uid, header.gid);
        }
        Caller { switched: can_switch, here: PhantomData }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // SAFETY: as in `take`.
        unsafe { libc::umask(0) };
        if self.switched {
            set_ids(0, 0);
        }
    }
}

/// Sets user and group for the file system, of this thread only: the C library's functions would set them for all.
fn set_ids(user: u32, group: u32) {
    // SAFETY: plain integers.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, group);
        libc::syscall(libc::SYS_setfsuid, user);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn new_files_belong_to_the_caller_and_have_the_callers_umask() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let at = path.clone();
        let made = std::thread::spawn(move || {
            let can_switch = prepare_thread();
            let header = InHeader { uid: 1234, gid: 5678, ..InHeader::default() };
            let caller = Caller::take(can_switch, &header, 0o027);
            std::fs::write(&at, "").unwrap();
            drop(caller);
            can_switch
        });
        let can_switch = made.join().unwrap();
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, 0o640);
        if can_switch {
            assert_eq!((found.uid(), found.gid()), (1234, 5678));
        }
    }
}
