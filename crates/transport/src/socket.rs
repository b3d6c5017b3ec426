//! Connecting to an address.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Type};
use thiserror::Error;
use zodium_types::Address;

/// Shortest timeout of a socket. It counts in microseconds, and takes 0 for none.
pub(crate) const TIMEOUT_LEAST: Duration = Duration::from_millis(1);

/// How long an address of a host has to answer before the next one is tried too.
const HEAD_START: Duration = Duration::from_millis(300);

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

fn connect_tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let host = if host.is_empty() { "localhost" } else { host };
    let started = Instant::now();
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    connect_first(&addresses, limit.saturating_sub(started.elapsed()))
}

/// Tries the addresses of a host in their order, and takes the first one that answers. One that
/// refuses, or does not answer soon, costs the others no time.
fn connect_first(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let deadline = Instant::now() + limit;
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let mut attempts = Vec::new();
    let mut untried = addresses.iter();
    loop {
        let next = untried.next();
        match next.map(Attempt::begin) {
            Some(Ok(attempt)) => attempts.push(attempt),
            Some(Err(error)) => failed = error,
            None if attempts.is_empty() => return Err(failed),
            None => {}
        }
        let head_start = if untried.len() == 0 { limit } else { HEAD_START };
        let until = deadline.min(Instant::now() + head_start);
        while !attempts.is_empty() && Instant::now() < until {
            wait_for_any(&attempts, until)?;
            match Attempt::first_of(&mut attempts) {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => failed = error,
                None => {}
            }
        }
        if Instant::now() >= deadline {
            return Err(unanswered(addresses));
        }
    }
}

/// An address that is being connected to.
struct Attempt(socket2::Socket);

impl Attempt {
    fn begin(address: &SocketAddr) -> io::Result<Attempt> {
        let socket = socket2::Socket::new(Domain::for_address(*address), Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        match socket.connect(&(*address).into()) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => Err(error),
            _ => Ok(Attempt(socket)),
        }
    }

    /// The stream or the error of the first attempt that has ended, which is removed.
    fn first_of(attempts: &mut Vec<Attempt>) -> Option<io::Result<TcpStream>> {
        let mut results = attempts.iter().map(Attempt::result).enumerate();
        let (place, result) = results.find_map(|(place, result)| Some((place, result?)))?;
        let Attempt(socket) = attempts.remove(place);
        Some(result.and_then(|()| {
            socket.set_nonblocking(false)?;
            socket.set_tcp_nodelay(true)?;
            Ok(socket.into())
        }))
    }

    /// How it has ended; `None` if it has not.
    fn result(&self) -> Option<io::Result<()>> {
        match self.0.take_error() {
            Ok(None) => self.0.peer_addr().is_ok().then_some(Ok(())),
            Ok(Some(error)) | Err(error) => Some(Err(error)),
        }
    }
}

/// Waits until one of the attempts has ended, or for so long.
fn wait_for_any(attempts: &[Attempt], until: Instant) -> io::Result<()> {
    let wait = |attempt| PollFd::new(attempt, PollFlags::OUT);
    let mut waits: Vec<_> = attempts.iter().map(|Attempt(socket)| wait(socket)).collect();
    let left = until.saturating_duration_since(Instant::now());
    match poll(&mut waits, Timespec::try_from(left).ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn unanswered(addresses: &[SocketAddr]) -> io::Error {
    let addresses: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
    let text = format!("no answer from {}", addresses.join(", "));
    io::Error::new(io::ErrorKind::TimedOut, text)
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
    fn an_address_that_does_not_answer_costs_the_next_one_no_time() {
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
        let began = Instant::now();
        let stream = connect_first(&[hung, hung, good], 60 * LIMIT).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        assert!(began.elapsed() < 20 * LIMIT, "{:?}", began.elapsed());
        // One that refuses is no reason to wait for the one that hangs.
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let stream = connect_first(&[closed, hung, good], 60 * LIMIT).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        let error = connect_first(&[closed, closed], LIMIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        let error = connect_first(&[hung, hung], LIMIT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.to_string(), format!("no answer from {hung}, {hung}"));
    }
}
