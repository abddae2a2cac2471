//! This command in a program on ccPFS (`ccpfs exec -- bash`): it works on stubs, so it begins anew without the preload library.

use crate::exec::LIBRARY;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// With the value "off" the library adds itself to no program that is started.
pub(crate) const SWITCH_VARIABLE: &str = "CCPFS_PRELOAD";

/// Becomes this command once more, without the library, if it is loaded. Returns if it is not.
pub(crate) fn begin_anew() {
    let Some(rest) = std::env::var_os("LD_PRELOAD").and_then(|list| without(&list)) else { return };
    if std::env::var_os(SWITCH_VARIABLE).is_some_and(|value| value == "off") {
        return;
    }
    let mut given = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(given.next().unwrap_or_else(|| OsString::from("ccpfs"))).args(given);
    command.env("LD_PRELOAD", rest).env(SWITCH_VARIABLE, "off");
    let error = command.exec();
    eprintln!("ccpfs: cannot begin anew without the preload library: {error}");
}

/// The list without our library; `None` if it is not in it.
fn without(list: &OsStr) -> Option<OsString> {
    let is_separator = |byte: &u8| matches!(byte, b':' | b' ');
    let entries = || list.as_bytes().split(is_separator).filter(|entry| !entry.is_empty());
    let is_ours = |entry: &[u8]| Path::new(OsStr::from_bytes(entry)).file_name() == Some(OsStr::new(LIBRARY));
    if !entries().any(is_ours) {
        return None;
    }
    let others: Vec<&[u8]> = entries().filter(|entry| !is_ours(entry)).collect();
    Some(OsStr::from_bytes(&others.join(&b':')).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_library_is_taken_out() {
        let rest = |list: &str| without(OsStr::new(list));
        assert_eq!(rest("/usr/lib/other.so"), None);
        assert_eq!(rest("/opt/lib/libccpfs_preload.so"), Some(OsString::new()));
        assert_eq!(rest("/a.so:/opt/lib/libccpfs_preload.so /b.so"), Some(OsString::from("/a.so:/b.so")));
    }
}
