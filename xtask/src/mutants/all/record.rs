//! Which tests reach which mutations, and how long each takes.

use std::fs;
use std::num::NonZero;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::trial::Verdict;
use super::parallel::in_parallel;
use super::programs::{Programs, Switch, Test};

/// What a test is taken to need before it was measured.
const USUAL: Duration = Duration::from_secs(30);

/// A test without a mutation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Recorded {
    #[serde(flatten)]
    pub(super) test: Test,
    /// One that fails without a mutation judges none.
    pub(super) passes: bool,
    pub(super) seconds: f64,
    /// The mutations that it reaches.
    pub(super) reached: Vec<u32>,
}

/// Runs each test by itself, with all mutations off.
pub(super) fn record(programs: &Programs, jobs: NonZero<usize>) -> anyhow::Result<Vec<Recorded>> {
    let tests = programs.tests()?;
    println!("{} tests: which mutations do they reach?", tests.len());
    in_parallel(jobs, &tests, |test| {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("reached");
        let began = Instant::now();
        let verdict = programs.run(&test.program, &[&test.name], Switch::Record(&path), USUAL)?;
        let seconds = began.elapsed().as_secs_f64();
        // A test that reaches none writes no file.
        let reached = numbers(&fs::read_to_string(path).unwrap_or_default());
        let passes = verdict == Verdict::Survived;
        if !passes {
            println!("left out, fails without a mutation: {}", test.name);
        }
        Ok(Recorded { test: test.clone(), passes, seconds, reached })
    })
}

fn numbers(text: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    numbers.sort_unstable();
    // Several processes of a test may write the same ones.
    numbers.dedup();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_several_processes_are_sorted() {
        assert_eq!(numbers("3\n1\n3\n"), [1, 3]);
        assert_eq!(numbers(""), [0; 0]);
    }
}
