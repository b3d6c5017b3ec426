//! The connections of one worker.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tracing::Instrument;
use zodium_tls::PeerIdentity;

use crate::busy_poll::BusyPoll;
use crate::handshake::{HandshakeError, Handshakes, Secured};
use crate::input::Shared;
use crate::link;
use crate::listener::IncomingStream;
use crate::log_limiter::{SOURCE_PERIOD, SourceLogLimiter};
use crate::{Incoming, Limits, Link, LinkMetrics, Protocol, Service};

/// Bytes read from a socket at once.
const SCRATCH_BYTES: usize = 128 << 10;
/// Longest time to send the end of an encrypted stream.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// What the connections of a worker share: its service, and a buffer to read into.
///
/// Each of the [`Workers`](crate::Workers) has one. Tests and simulations use it to serve streams
/// of their own. It belongs to one thread, and its futures to one
/// [`LocalSet`](tokio::task::LocalSet).
pub struct Host<S> {
    service: S,
    links: RefCell<Slab<Link>>,
    shared: Rc<Shared>,
    handshakes: Handshakes,
    /// Rate-limits their log messages; all workers share it.
    failed_handshakes: Arc<SourceLogLimiter>,
    metrics: Arc<LinkMetrics>,
    /// No new links are served; the present ones come to their end.
    stopping: Cell<bool>,
}

impl<S: Service> Host<S> {
    /// Creates a host without connections. Its worker stays awake for `busy_poll` after each
    /// request.
    pub fn new(service: S, metrics: Arc<LinkMetrics>, busy_poll: Option<Duration>) -> Host<S> {
        Host {
            service,
            links: RefCell::default(),
            shared: Rc::new(Shared::new(SCRATCH_BYTES, busy_poll.map(BusyPoll::new))),
            handshakes: Handshakes::default(),
            failed_handshakes: Arc::default(),
            metrics,
            stopping: Cell::new(false),
        }
    }

    /// The same host, which limits its log messages together with others.
    pub(crate) fn with_failed_handshakes(self, failed_handshakes: Arc<SourceLogLimiter>) -> Self {
        Host { failed_handshakes, ..self }
    }

    /// Keeps the worker awake after requests; returns at once without busy polling.
    pub(crate) async fn stay_awake(&self) {
        self.shared.stay_awake().await;
    }

    /// Serves a connection that was assigned to this worker, to its end.
    pub(crate) async fn serve(&self, incoming: Incoming, peer: &str, limits: Limits) {
        self.metrics.accepted.add(1);
        if let Err(error) = self.run_incoming(incoming, peer, limits).await {
            tracing::warn!(peer, %error, "cannot serve a connection");
        }
        self.metrics.ended.add(1);
    }

    /// Serves an accepted connection to its end. With TLS, the session begins when the peer is
    /// authenticated; a failed handshake is logged.
    ///
    /// # Errors
    /// When the system refuses the socket.
    pub async fn run_incoming(
        &self,
        incoming: Incoming,
        peer: &str,
        limits: Limits,
    ) -> std::io::Result<()> {
        let as_peer = (peer, incoming.protocol);
        match incoming.stream {
            IncomingStream::Tcp(stream) => {
                let stream = TcpStream::from_std(stream)?;
                match incoming.tls {
                    None => self.run_protocol(stream, as_peer, None, limits).await,
                    Some(tls) => {
                        let secured = Box::pin(self.handshakes.shake(stream, &tls, has_spoken));
                        Box::pin(self.run_secured(secured, as_peer, limits)).await;
                    }
                }
            }
            IncomingStream::Unix(stream) => {
                let stream = UnixStream::from_std(stream)?;
                match incoming.tls {
                    None => self.run_protocol(stream, as_peer, None, limits).await,
                    Some(tls) => {
                        let spoken = UnixStream::readable;
                        let secured = Box::pin(self.handshakes.shake(stream, &tls, spoken));
                        Box::pin(self.run_secured(secured, as_peer, limits)).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// Serves a connection over TLS: the session begins when the peer is authenticated.
    ///
    /// Callers box this future and that of the handshake separately. Both are larger than a
    /// connection without TLS, and the handshake's memory is freed at its end.
    async fn run_secured<T>(
        &self,
        secured: impl Future<Output = Result<Secured<T>, HandshakeError>>,
        (peer, protocol): (&str, Protocol),
        limits: Limits,
    ) where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let span = tracing::info_span!("handshake", peer);
        match secured.instrument(span).await {
            Ok(Secured { stream, identity }) => {
                tracing::debug!(peer, subject = identity.subject, "TLS handshake done");
                self.run_protocol(stream, (peer, protocol), Some(identity), limits).await;
            }
            Err(error) => self.log_failed_handshake(peer, &error),
        }
    }

    /// Logs a failed handshake: at most one line for each source and minute, all at level DEBUG.
    fn log_failed_handshake(&self, peer: &str, error: &HandshakeError) {
        let (subject, reason) = (error.subject(), error);
        if matches!(error, HandshakeError::Unused) {
            // Load balancers check in this way that a server is there.
            tracing::debug!(peer, %reason, "no TLS handshake");
            return;
        }
        match self.failed_handshakes.admit(peer) {
            None => tracing::debug!(peer, subject, %reason, "TLS handshake failed"),
            Some(source) => {
                tracing::info!(peer, subject, %reason, "TLS handshake failed");
                let failed = Arc::clone(&self.failed_handshakes);
                tokio::task::spawn_local(log_suppressed(failed, source));
            }
        }
    }

    /// Serves one connection to its end, as one of the first protocol. `identity` is the
    /// authenticated identity of the peer.
    pub async fn run<T>(
        &self,
        stream: T,
        peer: &str,
        identity: Option<PeerIdentity>,
        limits: Limits,
    ) where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        self.run_protocol(stream, (peer, Protocol::default()), identity, limits).await;
    }

    async fn run_protocol<T>(
        &self,
        mut stream: T,
        (peer, protocol): (&str, Protocol),
        identity: Option<PeerIdentity>,
        limits: Limits,
    ) where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        if self.stopping.get() {
            return;
        }
        let is_secured = identity.is_some();
        let (peer, metrics) = (peer.to_owned(), Arc::clone(&self.metrics));
        let link = Link::new(peer, protocol, identity, limits, metrics);
        let key = self.links.borrow_mut().insert(link.clone());
        let session = self.service.open(link.clone());
        link::run(&mut stream, link, session, Rc::clone(&self.shared)).await;
        if is_secured {
            // A peer that does not read the end of the stream does not get it.
            let _ = tokio::time::timeout(FAREWELL_TIME_MAX, stream.shutdown()).await;
        }
        self.links.borrow_mut().remove(key);
    }

    /// Waits for the end of all connections, at most for `patience`.
    pub(crate) async fn stop(&self, patience: Duration) {
        self.stopping.set(true);
        for (source, times) in self.failed_handshakes.end_all() {
            log_more_failed_handshakes(&source, times);
        }
        for (_, link) in self.links.borrow().iter() {
            link.stop();
        }
        let all_gone = async {
            while !self.links.borrow().is_empty() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        if tokio::time::timeout(patience, all_gone).await.is_err() {
            let links = self.links.borrow().len();
            tracing::warn!(links, "some connections did not finish in time, closing them");
        }
    }
}

/// Waits until a peer has sent something.
async fn has_spoken(stream: &TcpStream) -> std::io::Result<()> {
    match stream.peek(&mut [0]).await? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Logs the number of suppressed messages about a source, at the end of each period.
async fn log_suppressed(failed_handshakes: Arc<SourceLogLimiter>, source: String) {
    loop {
        tokio::time::sleep(SOURCE_PERIOD).await;
        match failed_handshakes.end_period(&source) {
            0 => return,
            times => log_more_failed_handshakes(&source, times),
        }
    }
}

fn log_more_failed_handshakes(source: &str, times: u64) {
    tracing::info!(peer = source, times, "more TLS handshakes failed; level DEBUG logs each");
}
