//! Drives the commit state machine through random interleavings and compares every step with
//! rules written independently of it.
//!
//! Properties that hold in each interleaving:
//! - every published transaction would have been valid if run alone at its place in the order of
//!   publication: its serials and its reads were current, no update was lost;
//! - tids strictly increase in that order;
//! - after every step, holders and waiters are exactly those of "first come first served on every
//!   key": conflicting holders never meet, a later conflicting request never passes a waiter, no
//!   wake-up is lost;
//! - once all transactions have ended, nothing is remembered.
//!
//! `ZODIUM_INTERLEAVINGS` is the number of interleavings (200,000), `ZODIUM_SEED` the seed of the
//! first (1); each further one has the next seed. A failure prints its seed and the command that
//! replays it. An interleaving run alone prints its steps.

mod client;
mod coverage;
mod database;
mod interleaving;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use coverage::Coverage;
use interleaving::Interleaving;

/// Below this, chance alone may leave a situation out.
const COMPLETE_FROM: u64 = 10_000;

#[test]
fn every_interleaving_is_serial_fair_and_leaves_nothing_behind() {
    let first = from_environment("ZODIUM_SEED", 1);
    let count = from_environment("ZODIUM_INTERLEAVINGS", 200_000);
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64).min(count);
    let failed = AtomicBool::new(false);
    let coverage = thread::scope(|scope| {
        let run = |thread| {
            let seeds = (thread..count).step_by(threads as usize).map(|n| first.wrapping_add(n));
            let (trace, failed) = (count == 1, &failed);
            scope.spawn(move || run_seeds(seeds, trace, failed))
        };
        let running: Vec<_> = (0..threads).map(run).collect();
        let mut coverage = Coverage::new(false);
        for thread in running {
            coverage.merge(&thread.join().expect("the failing seed is printed above"));
        }
        coverage
    });
    println!("{count} interleavings from seed {first}: {coverage}");
    if count >= COMPLETE_FROM {
        coverage.assert_complete();
    }
}

fn run_seeds(seeds: impl Iterator<Item = u64>, trace: bool, failed: &AtomicBool) -> Coverage {
    let mut coverage = Coverage::new(trace);
    for seed in seeds {
        if failed.load(Ordering::Relaxed) {
            break;
        }
        let _report = FailureReport { seed, failed };
        Interleaving::new(seed, &mut coverage).run();
    }
    coverage
}

/// Names the seed when the interleaving panics.
struct FailureReport<'a> {
    seed: u64,
    failed: &'a AtomicBool,
}

impl Drop for FailureReport<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.failed.store(true, Ordering::Relaxed);
            eprintln!(
                "seed {seed} failed; replay it with\n  ZODIUM_SEED={seed} ZODIUM_INTERLEAVINGS=1 \
                 cargo test -p zodium-engine --test all commit_model:: -- --nocapture",
                seed = self.seed
            );
        }
    }
}

fn from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(value) => value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")),
        Err(_) => default,
    }
}
