//! A connection to a server, before its greeting.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use zodium_transport::{Transport, connect_socket};
use zodium_types::Address;

use super::DirectError;

/// A connection to a server.
pub struct Stream {
    pub(super) transport: Transport,
}

/// Connects within `limit`. Without a host the address is on this machine.
pub fn connect(address: &Address, limit: Duration) -> Result<Stream, DirectError> {
    Ok(Stream { transport: Transport::new(connect_socket(address, limit)?) })
}

impl Stream {
    /// Performs the TLS handshake, within `limit` as a whole. `name` must be in the server's
    /// certificate, unless that is pinned.
    pub fn secure(
        self,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        limit: Duration,
    ) -> Result<Stream, DirectError> {
        let deadline = Some(Instant::now() + limit);
        let secured = self.transport.secure(config, name, deadline);
        let transport = secured.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => DirectError::Silent { limit },
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                DirectError::NoHandshake
            }
            _ => refused(error),
        })?;
        Ok(Stream { transport })
    }
}

/// The TLS error in a failed read or write, if there is one.
pub(super) fn refused(error: io::Error) -> DirectError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(reason) => DirectError::Tls(reason.clone().into()),
        None => DirectError::Io(error),
    }
}
