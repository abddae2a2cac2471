//! What can go wrong for a caller, and the `errno` of each.

use crate::config::ConfigError;
use ccpfs_namespace::StubError;
use ccpfs_transport::Address;
use std::path::PathBuf;
use thiserror::Error;

/// Why a call on a file failed.
#[derive(Debug, Error)]
pub enum FsError {
    /// The namespace directory's own file system refused.
    #[error("{operation} {path}: {source}")]
    Namespace {
        /// What was tried.
        operation: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of the namespace is not a valid stub.
    #[error("{path} is no ccPFS file: {source}")]
    CorruptStub {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: StubError,
    },
    /// The file was created on a cluster with another number of servers.
    #[error("{path} was created on a cluster with {stub} targets, this one has {cluster}")]
    OtherCluster {
        /// The file.
        path: PathBuf,
        /// Targets in the stub.
        stub: u32,
        /// Targets in the configuration.
        cluster: u32,
    },
    /// No connection to a server.
    #[error("server {address} cannot be reached: {reason}")]
    Unreachable {
        /// Where it should be.
        address: Address,
        /// What happened.
        reason: String,
    },
    /// The connection to a server was lost: what was not flushed there is lost too.
    #[error("the connection to server {address} was lost")]
    ServerLost {
        /// Which server.
        address: Address,
    },
    /// A server reported an error.
    #[error("{operation}: {}", std::io::Error::from_raw_os_error(*errno))]
    Server {
        /// What was asked.
        operation: &'static str,
        /// Its answer.
        errno: i32,
    },
    /// Data written earlier could not be stored.
    #[error("data written earlier could not be stored: {}", std::io::Error::from_raw_os_error(*errno))]
    DataLost {
        /// Why.
        errno: i32,
    },
    /// The call does not fit the file or its arguments.
    #[error("{what}: {}", std::io::Error::from_raw_os_error(*errno))]
    Argument {
        /// What is wrong.
        what: &'static str,
        /// EBADF, EINVAL, EFBIG or the like.
        errno: i32,
    },
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl FsError {
    /// The number that POSIX callers see.
    #[must_use]
    pub fn to_errno(&self) -> i32 {
        match self {
            FsError::Namespace { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            FsError::Server { errno, .. } | FsError::DataLost { errno } | FsError::Argument { errno, .. } => {
                *errno
            }
            FsError::CorruptStub { .. }
            | FsError::OtherCluster { .. }
            | FsError::Unreachable { .. }
            | FsError::ServerLost { .. }
            | FsError::Config(_) => libc::EIO,
        }
    }

    pub(crate) const fn argument(what: &'static str, errno: i32) -> FsError {
        FsError::Argument { what, errno }
    }
}

impl From<FsError> for std::io::Error {
    fn from(error: FsError) -> std::io::Error {
        std::io::Error::from_raw_os_error(error.to_errno())
    }
}
