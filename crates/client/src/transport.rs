//! A socket with or without TLS that one thread writes to while another reads.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::{ClientConfig, ClientConnection};
use rustls_pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use zodium_types::Address;
use zodium_zeo::client::{Socket, connect_socket};

use crate::ClientError;
use crate::input::Input;
use crate::interrupt::TICK;

/// TCP keepalive: time until the first probe, and interval between probes.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_RETRIES: u32 = 3;
/// Plain text encrypted at once: less than what rustls buffers.
const PLAIN_BYTES: usize = 32 << 10;
/// Encrypted bytes collected before a write.
const SEALED_BYTES: usize = 256 << 10;

/// TLS settings of a client.
#[derive(Clone)]
pub(crate) struct TlsSide {
    pub(crate) config: Arc<ClientConfig>,
    /// The name expected in the server's certificate; `None`: the host of its address.
    pub(crate) name: Option<ServerName<'static>>,
}

pub(crate) struct Transport {
    socket: Socket,
    /// The peer's address, if the system knows it.
    peer: Option<String>,
    tls: Option<Mutex<ClientConnection>>,
}

impl Transport {
    /// Connects, with a TLS handshake if configured. Until [`Transport::wait_long`], no read or
    /// write takes longer than `limit`.
    pub(crate) fn open(
        address: &Address,
        tls: Option<&TlsSide>,
        limit: Duration,
    ) -> Result<Transport, ClientError> {
        let socket = connect_socket(address, limit)?;
        let named = |error: io::Error| ClientError::disconnected(format!("{address}: {error}"));
        let transport = Transport { peer: peer_of(&socket), socket, tls: None };
        transport.prepare(limit).map_err(named)?;
        match tls {
            Some(tls) => transport.secure(address, tls).map_err(named),
            None => Ok(transport),
        }
    }

    fn prepare(&self, limit: Duration) -> io::Result<()> {
        let socket = self.reference();
        if matches!(self.socket, Socket::Tcp(_)) {
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE);
            socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))?;
        }
        socket.set_read_timeout(Some(limit))?;
        socket.set_write_timeout(Some(limit))
    }

    fn secure(self, address: &Address, side: &TlsSide) -> io::Result<Transport> {
        let name = match (&side.name, address) {
            (Some(name), _) => name.clone(),
            (None, Address::Tcp { host, .. }) if !host.is_empty() => {
                ServerName::try_from(host.clone()).map_err(io::Error::other)?
            }
            (None, _) => ServerName::try_from("localhost").map_err(io::Error::other)?,
        };
        let config = Arc::clone(&side.config);
        let mut connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut Plain(&self.socket))?;
        }
        Ok(Transport { tls: Some(Mutex::new(connection)), ..self })
    }

    /// Ends the handshake phase. Reads now fail with `WouldBlock` after each tick, to be retried. A
    /// write fails only if the peer accepts nothing for `silence_max`.
    pub(crate) fn wait_long(&self, silence_max: Duration) -> io::Result<()> {
        let socket = self.reference();
        #[cfg(target_os = "linux")]
        if matches!(self.socket, Socket::Tcp(_)) {
            socket.set_tcp_user_timeout(Some(silence_max))?;
        }
        socket.set_read_timeout(Some(TICK))?;
        socket.set_write_timeout(Some(silence_max))
    }

    /// Writes all bytes. The caller must prevent concurrent calls.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Plain(&self.socket).write_all(bytes) };
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
                Plain(&self.socket).write_all(&sealed)?;
                sealed.clear();
            }
        }
        Plain(&self.socket).write_all(&sealed)
    }

    /// Waits for data and appends them to `input`; returns the number of bytes, 0 if the peer has
    /// closed. The caller must prevent concurrent calls.
    pub(crate) fn receive(&self, input: &mut Input) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return input.fill(|room| Plain(&self.socket).read(room));
        };
        // The handshake may have read more than its own messages.
        let plain_bytes = drain(&mut tls.lock(), input)?;
        if plain_bytes > 0 {
            return Ok(plain_bytes);
        }
        let mut sealed = vec![0; PLAIN_BYTES];
        loop {
            let count = Plain(&self.socket).read(&mut sealed)?;
            if count == 0 {
                return Ok(0);
            }
            let sealed = sealed.get(..count).unwrap_or_default();
            let plain_bytes = unseal(&mut tls.lock(), sealed, input)?;
            if plain_bytes > 0 {
                return Ok(plain_bytes);
            }
        }
    }

    /// Shuts down both directions, which also ends pending reads and writes.
    pub(crate) fn shut_down(&self) {
        // The peer may have closed already.
        let _ = self.reference().shutdown(Shutdown::Both);
    }

    fn reference(&self) -> SockRef<'_> {
        match &self.socket {
            Socket::Tcp(stream) => SockRef::from(stream),
            Socket::Unix(stream) => SockRef::from(stream),
        }
    }

    /// The descriptor to poll.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }

    /// The peer's address, if the system knows it.
    pub(crate) fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
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

/// Decrypts bytes and appends the plain text; returns its length. Reads all plain text at once: a
/// poll of the socket does not report what rustls still buffers.
fn unseal(
    connection: &mut ClientConnection,
    mut sealed: &[u8],
    input: &mut Input,
) -> io::Result<usize> {
    let mut plain_bytes = 0;
    while !sealed.is_empty() {
        connection.read_tls(&mut sealed)?;
        connection.process_new_packets().map_err(io::Error::other)?;
        plain_bytes += drain(connection, input)?;
    }
    Ok(plain_bytes)
}

/// Appends decrypted bytes; returns how many.
fn drain(connection: &mut ClientConnection, input: &mut Input) -> io::Result<usize> {
    let mut plain_bytes = 0;
    loop {
        let mut reader = connection.reader();
        let plain = match reader.fill_buf() {
            Ok(plain) => plain,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(plain_bytes),
            Err(error) => return Err(error),
        };
        let count = plain.len();
        if count == 0 {
            return Ok(plain_bytes);
        }
        input.append(plain);
        reader.consume(count);
        plain_bytes += count;
    }
}

/// The plain socket; sockets allow a read and a write at the same time.
struct Plain<'s>(&'s Socket);

impl Read for Plain<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0 {
            Socket::Tcp(stream) => (&mut &*stream).read(buffer),
            Socket::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for Plain<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0 {
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
            Socket::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
