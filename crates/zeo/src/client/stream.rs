//! Streams with timeouts, and connecting to an address.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use zodium_types::Address;

use super::ClientError;

/// A stream of bytes that a client reads and writes.
pub trait Stream: Read + Write {
    /// Sets the timeout of each later read and write; `None`: no timeout.
    fn limit_waiting(&mut self, limit: Option<Duration>) -> io::Result<()>;

    /// Whether it is encrypted.
    fn is_encrypted(&self) -> bool {
        false
    }
}

impl Stream for TcpStream {
    fn limit_waiting(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

impl Stream for UnixStream {
    fn limit_waiting(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(limit)?;
        self.set_write_timeout(limit)
    }
}

impl<S: Stream + ?Sized> Stream for Box<S> {
    fn limit_waiting(&mut self, limit: Option<Duration>) -> io::Result<()> {
        (**self).limit_waiting(limit)
    }

    fn is_encrypted(&self) -> bool {
        (**self).is_encrypted()
    }
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
pub fn connect(address: &Address, limit: Duration) -> Result<Box<dyn Stream>, ClientError> {
    Ok(match connect_socket(address, limit)? {
        Socket::Tcp(stream) => Box::new(stream),
        Socket::Unix(stream) => Box::new(stream),
    })
}

/// As [`connect`], but gives the socket, which can be read and written at the same time.
pub fn connect_socket(address: &Address, limit: Duration) -> Result<Socket, ClientError> {
    let connected = match address {
        Address::Tcp { host, port } => connect_tcp(host, *port, limit).map(Socket::Tcp),
        Address::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
    };
    connected.map_err(|reason| ClientError::Connect { address: address.to_string(), reason })
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
