//! Worker threads, and assigning connections to them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use slab::Slab;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use tracing::Instrument;
use zodium_tls::PeerIdentity;
use zodium_types::Address;

use crate::busy_poll::BusyPoll;
use crate::handshake::{HandshakeError, Handshakes, Secured};
use crate::input::Shared;
use crate::link;
use crate::listener::IncomingStream;
use crate::log_limiter::{LogLimiter, SOURCE_PERIOD, SourceLogLimiter};
use crate::{Incoming, Limits, Link, LinkMetrics, Protocol, Service};

/// Blocking threads of each worker, for work that waits for the disk.
const BLOCKING_THREADS_MAX: usize = 64;
/// Bytes read from a socket at once.
const SCRATCH_BYTES: usize = 128 << 10;
/// Longest time to send the end of an encrypted stream.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// The worker threads.
pub struct Workers {
    workers: Vec<Worker>,
    limits: Limits,
    /// Connections that were closed at once because there were too many.
    turned_away: Arc<AtomicU64>,
    turned_away_log: LogLimiter,
}

struct Worker {
    orders: mpsc::UnboundedSender<Order>,
    links: Arc<AtomicUsize>,
    metrics: Arc<LinkMetrics>,
    thread: JoinHandle<()>,
}

enum Order {
    Serve { incoming: Incoming, peer: String, limits: Limits },
    Answer(oneshot::Sender<()>),
    Stop { patience: Duration },
}

/// Options of the workers.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Number of worker threads, at least one.
    pub count: usize,
    /// Limits of each link, and of all together.
    pub limits: Limits,
    /// How long a worker polls for the next request before it sleeps; `None`: it sleeps at once.
    pub busy_poll: Option<Duration>,
}

/// The error of a worker that could not be started.
#[derive(Debug, Error)]
#[error("cannot start worker {number}: {source}")]
pub struct WorkerError {
    /// The number of the worker, from 0.
    pub number: usize,
    source: std::io::Error,
}

impl Workers {
    /// Starts workers. Each calls `make` with its number, within its runtime.
    pub fn start<S, F>(options: WorkerOptions, make: F) -> Result<Workers, WorkerError>
    where
        S: Service,
        F: Fn(usize) -> S + Send + Sync + 'static,
    {
        let WorkerOptions { count, limits, busy_poll } = options;
        let make = Arc::new(make);
        let failed_handshakes = Arc::new(SourceLogLimiter::default());
        let mut workers = Vec::with_capacity(count);
        for number in 0..count {
            let failed = |source| WorkerError { number, source };
            let runtime = runtime(number, busy_poll.is_some()).map_err(failed)?;
            let (orders, received) = mpsc::unbounded_channel();
            let links = Arc::new(AtomicUsize::new(0));
            let (make, counter) = (Arc::clone(&make), Arc::clone(&links));
            let metrics = Arc::new(LinkMetrics::default());
            let own_metrics = Arc::clone(&metrics);
            let failed_handshakes = Arc::clone(&failed_handshakes);
            let thread = std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || {
                    let local = LocalSet::new();
                    local.block_on(&runtime, async move {
                        let host = Host::new(make(number), own_metrics, busy_poll);
                        serve(Host { failed_handshakes, ..host }, received, counter).await;
                    });
                    // Reads that still wait for a disk have no client left to answer.
                    runtime.shutdown_background();
                })
                .map_err(failed)?;
            workers.push(Worker { orders, links, metrics, thread });
        }
        let (turned_away, turned_away_log) = (Arc::default(), LogLimiter::default());
        Ok(Workers { workers, limits, turned_away, turned_away_log })
    }

    /// Assigns a connection to the worker with the fewest; closes it when there are too many.
    pub fn assign(&self, incoming: Incoming, peer: String) {
        let there_are: usize = self.workers.iter().map(|w| w.links.load(Ordering::Relaxed)).sum();
        if there_are >= self.limits.connections_max {
            return self.turn_away(&peer);
        }
        let fewest = self.workers.iter().min_by_key(|w| w.links.load(Ordering::Relaxed));
        if let Some(worker) = fewest {
            worker.links.fetch_add(1, Ordering::Relaxed);
            let order = Order::Serve { incoming, peer, limits: self.limits.clone() };
            // Fails only if the worker has stopped; the connection is then closed.
            let _ = worker.orders.send(order);
        }
    }

    /// Connects to an address, and assigns the connection to a worker as one of `protocol`. Not
    /// encrypted. Must run within a tokio runtime.
    pub async fn connect(&self, address: &Address, protocol: Protocol) -> std::io::Result<()> {
        let incoming = Incoming::connect(address, protocol).await?;
        self.assign(incoming, address.to_string());
        Ok(())
    }

    fn turn_away(&self, peer: &str) {
        self.turned_away.fetch_add(1, Ordering::Relaxed);
        if let Some(times) = self.turned_away_log.admit() {
            let connections_max = self.limits.connections_max;
            tracing::warn!(
                peer,
                times,
                connections_max,
                "too many connections, closing new ones; if these are all needed, raise \
                 --connections-max, or the limit of open files that it follows from"
            );
        }
    }

    /// The number of connections that were closed at once because there were too many.
    pub fn turned_away(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.turned_away)
    }

    /// The limits of links.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Waits until every worker has answered; `false` if one of them has ended.
    pub async fn answer(&self) -> bool {
        let ask = |worker: &Worker| {
            let (asked, answer) = oneshot::channel();
            // A worker that has ended drops the sender, which is noticed below.
            let _ = worker.orders.send(Order::Answer(asked));
            answer
        };
        let answers: Vec<_> = self.workers.iter().map(ask).collect();
        for answer in answers {
            if answer.await.is_err() {
                return false;
            }
        }
        true
    }

    /// The counters of each worker's links.
    pub fn metrics(&self) -> Vec<Arc<LinkMetrics>> {
        self.workers.iter().map(|worker| Arc::clone(&worker.metrics)).collect()
    }

    /// Stops gracefully: links finish what is under way, within `patience`. Returns when all
    /// workers have ended.
    pub fn stop(self, patience: Duration) {
        for worker in &self.workers {
            let _ = worker.orders.send(Order::Stop { patience });
        }
        for worker in self.workers {
            // A panic of a worker would have ended the process.
            let _ = worker.thread.join();
        }
    }
}

fn runtime(number: usize, is_polling: bool) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX);
    builder.thread_name(format!("job-of-worker-{number}"));
    if is_polling {
        // By default the busy-poll task would run sixty times between two looks at the sockets.
        builder.event_interval(1);
    }
    builder.build()
}

/// What the connections of a worker share: its service, and a buffer to read into.
///
/// Each of the [`Workers`] has one. Tests and simulations use it to serve streams of their own. It
/// belongs to one thread, and its futures to one [`LocalSet`].
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

async fn serve<S: Service>(
    host: Host<S>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    count: Arc<AtomicUsize>,
) {
    let host = Rc::new(host);
    let awake = Rc::clone(&host);
    tokio::task::spawn_local(async move { awake.shared.stay_awake().await });
    let mut patience = Duration::ZERO;
    while let Some(order) = orders.recv().await {
        match order {
            Order::Serve { incoming, peer, limits } => {
                host.metrics.accepted.add(1);
                let (host, count) = (Rc::clone(&host), Arc::clone(&count));
                tokio::task::spawn_local(async move {
                    if let Err(error) = host.run_incoming(incoming, &peer, limits).await {
                        tracing::warn!(peer, %error, "cannot serve a connection");
                    }
                    host.metrics.ended.add(1);
                    count.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Order::Answer(asked) => {
                // The receiver may be gone; ignore the error.
                let _ = asked.send(());
            }
            Order::Stop { patience: given } => {
                patience = given;
                break;
            }
        }
    }
    host.stop(patience).await;
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

    async fn stop(&self, patience: Duration) {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc as threads;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn jobs_that_block_have_so_many_threads_and_the_others_wait() {
        let runtime = runtime(0, false).unwrap();
        let (begins, begun) = threads::channel();
        let (lets_go, gate) = threads::channel();
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..=BLOCKING_THREADS_MAX {
            let (begins, gate) = (begins.clone(), Arc::clone(&gate));
            runtime.spawn_blocking(move || {
                begins.send(()).unwrap();
                gate.lock().recv().unwrap();
            });
        }
        for _ in 0..BLOCKING_THREADS_MAX {
            begun.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        begun.recv_timeout(Duration::from_millis(100)).unwrap_err();
        lets_go.send(()).unwrap();
        begun.recv_timeout(Duration::from_secs(20)).unwrap();
        for _ in 0..BLOCKING_THREADS_MAX {
            lets_go.send(()).unwrap();
        }
    }
}
