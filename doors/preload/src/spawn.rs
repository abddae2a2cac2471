//! New programs: what they inherit, and how they find out.
//!
//! *What*: a program that is started gets this library, its configuration, and the list of ccPFS descriptors that it
//! inherits, in its environment. The kernel keeps their numbers and offsets; the list adds the access mode, which the
//! stub's read-only descriptor does not tell.
//!
//! A program that is started with `CCPFS_PRELOAD=off` in its environment gets nothing.

use crate::inside::Inside;
use crate::marks;
use crate::open_file::OpenFile;
use crate::process;
use crate::real;
use crate::session;
use crate::{open, table};
use libc::{c_char, c_int, c_void};
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

/// The list of inherited descriptors: `fd:flags:device:inode`, separated by commas.
const FDS_VARIABLE: &str = "CCPFS_PRELOAD_FDS";
/// Descriptors that say which files are open (`process.rs`), handed to a new program: numbers, separated by commas.
const OPENS_VARIABLE: &str = "CCPFS_PRELOAD_OPENS";
/// What the names of all our variables start with.
const OUR_PREFIX: &[u8] = b"CCPFS_";
/// Where the configuration is.
const CONFIG_VARIABLE: &[u8] = b"CCPFS_CONFIG";
const LOADER_VARIABLE: &[u8] = b"LD_PRELOAD";
const OFF: &[u8] = b"CCPFS_PRELOAD=off";

/// What this process was started with.
struct Inheritance {
    /// `CCPFS_…` variables but the list of descriptors.
    variables: Vec<CString>,
    /// Path of this library.
    library: Vec<u8>,
}

static INHERITANCE: OnceLock<Inheritance> = OnceLock::new();

/// Remembers what this process was started with, and enters the descriptors that it inherited.
///
/// # Safety
/// `variables` is null or an environment.
pub(crate) unsafe fn inherit(variables: *const *const c_char) {
    // SAFETY: as the caller promises.
    let all = unsafe { strings(variables) };
    let list = all.iter().find_map(|entry| value_of(entry, FDS_VARIABLE.as_bytes()));
    let kept = all.iter().filter(|entry| entry.to_bytes().starts_with(OUR_PREFIX) && !is_list(entry));
    let variables = kept.map(|entry| (*entry).to_owned()).collect();
    INHERITANCE.get_or_init(|| Inheritance { variables, library: library_path() });
    if let Some(list) = list {
        enter_inherited(&String::from_utf8_lossy(list));
    }
    if let Some(list) = all.iter().find_map(|entry| value_of(entry, OPENS_VARIABLE.as_bytes())) {
        let numbers = String::from_utf8_lossy(list);
        process::inherit_open(numbers.split(',').filter_map(|number| number.parse().ok()));
    }
    let config = all.iter().find_map(|entry| value_of(entry, CONFIG_VARIABLE));
    // SAFETY: the value ends where the string of the environment does.
    let readable = config.is_some_and(|path| unsafe { libc::access(path.as_ptr().cast(), libc::R_OK) } == 0);
    if !readable {
        say_without();
    }
}

/// The configuration that this process was started with.
pub(crate) fn config_at_start() -> Option<PathBuf> {
    let variables = &INHERITANCE.get()?.variables;
    let path = variables.iter().find_map(|entry| value_of(entry, CONFIG_VARIABLE))?;
    Some(PathBuf::from(OsStr::from_bytes(path)))
}

/// There is no configuration: says so now, and to the processes that this one starts that it has been said.
fn say_without() {
    let _ = session::settings();
    if session::is_without() {
        let name = CString::new(session::QUIET_VARIABLE).expect("no zero byte");
        // SAFETY: the program has not begun, so nobody else uses the environment.
        unsafe { libc::setenv(name.as_ptr(), c"1".as_ptr(), 1) };
    }
}

fn is_list(entry: &CStr) -> bool {
    [FDS_VARIABLE, OPENS_VARIABLE].iter().any(|name| value_of(entry, name.as_bytes()).is_some())
}

/// Where the loader found this library.
fn library_path() -> Vec<u8> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    let here = library_path as *const c_void;
    // SAFETY: the structure is ours, and zero before.
    let found = unsafe {
        libc::dladdr(here, found.as_mut_ptr());
        found.assume_init()
    };
    if found.dli_fname.is_null() {
        return Vec::new();
    }
    // SAFETY: the loader gives a string.
    unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes().to_vec()
}

/// One descriptor of the list.
#[derive(Debug, PartialEq, Eq)]
struct Inherited {
    fd: c_int,
    flags: c_int,
    device: u64,
    inode: u64,
}

fn parse(list: &str) -> Vec<Inherited> {
    let entry = |text: &str| {
        let mut parts = text.split(':');
        let entry = Inherited {
            fd: parts.next()?.parse().ok()?,
            flags: parts.next()?.parse().ok()?,
            device: parts.next()?.parse().ok()?,
            inode: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(entry)
    };
    list.split(',').filter_map(entry).collect()
}

/// Enters the descriptors that lead to the files of a list, whatever numbers they have been given since.
fn enter_inherited(list: &str) {
    let listed = parse(list);
    let mut fds: Vec<c_int> = listed.iter().map(|entry| entry.fd).chain(open_descriptors()).collect();
    fds.sort_unstable();
    fds.dedup();
    for fd in fds {
        let Ok(found) = real::stat_of(fd) else { continue };
        let same_file = |entry: &&Inherited| {
            entry.device == found.st_dev && entry.inode == found.st_ino && is_read_only(fd)
        };
        let Some(entry) = listed.iter().find(same_file) else { continue };
        let exact = listed.iter().filter(|entry| entry.fd == fd).find(same_file);
        let flags = marks::get(fd).or(exact.map(|entry| entry.flags)).unwrap_or(entry.flags);
        let twin = table::known(0, fd - 1)
            .filter(|other| share_offset(*other, fd))
            .find_map(|other| table::find_always(other).filter(|file| file.flags() == flags));
        let file = twin.unwrap_or_else(|| OpenFile::allocate(flags, entry.device, entry.inode));
        // A number beyond the table cannot have been listed by us.
        let _ = open::enter(fd, file);
    }
}

/// The numbers of all descriptors that are open; the standard ones when the kernel does not show them.
fn open_descriptors() -> Vec<c_int> {
    let _inside = Inside::enter();
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return (0..3).collect() };
    folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn is_read_only(fd: c_int) -> bool {
    // SAFETY: plain integers.
    let flags = unsafe { real::fcntl64(fd, libc::F_GETFL, 0) };
    flags >= 0 && flags & libc::O_ACCMODE == libc::O_RDONLY
}

/// Whether two descriptors are one open file description.
fn share_offset(one: c_int, other: c_int) -> bool {
    const KCMP_FILE: usize = 0;
    // SAFETY: plain integers.
    let (process, answer) = unsafe {
        let process = libc::getpid();
        let id = process as usize;
        (process, real::syscall(libc::SYS_kcmp, id, id, KCMP_FILE, one as usize, other as usize, 0))
    };
    process > 0 && answer == 0
}

/// The list for a program that is started now: of all descriptors, because even one that ends with the start of a program
/// can be given another number before.
fn list_of_descriptors() -> String {
    let entry = |fd: c_int| {
        let file = table::find_always(fd)?;
        let (device, inode) = file.stub();
        Some(format!("{fd}:{}:{device}:{inode}", file.flags()))
    };
    table::known(0, c_int::MAX).filter_map(entry).collect::<Vec<_>>().join(",")
}

/// The environment of a program that is started, complete.
pub(crate) struct Environment {
    /// Owns the strings that were added.
    _added: Vec<CString>,
    /// What the program is handed besides.
    _handed: Option<process::HandedOver>,
    pointers: Vec<*const c_char>,
}

impl Environment {
    /// `variables` with what the program needs besides.
    ///
    /// # Safety
    /// `variables` is null or an environment, which stays unchanged while the answer lives.
    pub(crate) unsafe fn complete(variables: *const *const c_char) -> Environment {
        // SAFETY: as the caller promises.
        let given = unsafe { strings(variables) };
        if given.iter().any(|entry| entry.to_bytes() == OFF) {
            return Environment::new(given.iter().map(|entry| entry.as_ptr()).collect(), Vec::new(), None);
        }
        let mut added = Vec::new();
        let mut pointers = Vec::new();
        let mut has_loader = false;
        for entry in &given {
            match value_of(entry, LOADER_VARIABLE) {
                Some(value) => {
                    has_loader = true;
                    match with_library(value) {
                        Some(replaced) => added.push(replaced),
                        None => pointers.push(entry.as_ptr()),
                    }
                }
                None if is_list(entry) => {}
                None => pointers.push(entry.as_ptr()),
            }
        }
        if !has_loader {
            added.extend(with_library(b""));
        }
        if let Some(inheritance) = INHERITANCE.get() {
            let is_missing = |entry: &&CString| !given.iter().any(|other| name_of(other) == name_of(entry));
            added.extend(inheritance.variables.iter().filter(is_missing).cloned());
        }
        if session::is_without() {
            added.extend(CString::new(format!("{}=1", session::QUIET_VARIABLE)).ok());
        }
        let list = list_of_descriptors();
        if !list.is_empty() {
            added.extend(CString::new(format!("{FDS_VARIABLE}={list}")).ok());
        }
        let handed = process::hand_over();
        if let Some(handed) = &handed {
            added.extend(CString::new(format!("{OPENS_VARIABLE}={}", handed.list())).ok());
        }
        Environment::new(pointers, added, handed)
    }

    fn new(
        mut pointers: Vec<*const c_char>,
        added: Vec<CString>,
        handed: Option<process::HandedOver>,
    ) -> Environment {
        pointers.extend(added.iter().map(|entry| entry.as_ptr()));
        pointers.push(ptr::null());
        Environment { _added: added, _handed: handed, pointers }
    }

    /// As C wants it; valid while this lives.
    pub(crate) fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// `LD_PRELOAD` with this library in front; `None` when it is there already.
fn with_library(value: &[u8]) -> Option<CString> {
    let library = &INHERITANCE.get()?.library;
    let name = library.rsplit(|byte| *byte == b'/').next()?;
    if library.is_empty() || (!name.is_empty() && value.windows(name.len()).any(|part| part == name)) {
        return None;
    }
    let mut entry = [LOADER_VARIABLE, b"=", library].concat();
    if !value.is_empty() {
        entry.push(b':');
        entry.extend_from_slice(value);
    }
    CString::new(entry).ok()
}

fn name_of(entry: &CStr) -> &[u8] {
    entry.to_bytes().split(|byte| *byte == b'=').next().unwrap_or_default()
}

/// The value, when the entry is the variable of this name.
fn value_of<'a>(entry: &'a CStr, name: &[u8]) -> Option<&'a [u8]> {
    entry.to_bytes().strip_prefix(name)?.strip_prefix(b"=")
}

/// The strings of an environment.
///
/// # Safety
/// `variables` is null or an environment that outlives the answer.
unsafe fn strings<'a>(variables: *const *const c_char) -> Vec<&'a CStr> {
    let mut all = Vec::new();
    if variables.is_null() {
        return all;
    }
    let mut at = variables;
    loop {
        // SAFETY: the list ends with a null, and no step goes behind it.
        let entry = unsafe { *at };
        if entry.is_null() {
            return all;
        }
        // SAFETY: each entry is a string.
        all.push(unsafe { CStr::from_ptr(entry) });
        // SAFETY: the null was not reached.
        at = unsafe { at.add(1) };
    }
}

/// Puts the list of descriptors into this process's own environment, for children that the C library starts by itself
/// (`system`, `popen`).
pub(crate) fn publish_descriptors() {
    let list = list_of_descriptors();
    let name = CString::new(FDS_VARIABLE).expect("no zero byte");
    // SAFETY: the strings end with zero bytes. As with any setenv, no other thread may change the environment now.
    unsafe {
        if list.is_empty() {
            libc::unsetenv(name.as_ptr());
        } else if let Ok(list) = CString::new(list) {
            libc::setenv(name.as_ptr(), list.as_ptr(), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_descriptors_is_read_back_and_garbage_is_skipped() {
        let one = Inherited { fd: 1, flags: 1025, device: 2049, inode: 77 };
        let seven = Inherited { fd: 7, flags: 2, device: 2049, inode: 78 };
        assert_eq!(parse("1:1025:2049:77,7:2:2049:78"), [one, seven]);
        assert_eq!(parse("x,1:2,1:2:3:4:5,::::"), []);
        assert_eq!(parse(""), []);
    }

    #[test]
    fn names_and_values_are_told_apart() {
        assert_eq!(value_of(c"LD_PRELOAD=/a.so", LOADER_VARIABLE), Some(&b"/a.so"[..]));
        assert_eq!(value_of(c"LD_PRELOADED=/a.so", LOADER_VARIABLE), None);
        assert_eq!(name_of(c"A=b=c"), b"A");
    }
}
