//! TLS handshakes: each on its connection's worker, bounded in time and number.
//!
//! Key decision: a connection takes one of the places for handshakes only once its peer has said
//! something. One that says nothing holds a socket until its time is over, and nobody up.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{Error as TlsError, InvalidMessage, ServerConfig};
use tokio_rustls::server::TlsStream;
use zodium_tls::PeerIdentity;

/// From accepting a connection to the end of its handshake.
pub(crate) const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Handshakes under way at once on a worker. Each costs it about a millisecond, and some tens of
/// KiB while it lasts; after a restart all clients come at once, and take turns.
pub(crate) const HANDSHAKES_MAX: usize = 64;

/// The handshakes of one worker.
pub(crate) struct Handshakes {
    places: Semaphore,
}

/// An encrypted connection to somebody who is believed.
pub(crate) struct Secured<T> {
    pub(crate) stream: TlsStream<T>,
    pub(crate) identity: PeerIdentity,
}

/// Why there is none. The connection is closed.
#[derive(Debug, Error)]
pub(crate) enum HandshakeError {
    #[error(
        "said nothing for {} s; a client that is not set up for TLS waits for the server to begin",
        HANDSHAKE_TIME_MAX.as_secs()
    )]
    Silent,
    #[error("did not get through the handshake in {} s", HANDSHAKE_TIME_MAX.as_secs())]
    Slow,
    #[error("closed the connection before the handshake was done")]
    Closed,
    #[error("does not speak TLS")]
    NotTls,
    #[error("{0}")]
    Failed(io::Error),
    #[error("its certificate cannot be read")]
    Unreadable,
}

impl Default for Handshakes {
    fn default() -> Handshakes {
        Handshakes { places: Semaphore::new(HANDSHAKES_MAX) }
    }
}

impl Handshakes {
    /// Shakes hands with a client; `spoken` waits until it has said something.
    pub(crate) async fn shake<T>(
        &self,
        stream: T,
        tls: Arc<ServerConfig>,
        spoken: impl AsyncFnOnce(&T) -> io::Result<()>,
    ) -> Result<Secured<T>, HandshakeError>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let mut has_spoken = false;
        let handshake = async {
            spoken(&stream).await?;
            has_spoken = true;
            // The semaphore is never closed; without a place it would still be right to go on.
            let _place = self.places.acquire().await;
            TlsAcceptor::from(tls).accept(stream).await
        };
        let outcome = timeout(HANDSHAKE_TIME_MAX, handshake).await;
        match outcome {
            Ok(Ok(stream)) => secured(stream),
            Ok(Err(error)) => Err(error.into()),
            Err(_) if has_spoken => Err(HandshakeError::Slow),
            Err(_) => Err(HandshakeError::Silent),
        }
    }
}

fn secured<T>(stream: TlsStream<T>) -> Result<Secured<T>, HandshakeError> {
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let identity = chain.first().and_then(|leaf| PeerIdentity::of_certificate(leaf));
    match identity {
        Some(identity) => Ok(Secured { stream, identity }),
        None => Err(HandshakeError::Unreadable),
    }
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> HandshakeError {
        let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>());
        match (error.kind(), reason) {
            (io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset, _) => {
                HandshakeError::Closed
            }
            (_, Some(TlsError::InvalidMessage(InvalidMessage::InvalidContentType))) => {
                HandshakeError::NotTls
            }
            _ => HandshakeError::Failed(error),
        }
    }
}
