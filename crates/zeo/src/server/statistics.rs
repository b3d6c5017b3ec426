//! Counters of one storage on one worker. Each has one writer, so adding is cheap; `server_status`
//! sums over the workers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Padded to a cache line of its own: workers must not share lines they write to.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Statistics {
    pub(crate) connections: Counter,
    pub(crate) loads: Counter,
    pub(crate) stores: Counter,
    pub(crate) commits: Counter,
    pub(crate) aborts: Counter,
    pub(crate) active_transactions: Counter,
    pub(crate) conflicts: Counter,
}

/// A number that one thread changes and others may look at.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // Only this worker writes: a load and a store instead of an atomic addition.
        self.0.store(self.0.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).saturating_sub(count), Ordering::Relaxed);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
