//! Where a node listens.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::wire::record;

record! {
    /// Where a node listens: a numeric IPv4 or IPv6 address without brackets, and a port.
    #[derive(Eq, PartialOrd, Ord, Hash)]
    pub struct Address {
        /// The host. NEO sends numeric addresses only, in ASCII.
        host: String,
        /// The port.
        port: u16,
    }
}

impl Address {
    /// The address to connect to; `None` if the host is not numeric.
    pub fn to_socket_address(&self) -> Option<SocketAddr> {
        let host: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(host, self.port))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Address {
        Address { host: address.ip().to_string(), port: address.port() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
