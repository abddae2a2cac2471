//! Catch: one exported function for each name of the C library that can concern a file.
//!
//! Each asks whether the call is ccPFS's, calls the original if not, and translates if so. The 64-bit names mean the
//! same as the plain ones on the machines this library is for.

mod aio;
mod attributes;
mod copy;
mod descriptors;
pub(crate) mod io;
mod names;
mod open;
pub(crate) mod position;
mod print;
mod process;
mod raw;
mod received;
mod signals;
mod spawn;
mod stat;
mod stdio;
mod walk;
mod whole;

/// A second name for an exported function with the same signature.
macro_rules! same {
    ($($(#[$note:meta])* $alias:ident = $function:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => { $(
        $(#[$note])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $alias($($argument: $kind),*) -> $answer {
            // SAFETY: the caller promises the same for this name.
            unsafe { $function($($argument),*) }
        }
    )* };
}
use same;
