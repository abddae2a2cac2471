//! What a device directory holds besides objects: its identity, its epoch counter, its lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::sys;

/// The version of the directory layout this build writes. It reads version 1 as well, where every object is one file, and makes such a
/// directory one of this version when it opens it.
pub const DEVICE_FORMAT_VERSION: u32 = 2;
/// Name of the identity file.
pub const IDENTITY_FILE: &str = "ccpfs-device.toml";
/// Name of the file with the number of server starts.
pub const EPOCH_FILE: &str = "ccpfs-epoch";
/// Name of the file whose lock a running server holds.
pub const LOCK_FILE: &str = "ccpfs-device.lock";
/// Name of the directory of all objects.
const OBJECTS_DIRECTORY: &str = "objects";

/// Why a device directory cannot be used.
#[derive(Debug, Error)]
pub enum DeviceOpenError {
    /// The system refused, for example because the directory is not writable.
    #[error("device directory: {}: cannot {action}: {source}", path.display())]
    Os {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A server holds the directory's lock.
    #[error("device directory {} is in use by another ccpfs server", directory.display())]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory holds other people's files.
    #[error("device directory {} is not empty and has no {IDENTITY_FILE}: it holds {found:?}", directory.display())]
    Foreign {
        /// The directory.
        directory: PathBuf,
        /// One file that does not belong there.
        found: String,
    },
    /// A file of ours does not read as it was written.
    #[error("device directory: {} is corrupt: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another version of ccPFS made the directory.
    #[error("device directory: {}: format version {found}, this server reads 1 to {DEVICE_FORMAT_VERSION}", path.display())]
    OtherVersion {
        /// The identity file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// The directory belongs to another server of the cluster.
    #[error("device directory: {}: belongs to server {found}, not to server {expected}", path.display())]
    OtherServer {
        /// The identity file.
        path: PathBuf,
        /// Whose it is.
        found: u32,
        /// Who wants it.
        expected: u32,
    },
}

/// The contents of the identity file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Identity {
    format_version: u32,
    uuid: String,
    server_index: u32,
    /// When the directory was made, in seconds since 1970.
    created_s: u64,
}

/// A validated and locked device directory. The lock goes with this value.
#[derive(Debug)]
pub(crate) struct Layout {
    directory: PathBuf,
    uuid: String,
    _lock: File,
}

impl Layout {
    /// Opens the directory for server `server_index`, making it if it is missing or empty.
    pub(crate) fn open(directory: &Path, server_index: u32) -> Result<Layout, DeviceOpenError> {
        fs::create_dir_all(directory).map_err(os("create the directory", directory))?;
        let lock_path = directory.join(LOCK_FILE);
        let identity_path = directory.join(IDENTITY_FILE);
        if !identity_path.exists() {
            check_ours(directory)?;
        }
        let lock = OpenOptions::new().write(true).create(true).truncate(false).open(&lock_path);
        let lock = lock.map_err(os("open the lock file", &lock_path))?;
        if !sys::try_lock(&lock).map_err(os("lock", &lock_path))? {
            return Err(DeviceOpenError::InUse { directory: directory.to_owned() });
        }
        let identity = match fs::read_to_string(&identity_path) {
            Ok(text) => parse_identity(&text, &identity_path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => initialise(directory, server_index)?,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let reason = "it is not text".to_owned();
                return Err(DeviceOpenError::Corrupt { path: identity_path, reason });
            }
            Err(error) => return Err(os("read", &identity_path)(error)),
        };
        if identity.server_index != server_index {
            let (found, expected) = (identity.server_index, server_index);
            return Err(DeviceOpenError::OtherServer { path: identity_path, found, expected });
        }
        if identity.format_version < DEVICE_FORMAT_VERSION {
            // Before any object has a second file: a server that knows only one would read it wrongly.
            write_identity(
                directory,
                &Identity { format_version: DEVICE_FORMAT_VERSION, ..identity.clone() },
            )?;
        }
        let layout = Layout { directory: directory.to_owned(), uuid: identity.uuid, _lock: lock };
        layout.make_buckets()?;
        Ok(layout)
    }

    /// The identity of this directory, for comparison and messages.
    pub(crate) fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The directory of all objects.
    pub(crate) fn objects_directory(&self) -> PathBuf {
        self.directory.join(OBJECTS_DIRECTORY)
    }

    /// Counts one more start; the new count is durable before it is returned. The first is 1.
    pub(crate) fn next_epoch(&self) -> Result<u64, DeviceOpenError> {
        let path = self.directory.join(EPOCH_FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Starting over at 1 would repeat sequence numbers, so a lost counter is not forgiven.
                return Err(DeviceOpenError::Corrupt { path, reason: "it is missing".to_owned() });
            }
            Err(error) => return Err(os("read", &path)(error)),
        };
        let next = text.strip_suffix('\n').and_then(|text| text.parse::<u64>().ok());
        let Some(next) = next.and_then(|epoch| epoch.checked_add(1)) else {
            let reason = format!("{:?} is not a count of server starts", text.trim_end());
            return Err(DeviceOpenError::Corrupt { path, reason });
        };
        replace(&self.directory, EPOCH_FILE, &format!("{next}\n"))?;
        Ok(next)
    }

    /// The directories of all buckets exist and are durable before the first object is made.
    fn make_buckets(&self) -> Result<(), DeviceOpenError> {
        let objects = self.objects_directory();
        let mut made = false;
        for bucket in 0..=u8::MAX {
            let path = objects.join(format!("{bucket:02x}"));
            if !path.is_dir() {
                fs::create_dir_all(&path).map_err(os("create the directory", &path))?;
                made = true;
            }
        }
        if made {
            sync_directory(&objects)?;
            sync_directory(&self.directory)?;
        }
        check_writable(&objects)
    }
}

/// An error of `path` from what the system said.
fn os(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DeviceOpenError {
    let path = path.to_owned();
    move |source| DeviceOpenError::Os { action, path, source }
}

/// A directory without identity may hold only what a first start that was cut short leaves behind.
fn check_ours(directory: &Path) -> Result<(), DeviceOpenError> {
    for entry in fs::read_dir(directory).map_err(os("list", directory))? {
        let name = entry.map_err(os("list", directory))?.file_name();
        let name = name.to_string_lossy().into_owned();
        let ours = [LOCK_FILE, EPOCH_FILE].contains(&name.as_str()) || name.ends_with(TEMPORARY_SUFFIX);
        // The root of a fresh ext4 file system is as good as empty.
        if !ours && name != "lost+found" {
            return Err(DeviceOpenError::Foreign { directory: directory.to_owned(), found: name });
        }
    }
    Ok(())
}

/// A read-only file system shows at start, not at the first write.
fn check_writable(objects: &Path) -> Result<(), DeviceOpenError> {
    let path = objects.join(format!("writable{TEMPORARY_SUFFIX}"));
    File::create(&path).map_err(os("write", &path))?;
    fs::remove_file(&path).map_err(os("remove", &path))
}

fn initialise(directory: &Path, server_index: u32) -> Result<Identity, DeviceOpenError> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let identity = Identity {
        format_version: DEVICE_FORMAT_VERSION,
        uuid: new_uuid()?,
        server_index,
        created_s: since_1970.as_secs(),
    };
    // The identity comes last: once it is there, everything else must be.
    replace(directory, EPOCH_FILE, "0\n")?;
    write_identity(directory, &identity)?;
    Ok(identity)
}

fn write_identity(directory: &Path, identity: &Identity) -> Result<(), DeviceOpenError> {
    let text = toml::to_string(identity).map_err(|error| DeviceOpenError::Corrupt {
        path: directory.join(IDENTITY_FILE),
        reason: error.to_string(),
    })?;
    replace(directory, IDENTITY_FILE, &text)
}

fn new_uuid() -> Result<String, DeviceOpenError> {
    let path = Path::new("/proc/sys/kernel/random/uuid");
    let text = fs::read_to_string(path).map_err(os("read", path))?;
    Ok(text.trim().to_owned())
}

fn parse_identity(text: &str, path: &Path) -> Result<Identity, DeviceOpenError> {
    let corrupt = |reason: String| DeviceOpenError::Corrupt { path: path.to_owned(), reason };
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| corrupt(error.to_string()))?;
    // The version first: another version may have other fields.
    let version = table.get("format_version").and_then(toml::Value::as_integer);
    let found = version.ok_or_else(|| corrupt("it has no format_version".to_owned()))?;
    if !(1..=i64::from(DEVICE_FORMAT_VERSION)).contains(&found) {
        return Err(DeviceOpenError::OtherVersion { path: path.to_owned(), found });
    }
    table.try_into().map_err(|error: toml::de::Error| corrupt(error.to_string()))
}

/// Ending of files that are not complete yet.
const TEMPORARY_SUFFIX: &str = ".ccpfs-tmp";

/// Replaces a file's contents so that a crash leaves either the old or the new, and the new is durable on return.
fn replace(directory: &Path, name: &str, contents: &str) -> Result<(), DeviceOpenError> {
    let temporary = directory.join(format!("{name}{TEMPORARY_SUFFIX}"));
    let path = directory.join(name);
    let mut file = File::create(&temporary).map_err(os("create", &temporary))?;
    file.write_all(contents.as_bytes()).map_err(os("write", &temporary))?;
    file.sync_all().map_err(os("sync", &temporary))?;
    fs::rename(&temporary, &path).map_err(os("replace", &path))?;
    sync_directory(directory)
}

fn sync_directory(directory: &Path) -> Result<(), DeviceOpenError> {
    File::open(directory).and_then(|file| file.sync_all()).map_err(os("sync", directory))
}
