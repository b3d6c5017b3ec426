//! A run from start to end.

use super::plan::RespBug;
use super::world::World;
use crate::coverage::Coverage;
use crate::random::Chance;
use crate::run::Violation;
use crate::trace::{Events, Trace};

/// What has to happen.
const COVERAGE: Coverage = Coverage {
    runs: 60,
    steps: 2_000,
    kinds: &[
        "transaction",
        "transaction of changed keys",
        "script",
        "wait",
        "served",
        "timed out",
        "unblocked",
        "killed",
        "pause",
        "switch of replies",
        "gone",
        "gone while it waits",
        "half-open",
        "left behind",
        "message",
        "event",
        "invalidation",
        "tie",
        "tie refused",
        "cut",
        "commit",
        "time",
    ],
    least: 10,
};

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct RespOptions {
    /// Decides every random choice.
    pub seed: u64,
    /// Steps: in each a client does something, goes, or time passes.
    pub steps: u64,
    /// Whether to print each event.
    pub trace: bool,
    /// A mistake made on purpose.
    pub bug: RespBug,
}

/// What did not happen in this many runs of this many steps, and has to.
pub fn lacking_of_resp(total: &Events, runs: u64, steps: u64) -> Vec<&'static str> {
    let requests = total.happened.get("request").copied().unwrap_or(0);
    COVERAGE.lacking((runs, steps), &total.happened, &[("requests", requests)], &[])
}

/// Runs one seed.
///
/// # Errors
///
/// The first violation.
pub fn run_resp(options: &RespOptions) -> Result<Events, Violation> {
    let RespOptions { seed, steps, trace, bug } = *options;
    let violation = |step, what: String| Violation { seed, step, what };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| violation(0, error.to_string()))?;
    zodium_keyspace::seed_key_hashes(seed);
    runtime.block_on(async {
        let world = World::new(Chance::new(seed), Trace::new(trace), bug);
        let mut world = world.map_err(|what| violation(0, what))?;
        for step in 0..steps {
            world.step().await.map_err(|what| violation(step, what))?;
        }
        world.finish().await.map_err(|what| violation(steps, what))?;
        Ok(world.trace.events())
    })
}
