//! Connecting to an address.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Type};
use thiserror::Error;
use zodium_types::Address;

/// Shortest timeout of a socket. It counts in microseconds, and takes 0 for none.
pub(crate) const TIMEOUT_LEAST: Duration = Duration::from_millis(1);

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
        Address::Unix(path) => connect_unix(path, limit).map(Socket::Unix),
    };
    connected.map_err(|reason| ConnectError { address: address.to_string(), reason })
}

/// Tries all addresses of a host name, in order. Each has a share of the time: one that does not
/// answer leaves the others theirs.
fn connect_tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let host = if host.is_empty() { "localhost" } else { host };
    let started = Instant::now();
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    connect_first(&addresses, limit.saturating_sub(started.elapsed()))
}

fn connect_first(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + limit;
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (address, untried) in addresses.iter().zip((1..=addresses.len()).rev()) {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(untried).unwrap_or(u32::MAX);
        if share.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match TcpStream::connect_timeout(address, share) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// Connects to a Unix socket. A server that has stopped accepting lets connections wait.
fn connect_unix(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The system limits the connecting by it, too.
    socket.set_write_timeout(Some(limit.max(TIMEOUT_LEAST)))?;
    socket.connect(&SockAddr::unix(path)?).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    })?;
    socket.set_write_timeout(None)?;
    Ok(OwnedFd::from(socket).into())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::{Ipv4Addr, TcpListener};
    use std::os::unix::net::UnixListener;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(500);

    #[test]
    fn a_unix_socket_that_accepts_no_more_is_given_up() {
        let path = std::env::temp_dir().join(format!("zodium-full-{}", std::process::id()));
        let _listener = UnixListener::bind(&path).unwrap();
        let address = Address::Unix(path.clone());
        let mut waiting = Vec::new();
        let error = loop {
            match connect_socket(&address, LIMIT) {
                Ok(socket) => waiting.push(socket),
                Err(error) => break error,
            }
        };
        std::fs::remove_file(&path).unwrap();
        assert_eq!(error.reason.kind(), ErrorKind::TimedOut, "{error}");
        assert!(!waiting.is_empty());
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_to_the_next_one() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let good = listener.local_addr().unwrap();
        // The system takes a connection more than the backlog, and then answers none.
        let socket = socket2::Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let hung = socket.local_addr().unwrap().as_socket().unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&hung, LIMIT) {
            waiting.push(stream);
        }
        let stream = connect_first(&[hung, good], LIMIT).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        let error = connect_first(&[hung, hung], LIMIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}
