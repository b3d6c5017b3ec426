//! A run from start to end.

use std::collections::BTreeMap;
use std::fmt;

use tokio::task::LocalSet;

use super::world::World;
use crate::random::Chance;
use crate::run::Violation;
use crate::trace::Trace;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct RespOptions {
    /// Decides every random choice.
    pub seed: u64,
    /// Steps: in each a client does something, goes, or time passes.
    pub steps: u64,
    /// Whether to print each event.
    pub trace: bool,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RespReport {
    /// Digest of all events in order.
    pub digest: u64,
    /// Number of events.
    pub events: u64,
    /// Number of events of each kind.
    pub happened: BTreeMap<&'static str, u64>,
}

impl RespReport {
    /// Adds the results of another run. Digests are combined regardless of their order.
    pub fn add(&mut self, other: &RespReport) {
        self.digest = self.digest.wrapping_add(other.digest);
        self.events += other.events;
        for (what, count) in &other.happened {
            *self.happened.entry(what).or_default() += count;
        }
    }
}

impl fmt::Display for RespReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RespReport { digest, events, happened } = self;
        let happened: Vec<_> = happened.iter().map(|(what, n)| format!("{n} {what}")).collect();
        writeln!(f, "{events} events: {}", happened.join(", "))?;
        write!(f, "digest {digest:016x}")
    }
}

/// Runs one seed.
///
/// # Errors
///
/// The first violation.
pub fn run_resp(options: &RespOptions) -> Result<RespReport, Violation> {
    let RespOptions { seed, steps, trace } = *options;
    let violation = |step, what: String| Violation { seed, step, what };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| violation(0, error.to_string()))?;
    LocalSet::new().block_on(&runtime, async {
        let mut world = World::new(Chance::new(seed), Trace::new(trace));
        for step in 0..steps {
            world.step().await.map_err(|what| violation(step, what))?;
        }
        world.finish().await.map_err(|what| violation(steps, what))?;
        let trace = &world.trace;
        Ok(RespReport {
            digest: trace.digest(),
            events: trace.events(),
            happened: trace.happened().clone(),
        })
    })
}
