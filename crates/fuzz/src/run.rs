//! Runs a target on its inputs, watching for panics, time and memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::MEMORY;
use crate::failure::Failure;
use crate::mutation;
use crate::targets::Target;
use crate::watch::Watch;

/// Memory is counted for the whole process, so there is one run at a time.
static RUNNING: Mutex<()> = Mutex::new(());

/// The results of a run without failures.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// Number of inputs.
    pub inputs: u64,
    /// Seconds that they took.
    pub seconds: f64,
    /// Most bytes allocated for one input.
    pub memory_bytes_max: usize,
}

/// How long to run, and with which inputs.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// End after this time...
    pub time: Duration,
    /// ...or after this many inputs.
    pub inputs: u64,
    /// Seed of the inputs.
    pub seed: u64,
}

/// Runs a target until the budget is used up or an input fails. The unchanged seeds come first.
///
/// # Errors
///
/// The first failing input, which has been saved to a file.
pub fn run(target: &'static Target, budget: Budget) -> Result<Tally, Failure> {
    let _one = RUNNING.lock();
    let seeds = Arc::new((target.seeds)());
    let watch = Watch::begin(target, Arc::clone(&seeds), budget.seed);
    let begun = Instant::now();
    let mut tally = Tally { inputs: 0, seconds: 0.0, memory_bytes_max: 0 };
    for seed in seeds.iter() {
        feed(target, seed, (budget.seed, u64::MAX), &mut tally)?;
    }
    while tally.inputs < budget.inputs && begun.elapsed() < budget.time {
        let number = tally.inputs;
        watch.note(number);
        let input = mutation::input(&seeds, budget.seed, number);
        feed(target, &input, (budget.seed, number), &mut tally)?;
    }
    tally.seconds = begun.elapsed().as_secs_f64();
    Ok(tally)
}

/// Runs a target on one input.
///
/// # Errors
///
/// If the input fails.
pub fn replay(target: &'static Target, input: &[u8]) -> Result<Tally, Failure> {
    let mut tally = Tally { inputs: 0, seconds: 0.0, memory_bytes_max: 0 };
    feed(target, input, (0, 0), &mut tally)?;
    Ok(tally)
}

fn feed(
    target: &'static Target,
    input: &[u8],
    made_of: (u64, u64),
    tally: &mut Tally,
) -> Result<(), Failure> {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let result = catch_unwind(AssertUnwindSafe(|| (target.check)(input)));
    let used = MEMORY.peak_usage().saturating_sub(before);
    tally.inputs += 1;
    tally.memory_bytes_max = tally.memory_bytes_max.max(used);
    let most = (target.memory_bytes_max)(input.len());
    let what = match result {
        Err(_) => "it panics or breaks a claim, see above".to_owned(),
        Ok(()) if used > most => format!("it allocates {used} bytes, of {most} at most"),
        Ok(()) => return Ok(()),
    };
    let failure = Failure { target: target.name, what, input: input.to_vec(), made_of };
    if let Err(error) = failure.keep() {
        eprintln!("cannot keep the input: {error}");
    }
    Err(failure)
}
