//! What the sessions of one storage on one worker have done. Each figure has one writer, so
//! counting is cheap; whoever asks adds up the workers.
//!
//! Key decision: the clock is read when a batch of requests arrives and when all of it that could
//! be answered at once has been, not for each of them: they leave together, so that is what each
//! of them took. A request that is answered later is timed by itself.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;
use zodium_types::{Counter, Durations};

use super::call::Method;

/// Padded to cache lines of its own: workers must not share lines they write to.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Statistics {
    pub(crate) connections: Counter,
    pub(crate) commits: Counter,
    pub(crate) aborts: Counter,
    pub(crate) active_transactions: Counter,
    /// Conflicts that were found, in stores and in undos.
    pub(crate) conflicts: Counter,
    /// Those of them that were resolved here.
    pub(crate) conflicts_resolved: Counter,
    /// Transactions that held their locks for too long.
    pub(crate) expired: Counter,
    /// From arrival to answer, by method.
    requests: Requests,
    /// Loads that waited for the disk; they are among the requests too.
    pub(crate) cold_loads: Durations,
    /// Votes that waited for locks: for how long.
    pub(crate) lock_waits: Durations,
    /// Errors that clients were answered with, by the name of the exception. Seldom, and nobody
    /// else's: a lock does no harm.
    errors: Mutex<BTreeMap<&'static str, u64>>,
}

#[derive(Debug)]
struct Requests([Durations; Method::COUNT]);

impl Default for Requests {
    fn default() -> Requests {
        Requests(std::array::from_fn(|_| Durations::default()))
    }
}

impl Statistics {
    pub(crate) fn requests(&self, method: Method) -> &Durations {
        let Requests(methods) = &self.requests;
        &methods[method as usize]
    }

    pub(crate) fn count_error(&self, name: &'static str) {
        *self.errors.lock().entry(name).or_default() += 1;
    }

    pub(crate) fn errors(&self) -> BTreeMap<&'static str, u64> {
        self.errors.lock().clone()
    }
}

/// The requests of the batch that a worker is answering.
#[derive(Debug)]
pub(crate) struct Tally {
    arrived: Cell<Instant>,
    counts: [Cell<u32>; Method::COUNT],
    /// A bit for each method that was counted.
    counted: Cell<u64>,
}

const _: () = assert!(Method::COUNT <= 64);

impl Tally {
    pub(crate) fn new() -> Tally {
        let counts = std::array::from_fn(|_| Cell::new(0));
        Tally { arrived: Cell::new(Instant::now()), counts, counted: Cell::new(0) }
    }

    /// A batch has arrived.
    pub(crate) fn begin(&self) {
        self.arrived.set(Instant::now());
    }

    /// When the batch under way arrived.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrived.get()
    }

    /// One of its requests has been answered (or needs no answer).
    pub(crate) fn count(&self, method: Method) {
        self.count_times(method, 1);
    }

    /// So many have been.
    pub(crate) fn count_times(&self, method: Method, times: u32) {
        let count = &self.counts[method as usize];
        count.set(count.get() + times);
        self.counted.set(self.counted.get() | 1 << method as usize);
    }

    /// All of it that can be answered at once has been. Without statistics, which only a client
    /// that has not registered lacks, nothing is kept.
    pub(crate) fn end(&self, statistics: Option<&Statistics>) {
        let mut counted = self.counted.replace(0);
        if counted == 0 {
            return;
        }
        let took = self.arrived.get().elapsed();
        while counted != 0 {
            let method = counted.trailing_zeros() as usize;
            counted &= counted - 1;
            let times = self.counts[method].replace(0);
            if let Some(Statistics { requests: Requests(methods), .. }) = statistics {
                methods[method].record_times(took, u64::from(times));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_counts_each_of_its_requests_once() {
        let (tally, statistics) = (Tally::new(), Statistics::default());
        tally.begin();
        for _ in 0..64 {
            tally.count(Method::LoadBefore);
        }
        tally.count(Method::Store);
        tally.end(Some(&statistics));
        tally.begin();
        tally.end(Some(&statistics));
        let values = |method| statistics.requests(method).values();
        assert_eq!((values(Method::LoadBefore), values(Method::Store)), (64, 1));
        assert_eq!(values(Method::Ping), 0);
    }

    #[test]
    fn an_unregistered_client_leaves_nothing_for_the_next_one() {
        let (tally, statistics) = (Tally::new(), Statistics::default());
        tally.count(Method::Ping);
        tally.end(None);
        tally.end(Some(&statistics));
        assert_eq!(statistics.requests(Method::Ping).values(), 0);
    }
}
