//! What all parts of a run share: the generator, connections, history, trace, the clock.

use std::collections::BTreeMap;

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

    /// A tid that is later than all before.
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
