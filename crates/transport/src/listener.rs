//! Listening sockets of both families, behind one type.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::address::Address;
use crate::socket_options::Family;
use crate::sys;

/// A non-blocking listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp { listener: TcpListener, address: Address },
    Unix { listener: UnixListener, file: SocketFile },
}

/// The file of a Unix socket, removed when the port goes, unless somebody has replaced it.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Listener {
    /// Listens on `address`, which is not loopback.
    pub(crate) fn bind(address: &Address) -> io::Result<Listener> {
        match address {
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port))?;
                listener.set_nonblocking(true)?;
                let address = Address::Tcp { host: host.clone(), port: listener.local_addr()?.port() };
                Ok(Listener::Tcp { listener, address })
            }
            Address::Unix(path) => {
                let listener = bind_unix(path)?;
                listener.set_nonblocking(true)?;
                let metadata = fs::symlink_metadata(path)?;
                let file = SocketFile { path: path.clone(), device: metadata.dev(), inode: metadata.ino() };
                Ok(Listener::Unix { listener, file })
            }
            Address::Loopback(_) => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }

    /// Takes one waiting client; its descriptor, and who it is.
    pub(crate) fn accept(&self) -> io::Result<(OwnedFd, String)> {
        match self {
            Listener::Tcp { listener, .. } => {
                let (stream, peer) = listener.accept()?;
                Ok((OwnedFd::from(stream), peer.to_string()))
            }
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept()?;
                let peer = sys::peer_process(stream.as_raw_fd())
                    .map_or_else(|| "local process".to_owned(), |process| format!("process {process}"));
                Ok((OwnedFd::from(stream), peer))
            }
        }
    }

    /// The kind of the accepted sockets.
    pub(crate) fn family(&self) -> Family {
        match self {
            Listener::Tcp { .. } => Family::Tcp,
            Listener::Unix { .. } => Family::Unix,
        }
    }

    /// Where it listens; port 0 is resolved.
    pub(crate) fn address(&self) -> Address {
        match self {
            Listener::Tcp { address, .. } => address.clone(),
            Listener::Unix { file, .. } => Address::Unix(file.path.clone()),
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Listener::Tcp { listener, .. } => listener.as_raw_fd(),
            Listener::Unix { listener, .. } => listener.as_raw_fd(),
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| metadata.dev() == self.device && metadata.ino() == self.inode);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "socket file was not removed");
        }
    }
}

/// Binds a Unix socket; a socket file that refuses connections is left over from a dead server and is replaced.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let error = match UnixListener::bind(path) {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    if error.kind() != io::ErrorKind::AddrInUse {
        return Err(error);
    }
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is not a socket stands there"));
    }
    match UnixStream::connect(path) {
        Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        Ok(_) | Err(_) => Err(error),
    }
}
