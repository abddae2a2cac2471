//! Device directories: identity, epochs, locks, and every way they can be wrong.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::fs;
use std::path::Path;

use ccpfs_device::{
    DEVICE_FORMAT_VERSION, Device, DeviceOpenError, EPOCH_FILE, FileDevice, IDENTITY_FILE, LOCK_FILE,
    ObjectName,
};

const OBJECT: ObjectName = ObjectName([1; 20]);

fn failure(directory: &Path) -> DeviceOpenError {
    match FileDevice::open(directory, 3) {
        Ok(_) => panic!("{} was opened", directory.display()),
        Err(error) => error,
    }
}

#[test]
fn contents_and_identity_survive_a_restart_and_epochs_rise() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("made/on/demand");
    let mut uuids = Vec::new();
    for start in 1..=3 {
        let device = FileDevice::open(&directory, 3).unwrap();
        assert_eq!(device.next_epoch().unwrap(), start);
        if start == 1 {
            device.write(OBJECT, &[(0, b"kept")]).unwrap();
            device.sync(OBJECT).unwrap();
        }
        let mut bytes = [0; 4];
        assert_eq!(device.read(OBJECT, 0, &mut bytes), Ok(4));
        assert_eq!(&bytes, b"kept");
        uuids.push(device.uuid().to_owned());
    }
    assert_eq!(uuids[0].len(), 36);
    assert!(uuids.iter().all(|uuid| *uuid == uuids[0]));
}

#[test]
fn two_servers_cannot_share_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let _device = FileDevice::open(directory.path(), 3).unwrap();
    let error = failure(directory.path());
    assert!(matches!(error, DeviceOpenError::InUse { .. }));
    assert!(error.to_string().contains("in use by another ccpfs server"), "{error}");
}

#[test]
fn the_directory_of_another_server_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    drop(FileDevice::open(directory.path(), 8).unwrap());
    let error = failure(directory.path());
    assert!(matches!(error, DeviceOpenError::OtherServer { found: 8, expected: 3, .. }), "{error}");
}

#[test]
fn another_version_is_refused_before_its_fields_are_read() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(IDENTITY_FILE), "format_version = 99\nnew_field = 1\n").unwrap();
    let error = failure(directory.path());
    assert!(matches!(error, DeviceOpenError::OtherVersion { found: 99, .. }), "{error}");
    assert!(error.to_string().contains(IDENTITY_FILE), "{error}");
}

#[test]
fn a_corrupt_identity_is_named() {
    let directory = tempfile::tempdir().unwrap();
    drop(FileDevice::open(directory.path(), 3).unwrap());
    let path = directory.path().join(IDENTITY_FILE);
    let good = fs::read_to_string(&path).unwrap();
    let shorter = &good[..good.len() / 2];
    for bad in [&b""[..], b"\xff\xfe", b"not toml at all", shorter.as_bytes(), b"format_version = 'one'"] {
        fs::write(&path, bad).unwrap();
        let error = failure(directory.path());
        assert!(matches!(error, DeviceOpenError::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(IDENTITY_FILE), "{error}");
    }
    fs::write(&path, good).unwrap();
    FileDevice::open(directory.path(), 3).unwrap();
}

#[test]
fn a_lost_or_corrupt_epoch_is_an_error_because_it_must_never_fall() {
    let directory = tempfile::tempdir().unwrap();
    let device = FileDevice::open(directory.path(), 3).unwrap();
    let path = directory.path().join(EPOCH_FILE);
    for bad in ["", "12", "twelve\n", "-1\n", "18446744073709551615\n"] {
        fs::write(&path, bad).unwrap();
        let error = device.next_epoch().unwrap_err();
        assert!(matches!(error, DeviceOpenError::Corrupt { .. }), "{error}");
    }
    fs::remove_file(&path).unwrap();
    assert!(device.next_epoch().unwrap_err().to_string().contains(EPOCH_FILE));
    fs::write(&path, "41\n").unwrap();
    assert_eq!(device.next_epoch().unwrap(), 42);
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.tex"), "").unwrap();
    let error = failure(directory.path());
    assert!(error.to_string().contains("thesis.tex"), "{error}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_first_start_that_was_cut_short_is_taken_up() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(LOCK_FILE), "").unwrap();
    fs::write(directory.path().join(EPOCH_FILE), "0\n").unwrap();
    fs::write(directory.path().join(format!("{IDENTITY_FILE}.ccpfs-tmp")), "form").unwrap();
    let device = FileDevice::open(directory.path(), 3).unwrap();
    assert_eq!(device.next_epoch().unwrap(), 1);
}

#[test]
fn a_path_that_cannot_be_a_directory_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = failure(&file);
    assert!(matches!(error, DeviceOpenError::Os { .. }), "{error}");
    assert!(error.to_string().contains("file"), "{error}");
    let error = failure(Path::new("/proc/ccpfs-device"));
    assert!(error.to_string().contains("/proc/ccpfs-device"), "{error}");
}

#[test]
fn a_directory_of_the_first_version_becomes_one_of_this_version_and_keeps_what_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let device = FileDevice::open(directory.path(), 3).unwrap();
    device.write(OBJECT, &[(3, b"bytes")]).unwrap();
    drop(device);
    let path = directory.path().join(IDENTITY_FILE);
    let now = fs::read_to_string(&path).unwrap();
    let before = now.replace(&format!("format_version = {DEVICE_FORMAT_VERSION}"), "format_version = 1");
    assert_ne!(before, now);
    fs::write(&path, before).unwrap();
    let device = FileDevice::open(directory.path(), 3).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), now, "the same directory, of another version");
    assert_eq!(device.length(OBJECT).unwrap(), Some(8));
}
