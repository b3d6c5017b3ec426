//! Counters of a server. Those of commands are one for each worker, which alone writes them.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) connections: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) changes: AtomicU64,
    /// Those of each worker, which alone writes them.
    pub(crate) workers: Vec<WorkerStatistics>,
}

/// Counters of a worker, on a line of their own.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct WorkerStatistics {
    pub(crate) commands: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
}

impl Statistics {
    /// Number of commands of all workers.
    pub(crate) fn commands(&self) -> u64 {
        self.workers.iter().map(|of| of.commands.load(Ordering::Relaxed)).sum()
    }

    /// Keys that were found, and those that were not.
    pub(crate) fn found(&self) -> (u64, u64) {
        let sum = |counter: fn(&WorkerStatistics) -> &AtomicU64| {
            self.workers.iter().map(|of| counter(of).load(Ordering::Relaxed)).sum()
        };
        (sum(|of| &of.hits), sum(|of| &of.misses))
    }
}
