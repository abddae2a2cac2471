//! `dprintf` and its relatives: formatted text straight to a descriptor.

use crate::reply::reply;
use crate::{real, table, translate};
use libc::{c_char, c_int, c_void};
use std::io::IoSlice;
use std::ptr;
use std::slice;

unsafe extern "C" {
    fn vasprintf(text: *mut *mut c_char, format: *const c_char, arguments: *mut c_void) -> c_int;
}

/// `arguments` is a `va_list`, which C passes by address on the machines this library is for.
#[unsafe(no_mangle)]
unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
    let Some(open) = table::find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { real::vdprintf(fd, format, arguments) };
    };
    let mut text = ptr::null_mut();
    // SAFETY: as the caller promises; the text is ours afterwards.
    let length = unsafe { vasprintf(&raw mut text, format, arguments) };
    let Ok(count) = usize::try_from(length) else { return length };
    let written = reply(|| {
        // SAFETY: the C library has written so many bytes there.
        let mut rest = unsafe { slice::from_raw_parts(text.cast::<u8>(), count) };
        while !rest.is_empty() {
            let written = translate::write(&open, fd, &[IoSlice::new(rest)])?;
            rest = &rest[usize::try_from(written).map_err(|_| libc::EIO)?..];
        }
        Ok(length)
    });
    // SAFETY: the C library has allocated it, and nothing leads there any more.
    unsafe { libc::free(text.cast()) };
    written
}

/// What programs compiled with checks call; the check is about `%n`.
#[unsafe(no_mangle)]
unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    arguments: *mut c_void,
) -> c_int {
    if table::find(fd).is_none() {
        // SAFETY: as the caller promises.
        return unsafe { real::__vdprintf_chk(fd, flag, format, arguments) };
    }
    // SAFETY: as the caller promises.
    unsafe { vdprintf(fd, format, arguments) }
}

/// The variadic ones make a `va_list` of their arguments: registers are saved in the order that the ABI prescribes, and
/// the list leads to them and to the arguments on the stack.
#[cfg(target_arch = "x86_64")]
mod variadic {
    use super::{c_char, c_int, vdprintf};
    use std::arch::naked_asm;

    macro_rules! list_maker {
        ($name:ident($($argument:ident: $kind:ty),*), $named:literal, $move_format:literal) => {
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                naked_asm!(
                    "sub rsp, 216",
                    "mov [rsp + 32], rdi",
                    "mov [rsp + 40], rsi",
                    "mov [rsp + 48], rdx",
                    "mov [rsp + 56], rcx",
                    "mov [rsp + 64], r8",
                    "mov [rsp + 72], r9",
                    "test al, al", // The number of vector registers in use.
                    "je 2f",
                    "movaps [rsp + 80], xmm0",
                    "movaps [rsp + 96], xmm1",
                    "movaps [rsp + 112], xmm2",
                    "movaps [rsp + 128], xmm3",
                    "movaps [rsp + 144], xmm4",
                    "movaps [rsp + 160], xmm5",
                    "movaps [rsp + 176], xmm6",
                    "movaps [rsp + 192], xmm7",
                    "2:",
                    concat!("mov dword ptr [rsp], ", $named), // Bytes of saved registers that named arguments took.
                    "mov dword ptr [rsp + 4], 48",
                    "lea rax, [rsp + 224]",
                    "mov [rsp + 8], rax",
                    "lea rax, [rsp + 32]",
                    "mov [rsp + 16], rax",
                    $move_format,
                    "mov rdx, rsp",
                    "call {target}",
                    "add rsp, 216",
                    "ret",
                    target = sym vdprintf,
                )
            }
        };
    }

    list_maker!(dprintf(fd: c_int, format: *const c_char), "16", "");
    list_maker!(__dprintf_chk(fd: c_int, flag: c_int, format: *const c_char), "24", "mov rsi, rdx");
}
