//! A thread that watches the loads of the workers, and has them hand over connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::balance::{Balance, Load, Move};
use crate::door::{Door, Order};
use crate::thread_time::ThreadTime;

/// Time between two looks at the loads.
const PERIOD: Duration = Duration::from_millis(100);
/// The same while one worker serves all with little load: an idle server wakes up seldom.
const QUIET_PERIOD: Duration = Duration::from_secs(1);
/// Load up to which this is so.
const QUIET_LOAD: f64 = 0.1;

/// Balances connections between workers until it is dropped.
pub(crate) struct Balancer {
    /// How many workers are used, those with the lowest numbers. Relaxed: a connection that is
    /// assigned by an older number is moved later.
    used: Arc<AtomicUsize>,
    /// Dropped at the end, which the thread notices.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A worker, as the balancer sees it.
struct Watched {
    door: Door,
    time: ThreadTime,
    time_before: Option<Duration>,
}

impl Balancer {
    /// Starts to balance these workers; `None` where the system does not tell the times of threads.
    pub(crate) fn start(workers: Vec<(Door, ThreadTime)>) -> io::Result<Option<Balancer>> {
        if !ThreadTime::is_known() {
            return Ok(None);
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let balance = Balance::new(workers.len(), processors);
        let used = Arc::new(AtomicUsize::new(balance.used()));
        let (running, ended) = channel();
        let watched = workers
            .into_iter()
            .map(|(door, time)| Watched { door, time, time_before: None })
            .collect();
        let number = Arc::clone(&used);
        let thread = std::thread::Builder::new()
            .name("balancer".to_owned())
            .spawn(move || watch(watched, balance, &number, &ended))?;
        Ok(Some(Balancer { used, running: Some(running), thread: Some(thread) }))
    }

    /// How many workers are used: those with the lowest numbers.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.running = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread would have ended the process.
            let _ = thread.join();
        }
    }
}

fn watch(
    mut workers: Vec<Watched>,
    mut balance: Balance,
    used: &AtomicUsize,
    ended: &Receiver<()>,
) {
    let mut period = PERIOD;
    let mut looked = Instant::now();
    while ended.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
        let elapsed = looked.elapsed();
        looked = Instant::now();
        let of_used = workers.iter_mut().take(balance.used());
        let loads: Vec<Load> = of_used.map(|worker| worker.load(elapsed)).collect();
        for Move { from, share, to } in balance.decide(&loads) {
            tracing::debug!(from, ?share, ?to, "moving connections between workers");
            let to = to.into_iter().map(|number| workers[number].door.clone()).collect();
            workers[from].door.order(Order::HandOver(share, to));
        }
        used.store(balance.used(), Ordering::Relaxed);
        let is_quiet = loads.len() == 1 && loads.iter().all(|load| load.load <= QUIET_LOAD);
        period = if is_quiet { QUIET_PERIOD } else { PERIOD };
    }
}

impl Watched {
    /// The load since the last look, `elapsed` ago. The first look at a worker gives 0.
    fn load(&mut self, elapsed: Duration) -> Load {
        let time = self.time.so_far();
        let before = std::mem::replace(&mut self.time_before, time);
        let worked = time.zip(before).map_or(Duration::ZERO, |(time, before)| time - before);
        let load = worked.as_secs_f64() / elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        Load { load, connections: self.door.connections() }
    }
}
