//! A socket that one thread writes to while another reads, with TLS or without.

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

/// A silent connection is tried after this time, then at the same interval.
const KEEPALIVE: Duration = Duration::from_secs(20);
const KEEPALIVE_RETRIES: u32 = 3;
/// What is encrypted at once: less than what rustls buffers.
const PLAIN_BYTES: usize = 32 << 10;
/// Encrypted bytes that are collected before they are written.
const SEALED_BYTES: usize = 256 << 10;

/// A client's side of TLS.
#[derive(Clone)]
pub(crate) struct TlsSide {
    pub(crate) config: Arc<ClientConfig>,
    /// What the server's certificate has to say; `None`: the host of its address.
    pub(crate) name: Option<ServerName<'static>>,
}

pub(crate) struct Transport {
    socket: Socket,
    /// Who is at the other end, as far as the system says.
    peer: Option<String>,
    tls: Option<Mutex<ClientConnection>>,
}

impl Transport {
    /// Connects, and shakes hands where there is TLS. Until [`Transport::wait_long`] no read
    /// or write takes longer than `limit`.
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

    /// From now on reads fail with `WouldBlock` after each tick, to be tried again, and only a peer
    /// that takes nothing for `silence_max` fails a write.
    pub(crate) fn wait_long(&self, silence_max: Duration) -> io::Result<()> {
        let socket = self.reference();
        #[cfg(target_os = "linux")]
        if matches!(self.socket, Socket::Tcp(_)) {
            socket.set_tcp_user_timeout(Some(silence_max))?;
        }
        socket.set_read_timeout(Some(TICK))?;
        socket.set_write_timeout(Some(silence_max))
    }

    /// Writes all. Who calls it sees to it that nobody else does at the same time.
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = &self.tls else { return Plain(&self.socket).write_all(bytes) };
        let mut sealed = Vec::new();
        for plain in bytes.chunks(PLAIN_BYTES) {
            // Not held while the socket is waited for: the peer may wait for us to read.
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

    /// Waits until there is something, and appends it to `input`; how many bytes. 0 bytes: the
    /// peer has closed. Who calls it sees to it that nobody else does at the same time.
    pub(crate) fn receive(&self, input: &mut Input) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return input.fill(|room| Plain(&self.socket).read(room));
        };
        // The handshake may have taken more off the socket than its own.
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

    /// Ends both directions, and with them whoever reads or writes.
    pub(crate) fn shut_down(&self) {
        // It may have ended by itself.
        let _ = self.reference().shutdown(Shutdown::Both);
    }

    fn reference(&self) -> SockRef<'_> {
        match &self.socket {
            Socket::Tcp(stream) => SockRef::from(stream),
            Socket::Unix(stream) => SockRef::from(stream),
        }
    }

    /// To wait on, for something to read.
    pub(crate) fn handle(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }

    /// Who is at the other end, as far as the system says.
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

/// Appends what encrypted bytes say; how many bytes that was. All of it is taken out at once, so
/// that nothing is left that a socket does not know of.
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

/// Appends what was decrypted; how many bytes that is.
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

/// The socket itself; writing and reading at once is what sockets allow.
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
