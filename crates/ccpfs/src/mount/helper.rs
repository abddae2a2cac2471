//! `mount.ccpfs`: called by mount(8) for lines of `/etc/fstab`, as `mount.ccpfs SOURCE DIR [-fnsv] [-o OPTIONS] [-t TYPE]`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Names by which mount(8) calls this program.
const NAMES: [&str; 2] = ["mount.ccpfs", "mount.fuse.ccpfs"];

/// The arguments of `ccpfs mount` for a call by mount(8); `None` when the program was not called by one of those names. The source
/// is the cluster's configuration file.
pub(crate) fn arguments(given: &[OsString]) -> Option<Vec<OsString>> {
    let (name, rest) = given.split_first()?;
    let name = Path::new(name).file_name()?;
    if !NAMES.iter().any(|known| OsStr::new(known) == name) {
        return None;
    }
    let mut made: Vec<OsString> = ["ccpfs", "mount"].map(OsString::from).to_vec();
    let mut places: Vec<OsString> = Vec::new();
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-o") => made.extend(["-o".into(), rest.next().cloned().unwrap_or_default()]),
            // A type and a namespace, which say nothing new here.
            Some("-t" | "-N") => drop(rest.next()),
            // Sloppy, fake, verbose, no mtab: as mount(8) passes them on.
            Some(flag) if flag.starts_with('-') && flag.len() > 1 && !flag.starts_with("-o") => {}
            Some(_) | None => places.push(argument.clone()),
        }
    }
    let mut places = places.into_iter();
    if let Some(source) = places.next() {
        made.extend(["--config".into(), source]);
    }
    made.push("--".into());
    made.extend(places);
    Some(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(given: &[&str]) -> Option<Vec<String>> {
        let given: Vec<OsString> = given.iter().map(OsString::from).collect();
        Some(arguments(&given)?.into_iter().map(|text| text.into_string().unwrap()).collect())
    }

    #[test]
    fn a_call_by_mount_becomes_one_of_ours() {
        let call = ["/sbin/mount.ccpfs", "/etc/burst.toml", "/mnt", "-n", "-o", "rw,noatime", "-t", "ccpfs"];
        let expected = ["ccpfs", "mount", "-o", "rw,noatime", "--config", "/etc/burst.toml", "--", "/mnt"];
        assert_eq!(made(&call).unwrap(), expected);
        assert!(made(&["mount.fuse.ccpfs", "a", "b"]).is_some());
        assert_eq!(made(&["/usr/bin/ccpfs", "mount", "/mnt"]), None);
    }
}
