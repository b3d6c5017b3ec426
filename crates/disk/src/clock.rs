//! Clocks: that of the machine, and one that tests can stop, turn back, or advance.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The source of time for a storage.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Nanoseconds since the Unix epoch, UTC. May go backwards; tids still never do.
    fn unix_nanos(&self) -> u64;

    /// Time since a fixed moment, for timeouts; never goes backwards.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Creates a clock whose monotonic time starts now.
    pub fn new() -> SystemClock {
        SystemClock { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn unix_nanos(&self) -> u64 {
        // On a machine set to before 1970 this is the epoch: tids grow from the last one anyway.
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug, Default)]
pub struct ManualClock {
    unix_nanos: AtomicU64,
    monotonic_nanos: AtomicU64,
}

impl ManualClock {
    /// Creates a clock that stands at `unix_nanos`.
    pub fn at(unix_nanos: u64) -> ManualClock {
        ManualClock { unix_nanos: AtomicU64::new(unix_nanos), monotonic_nanos: AtomicU64::new(0) }
    }

    /// Advances wall clock and monotonic time.
    pub fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.unix_nanos.fetch_add(nanos, Ordering::Relaxed);
        self.monotonic_nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Sets the wall clock, also backwards; monotonic time stays.
    pub fn set_unix_nanos(&self, nanos: u64) {
        self.unix_nanos.store(nanos, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn unix_nanos(&self) -> u64 {
        self.unix_nanos.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.monotonic_nanos.load(Ordering::Relaxed))
    }
}
