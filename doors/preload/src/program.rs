//! Programs that are stored on ccPFS: the kernel cannot start a stub, so it is given a copy, or a script's interpreter.

use crate::inside::Inside;
use crate::open;
use crate::real::{self, checked};
use crate::reply::{Errno, guarded};
use crate::{descriptors, paths, session, table, translate};
use libc::{AT_FDCWD, c_char, c_int};
use std::ffi::{CStr, CString};
use std::io::IoSliceMut;
use std::ptr;

/// Bytes of a script's first line that are looked at, as in Linux.
const LINE_BYTES_MAX: usize = 256;
/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// What to start instead of a stub.
pub(crate) enum Program {
    /// A copy in memory, behind this descriptor, which ends when a program is started.
    Copy(c_int),
    /// An interpreter with at most one argument of its own; the script follows.
    Script {
        /// The interpreter.
        interpreter: CString,
        /// What its line says behind it.
        argument: Option<CString>,
    },
}

impl Program {
    /// Gives up what is not needed any more.
    pub(crate) fn close(self) {
        if let Program::Copy(fd) = self {
            real::close_plain(fd);
        }
    }
}

/// What to start when the program asks for the file at a path; `None` when it is no stub.
///
/// # Errors
/// `EACCES` without permission, `ENOEXEC` for a file that is no program, the errno of reading it.
pub(crate) fn prepare(at: c_int, path: &CStr) -> Result<Option<Program>, Errno> {
    if crate::inside::is_inside() || !open::leads_to_stub(at, path) {
        return Ok(None);
    }
    // SAFETY: the path is a string.
    checked(unsafe { libc::faccessat(at, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) })?;
    let fd = checked(open::open_at(at, path, libc::O_RDONLY | libc::O_CLOEXEC, 0))?;
    let prepared = prepare_open(fd, path);
    descriptors::close(fd);
    prepared.map(Some)
}

/// As [`prepare`], for an open file.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn prepare_open(fd: c_int, name: &CStr) -> Result<Program, Errno> {
    guarded(|| {
        let mut line = [0_u8; LINE_BYTES_MAX];
        let read = read_at(fd, &mut line, 0)?;
        match line[..read].strip_prefix(b"#!") {
            Some(rest) => script(rest),
            None => copy(fd, name),
        }
    })
}

fn read_at(fd: c_int, to: &mut [u8], at: u64) -> Result<usize, Errno> {
    let open = table::find_always(fd).ok_or(libc::EBADF)?;
    let at = libc::off_t::try_from(at).map_err(|_| libc::EFBIG)?;
    translate::read_at(&open, fd, &mut [IoSliceMut::new(to)], at).map(isize::cast_unsigned)
}

/// A script's first line behind `#!`.
fn script(rest: &[u8]) -> Result<Program, Errno> {
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let line = rest[..end].trim_ascii();
    let cut = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (name, argument) = (&line[..cut], line[cut..].trim_ascii());
    if name.is_empty() {
        return Err(libc::ENOEXEC);
    }
    let string = |bytes: &[u8]| CString::new(bytes).map_err(|_| libc::ENOEXEC);
    let argument = if argument.is_empty() { None } else { Some(string(argument)?) };
    Ok(Program::Script { interpreter: string(name)?, argument })
}

fn copy(fd: c_int, name: &CStr) -> Result<Program, Errno> {
    const EXECUTABLE: libc::c_uint = 0x10;
    let name = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or(b"program");
    let name = CString::new(&name[..name.len().min(200)]).expect("part of a string");
    // SAFETY: the name is a string. Kernels before 6.3 do not know the flag, and do not need it.
    let memory = unsafe {
        checked(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | EXECUTABLE))
            .or_else(|_| checked(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC)))?
    };
    let filled = fill(fd, memory);
    if let Err(errno) = filled {
        real::close_plain(memory);
        return Err(errno);
    }
    Ok(Program::Copy(memory))
}

fn fill(fd: c_int, memory: c_int) -> Result<(), Errno> {
    let mut room = vec![0_u8; PIECE_BYTES];
    let mut at = 0;
    loop {
        let read = read_at(fd, &mut room, at)?;
        if read == 0 {
            return if at == 0 { Err(libc::ENOEXEC) } else { Ok(()) };
        }
        let mut rest = &room[..read];
        while !rest.is_empty() {
            // SAFETY: the buffer has this length.
            let written = unsafe { real::write(memory, rest.as_ptr().cast(), rest.len()) };
            rest = &rest[usize::try_from(written).map_err(|_| real::errno())?..];
        }
        at += read as u64;
    }
}

/// Arguments of an interpreter: itself, its own, the script, and the script's.
///
/// # Safety
/// `arguments` is null or a list of strings that ends with a null, and outlives the answer, as the others do.
pub(crate) unsafe fn script_arguments(
    interpreter: &CStr,
    argument: Option<&CStr>,
    path: &CStr,
    arguments: *const *const c_char,
) -> Vec<*const c_char> {
    let mut list = vec![interpreter.as_ptr()];
    list.extend(argument.map(CStr::as_ptr));
    list.push(path.as_ptr());
    // SAFETY: as the caller promises; the first argument is the script's own name, which its path replaces.
    unsafe {
        let mut at = arguments;
        if !at.is_null() && !(*at).is_null() {
            at = at.add(1);
            while !(*at).is_null() {
                list.push(*at);
                at = at.add(1);
            }
        }
    }
    list.push(ptr::null());
    list
}

/// The stub that a search along `PATH` finds first for a name without a slash; `None` when the search ends elsewhere.
pub(crate) fn search(file: &CStr) -> Option<CString> {
    let settings = session::settings()?;
    let name = file.to_bytes();
    if name.is_empty() || name.contains(&b'/') {
        return None;
    }
    let _inside = Inside::enter();
    let list = std::env::var_os("PATH")?;
    for folder in std::os::unix::ffi::OsStrExt::as_bytes(list.as_os_str()).split(|byte| *byte == b':') {
        let folder = if folder.is_empty() { b"." } else { folder };
        let path = CString::new([folder, b"/", name].concat()).ok()?;
        // SAFETY: the path is a string.
        if unsafe { libc::faccessat(AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) } == 0 {
            let ours = paths::is_in_namespace(settings, AT_FDCWD, &path);
            return (ours && open::leads_to_stub(AT_FDCWD, &path)).then_some(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(line: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        match script(line).ok()? {
            Program::Script { interpreter, argument } => {
                Some((interpreter.into_bytes(), argument.map(CString::into_bytes)))
            }
            Program::Copy(_) => None,
        }
    }

    #[test]
    fn the_first_line_of_a_script_names_an_interpreter_and_at_most_one_argument() {
        assert_eq!(parts(b"/bin/sh\necho"), Some((b"/bin/sh".to_vec(), None)));
        assert_eq!(
            parts(b" /usr/bin/env  python3 -u \n"),
            Some((b"/usr/bin/env".to_vec(), Some(b"python3 -u".to_vec())))
        );
        assert_eq!(parts(b"\n"), None);
        assert_eq!(parts(b"/bin/a\0b\n"), None);
    }
}
