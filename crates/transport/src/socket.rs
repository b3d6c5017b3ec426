//! Connecting to an address.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use thiserror::Error;
use zodium_types::Address;

/// No server listens at the address, or it cannot be reached.
#[derive(Debug, Error)]
#[error("cannot connect to {address}: {reason}; is the server running there?")]
pub struct ConnectError {
    /// The address as given.
    pub address: String,
    /// The system's error.
    pub reason: io::Error,
}

/// A connected socket of either kind.
#[derive(Debug)]
pub enum Socket {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A connection over a Unix socket.
    Unix(UnixStream),
}

/// Connects within `limit`. Without a host the address is on this machine.
pub fn connect_socket(address: &Address, limit: Duration) -> Result<Socket, ConnectError> {
    let connected = match address {
        Address::Tcp { host, port } => connect_tcp(host, *port, limit).map(Socket::Tcp),
        Address::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
    };
    connected.map_err(|reason| ConnectError { address: address.to_string(), reason })
}

/// Tries all addresses of a host name, in order.
fn connect_tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let host = if host.is_empty() { "localhost" } else { host };
    let started = Instant::now();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for address in (host, port).to_socket_addrs()? {
        let left = limit.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
