//! TLS over another stream.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use zodium_tls::HandshakeFailure;

use super::{ClientError, Stream};

/// Longest time to send the end of an encrypted stream.
const GOODBYE_LIMIT: Duration = Duration::from_millis(100);

/// Performs the TLS handshake, within `limit` as a whole. `name` must be in the server's
/// certificate, unless that is pinned.
pub fn secure(
    stream: Box<dyn Stream>,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    limit: Duration,
) -> Result<Box<dyn Stream>, ClientError> {
    let mut connection = ClientConnection::new(config, name).map_err(HandshakeFailure::from)?;
    let mut stream = Timed { stream, deadline: Some(Instant::now() + limit) };
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => ClientError::Silent { limit },
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                ClientError::NoHandshake
            }
            _ => refused(error),
        })?;
    }
    Ok(Box::new(Secured { stream: StreamOwned::new(connection, stream), limit: None }))
}

/// The TLS error in a failed read or write, if there is one.
pub(super) fn refused(error: io::Error) -> ClientError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(reason) => ClientError::Tls(reason.clone().into()),
        None => ClientError::Io(error),
    }
}

/// An encrypted stream.
struct Secured {
    stream: StreamOwned<ClientConnection, Timed>,
    limit: Option<Duration>,
}

/// A stream whose reads and writes share one deadline: an encrypted read may take many of them.
struct Timed {
    stream: Box<dyn Stream>,
    deadline: Option<Instant>,
}

impl Secured {
    fn begin(&mut self) {
        self.stream.sock.deadline = self.limit.map(|limit| Instant::now() + limit);
    }
}

impl Stream for Secured {
    fn limit_waiting(&mut self, limit: Option<Duration>) -> io::Result<()> {
        self.limit = limit;
        Ok(())
    }

    fn is_encrypted(&self) -> bool {
        true
    }
}

impl Read for Secured {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.begin();
        self.stream.read(buffer)
    }
}

impl Write for Secured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begin();
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.begin();
        self.stream.flush()
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        self.limit = Some(GOODBYE_LIMIT);
        self.stream.conn.send_close_notify();
        // Without it the server cannot tell an orderly end from a broken connection.
        let _ = self.flush();
    }
}

impl Timed {
    fn limit(&mut self) -> io::Result<()> {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match left {
            Some(left) if left.is_zero() => Err(ErrorKind::TimedOut.into()),
            left => self.stream.limit_waiting(left),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.limit()?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
