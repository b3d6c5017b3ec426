//! A run from start to end: steps with faults, a calm phase, and the final checks.

use std::collections::BTreeMap;
use std::fmt;

use super::ClusterCounts;
use super::judge::judge;
use super::plan::{ClusterBug, ClusterMasters, Plan};
use super::world::World;
use crate::coverage::Coverage;
use crate::random::Chance;
use crate::run::Violation;
use crate::trace::Events;

/// Steps without faults within which everything must come to rest.
const CALM_STEPS_MAX: u64 = 100_000;
/// Steps between two looks whether it has.
const CALM_STEPS: u64 = 50;

/// What has to happen.
const COVERAGE: Coverage = Coverage {
    runs: 40,
    steps: 4_000,
    kinds: &["kill", "power cut", "master killed", "client killed", "cut", "move", "truncated"],
    least: 1,
};

/// What has to happen with real masters.
const COVERAGE_OF_MASTERS: Coverage = Coverage {
    kinds: &[
        "kill",
        "power cut",
        "master killed",
        "client killed",
        "cut",
        "parted",
        "pair parted",
        "move",
        "replicas",
        "stop storage",
        "truncated",
        "check",
    ],
    ..COVERAGE
};

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// Decides every random choice.
    pub seed: u64,
    /// Steps before the calm phase.
    pub steps: u64,
    /// Whether to print each event.
    pub trace: bool,
    /// The masters.
    pub masters: ClusterMasters,
    /// The injected bug, if any.
    pub bug: ClusterBug,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterReport {
    /// What happened.
    pub events: Events,
    /// What clients have done.
    pub counts: ClusterCounts,
    /// Transactions that were committed, acknowledged or not.
    pub transactions: u64,
    /// Refusals of storages, by their code.
    pub refusals: BTreeMap<String, u64>,
}

impl ClusterReport {
    /// Adds the results of another run.
    pub fn add(&mut self, other: &ClusterReport) {
        self.events.add(&other.events);
        self.transactions += other.transactions;
        for (what, count) in &other.refusals {
            *self.refusals.entry(what.clone()).or_default() += count;
        }
        self.counts.add(&other.counts);
    }

    /// What did not happen in this many runs of this many steps, and has to.
    pub fn lacking(&self, masters: ClusterMasters, (runs, steps): (u64, u64)) -> Vec<&'static str> {
        let coverage = match masters {
            ClusterMasters::Model => COVERAGE,
            ClusterMasters::Real => COVERAGE_OF_MASTERS,
        };
        let ClusterCounts { reads, commits, held, .. } = self.counts;
        let always = [("reads", reads), ("commits", commits)];
        let mut counts = self.counts.named();
        counts.push(("commits written at their vote", commits.saturating_sub(held)));
        coverage.lacking((runs, steps), &self.events.happened, &always, &counts)
    }
}

impl fmt::Display for ClusterReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClusterReport { events, counts, transactions, refusals } = self;
        write!(f, "{events}\nrefused: {refusals:?}\n{transactions} transactions; {counts}")
    }
}

/// Runs one seed.
///
/// # Errors
///
/// The first violation.
pub fn run_cluster(options: &ClusterOptions) -> Result<ClusterReport, Violation> {
    let ClusterOptions { seed, steps, trace, masters, bug } = *options;
    zodium_types::fix_oid_hashes();
    let chance = Chance::new(seed);
    let plan = match masters {
        ClusterMasters::Model => Plan::new(&chance, bug),
        ClusterMasters::Real => Plan::with_masters(&chance, bug),
    };
    if trace {
        println!("{plan:#?}");
    }
    let violation = |step, what| Violation { seed, step, what };
    let world = World::new(plan, chance, trace);
    let mut world = world.map_err(|error| violation(0, format!("no folder: {error}")))?;
    if masters == ClusterMasters::Real && seed.is_multiple_of(2) {
        // Under faults a cluster hardly starts, and others are to start under faults.
        come_to_rest(&mut world).map_err(|what| violation(0, what))?;
        world.go_on();
    }
    for step in 0..steps {
        world.step();
        if let Some(what) = world.context.violation() {
            return Err(violation(step, what));
        }
    }
    end(&mut world).map_err(|what| violation(steps, what))?;
    Ok(report(&world))
}

/// The calm end of a run, and the final checks.
fn end(world: &mut World) -> Result<(), String> {
    come_to_rest(world)?;
    world.look_at_end();
    judge(world)?;
    while !world.check() {
        come_to_rest(world)?;
    }
    world.context.violation().map_or(Ok(()), Err)
}

fn come_to_rest(world: &mut World) -> Result<(), String> {
    world.calm_down();
    for step in 0..CALM_STEPS_MAX {
        world.step();
        if let Some(what) = world.context.violation() {
            return Err(what);
        }
        if step % CALM_STEPS == 0 && world.is_at_rest() {
            return Ok(());
        }
    }
    Err(format!("something waits for ever: {}", world.describe()))
}

fn report(world: &World) -> ClusterReport {
    let context = &world.context;
    let mut counts = context.counts;
    let running = world.storages.iter().filter_map(|storage| storage.process.as_ref());
    running.for_each(|process| counts.add_process(&process.node.status().counts));
    ClusterReport {
        events: context.trace.events(),
        counts,
        transactions: context.history.committed.len() as u64,
        refusals: context.refusals.clone(),
    }
}
