//! Feeds a target known inputs and changed ones, and watches how long each takes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use zodium_fuzz::targets::Target;

use super::changes;

/// Interval between looks at the feeding thread.
const STEP: Duration = Duration::from_millis(20);
/// Most steps to a smaller input that fails too.
const SHRINKS_MAX: u32 = 2_000;

/// A failing input, and why it fails.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) input: Vec<u8>,
    pub(super) reason: String,
}

/// The number of inputs so far, and the current one.
#[derive(Default)]
struct Fed {
    count: u64,
    input: Vec<u8>,
}

/// How long to feed a target, and with what.
#[derive(Clone, Copy)]
pub(super) struct Budget {
    pub(super) seed: u64,
    pub(super) time: Duration,
    /// Time limit of one input.
    pub(super) input_time_max: Duration,
}

/// Feeds a target; returns the number of inputs.
pub(super) fn feed(target: &'static Target, budget: Budget) -> Result<u64, Failure> {
    let fed = Arc::new(Mutex::new(Fed::default()));
    let feeding = thread::spawn({
        let fed = Arc::clone(&fed);
        move || feed_all(target, budget, &fed)
    });
    let mut last = (0, Instant::now());
    while !feeding.is_finished() {
        thread::sleep(STEP);
        let fed = fed.lock();
        if fed.count != last.0 {
            last = (fed.count, Instant::now());
        } else if last.1.elapsed() > budget.input_time_max {
            let reason = format!("it takes more than {:?}", budget.input_time_max);
            return Err(Failure { input: fed.input.clone(), reason });
        }
    }
    feeding.join().expect("panics of targets are caught")?;
    Ok(fed.lock().count)
}

fn feed_all(target: &Target, budget: Budget, fed: &Mutex<Fed>) -> Result<(), Failure> {
    let feed = |input: Vec<u8>| {
        {
            let mut fed = fed.lock();
            fed.count += 1;
            fed.input.clone_from(&input);
        }
        target.feed(&input);
    };
    let known = target.known().expect("the known inputs can be read");
    for input in &known {
        let result = catch_unwind(AssertUnwindSafe(|| feed(input.clone())));
        result.map_err(|_| Failure { input: input.clone(), reason: "see above".to_owned() })?;
    }
    let config = Config { max_shrink_iters: SHRINKS_MAX, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed_bytes(budget.seed));
    let mut runner = TestRunner::new_with_rng(config, rng);
    let inputs = changes::inputs(known);
    let begun = Instant::now();
    while begun.elapsed() < budget.time {
        let tree = inputs.new_tree(&mut runner).expect("no input is rejected");
        let result = runner.run_one(tree, |input| {
            feed(input);
            Ok(())
        });
        match result {
            Ok(_) => {}
            Err(TestError::Fail(reason, input)) => {
                return Err(Failure { input, reason: reason.to_string() });
            }
            Err(error @ TestError::Abort(_)) => panic!("{error}"),
        }
    }
    Ok(())
}

fn seed_bytes(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    bytes
}

impl Failure {
    /// Writes the input to a file.
    pub(super) fn keep(&self, target: &Target) -> std::io::Result<PathBuf> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("failures");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.input", target.name));
        std::fs::write(&path, &self.input)?;
        Ok(path)
    }
}
