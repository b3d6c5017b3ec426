//! What all parts of a run share: the generator, connections, history, trace, the clock.

use std::collections::BTreeMap;
use std::time::Duration;

use zodium_types::Tid;

use super::ClusterCounts;
use super::history::History;
use super::net::Net;
use super::plan::Plan;
use crate::random::Chance;
use crate::trace::Trace;

/// The name of the simulated cluster.
pub(super) const CLUSTER: &str = "simulated";
/// The first time of the clock: a tid like those of the present.
const CLOCK_START: u64 = 1 << 40;
/// The time of real masters at the start, in seconds since 1970.
const SECONDS_START: u64 = 1_700_000_000;
/// Most time between two steps.
const STEP_MICROS_MAX: u64 = 300;

/// What all parts of a run share.
pub(super) struct Context {
    pub(super) plan: Plan,
    pub(super) chance: Chance,
    pub(super) net: Net,
    pub(super) history: History,
    pub(super) counts: ClusterCounts,
    pub(super) trace: Trace,
    pub(super) is_calm: bool,
    /// Refusals of storages, by their text.
    pub(super) refusals: BTreeMap<String, u64>,
    clock: u64,
    /// The time, for real masters.
    now: Duration,
    /// The real master that has just begun to serve: what storages have is to be looked at.
    pub(super) started: Option<usize>,
    violation: Option<String>,
}

impl Context {
    pub(super) fn new(plan: Plan, chance: Chance, prints: bool) -> Context {
        Context {
            plan,
            chance,
            net: Net::default(),
            history: History::default(),
            counts: ClusterCounts::default(),
            trace: Trace::new(prints),
            is_calm: false,
            refusals: BTreeMap::new(),
            clock: CLOCK_START,
            now: Duration::from_secs(SECONDS_START),
            started: None,
            violation: None,
        }
    }

    /// Records an event: its kind, and numbers that describe it.
    pub(super) fn event(&mut self, what: &'static str, numbers: &[u64]) {
        self.trace.event(what, numbers);
    }

    /// Notes what must not be. The first one counts.
    pub(super) fn violate(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub(super) fn violation(&self) -> Option<String> {
        self.violation.clone()
    }

    /// Time goes on.
    pub(super) fn pass_time(&mut self) {
        self.now += Duration::from_micros(self.chance.number(0..=STEP_MICROS_MAX));
    }

    /// The time of a clock that is wrong by so many microseconds, since 1970.
    pub(super) fn now(&self, error: i64) -> Duration {
        let error_time = Duration::from_micros(error.unsigned_abs());
        if error < 0 { self.now.saturating_sub(error_time) } else { self.now + error_time }
    }

    /// A number that is later than all before: a tid of the model master.
    pub(super) fn tid(&mut self) -> Tid {
        self.clock += self.chance.number(1..=9);
        Tid(self.clock)
    }

    /// A tid that is later than all before, in the partition of another one.
    pub(super) fn tid_like(&mut self, ttid: Tid) -> Tid {
        let partitions = u64::from(self.plan.partitions);
        let next = self.tid().0;
        self.clock = next + (ttid.0 % partitions + partitions - next % partitions) % partitions;
        Tid(self.clock)
    }

    /// The time of the master, which increases with each call.
    pub(super) fn time(&mut self) -> f64 {
        self.clock += 1;
        (self.clock - CLOCK_START) as f64
    }
}
