//! The worker threads, and assigning connections to them.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use zodium_types::Address;

use crate::host::Host;
use crate::log_limiter::{LogLimiter, SourceLogLimiter};
use crate::{Incoming, Limits, LinkMetrics, Protocol, Service};

/// Blocking threads of each worker, for work that waits for the disk.
const BLOCKING_THREADS_MAX: usize = 64;

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
                        let host = Host::new(make(number), own_metrics, busy_poll)
                            .with_failed_handshakes(failed_handshakes);
                        serve(host, received, counter).await;
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

async fn serve<S: Service>(
    host: Host<S>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    count: Arc<AtomicUsize>,
) {
    let host = Rc::new(host);
    let awake = Rc::clone(&host);
    tokio::task::spawn_local(async move { awake.stay_awake().await });
    let mut patience = Duration::ZERO;
    while let Some(order) = orders.recv().await {
        match order {
            Order::Serve { incoming, peer, limits } => {
                let (host, count) = (Rc::clone(&host), Arc::clone(&count));
                tokio::task::spawn_local(async move {
                    host.serve(incoming, &peer, limits).await;
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
