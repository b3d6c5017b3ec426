//! Time and memory of this process, as Linux counts them.
//!
//! CPU time instead of the clock's: others may use the machine meanwhile.

use std::fs;
use std::io;
use std::thread;
use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const RUNS: usize = 5;
/// Linux adds CPU time up every few milliseconds only: enough of them for errors of some percent.
const RUN_NS_MIN: u64 = 200_000_000;
const BATCH_OPERATIONS: u64 = 200_000;
const PAGE_BYTES: u64 = 4096;

/// CPU nanoseconds of an operation on a random number below 2^32, on so many threads at once: of
/// the slowest thread, in the best of five runs. The random numbers are included.
///
/// # Errors
/// Linux does not say how much time was used.
pub(crate) fn cpu_ns(threads: u64, operation: impl Fn(u64) -> u64 + Sync) -> io::Result<f64> {
    let run = |seed| thread_cpu_ns_each(seed, &operation);
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let figures: io::Result<Vec<f64>> = thread::scope(|scope| {
            let run = &run;
            let running: Vec<_> = (0..threads).map(|seed| scope.spawn(move || run(seed))).collect();
            let joined = running.into_iter().map(|thread| thread.join());
            joined.map(|figure| figure.unwrap_or_else(|_| Err(io::Error::other("panic")))).collect()
        });
        best = best.min(figures?.into_iter().fold(0.0, f64::max));
    }
    Ok(best)
}

/// Nanoseconds on the clock since `start`, for each of `count`.
pub(crate) fn ns_each(start: Instant, count: u64) -> f64 {
    start.elapsed().as_nanos() as f64 / count as f64
}

/// The memory that this process occupies.
///
/// # Errors
/// Linux does not say it.
pub(crate) fn resident_bytes() -> io::Result<u64> {
    Ok(number(&fs::read_to_string("/proc/self/statm")?, 1)? * PAGE_BYTES)
}

fn thread_cpu_ns_each(seed: u64, operation: impl Fn(u64) -> u64) -> io::Result<f64> {
    let mut random = SmallRng::seed_from_u64(seed);
    let start_ns = thread_cpu_ns()?;
    let (mut operations, mut used_ns) = (0, 0);
    while used_ns < RUN_NS_MIN {
        let numbers = (0..BATCH_OPERATIONS).map(|_| random.random::<u64>() >> 32);
        std::hint::black_box(numbers.fold(0, |sum, number| sum ^ operation(number)));
        operations += BATCH_OPERATIONS;
        used_ns = thread_cpu_ns()? - start_ns;
    }
    Ok(used_ns as f64 / operations as f64)
}

fn thread_cpu_ns() -> io::Result<u64> {
    number(&fs::read_to_string("/proc/thread-self/schedstat")?, 0)
}

fn number(text: &str, field: usize) -> io::Result<u64> {
    let number = text.split_whitespace().nth(field).and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::Error::other("an unknown format of /proc"))
}
