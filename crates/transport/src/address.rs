//! Where a server listens: a TCP endpoint, a Unix socket path or an in-process name.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// Where one shard of a server listens and where a client connects to.
///
/// Written as `tcp://host:port` (an IPv6 host in brackets), `unix:/path` or `loopback:name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A TCP endpoint. Port 0 asks the system for a free port when it is bound.
    Tcp {
        /// Host name or numeric address, without brackets.
        host: String,
        /// Port number.
        port: u16,
    },
    /// A Unix stream socket at this path of the local file system.
    Unix(PathBuf),
    /// A name inside this process; no socket is involved.
    Loopback(String),
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// The text starts with none of the known schemes.
    #[error("address {text:?} must start with tcp://, unix: or loopback:")]
    UnknownScheme {
        /// The rejected text.
        text: String,
    },
    /// A TCP address without `host:port` behind the scheme.
    #[error("address {text:?} must be tcp://host:port, with an IPv6 host in brackets")]
    BadEndpoint {
        /// The rejected text.
        text: String,
    },
    /// Nothing stands behind the scheme.
    #[error("address {text:?} names no path or name")]
    Empty {
        /// The rejected text.
        text: String,
    },
}

impl Address {
    /// The address of shard `index` of the server whose first shard (index 0) listens here.
    ///
    /// TCP: port plus `index` (port 0 stays 0; a sum above 65,535 stays there and fails when bound twice).
    /// Unix and loopback: `.index` is appended for every index above 0.
    pub fn shard(&self, index: u32) -> Address {
        if index == 0 {
            return self.clone();
        }
        match self {
            Address::Tcp { host, port: 0 } => Address::Tcp { host: host.clone(), port: 0 },
            Address::Tcp { host, port } => {
                let offset = u16::try_from(index).unwrap_or(u16::MAX);
                Address::Tcp { host: host.clone(), port: port.saturating_add(offset) }
            }
            Address::Unix(path) => {
                let mut name = path.clone().into_os_string();
                name.push(format!(".{index}"));
                Address::Unix(PathBuf::from(name))
            }
            Address::Loopback(name) => Address::Loopback(format!("{name}.{index}")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(out, "tcp://[{host}]:{port}"),
            Address::Tcp { host, port } => write!(out, "tcp://{host}:{port}"),
            Address::Unix(path) => write!(out, "unix:{}", path.display()),
            Address::Loopback(name) => write!(out, "loopback:{name}"),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let empty = || AddressError::Empty { text: text.to_owned() };
        if let Some(endpoint) = text.strip_prefix("tcp://") {
            return tcp_endpoint(endpoint).ok_or_else(|| AddressError::BadEndpoint { text: text.to_owned() });
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(empty()) } else { Ok(Address::Unix(PathBuf::from(path))) };
        }
        if let Some(name) = text.strip_prefix("loopback:") {
            return if name.is_empty() { Err(empty()) } else { Ok(Address::Loopback(name.to_owned())) };
        }
        Err(AddressError::UnknownScheme { text: text.to_owned() })
    }
}

fn tcp_endpoint(endpoint: &str) -> Option<Address> {
    let (host, port) = endpoint.rsplit_once(':')?;
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = match bracketed {
        Some(inner) => inner,
        None if host.contains([':', '[', ']']) => return None,
        None => host,
    };
    if host.is_empty() || host.contains('/') {
        return None;
    }
    // `parse` alone would also take a leading plus sign.
    if !port.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    Some(Address::Tcp { host: host.to_owned(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_display_and_parse() {
        for text in [
            "tcp://node1:7100",
            "tcp://10.0.0.1:0",
            "tcp://[::1]:65535",
            "unix:/run/ccpfs/s0.sock",
            "unix:relative.sock",
            "loopback:test",
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_addresses_are_refused_with_the_text_in_the_error() {
        for text in [
            "",
            "node1:7100",
            "tcp://node1",
            "tcp://:1",
            "tcp://::1:80",
            "tcp://n:70000",
            "tcp://n:+1",
            "tcp://n:",
            "tcp://a/b:1",
            "unix:",
            "loopback:",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn shards_follow_the_first_address() {
        let tcp: Address = "tcp://h:100".parse().unwrap();
        assert_eq!(tcp.shard(0), tcp);
        assert_eq!(tcp.shard(3).to_string(), "tcp://h:103");
        assert_eq!("tcp://h:0".parse::<Address>().unwrap().shard(3).to_string(), "tcp://h:0");
        assert_eq!("tcp://h:65535".parse::<Address>().unwrap().shard(3).to_string(), "tcp://h:65535");
        assert_eq!("unix:/a/b".parse::<Address>().unwrap().shard(2).to_string(), "unix:/a/b.2");
        assert_eq!("loopback:x".parse::<Address>().unwrap().shard(1).to_string(), "loopback:x.1");
    }
}
