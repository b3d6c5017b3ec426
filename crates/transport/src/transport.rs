//! A socket with or without TLS that one thread writes to while another reads.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::{ClientConfig, ClientConnection};
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use thiserror::Error;
use zodium_types::Address;

use crate::input_buffer::InputBuffer;
use crate::socket::{ConnectError, Socket, TIMEOUT_LEAST, connect_socket};

/// TCP keepalive: time until the first probe, and interval between probes.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_RETRIES: u32 = 3;
/// Longest time to send the end of an encrypted stream.
const GOODBYE_LIMIT: Duration = Duration::from_millis(100);
/// Plain text encrypted at once: less than what rustls buffers.
const PLAIN_BYTES: usize = 32 << 10;
/// Encrypted bytes collected before a write.
const SEALED_BYTES: usize = 256 << 10;

/// TLS settings of a client.
#[derive(Clone)]
pub struct TlsSide {
    /// The certificates, and how the peer's are verified.
    pub config: Arc<ClientConfig>,
    /// The name expected in the server's certificate; `None`: the host of its address.
    pub name: Option<ServerName<'static>>,
}

/// Why there is no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection failed, or its TLS handshake.
    #[error("{address}: {reason}")]
    Handshake {
        /// The address as given.
        address: String,
        /// The error.
        #[source]
        reason: io::Error,
    },
}

/// A connected socket, with or without TLS.
pub struct Transport {
    socket: Socket,
    /// The peer's address, if the system knows it.
    peer: Option<String>,
    tls: Option<Mutex<ClientConnection>>,
}

impl Transport {
    /// Connects, with a TLS handshake if configured, within `limit`. Until
    /// [`Transport::wait_long`], no read or write takes longer than it.
    pub fn open(
        address: &Address,
        tls: Option<&TlsSide>,
        limit: Duration,
    ) -> Result<Transport, OpenError> {
        let deadline = Some(Instant::now() + limit);
        let named = |reason| OpenError::Handshake { address: address.to_string(), reason };
        let mut transport = Transport::new(connect_socket(address, limit)?);
        if let Some(tls) = tls {
            let name = tls.name_of(address).map_err(named)?;
            let secured = transport.secure(Arc::clone(&tls.config), name, deadline);
            transport = secured.map_err(named)?;
        }
        transport.prepare(limit).map_err(named)?;
        Ok(transport)
    }

    /// A transport of this socket, without TLS.
    pub fn new(socket: Socket) -> Transport {
        Transport { peer: peer_of(&socket), socket, tls: None }
    }

    fn prepare(&self, limit: Duration) -> io::Result<()> {
        let socket = self.socket.reference();
        if matches!(self.socket, Socket::Tcp(_)) {
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))?;
        }
        socket.set_read_timeout(Some(limit))?;
        socket.set_write_timeout(Some(limit))
    }

    /// Performs the TLS handshake, before the deadline if there is one.
    pub fn secure(
        self,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        deadline: Option<Instant>,
    ) -> io::Result<Transport> {
        let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut self.plain(deadline))?;
        }
        Ok(Transport { tls: Some(Mutex::new(connection)), ..self })
    }

    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    fn plain(&self, deadline: Option<Instant>) -> Plain<'_> {
        Plain { socket: &self.socket, deadline }
    }

    /// Tells the peer that this is an orderly end, if there is TLS.
    pub fn say_goodbye(&self) {
        let Some(tls) = &self.tls else { return };
        let mut connection = tls.lock();
        connection.send_close_notify();
        let mut sealed = Vec::new();
        while connection.wants_write() && connection.write_tls(&mut sealed).is_ok() {}
        // The peer may have gone.
        let _ = self.plain(Some(Instant::now() + GOODBYE_LIMIT)).write_all(&sealed);
    }

    /// Ends the handshake phase. Reads now fail with `WouldBlock` after each `tick`, to be retried;
    /// without one they wait. A write fails only if the peer accepts nothing for `silence_max`.
    pub fn wait_long(&self, tick: Option<Duration>, silence_max: Duration) -> io::Result<()> {
        let socket = self.socket.reference();
        #[cfg(target_os = "linux")]
        if matches!(self.socket, Socket::Tcp(_)) {
            socket.set_tcp_user_timeout(Some(silence_max))?;
        }
        socket.set_read_timeout(tick)?;
        socket.set_write_timeout(Some(silence_max))
    }

    /// Writes all bytes. The caller must prevent concurrent calls.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_by(bytes, None)
    }

    /// As [`Transport::send`], before the deadline if there is one.
    pub fn send_by(&self, bytes: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        let mut plain_socket = self.plain(deadline);
        let Some(tls) = &self.tls else { return plain_socket.write_all(bytes) };
        let mut sealed = Vec::new();
        for plain in bytes.chunks(PLAIN_BYTES) {
            // Not locked during socket writes: the peer may be waiting for us to read.
            let mut connection = tls.lock();
            connection.writer().write_all(plain)?;
            while connection.wants_write() {
                connection.write_tls(&mut sealed)?;
            }
            drop(connection);
            if sealed.len() >= SEALED_BYTES {
                plain_socket.write_all(&sealed)?;
                sealed.clear();
            }
        }
        plain_socket.write_all(&sealed)
    }

    /// Waits for data and appends them to `input`; returns the number of bytes, 0 if the peer has
    /// closed. The caller must prevent concurrent calls.
    pub fn receive(&self, input: &mut InputBuffer) -> io::Result<usize> {
        self.receive_by(input, None)
    }

    /// As [`Transport::receive`], before the deadline if there is one.
    pub fn receive_by(
        &self,
        input: &mut InputBuffer,
        deadline: Option<Instant>,
    ) -> io::Result<usize> {
        let mut plain_socket = self.plain(deadline);
        let Some(tls) = &self.tls else {
            return input.fill(|room| plain_socket.read(room));
        };
        // The handshake may have read more than its own messages.
        let drained = drain(&mut tls.lock(), input)?;
        if drained.ends_a_read() {
            return Ok(drained.plain_bytes);
        }
        let mut sealed = vec![0; PLAIN_BYTES];
        loop {
            let count = plain_socket.read(&mut sealed)?;
            if count == 0 {
                return Ok(0);
            }
            let sealed = sealed.get(..count).unwrap_or_default();
            let drained = unseal(&mut tls.lock(), sealed, input)?;
            if drained.ends_a_read() {
                return Ok(drained.plain_bytes);
            }
        }
    }

    /// Shuts down both directions, which also ends pending reads and writes.
    pub fn shut_down(&self) {
        // The peer may have closed already.
        let _ = self.socket.reference().shutdown(Shutdown::Both);
    }

    /// The descriptor to poll.
    pub fn handle(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }

    /// The peer's address, if the system knows it.
    pub fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }
}

impl TlsSide {
    /// The name expected in the certificate of the server at this address.
    fn name_of(&self, address: &Address) -> io::Result<ServerName<'static>> {
        match (&self.name, address) {
            (Some(name), _) => Ok(name.clone()),
            (None, Address::Tcp { host, .. }) if !host.is_empty() => {
                ServerName::try_from(host.clone()).map_err(io::Error::other)
            }
            (None, _) => ServerName::try_from("localhost").map_err(io::Error::other),
        }
    }
}

impl Socket {
    fn reference(&self) -> SockRef<'_> {
        match self {
            Socket::Tcp(stream) => SockRef::from(stream),
            Socket::Unix(stream) => SockRef::from(stream),
        }
    }
}

fn peer_of(socket: &Socket) -> Option<String> {
    match socket {
        Socket::Tcp(stream) => stream.peer_addr().ok().map(|address| address.to_string()),
        Socket::Unix(stream) => {
            let address = stream.peer_addr().ok()?;
            Some(address.as_pathname()?.display().to_string())
        }
    }
}

/// The plain text that was appended to the input.
#[derive(Default)]
struct Drained {
    plain_bytes: usize,
    /// Whether the peer has said that nothing follows.
    is_end: bool,
}

impl Drained {
    /// Whether there is nothing to wait for.
    fn ends_a_read(&self) -> bool {
        self.plain_bytes > 0 || self.is_end
    }
}

/// Decrypts bytes and appends the plain text. Reads all plain text at once: a poll of the socket
/// does not report what rustls still buffers. Rustls takes no bytes behind the peer's end.
fn unseal(
    connection: &mut ClientConnection,
    mut sealed: &[u8],
    input: &mut InputBuffer,
) -> io::Result<Drained> {
    let mut all = Drained::default();
    while !sealed.is_empty() && !all.is_end {
        connection.read_tls(&mut sealed)?;
        connection.process_new_packets().map_err(io::Error::other)?;
        let drained = drain(connection, input)?;
        all.plain_bytes += drained.plain_bytes;
        all.is_end = drained.is_end;
    }
    Ok(all)
}

/// Appends decrypted bytes.
fn drain(connection: &mut ClientConnection, input: &mut InputBuffer) -> io::Result<Drained> {
    let mut plain_bytes = 0;
    loop {
        let mut reader = connection.reader();
        let plain = match reader.fill_buf() {
            Ok(plain) => plain,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Ok(Drained { plain_bytes, is_end: false });
            }
            Err(error) => return Err(error),
        };
        let count = plain.len();
        if count == 0 {
            return Ok(Drained { plain_bytes, is_end: true });
        }
        input.append(plain);
        reader.consume(count);
        plain_bytes += count;
    }
}

/// The plain socket; sockets allow a read and a write at the same time.
struct Plain<'s> {
    socket: &'s Socket,
    /// When reads and writes have to end; `None`: the timeouts of the socket are left alone.
    deadline: Option<Instant>,
}

impl Plain<'_> {
    /// Limits the next read or write.
    fn limit(&self) -> io::Result<()> {
        let Some(deadline) = self.deadline else { return Ok(()) };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let (socket, left) = (self.socket.reference(), left.max(TIMEOUT_LEAST));
        socket.set_read_timeout(Some(left))?;
        socket.set_write_timeout(Some(left))
    }
}

impl Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        match self.socket {
            Socket::Tcp(stream) => (&mut &*stream).read(buffer),
            Socket::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        match self.socket {
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
            Socket::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc;
    use std::thread;

    use rustls::crypto::{CryptoProvider, ring};
    use rustls::{RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    /// The configurations of two peers of which one trusts the other, `localhost`.
    fn peers() -> (Arc<ClientConfig>, Arc<ServerConfig>) {
        let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(own.cert.der().clone()).unwrap();
        let key = own.signing_key.serialize_der().try_into().unwrap();
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider));
        let client = client.with_safe_default_protocol_versions().unwrap();
        let server = ServerConfig::builder_with_provider(provider);
        let server = server.with_safe_default_protocol_versions().unwrap();
        let server = server.with_no_client_auth().with_single_cert(vec![own.cert.into()], key);
        let client = client.with_root_certificates(roots).with_no_client_auth();
        (Arc::new(client), Arc::new(server.unwrap()))
    }

    #[test]
    fn nothing_is_read_behind_the_end_of_an_encrypted_stream() {
        let (client, server) = peers();
        for (behind, pause) in [(0, 0), (1, 20), (70_000, 0), (70_000, 20)] {
            let (near, mut far) = UnixStream::pair().unwrap();
            let (client, server) = (Arc::clone(&client), Arc::clone(&server));
            // The peer keeps the socket open.
            let _far = far.try_clone().unwrap();
            thread::spawn(move || {
                let mut connection = ServerConnection::new(server).unwrap();
                while connection.is_handshaking() {
                    connection.complete_io(&mut far).unwrap();
                }
                connection.writer().write_all(b"last").unwrap();
                connection.send_close_notify();
                let mut sealed = Vec::new();
                while connection.wants_write() {
                    connection.write_tls(&mut sealed).unwrap();
                }
                far.write_all(&sealed).unwrap();
                thread::sleep(Duration::from_millis(pause));
                far.write_all(&vec![7; behind]).unwrap();
            });
            let (told, lengths) = mpsc::channel();
            thread::spawn(move || {
                let name = ServerName::try_from("localhost").unwrap();
                let transport = Transport::new(Socket::Unix(near)).secure(client, name, None);
                let (transport, mut input) = (transport.unwrap(), InputBuffer::default());
                while told.send(transport.receive(&mut input).unwrap()).is_ok() {}
            });
            let length = || lengths.recv_timeout(Duration::from_secs(10)).unwrap();
            assert_eq!([length(), length(), length()], [4, 0, 0], "{behind} {pause}");
        }
    }
}
