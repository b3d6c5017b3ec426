//! Worker threads, and handing connections to them.

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

use crate::busy_poll::BusyPoll;
use crate::handshake::{HandshakeError, Handshakes, Secured};
use crate::input::Shared;
use crate::link;
use crate::listener::IncomingStream;
use crate::log_limiter::{LogLimiter, SOURCE_PERIOD, SourceLogLimiter};
use crate::{Incoming, Limits, Link, LinkMetrics, Service};

/// Threads per worker for reads that have to wait for the disk, and the like.
const BLOCKING_THREADS_MAX: usize = 64;
/// Bytes read from a socket at once.
const SCRATCH_BYTES: usize = 128 << 10;
/// How long the end of an encrypted stream may take to be sent.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// The worker threads.
pub struct Workers {
    workers: Vec<Worker>,
    limits: Limits,
    /// Connections that were closed at once, for there were too many.
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

/// How many workers there are, and how they work.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Threads, at least one.
    pub count: usize,
    /// What each link may hold, and all together.
    pub limits: Limits,
    /// How long a worker looks for the next request without sleeping; `None`: it sleeps at once.
    pub busy_poll: Option<Duration>,
}

/// A worker could not be started.
#[derive(Debug, Error)]
#[error("cannot start worker {number}: {source}")]
pub struct WorkerError {
    /// Which one, from 0.
    pub number: usize,
    source: std::io::Error,
}

impl Workers {
    /// Starts workers. `make` runs on each of them, within its runtime, and gets its number.
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
                    // Reads that still wait for a disk have nobody left to answer.
                    runtime.shutdown_background();
                })
                .map_err(failed)?;
            workers.push(Worker { orders, links, metrics, thread });
        }
        let (turned_away, turned_away_log) = (Arc::default(), LogLimiter::default());
        Ok(Workers { workers, limits, turned_away, turned_away_log })
    }

    /// Hands a connection to the worker with the fewest; closes it when there are too many.
    pub fn assign(&self, incoming: Incoming, peer: String) {
        let there_are: usize = self.workers.iter().map(|w| w.links.load(Ordering::Relaxed)).sum();
        if there_are >= self.limits.connections_max {
            return self.turn_away(&peer);
        }
        let fewest = self.workers.iter().min_by_key(|w| w.links.load(Ordering::Relaxed));
        if let Some(worker) = fewest {
            worker.links.fetch_add(1, Ordering::Relaxed);
            let order = Order::Serve { incoming, peer, limits: self.limits.clone() };
            // Only a stopped worker does not take it, and then the connection just closes.
            let _ = worker.orders.send(order);
        }
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

    /// Connections that were closed at once, for there were too many.
    pub fn turned_away(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.turned_away)
    }

    /// How much links may hold, and how many there may be.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns when every worker has come round to answering: each of them serves. `false` when
    /// one has ended.
    pub async fn answer(&self) -> bool {
        let ask = |worker: &Worker| {
            let (asked, answer) = oneshot::channel();
            // Who has ended drops the question, and that is an answer too.
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

    /// What the links of each worker have carried.
    pub fn metrics(&self) -> Vec<Arc<LinkMetrics>> {
        self.workers.iter().map(|worker| Arc::clone(&worker.metrics)).collect()
    }

    /// Lets every link finish what is under way, for at most `patience`; returns when all
    /// workers have ended.
    pub fn stop(self, patience: Duration) {
        for worker in &self.workers {
            let _ = worker.orders.send(Order::Stop { patience });
        }
        for worker in self.workers {
            // A worker that panicked has ended the process already.
            let _ = worker.thread.join();
        }
    }
}

fn runtime(number: usize, is_polling: bool) -> std::io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().max_blocking_threads(BLOCKING_THREADS_MAX);
    builder.thread_name(format!("job-of-worker-{number}"));
    if is_polling {
        // The task that stays awake shall not be run sixty times before sockets are looked at.
        builder.event_interval(1);
    }
    builder.build()
}

/// What the connections of a worker share: its service, and a buffer to read into. For whoever
/// brings streams of his own to a service; [`Workers`] have one each.
///
/// It belongs to one thread, and its futures to one [`LocalSet`].
pub struct Host<S> {
    service: S,
    links: RefCell<Slab<Link>>,
    shared: Rc<Shared>,
    handshakes: Handshakes,
    /// What of them is logged; all workers share it.
    failed_handshakes: Arc<SourceLogLimiter>,
    metrics: Arc<LinkMetrics>,
    /// No new links: those that there are come to their end.
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
                // Who asked may have gone meanwhile.
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
    /// A host without connections. With `busy_poll` its worker stays awake for so long after each
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

    async fn run_incoming(
        &self,
        incoming: Incoming,
        peer: &str,
        limits: Limits,
    ) -> std::io::Result<()> {
        match incoming.stream {
            IncomingStream::Tcp(stream) => {
                let stream = TcpStream::from_std(stream)?;
                match incoming.tls {
                    None => self.run(stream, peer, None, limits).await,
                    Some(tls) => {
                        let secured = Box::pin(self.handshakes.shake(stream, &tls, has_spoken));
                        Box::pin(self.run_secured(secured, peer, limits)).await;
                    }
                }
            }
            IncomingStream::Unix(stream) => {
                let stream = UnixStream::from_std(stream)?;
                match incoming.tls {
                    None => self.run(stream, peer, None, limits).await,
                    Some(tls) => {
                        let spoken = UnixStream::readable;
                        let secured = Box::pin(self.handshakes.shake(stream, &tls, spoken));
                        Box::pin(self.run_secured(secured, peer, limits)).await;
                    }
                }
            }
        }
        Ok(())
    }

    /// A session begins when the handshake is done: before that nothing is told to anybody.
    ///
    /// Callers box it, and the handshake apart: both are larger than a connection without TLS, and
    /// the handshake's memory is freed when it is done.
    async fn run_secured<T>(
        &self,
        secured: impl Future<Output = Result<Secured<T>, HandshakeError>>,
        peer: &str,
        limits: Limits,
    ) where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let span = tracing::info_span!("handshake", peer);
        match secured.instrument(span).await {
            Ok(Secured { stream, identity }) => {
                tracing::debug!(peer, subject = identity.subject, "TLS handshake done");
                self.run(stream, peer, Some(identity), limits).await;
            }
            Err(error) => self.log_failed_handshake(peer, &error),
        }
    }

    /// One line for each source and minute; all of them on level DEBUG.
    fn log_failed_handshake(&self, peer: &str, error: &HandshakeError) {
        let (subject, reason) = (error.subject(), error);
        if matches!(error, HandshakeError::Unused) {
            // Load balancers look in this way whether a server is there.
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

    /// Serves one connection to its end. `identity` is who the peer has proved to be.
    pub async fn run<T>(
        &self,
        mut stream: T,
        peer: &str,
        identity: Option<PeerIdentity>,
        limits: Limits,
    ) where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        if self.stopping.get() {
            return;
        }
        let is_secured = identity.is_some();
        let link = Link::new(peer.to_owned(), identity, limits, Arc::clone(&self.metrics));
        let key = self.links.borrow_mut().insert(link.clone());
        let session = self.service.open(link.clone());
        link::run(&mut stream, link, session, Rc::clone(&self.shared)).await;
        if is_secured {
            // A peer that does not take the end of the stream has to do without.
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
            tracing::warn!(links, "gave up waiting for connections to finish");
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

/// Logs how many failed handshakes of a source were not logged, at the end of each period.
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
