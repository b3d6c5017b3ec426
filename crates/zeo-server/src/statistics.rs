//! Counters of the sessions of one storage on one worker. Each has one writer, so counting is
//! cheap; readers add up the workers.
//!
//! Key decision: the clock is not read for each request. It is read when a batch arrives, and when
//! its immediate answers are complete. They leave together, so that is the duration of each of
//! them. A request that is answered later is timed by itself.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;
use zodium_types::{Counter, Durations};

use crate::call::Method;

/// The counters. They have cache lines of their own, since workers must not write to shared lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Statistics {
    pub(crate) connections: Counter,
    pub(crate) commits: Counter,
    pub(crate) aborts: Counter,
    pub(crate) active_transactions: Counter,
    /// Conflicts that were found, in stores and in undos.
    pub(crate) conflicts: Counter,
    /// Conflicts that the server resolved.
    pub(crate) conflicts_resolved: Counter,
    /// Transactions that held their locks for too long.
    pub(crate) expired: Counter,
    /// Blobs that were received and sent whole.
    pub(crate) blobs_received: Counter,
    pub(crate) blobs_sent: Counter,
    /// Bytes of blobs that were received whole, and that were sent.
    pub(crate) blob_bytes_received: Counter,
    pub(crate) blob_bytes_sent: Counter,
    /// Durations from arrival to answer, by method.
    requests: Requests,
    /// Durations of loads that waited for the disk; `requests` has them too.
    pub(crate) cold_loads: Durations,
    /// Times that votes waited for locks.
    pub(crate) lock_waits: Durations,
    /// Errors that clients got as answers, by the name of the exception. They are rare and have one
    /// writer, so a lock does no harm.
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

/// Counts the requests of the batch that a worker is answering.
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

    /// Begins a batch, which has just arrived.
    pub(crate) fn begin(&self) {
        self.arrived.set(Instant::now());
    }

    /// When the current batch arrived.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrived.get()
    }

    /// Counts a request that was answered, or needs no answer.
    pub(crate) fn count(&self, method: Method) {
        self.count_times(method, 1);
    }

    /// Counts so many requests.
    pub(crate) fn count_times(&self, method: Method, times: u32) {
        let count = &self.counts[method as usize];
        count.set(count.get() + times);
        self.counted.set(self.counted.get() | 1 << method as usize);
    }

    /// Ends a batch, whose immediate answers are complete. Without statistics, before a client has
    /// registered, the counts are dropped.
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
