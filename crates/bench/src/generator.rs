//! The load generator: threads that keep a number of requests in flight on their connections.
//!
//! A thread with one connection just reads and writes; a thread with more waits for any of them
//! with epoll. Either way, all replies of one read are followed by as many new requests in one
//! write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use zodium_types::Oid;

use crate::connection::{Connection, PATIENCE, Scratch};
use crate::result::Latencies;

const EVENTS_MAX: usize = 64;

/// A running load.
pub(crate) struct Generator {
    threads: Vec<JoinHandle<Result<Latencies>>>,
    shared: Arc<Shared>,
}

/// Which requests to make.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) objects: Objects,
    /// Requests kept in flight on each connection.
    pub(crate) in_flight: usize,
    /// Seed of the random oids; the same for every server.
    pub(crate) seed: u64,
}

/// Which objects are requested.
#[derive(Clone, Debug)]
pub(crate) enum Objects {
    /// Random ones, from 0 to one below this number.
    AtRandom(u64),
    /// Each object once before any is repeated.
    InTurns(Arc<Walk>),
}

/// Walks through the numbers from 0 to one below their count in large steps, so that neighbours are
/// far apart: every third number first, then their successors, then the rest. Shared by threads.
#[derive(Debug)]
pub(crate) struct Walk {
    count: u64,
    third: u64,
    step: u64,
    /// Relaxed: each number goes to one thread, in any order.
    taken: AtomicU64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Set before `replies` is read, and read after it is raised, both in one order for all
    /// threads: a reply that is counted after the flag was set also has its latency recorded.
    counting: AtomicBool,
    /// Relaxed: no other data depends on it.
    stopping: AtomicBool,
    replies: AtomicU64,
}

struct Thread {
    connections: Vec<Connection>,
    load: Load,
    random: SmallRng,
    scratch: Scratch,
    latency: Latencies,
    /// How long the requests waited that one read answered.
    waits: Vec<Duration>,
    shared: Arc<Shared>,
}

impl Generator {
    /// Starts at most `threads` threads that share the connections.
    pub(crate) fn start(
        connections: Vec<Connection>,
        threads: usize,
        load: Load,
    ) -> Result<Generator> {
        let shared = Arc::new(Shared::default());
        let mut shares: Vec<Vec<Connection>> = Vec::new();
        shares.resize_with(threads.min(connections.len()), Vec::new);
        let turns = (0..shares.len()).cycle();
        for (connection, turn) in connections.into_iter().zip(turns) {
            shares[turn].push(connection);
        }
        let mut started = Vec::new();
        for (number, connections) in shares.into_iter().enumerate() {
            let thread = Thread {
                connections,
                load: load.clone(),
                random: SmallRng::seed_from_u64(load.seed + number as u64),
                scratch: Scratch::new(),
                latency: Latencies::new()?,
                waits: Vec::new(),
                shared: Arc::clone(&shared),
            };
            let builder = std::thread::Builder::new().name(format!("load-{number}"));
            started.push(builder.spawn(move || thread.run())?);
        }
        Ok(Generator { threads: started, shared })
    }

    /// Number of replies so far.
    pub(crate) fn replies(&self) -> u64 {
        self.shared.replies.load(Ordering::SeqCst)
    }

    /// Whether the load has ended by itself, which only an error causes.
    pub(crate) fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Starts or stops recording latencies. Each reply that [`Generator::replies`] counts between
    /// the two has its latency recorded.
    pub(crate) fn count_latencies(&self, counting: bool) {
        self.shared.counting.store(counting, Ordering::SeqCst);
    }

    /// Waits for pending requests; returns the latencies in nanoseconds, or the error.
    pub(crate) fn finish(self) -> Result<Latencies> {
        self.shared.stopping.store(true, Ordering::Relaxed);
        let mut all = Latencies::new()?;
        for thread in self.threads {
            let latency = thread.join().map_err(|_| anyhow!("a load thread panicked"))??;
            all.add(&latency);
        }
        Ok(all)
    }
}

impl Walk {
    pub(crate) fn new(count: u64) -> Walk {
        let third = (count / 3).max(1);
        let golden = (third as f64 * 0.618) as u64;
        let is_prime_to = |step: &u64| greatest_common_divisor(*step, third) == 1;
        let step = (golden.max(1)..).find(is_prime_to).unwrap_or(1);
        Walk { count: count.max(1), third, step, taken: AtomicU64::new(0) }
    }

    /// The next number. It is no neighbour of a number taken within the last third of the walk,
    /// except where the walk starts over.
    pub(crate) fn next(&self) -> u64 {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        let (round, number) = (taken / self.third % 3, taken % self.third);
        let place = u128::from(number) * u128::from(self.step) % u128::from(self.third);
        (3 * place as u64 + round) % self.count
    }

    /// How many numbers were taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

fn greatest_common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

impl Objects {
    fn pick(&self, random: &mut SmallRng) -> Oid {
        match self {
            Objects::AtRandom(count) => Oid(random.random_range(0..*count)),
            Objects::InTurns(walk) => Oid(walk.next()),
        }
    }
}

impl Thread {
    fn run(mut self) -> Result<Latencies> {
        for index in 0..self.connections.len() {
            self.ask(index, self.load.in_flight)?;
        }
        match self.connections.len() {
            1 => self.run_one()?,
            _ => self.run_many()?,
        }
        Ok(self.latency)
    }

    fn run_one(&mut self) -> Result<()> {
        while self.is_wanted() {
            self.take_turn(0)?;
        }
        Ok(())
    }

    fn run_many(&mut self) -> Result<()> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, connection) in self.connections.iter().enumerate() {
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, connection.stream(), data, epoll::EventFlags::IN)?;
        }
        let patience = Timespec::try_from(PATIENCE)?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        while self.is_wanted() {
            let count = epoll::wait(&epoll, spare_capacity(&mut events), Some(&patience))?;
            ensure!(count > 0, "the server has not answered for {} s", PATIENCE.as_secs());
            for event in events.drain(..) {
                self.take_turn(event.data.u64() as usize)?;
            }
        }
        Ok(())
    }

    /// Until stopped, and then until all requests are answered.
    fn is_wanted(&self) -> bool {
        !self.is_stopping() || self.connections.iter().any(|connection| !connection.is_idle())
    }

    fn is_stopping(&self) -> bool {
        self.shared.stopping.load(Ordering::Relaxed)
    }

    /// Handles the replies on a connection, and sends as many new requests.
    fn take_turn(&mut self, index: usize) -> Result<()> {
        let connection = self.connections.get_mut(index).context("an event of no connection")?;
        let waits = &mut self.waits;
        waits.clear();
        let replies = connection.receive(&mut self.scratch, |waited| waits.push(waited))?;
        self.shared.replies.fetch_add(replies as u64, Ordering::SeqCst);
        if self.shared.counting.load(Ordering::SeqCst) {
            waits.iter().for_each(|waited| self.latency.record(*waited));
        }
        if self.is_stopping() { Ok(()) } else { self.ask(index, replies) }
    }

    fn ask(&mut self, index: usize, count: usize) -> Result<()> {
        let connection = self.connections.get_mut(index).context("no such connection")?;
        for _ in 0..count {
            connection.ask(self.load.objects.pick(&mut self.random))?;
        }
        if count > 0 { connection.send() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_comes_to_every_number_once_and_to_neighbours_late() {
        for count in [3, 9, 99, 1002] {
            let walk = Walk::new(count);
            let mut seen: Vec<u64> = (0..count).map(|_| walk.next()).collect();
            for recent in seen.windows(count as usize / 3) {
                let later = recent.last().unwrap();
                let neighbours = [later + 1, later.wrapping_sub(1)];
                assert!(recent.iter().all(|one| !neighbours.contains(one)), "{count}: {later}");
            }
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..count), "{count}");
            assert_eq!((walk.next(), walk.taken()), (0, count + 1));
        }
        for count in [1, 2, 10] {
            let walk = Walk::new(count);
            assert!((0..3 * count).all(|_| walk.next() < count), "{count}");
        }
    }
}
