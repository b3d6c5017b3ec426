//! The time at which a worker's commands happen.
//!
//! Key decision: the clock is read once for the requests that have come together, as each reading
//! takes a part of what a short command does. The system's tick is a fraction of that: it tells
//! after each longer command whether milliseconds have passed.

use std::cell::Cell;

use rustix::time::{ClockId, Timespec, clock_gettime};
use zodium_keyspace::{Hold, now_in_microseconds};

/// A worker's time: at most one tick of the system behind, which is 1 to 10 ms.
pub(crate) struct WorkerClock {
    /// In microseconds since 1970.
    time: Cell<u64>,
    tick: Cell<Timespec>,
}

impl WorkerClock {
    pub(crate) fn new() -> WorkerClock {
        WorkerClock { time: Cell::new(now_in_microseconds()), tick: Cell::new(tick()) }
    }

    /// The time, in milliseconds since 1970.
    pub(crate) fn time(&self) -> u64 {
        self.time.get() / 1000
    }

    /// Takes the time of the system.
    pub(crate) fn read(&self) {
        self.tick.set(tick());
        self.time.set(now_in_microseconds());
    }

    /// Takes the time of the system for all commands of a transaction or a script: to them it
    /// stands still, as with the stock server.
    pub(crate) fn freeze(&self, hold: &mut Hold) {
        self.read();
        hold.freeze(self.time.get());
    }

    /// As [`WorkerClock::read`], if the system has ticked since.
    pub(crate) fn follow(&self) {
        if self.tick.get() != tick() {
            self.read();
        }
    }
}

fn tick() -> Timespec {
    clock_gettime(ClockId::RealtimeCoarse)
}
