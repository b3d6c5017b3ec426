//! Counters of a server since its start. Those of commands are one for each worker, which alone
//! writes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use zodium_keyspace::{now, random_below};

use crate::commands::{self, Command};
use crate::fail::{ABORTED_FOR, Fail};

/// Counters.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    /// When the server was started, in milliseconds since 1970.
    pub(crate) started_at: u64,
    /// 40 hexadecimal digits that no other run has.
    pub(crate) run_id: String,
    pub(crate) connections: AtomicU64,
    pub(crate) expired: AtomicU64,
    pub(crate) evicted: AtomicU64,
    pub(crate) changes: AtomicU64,
    pub(crate) refused_for_memory: AtomicU64,
    pub(crate) refused_for_file: AtomicU64,
    /// Those of each worker, which alone writes them.
    pub(crate) workers: Vec<WorkerStatistics>,
}

/// Counters of a worker, on a line of their own.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct WorkerStatistics {
    pub(crate) commands: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    /// Those of each command, by its number.
    of_commands: Box<[CommandCounters]>,
}

/// Counters of a command of a worker.
#[derive(Debug, Default)]
struct CommandCounters {
    calls: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    /// Calls that were timed, and their time.
    timed: AtomicU64,
    nanos: AtomicU64,
}

/// Sums over all workers of the counters of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CommandTotals {
    /// Calls that were executed.
    pub(crate) calls: u64,
    /// Calls that were refused before they were executed.
    pub(crate) rejected: u64,
    /// Calls that were executed, and answered an error.
    pub(crate) failed: u64,
    /// Mean time of a call in microseconds, of those that were timed.
    pub(crate) micros_each: f64,
}

/// One of so many calls is timed, the first included: to look at the clock costs as much as a
/// short command.
const TIMED: u64 = 16;

/// A call that is being executed.
pub(crate) struct Begun {
    number: usize,
    at: Option<Instant>,
}

impl Default for WorkerStatistics {
    fn default() -> WorkerStatistics {
        let of_commands = (0..commands::count()).map(|_| CommandCounters::default()).collect();
        let [commands, hits, misses] = std::array::from_fn(|_| AtomicU64::new(0));
        WorkerStatistics { commands, hits, misses, of_commands }
    }
}

/// Adds to a counter that one thread writes, so that no update is lost.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

impl WorkerStatistics {
    /// Counts a call that is about to be executed.
    pub(crate) fn begin(&self, command: &'static Command) -> Begun {
        let number = command.number;
        let Some(counters) = self.of_commands.get(number) else {
            return Begun { number, at: None };
        };
        let is_timed = counters.calls.load(Ordering::Relaxed).is_multiple_of(TIMED);
        add(&counters.calls, 1);
        Begun { number, at: is_timed.then(Instant::now) }
    }

    /// Notes the end of a call, and whether it answers an error.
    pub(crate) fn end(&self, begun: &Begun, is_failed: bool) {
        let Some(counters) = self.of_commands.get(begun.number) else { return };
        if is_failed {
            add(&counters.failed, 1);
        }
        if let Some(at) = begun.at {
            add(&counters.timed, 1);
            add(&counters.nanos, u64::try_from(at.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }

    /// Counts the keys that a command has found, and not found.
    pub(crate) fn count_found(&self, (hits, misses): (u64, u64)) {
        for (counter, more) in [(&self.hits, hits), (&self.misses, misses)] {
            if more > 0 {
                add(counter, more);
            }
        }
    }

    /// Counts a call that is refused.
    pub(crate) fn reject(&self, command: &'static Command) {
        if let Some(counters) = self.of_commands.get(command.number) {
            add(&counters.rejected, 1);
        }
    }

    /// Sets all counters to zero.
    fn reset(&self) {
        let of_command = |of: &CommandCounters| {
            for counter in [&of.calls, &of.rejected, &of.failed, &of.timed, &of.nanos] {
                counter.store(0, Ordering::Relaxed);
            }
        };
        self.of_commands.iter().for_each(of_command);
        for counter in [&self.commands, &self.hits, &self.misses] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

impl Statistics {
    /// The counters of a server with so many workers that starts now.
    pub(crate) fn new(workers: usize) -> Statistics {
        let digit = |_| char::from(b"0123456789abcdef"[random_below(16)]);
        Statistics {
            started_at: now(),
            run_id: (0..40).map(digit).collect(),
            workers: (0..workers).map(|_| WorkerStatistics::default()).collect(),
            ..Statistics::default()
        }
    }

    /// Sets the counters of `INFO` to zero.
    pub(crate) fn reset(&self) {
        let refused = [&self.refused_for_memory, &self.refused_for_file];
        for counter in [&self.connections, &self.expired, &self.evicted].into_iter().chain(refused)
        {
            counter.store(0, Ordering::Relaxed);
        }
        self.workers.iter().for_each(WorkerStatistics::reset);
    }

    /// Counts an error, if memory or the file of keys is its reason.
    pub(crate) fn note_fail(&self, fail: &Fail) {
        // That of EXEC has another code in front.
        let reason = fail.0.strip_prefix(ABORTED_FOR).unwrap_or(&fail.0);
        let counter = match reason.split(' ').next() {
            Some("OOM") => &self.refused_for_memory,
            Some("MISCONF") => &self.refused_for_file,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of commands of all workers.
    pub(crate) fn commands(&self) -> u64 {
        self.workers.iter().map(|of| of.commands.load(Ordering::Relaxed)).sum()
    }

    /// The sums of the command with a number.
    pub(crate) fn of_command(&self, number: usize) -> CommandTotals {
        let sum = |counter: fn(&CommandCounters) -> &AtomicU64| -> u64 {
            let all = self.workers.iter().filter_map(|worker| worker.of_commands.get(number));
            all.map(|counters| counter(counters).load(Ordering::Relaxed)).sum()
        };
        let (timed, nanos) = (sum(|of| &of.timed), sum(|of| &of.nanos));
        CommandTotals {
            calls: sum(|of| &of.calls),
            rejected: sum(|of| &of.rejected),
            failed: sum(|of| &of.failed),
            micros_each: nanos as f64 / 1e3 / timed.max(1) as f64,
        }
    }

    /// Keys that were found, and those that were not.
    pub(crate) fn found(&self) -> (u64, u64) {
        let sum = |counter: fn(&WorkerStatistics) -> &AtomicU64| {
            self.workers.iter().map(|of| counter(of).load(Ordering::Relaxed)).sum()
        };
        (sum(|of| &of.hits), sum(|of| &of.misses))
    }
}
