//! TLS handshakes: each on its connection's worker, bounded in time and number.
//!
//! Key decision: the server never waits for a peer at the expense of other peers. A connection
//! takes one of the places for handshakes when its peer has sent a whole ClientHello. It keeps the
//! place only as long as a peer needs that answers at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::rustls::{Error as TlsError, InvalidMessage, ServerConfig};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};
use zodium_tls::{CertificateRejection, PeerIdentity, ServerTls, client_failure};

use crate::unfinished::{UNFINISHED_MAX, Unfinished};

/// Longest time from connecting to the end of the handshake, without the time in the queue for a
/// place.
pub(crate) const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Places for handshakes on a worker. After a restart all clients connect at once; the first ones
/// finish before the last ones begin.
pub(crate) const HANDSHAKES_MAX: usize = 64;
/// Longest time that a handshake keeps its place.
///
/// A handshake costs the worker about a millisecond, so this is enough for 64 of them side by
/// side. The handshake of a slower peer goes on without a place.
pub(crate) const PLACE_TIME_MAX: Duration = Duration::from_millis(100);

/// The handshakes of one worker.
pub(crate) struct Handshakes {
    pub(crate) places: Semaphore,
    unfinished: Unfinished,
}

/// An encrypted connection to a peer that has been authenticated.
pub(crate) struct Secured<T> {
    pub(crate) stream: TlsStream<T>,
    pub(crate) identity: PeerIdentity,
}

/// Why a handshake failed. The connection is closed.
#[derive(Debug, Error)]
pub(crate) enum HandshakeError {
    #[error(
        "sent nothing for {} s; a client without TLS waits for the server to send first",
        HANDSHAKE_TIME_MAX.as_secs()
    )]
    Silent,
    #[error("did not complete the handshake within {} s", HANDSHAKE_TIME_MAX.as_secs())]
    Slow,
    #[error(
        "was displaced: more than {UNFINISHED_MAX} handshakes wait for their peers, and this one \
         had waited longest"
    )]
    Displaced,
    #[error("closed the connection without sending anything")]
    Unused,
    #[error("closed the connection before the handshake was done")]
    Closed,
    #[error("does not speak TLS")]
    NotTls,
    #[error("{}", .0.reason)]
    Rejected(CertificateRejection),
    #[error("{}", client_failure(.0))]
    Tls(TlsError),
    #[error("{0}")]
    Io(io::Error),
    #[error("its certificate cannot be read")]
    Unreadable,
}

impl Default for Handshakes {
    fn default() -> Handshakes {
        Handshakes { places: Semaphore::new(HANDSHAKES_MAX), unfinished: Unfinished::default() }
    }
}

impl Handshakes {
    /// Performs the server's side of a handshake.
    ///
    /// `spoken` waits until the peer has sent something, and fails when the connection ends
    /// before that.
    pub(crate) async fn shake<T>(
        &self,
        stream: T,
        tls: &ServerTls,
        spoken: impl AsyncFnOnce(&T) -> io::Result<()>,
    ) -> Result<Secured<T>, HandshakeError>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let deadline = Instant::now() + HANDSHAKE_TIME_MAX;
        // Until then the connection holds nothing but its socket.
        let spoken = timeout_at(deadline, spoken(&stream)).await;
        spoken.map_err(|_| HandshakeError::Silent)?.map_err(|_| HandshakeError::Unused)?;
        let hello = LazyConfigAcceptor::new(Acceptor::default(), stream);
        let start = self.with_peer(deadline, hello).await?;
        let queued = Instant::now();
        // The semaphore is never closed; without a place it would still be right to go on.
        let place = self.places.acquire().await.ok();
        let deadline = deadline + queued.elapsed();
        let tls = tls.connection();
        let finished = self.with_peer(deadline, finish(start, tls.config(), place)).await;
        match tls.rejection() {
            Some(rejection) if finished.is_err() => {
                Err(HandshakeError::Rejected(rejection.clone()))
            }
            _ => secured(finished?),
        }
    }

    /// Runs a part of a handshake that waits for the peer.
    async fn with_peer<R>(
        &self,
        deadline: Instant,
        part: impl Future<Output = io::Result<R>>,
    ) -> Result<R, HandshakeError> {
        let outcome = timeout_at(deadline, self.unfinished.run(part)).await;
        let outcome = outcome.map_err(|_| HandshakeError::Slow)?;
        Ok(outcome.ok_or(HandshakeError::Displaced)??)
    }
}

async fn finish<T>(
    start: StartHandshake<T>,
    tls: Arc<ServerConfig>,
    place: Option<SemaphorePermit<'_>>,
) -> io::Result<TlsStream<T>>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut handshake = start.into_stream(tls);
    if let Ok(done) = timeout(PLACE_TIME_MAX, &mut handshake).await {
        return done;
    }
    drop(place);
    handshake.await
}

fn secured<T>(stream: TlsStream<T>) -> Result<Secured<T>, HandshakeError> {
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let identity = chain.first().and_then(|leaf| PeerIdentity::of_certificate(leaf));
    match identity {
        Some(identity) => Ok(Secured { stream, identity }),
        None => Err(HandshakeError::Unreadable),
    }
}

impl HandshakeError {
    /// The subject of the client's certificate, if the certificate was rejected.
    pub(crate) fn subject(&self) -> Option<&str> {
        match self {
            HandshakeError::Rejected(rejection) => Some(&rejection.subject),
            _ => None,
        }
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
            (_, Some(reason)) => HandshakeError::Tls(reason.clone()),
            _ => HandshakeError::Io(error),
        }
    }
}
