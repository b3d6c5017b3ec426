//! The worker threads, and assigning connections to them.

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use zodium_types::Address;

use crate::arrivals::Arrivals;
use crate::balancer::Balancer;
use crate::door::{Connection, Door, Order, Orders, Share, door};
use crate::host::Host;
use crate::log_limiter::LogLimiter;
use crate::peer_log::PeerLog;
use crate::thread_time::ThreadTime;
use crate::{Incoming, Limits, LinkMetrics, Protocol, Service};

/// Blocking threads of a worker that serves alone, for work that waits for the disk.
const BLOCKING_THREADS_MAX: usize = 64;
/// So many times as many has each of several workers: one of them may serve all connections, as
/// long as it only waits for the disk.
const BLOCKING_WORKERS_MAX: usize = 4;

/// The worker threads.
pub struct Workers {
    workers: Vec<Worker>,
    /// Moves connections between workers; `None` with [`Balancing::Even`].
    balancer: Option<Balancer>,
    limits: Limits,
    /// Connections that were closed at once because there were too many.
    turned_away: Arc<AtomicU64>,
    turned_away_log: LogLimiter,
    arrivals: Arc<Arrivals>,
}

struct Worker {
    door: Door,
    metrics: Arc<LinkMetrics>,
    thread: JoinHandle<()>,
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
    /// How connections are spread over the workers.
    pub balancing: Balancing,
}

impl Default for WorkerOptions {
    /// One worker.
    fn default() -> WorkerOptions {
        let limits = Limits::default();
        WorkerOptions { count: 1, limits, busy_poll: None, balancing: Balancing::Even }
    }
}

/// How connections are spread over workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balancing {
    /// Each worker gets the same number, and keeps it.
    #[default]
    Even,
    /// As few workers serve them as can. A busy worker hands some over to another one, and workers
    /// with little to do hand over all of theirs.
    ///
    /// A worker with many connections finds more requests each time it wakes up, so a request costs
    /// less. Connections over TLS stay where they are, and are spread evenly. So are all with
    /// busy polling, and where the system does not tell the times of threads.
    ByLoad,
}

/// The error of a worker that could not be started.
#[derive(Debug, Error)]
#[error("cannot start {thread}: {source}")]
pub struct WorkerError {
    /// Which thread, as in "worker 3". Workers are numbered from 0.
    pub thread: String,
    source: io::Error,
}

impl Workers {
    /// Starts workers. Each calls `make` with its number, within its runtime.
    pub fn start<S, F>(options: WorkerOptions, make: F) -> Result<Workers, WorkerError>
    where
        S: Service,
        F: Fn(usize) -> S + Send + Sync + 'static,
    {
        let WorkerOptions { count, limits, busy_poll, balancing } = options;
        // A worker that polls always has something to do, so that its load says nothing.
        let is_balanced = balancing == Balancing::ByLoad && busy_poll.is_none() && count > 1;
        let make = Arc::new(make);
        let log = PeerLog::default();
        let mut workers = Vec::with_capacity(count);
        let mut balanced = Vec::with_capacity(count);
        for number in 0..count {
            let failed = |source| WorkerError { thread: format!("worker {number}"), source };
            let runtime = runtime(number, count, busy_poll.is_some()).map_err(failed)?;
            let (door, orders) = door();
            let make = Arc::clone(&make);
            let metrics = Arc::new(LinkMetrics::default());
            let own_metrics = Arc::clone(&metrics);
            let log = log.clone();
            let time = ThreadTime::default();
            balanced.push((door.clone(), time.clone()));
            let work = move |runtime: Runtime| {
                if is_balanced {
                    time.is_of_this_thread();
                }
                let local = LocalSet::new();
                local.block_on(&runtime, async move {
                    let host = Host::new(make(number), own_metrics, busy_poll).with_log(log);
                    carry_out(host, orders).await;
                });
                // Reads that still wait for a disk have no client left to answer.
                runtime.shutdown_background();
            };
            let builder = std::thread::Builder::new().name(format!("worker-{number}"));
            let start = |work| builder.spawn(work);
            let thread = start_with(runtime, work, start).map_err(failed)?;
            workers.push(Worker { door, metrics, thread });
        }
        let balancer = match is_balanced {
            false => None,
            true => {
                let thread = "the balancer of the workers".to_owned();
                Balancer::start(balanced).map_err(|source| WorkerError { thread, source })?
            }
        };
        let (turned_away, turned_away_log) = (Arc::default(), LogLimiter::default());
        let arrivals = Arc::default();
        Ok(Workers { workers, balancer, limits, turned_away, turned_away_log, arrivals })
    }

    /// Assigns a connection to that of the workers in use which has the fewest; closes it when
    /// there are too many.
    pub fn assign(&self, incoming: Incoming, peer: String) {
        self.arrivals.note(&peer);
        let there_are: usize = self.workers.iter().map(|worker| worker.door.connections()).sum();
        if there_are >= self.limits.connections_max {
            return self.turn_away(&peer);
        }
        // One over TLS never moves, so that all workers get their share of these.
        let used = match &self.balancer {
            Some(balancer) if incoming.tls.is_none() => balancer.used(),
            _ => self.workers.len(),
        };
        let used = self.workers.iter().take(used);
        if let Some(worker) = used.min_by_key(|worker| worker.door.connections()) {
            let limits = self.limits.clone();
            worker.door.send(Connection { incoming, peer, limits, departed: None });
        }
    }

    /// Has worker `from` hand over connections to worker `to`, as balancing does.
    pub fn hand_over(&self, share: Share, from: usize, to: usize) {
        if let (Some(from), Some(to)) = (self.workers.get(from), self.workers.get(to)) {
            from.door.order(Order::HandOver(share, vec![to.door.clone()]));
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

    /// The new connections by source.
    pub fn arrivals(&self) -> Arc<Arrivals> {
        Arc::clone(&self.arrivals)
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
            worker.door.order(Order::Answer(asked));
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
    pub fn stop(mut self, patience: Duration) {
        // First, so that no connection is on its way to a worker that has stopped.
        drop(self.balancer.take());
        for worker in &self.workers {
            worker.door.order(Order::Stop { patience });
        }
        for worker in self.workers {
            // A panic of a worker would have ended the process.
            let _ = worker.thread.join();
        }
    }
}

/// Starts a thread that works with a runtime. The runtime follows when the thread is there: one
/// that is dropped within another runtime waits for its threads, which tokio forbids.
fn start_with(
    runtime: Runtime,
    work: impl FnOnce(Runtime) + Send + 'static,
    start: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
) -> io::Result<JoinHandle<()>> {
    let (hand_over, taken) = mpsc::channel();
    let started = start(Box::new(move || {
        // Fails only if the thread that starts this one has panicked.
        if let Ok(runtime) = taken.recv() {
            work(runtime);
        }
    }));
    match started {
        Ok(thread) => {
            // The thread waits for it.
            let _ = hand_over.send(runtime);
            Ok(thread)
        }
        Err(error) => {
            runtime.shutdown_background();
            Err(error)
        }
    }
}

/// The runtime of one of `count` workers.
fn runtime(number: usize, count: usize, is_polling: bool) -> io::Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let threads = BLOCKING_THREADS_MAX * count.clamp(1, BLOCKING_WORKERS_MAX);
    builder.enable_all().max_blocking_threads(threads);
    builder.thread_name(format!("job-of-worker-{number}"));
    if is_polling {
        // By default the busy-poll task would run sixty times between two looks at the sockets.
        builder.event_interval(1);
    }
    builder.build()
}

/// Carries out a worker's orders until it is told to stop.
async fn carry_out<S: Service>(host: Host<S>, mut orders: Orders) {
    let host = Rc::new(host);
    let awake = Rc::clone(&host);
    tokio::task::spawn_local(async move { awake.stay_awake().await });
    let mut patience = Duration::ZERO;
    while let Some(order) = orders.next().await {
        match order {
            Order::Serve(connection) => {
                let (host, ended) = (Rc::clone(&host), orders.counted());
                tokio::task::spawn_local(async move {
                    host.serve(connection).await;
                    drop(ended);
                });
            }
            Order::HandOver(share, to) => host.hand_over(share, to),
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc as threads;

    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn a_thread_that_is_refused_is_an_error_also_within_another_runtime() {
        let outer = runtime(0, 1, false).unwrap();
        let refused = outer.block_on(async {
            let inner = runtime(1, 1, false).unwrap();
            start_with(inner, |_| (), |_| Err(io::ErrorKind::WouldBlock.into()))
        });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn jobs_that_block_have_so_many_threads_and_the_others_wait() {
        let runtime = runtime(0, 1, false).unwrap();
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
