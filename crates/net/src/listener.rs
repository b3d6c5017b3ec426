//! Listening sockets, and accepting connections on them.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

use zodium_tls::ServerTls;
use zodium_types::Address;

use crate::log_limiter::LogLimiter;
use crate::socket_path::{SocketFile, SocketPath};
use crate::{Keepalive, Protocol};

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;
/// Pause after a failed accept, for example when no file descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Unix sockets of one address: the one that has its path, and the one before it.
const UNIX_LISTENERS_MAX: usize = 2;

/// A bound address that does not accept connections yet.
///
/// A server binds its addresses before long work, such as building an index, and listens after it.
/// So an address in use is reported at once, and a client that gets a connection gets answers.
#[derive(Debug)]
pub struct Bound {
    socket: Socket,
    address: Address,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpSocket),
    Unix(SocketPath),
    /// The parent process listens on it already.
    Inherited(Kind),
}

/// An address that accepts connections.
#[derive(Debug)]
pub struct Listener {
    kind: Kind,
    address: Address,
    tls: Option<Arc<ServerTls>>,
    protocol: Protocol,
    keepalive: Keepalive,
    failure_log: LogLimiter,
    file: Option<SocketFile>,
}

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    /// The latest first. One that has lost its path may have another name: clients find it there.
    Unix(Vec<UnixListener>),
}

/// An accepted connection on its way to a worker.
#[derive(Debug)]
pub struct Incoming {
    pub(crate) stream: IncomingStream,
    /// The TLS configuration of its listener; `None`: not encrypted.
    pub(crate) tls: Option<Arc<ServerTls>>,
    /// What its listener serves.
    pub(crate) protocol: Protocol,
}

#[derive(Debug)]
pub(crate) enum IncomingStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Incoming {
    /// Connects to an address, to speak `protocol` there. Must run within a tokio runtime.
    pub(crate) async fn connect(address: &Address, protocol: Protocol) -> io::Result<Incoming> {
        let stream = match address {
            Address::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                Keepalive::default().prepare(&stream);
                IncomingStream::Tcp(stream.into_std()?)
            }
            Address::Unix(path) => {
                IncomingStream::Unix(UnixStream::connect(path).await?.into_std()?)
            }
        };
        Ok(Incoming { stream, tls: None, protocol })
    }
}

impl Bound {
    /// Binds an address: all of those that its name has, but for those that are bound `already`.
    /// Must run within a tokio runtime.
    ///
    /// The path of a Unix socket is locked. A socket on which no process listens any more is
    /// replaced when this one listens.
    pub async fn bind_all(address: &Address, already: &[Bound]) -> io::Result<Vec<Bound>> {
        match address {
            Address::Tcp { host, port } => {
                let host = if host.is_empty() { "0.0.0.0" } else { host };
                bind_each(tokio::net::lookup_host((host, *port)).await?, already)
            }
            Address::Unix(path) => {
                let socket = Socket::Unix(SocketPath::take(path)?);
                Ok(vec![Bound { socket, address: address.clone() }])
            }
        }
    }

    /// As [`Bound::bind_all`], but only the first of the addresses.
    pub async fn bind(address: &Address) -> io::Result<Bound> {
        let first = Self::bind_all(address, &[]).await?.into_iter().next();
        first.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Takes over a TCP socket on which the parent process listens already; must run within a
    /// tokio runtime.
    pub fn inherited_tcp(listener: std::net::TcpListener) -> io::Result<Bound> {
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let address = Address::Tcp { host: bound.ip().to_string(), port: bound.port() };
        let kind = Kind::Tcp(TcpListener::from_std(listener)?);
        Ok(Bound { socket: Socket::Inherited(kind), address })
    }

    /// As [`Bound::inherited_tcp`], for a Unix socket. Its path belongs to the parent, and stays.
    pub fn inherited_unix(listener: std::os::unix::net::UnixListener) -> io::Result<Bound> {
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        let path = bound.as_pathname().unwrap_or(Path::new("(unnamed Unix socket)"));
        let address = Address::Unix(path.to_owned());
        let kind = Kind::Unix(vec![UnixListener::from_std(listener)?]);
        Ok(Bound { socket: Socket::Inherited(kind), address })
    }

    /// The address with the port that was chosen.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Starts to listen: connections are accepted from now on.
    pub fn listen(self) -> io::Result<Listener> {
        let (kind, file) = match self.socket {
            Socket::Tcp(socket) => {
                // Its connections take this over: the next server can bind beside those it closed.
                socket.set_reuseaddr(true)?;
                (Kind::Tcp(socket.listen(BACKLOG)?), None)
            }
            Socket::Unix(path) => {
                let (listener, file) = path.listen(BACKLOG)?;
                (Kind::Unix(vec![listener]), Some(file))
            }
            Socket::Inherited(kind) => (kind, None),
        };
        let failure_log = LogLimiter::default();
        Ok(Listener {
            kind,
            address: self.address,
            tls: None,
            protocol: Protocol::default(),
            keepalive: Keepalive::default(),
            failure_log,
            file,
        })
    }
}

/// Binds the addresses of a name. A port that is chosen for the first is that of all.
///
/// Names often have an address of IPv6 on machines without IPv6: what the machine does not have is
/// left out.
fn bind_each(
    addresses: impl Iterator<Item = SocketAddr>,
    already: &[Bound],
) -> io::Result<Vec<Bound>> {
    let mut bound: Vec<Bound> = Vec::new();
    let (mut port, mut missing) = (0, None);
    for mut wanted in addresses {
        if wanted.port() == 0 {
            wanted.set_port(port);
        }
        let address = address_of(wanted);
        if bound.iter().chain(already).any(|other| other.address == address) {
            continue;
        }
        match bind_tcp(wanted) {
            Ok(socket) => {
                let local = socket.local_addr()?;
                port = local.port();
                let (socket, address) = (Socket::Tcp(socket), address_of(local));
                bound.push(Bound { socket, address });
            }
            Err(error) if is_missing_here(&error) => missing = Some(error),
            Err(error) => return Err(error),
        }
    }
    match missing {
        Some(error) if bound.is_empty() => Err(error),
        _ => Ok(bound),
    }
}

fn address_of(address: SocketAddr) -> Address {
    Address::Tcp { host: address.ip().to_string(), port: address.port() }
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that was stopped a moment ago leaves connections that still occupy the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    // Until it listens, others could take the address from it.
    socket.set_reuseaddr(false)?;
    Ok(socket)
}

/// Whether the machine lacks the address, or its family.
fn is_missing_here(error: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(EAFNOSUPPORT)
}

impl Listener {
    /// Serves this protocol to the connections that are accepted from now on.
    #[must_use]
    pub fn with_protocol(self, protocol: Protocol) -> Listener {
        Listener { protocol, ..self }
    }

    /// Probes the connections that are accepted from now on with this keepalive.
    #[must_use]
    pub fn with_keepalive(self, keepalive: Keepalive) -> Listener {
        Listener { keepalive, ..self }
    }

    /// Requires TLS, with a client certificate that is trusted.
    #[must_use]
    pub fn with_tls(self, tls: Arc<ServerTls>) -> Listener {
        Listener { tls: Some(tls), ..self }
    }

    /// The address with the port that was chosen.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Whether connections are encrypted.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Accepts the next connection; gives it with the peer's address. Retries after errors.
    pub async fn accept(&self) -> (Incoming, String) {
        loop {
            match self.try_accept().await {
                Ok((stream, peer)) => {
                    let (tls, protocol) = (self.tls.clone(), self.protocol);
                    return (Incoming { stream, tls, protocol }, peer);
                }
                // The connection ended before it was accepted.
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    if let Some(times) = self.failure_log.admit() {
                        let address = &self.address;
                        tracing::warn!(%error, %address, times, "{}", advice(&error));
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Listens again on a Unix socket that another program has removed, as cleaners of /run do. It
    /// may have been renamed, so that the one before is still accepted on. Must run within a tokio
    /// runtime.
    pub fn mend(&mut self) {
        let (Some(file), Kind::Unix(listeners)) = (&mut self.file, &mut self.kind) else { return };
        let address = &self.address;
        match file.listen_again(BACKLOG) {
            Ok(None) => {}
            Ok(Some(listener)) => {
                listeners.insert(0, listener);
                listeners.truncate(UNIX_LISTENERS_MAX);
                tracing::warn!(%address, "made again: another program has removed the socket");
            }
            Err(error) => tracing::error!(%error, %address,
                "another program has removed the socket, and it cannot be made again"),
        }
    }

    async fn try_accept(&self) -> io::Result<(IncomingStream, String)> {
        match &self.kind {
            Kind::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                self.keepalive.prepare(&stream);
                Ok((IncomingStream::Tcp(stream.into_std()?), peer.to_string()))
            }
            Kind::Unix(listeners) => {
                let (stream, _) = poll_fn(|context| {
                    let mut polled = listeners.iter().map(|listener| listener.poll_accept(context));
                    polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
                })
                .await?;
                Ok((IncomingStream::Unix(stream.into_std()?), self.address.to_string()))
            }
        }
    }
}

fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// The log message for a failed accept, with advice.
fn advice(error: &io::Error) -> &'static str {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    match error.raw_os_error() {
        Some(EMFILE) => {
            "cannot accept: too many open files; raise the limit (LimitNOFILE= of systemd, ulimit \
             -n) or lower --connections-max"
        }
        Some(ENFILE) => "cannot accept: the system has too many open files; raise fs.file-max",
        _ => "cannot accept",
    }
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, SockAddr, SockRef, Type};

    use super::*;

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test);
    }

    #[test]
    fn a_peer_that_is_gone_without_a_word_is_found_out_in_three_minutes() {
        run(async {
            let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
            let listener = Bound::bind(&address).await.unwrap().listen().unwrap();
            let Address::Tcp { host, port } = listener.address() else { unreachable!() };
            let _peer = std::net::TcpStream::connect((host.as_str(), *port)).unwrap();
            let (incoming, _) = listener.accept().await;
            let IncomingStream::Tcp(stream) = incoming.stream else { unreachable!() };
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap());
            let idle = socket.tcp_keepalive_time().unwrap();
            let interval = socket.tcp_keepalive_interval().unwrap();
            let probes = socket.tcp_keepalive_retries().unwrap();
            assert_eq!((idle.as_secs(), interval.as_secs(), probes), (120, 15, 4));
            assert_eq!(idle + interval * probes, Duration::from_secs(180));
            // No probes are sent while data are not acknowledged.
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(180)));
        });
    }

    #[test]
    fn all_addresses_of_a_name_are_bound_that_the_machine_has() {
        run(async {
            // The second one is for documentation: no machine has it.
            let addresses = ["127.0.0.1:0", "192.0.2.1:0", "127.0.0.2:0", "127.0.0.1:0"];
            let addresses = addresses.map(|address| address.parse().unwrap());
            let bound = bind_each(addresses.into_iter(), &[]).unwrap();
            let text = |bound: &[Bound]| -> Vec<_> {
                bound.iter().map(|bound| bound.address().to_string()).collect()
            };
            let named = text(&bound);
            let port = named[0].strip_prefix("127.0.0.1:").unwrap();
            assert_eq!(named[1..], [format!("127.0.0.2:{port}")]);
            let more = ["127.0.0.1", "127.0.0.3"].map(|host| format!("{host}:{port}"));
            let parsed = more.iter().map(|address| address.parse().unwrap());
            assert_eq!(text(&bind_each(parsed, &bound).unwrap()), more[1..], "bound already");
            let error = bind_each([addresses[1]].into_iter(), &[]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        });
    }

    #[test]
    fn a_unix_socket_that_was_renamed_is_accepted_on_beside_the_one_in_its_place() {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let [path, renamed, again] = ["a", "b", "c"].map(|name| folder.path().join(name));
            let address = Address::Unix(path.clone());
            let mut listener = Bound::bind(&address).await.unwrap().listen().unwrap();
            std::fs::rename(&path, &renamed).unwrap();
            listener.mend();
            for path in [&renamed, &path, &renamed] {
                let _peer = std::os::unix::net::UnixStream::connect(path).unwrap();
                listener.accept().await;
            }
            std::fs::rename(&path, &again).unwrap();
            listener.mend();
            for path in [&again, &path] {
                let _peer = std::os::unix::net::UnixStream::connect(path).unwrap();
                listener.accept().await;
            }
            assert!(std::os::unix::net::UnixStream::connect(&renamed).is_err(), "two at most");
            drop(listener);
            assert!(again.exists() && !path.exists());
        });
    }

    /// A connection that is closed keeps its place in the queue until it is accepted, so this test
    /// needs no thousand open files.
    #[test]
    fn connections_wait_to_be_accepted_up_to_the_backlog() {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("socket");
            let address = Address::Unix(path.clone());
            let _listener = Bound::bind(&address).await.unwrap().listen().unwrap();
            let connect = || {
                let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket.connect(&SockAddr::unix(&path).unwrap())
            };
            let limit_of_system = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
            let backlog = limit_of_system.trim().parse::<u32>().unwrap().min(BACKLOG);
            for number in 0..backlog {
                connect().unwrap_or_else(|error| panic!("connection {number}: {error}"));
            }
            // Linux queues one more than the backlog.
            let refused = connect().and_then(|()| connect()).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        });
    }
}
