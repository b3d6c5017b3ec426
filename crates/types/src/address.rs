//! Where to listen: `HOST:PORT`, `PORT`, or the path of a Unix socket.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

/// An address, as in ZEO's `address` option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host (name, IPv4, or IPv6 with or without brackets) and port; port 0 lets the system
    /// choose.
    Tcp {
        /// The host; empty for all interfaces.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket: anything with a slash in it.
    Unix(PathBuf),
}

/// The error for a text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not an address: give HOST:PORT, a PORT, or a /path/to/a/socket")]
pub struct AddressError {
    text: String,
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if text.contains('/') {
            return Ok(Address::Unix(PathBuf::from(text)));
        }
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        let port = port.parse().map_err(|_| AddressError { text: text.to_owned() })?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Address::Tcp { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        let tcp = |host: &str, port| Ok(Address::Tcp { host: host.to_owned(), port });
        assert_eq!("127.0.0.1:8100".parse(), tcp("127.0.0.1", 8100));
        assert_eq!("8100".parse(), tcp("", 8100));
        assert_eq!("[::1]:8100".parse(), tcp("::1", 8100));
        assert_eq!("./zeo.sock".parse(), Ok(Address::Unix("./zeo.sock".into())));
        for wrong in ["", "host", "host:", "host:99999", "host:x"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
