//! The connections of one worker.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tracing::Instrument;
use zodium_tls::PeerIdentity;

use crate::busy_poll::BusyPoll;
use crate::door::{Connection, Door, Share};
use crate::handshake::{HandshakeError, Handshakes, Secured};
use crate::input::Shared;
use crate::link::{self, Departed};
use crate::listener::IncomingStream;
use crate::peer_log::PeerLog;
use crate::{Incoming, Limits, Link, LinkMetrics, Protocol, Refusal, Service};

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
    log: PeerLog,
    metrics: Arc<LinkMetrics>,
    /// Where connections that leave go to, in turns.
    destinations: RefCell<VecDeque<Door>>,
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
            log: PeerLog::default(),
            metrics,
            destinations: RefCell::default(),
            stopping: Cell::new(false),
        }
    }

    /// The same host, which limits its log messages together with others.
    pub(crate) fn with_log(self, log: PeerLog) -> Self {
        Host { log, ..self }
    }

    /// Keeps the worker awake after requests; returns at once without busy polling.
    pub(crate) async fn stay_awake(&self) {
        self.shared.stay_awake().await;
    }

    /// Serves a connection that was assigned to this worker: to its end, or until it leaves for
    /// another one.
    pub(crate) async fn serve(&self, connection: Connection) {
        let Connection { incoming, peer, limits, departed } = connection;
        self.metrics.accepted.add(u64::from(departed.is_none()));
        match self.run_connection(incoming, &peer, limits.clone(), departed).await {
            Ok(Some((incoming, departed))) => {
                let departed = Some(departed);
                return self.depart(Connection { incoming, peer, limits, departed });
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(peer, %error, "cannot serve a connection"),
        }
        self.metrics.ended.add(1);
    }

    /// Sends a connection to the next of the workers that take some over.
    fn depart(&self, connection: Connection) {
        self.metrics.moved.add(1);
        let mut destinations = self.destinations.borrow_mut();
        // There is one: connections leave only by an order that names destinations.
        if let Some(door) = destinations.pop_front() {
            door.send(connection);
            destinations.push_back(door);
        }
    }

    /// Marks the connections that are to leave, as soon as their sessions can; unmarks all others.
    pub(crate) fn hand_over(&self, share: Share, destinations: Vec<Door>) {
        *self.destinations.borrow_mut() = destinations.into();
        let links = self.links.borrow();
        let reads = links.iter().map(|(_, link)| (link.takes_reads(), link));
        let mut busiest: Vec<_> = reads.filter(|(_, link)| link.identity().is_none()).collect();
        busiest.sort_by_key(|(reads, _)| std::cmp::Reverse(*reads));
        for (place, (reads, link)) in busiest.into_iter().enumerate() {
            link.set_moving(match share {
                Share::All => true,
                // Every second one takes about half of the load along, and one alone stays.
                Share::Half => place % 2 == 1 && reads > 0,
            });
        }
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
        self.metrics.accepted.add(1);
        // None leaves: there is nowhere to go.
        let served = self.run_connection(incoming, peer, limits, None).await.map(drop);
        self.metrics.ended.add(1);
        served
    }

    /// As [`Host::run_incoming`], until the connection leaves; then it is given back.
    async fn run_connection(
        &self,
        Incoming { stream, tls, protocol }: Incoming,
        peer: &str,
        limits: Limits,
        departed: Option<Box<Departed>>,
    ) -> std::io::Result<Option<(Incoming, Box<Departed>)>> {
        let as_peer = (peer, protocol);
        let gone = |stream, departed| (Incoming { stream, tls: None, protocol }, departed);
        match stream {
            IncomingStream::Tcp(stream) => {
                let mut stream = TcpStream::from_std(stream)?;
                let Some(tls) = tls else {
                    let left = self.run_protocol(&mut stream, as_peer, None, limits, departed);
                    let Some(left) = left.await else { return Ok(None) };
                    return Ok(Some(gone(IncomingStream::Tcp(stream.into_std()?), left)));
                };
                let secured = Box::pin(self.handshakes.shake(stream, &tls, has_spoken));
                Box::pin(self.run_secured(secured, as_peer, limits)).await;
            }
            IncomingStream::Unix(stream) => {
                let mut stream = UnixStream::from_std(stream)?;
                let Some(tls) = tls else {
                    let left = self.run_protocol(&mut stream, as_peer, None, limits, departed);
                    let Some(left) = left.await else { return Ok(None) };
                    return Ok(Some(gone(IncomingStream::Unix(stream.into_std()?), left)));
                };
                let spoken = UnixStream::readable;
                let secured = Box::pin(self.handshakes.shake(stream, &tls, spoken));
                Box::pin(self.run_secured(secured, as_peer, limits)).await;
            }
        }
        Ok(None)
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
                self.run_to_end(stream, (peer, protocol), Some(identity), limits).await;
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
        self.metrics.refused(Refusal::Tls).add(1);
        match self.log.admits(Refusal::Tls, peer) {
            false => tracing::debug!(peer, subject, %reason, "TLS handshake failed"),
            true => tracing::info!(peer, subject, %reason, "TLS handshake failed"),
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
        self.run_to_end(stream, (peer, Protocol::default()), identity, limits).await;
    }

    /// Serves a connection that does not leave.
    async fn run_to_end<T>(
        &self,
        mut stream: T,
        as_peer: (&str, Protocol),
        identity: Option<PeerIdentity>,
        limits: Limits,
    ) where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let is_secured = identity.is_some();
        self.run_protocol(&mut stream, as_peer, identity, limits, None).await;
        if is_secured {
            // A peer that does not read the end of the stream does not get it.
            let _ = tokio::time::timeout(FAREWELL_TIME_MAX, stream.shutdown()).await;
        }
    }

    /// Serves a connection to its end, or until its session has left.
    async fn run_protocol<T>(
        &self,
        stream: &mut T,
        (peer, protocol): (&str, Protocol),
        identity: Option<PeerIdentity>,
        limits: Limits,
        departed: Option<Box<Departed>>,
    ) -> Option<Box<Departed>>
    where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        if self.stopping.get() {
            return None;
        }
        let (peer, metrics) = (peer.to_owned(), Arc::clone(&self.metrics));
        let link = Link::new(peer, protocol, identity, limits, metrics, self.log.clone());
        let session = match departed.map(|departed| *departed) {
            None => Some(self.service.open(link.clone())),
            Some(Departed { parked, output }) => {
                *link.output() = output;
                self.service.resume(link.clone(), parked)
            }
        };
        let Some(session) = session else {
            tracing::error!(peer = link.peer(), "a session cannot continue on another worker");
            return None;
        };
        let key = self.links.borrow_mut().insert(link.clone());
        let left = link::run(stream, link, session, Rc::clone(&self.shared)).await;
        self.links.borrow_mut().remove(key);
        left.map(Box::new)
    }

    /// Waits for the end of all connections, at most for `patience`.
    pub(crate) async fn stop(&self, patience: Duration) {
        self.stopping.set(true);
        self.log.end();
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
