//! Tries mutations with the tests that reach them.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::trial::Verdict;
use super::choice::{Choice, Kind};
use super::parallel::in_parallel;
use super::plan::Planned;
use super::programs::{Programs, Switch};
use super::record::Recorded;
use super::store::Store;

/// The list of what became of the mutations.
pub(super) const JUDGED: &str = "judged";

/// What became of a mutation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Judged {
    pub(super) id: u32,
    pub(super) verdict: Verdict,
    pub(super) is_reached: bool,
    /// So many slow tests reach it, but were not run.
    pub(super) slow_left: usize,
}

/// Runs tests of a crate whose mutations are built.
pub(super) struct Judge<'a> {
    programs: &'a Programs,
    choice: Mutex<Choice<'a>>,
    store: &'a Store,
}

/// A mutation to try, and with which tests.
type Task<'a> = (&'a Planned, Kind);

impl<'a> Judge<'a> {
    pub(super) fn new(programs: &'a Programs, tests: &'a [Recorded], store: &'a Store) -> Self {
        Judge { programs, choice: Mutex::new(Choice::new(tests)), store }
    }

    /// Tries the mutations that were not tried yet, and keeps what became of each.
    pub(super) fn run(
        &self,
        mutations: &[&'a Planned],
        is_slow: bool,
        jobs: NonZero<usize>,
    ) -> anyhow::Result<()> {
        let before = judged(self.store)?;
        for mutation in mutations {
            if let Some(Judged { verdict: Verdict::Noticed(test), .. }) = before.get(&mutation.id) {
                self.choice().note(mutation, test);
            }
        }
        let tasks = tasks(mutations, &before, is_slow);
        let count = AtomicUsize::new(0);
        in_parallel(jobs, &tasks, |&(mutation, kind)| {
            let began = Instant::now();
            let judged = self.judge(mutation, kind)?;
            self.store.append(JUDGED, &judged)?;
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            let (name, verdict) = (&mutation.name, &judged.verdict);
            let unreached = if judged.is_reached { "" } else { ", no test reaches it" };
            let seconds = began.elapsed().as_secs();
            println!("{number}/{} {name}: {verdict}{unreached} ({seconds} s)", tasks.len());
            Ok(())
        })?;
        Ok(())
    }

    fn judge(&self, mutation: &'a Planned, kind: Kind) -> anyhow::Result<Judged> {
        let (stages, slow, is_reached) = {
            let choice = self.choice();
            let slow = choice.count(mutation, Kind::Slow);
            (choice.stages(mutation, kind), slow, choice.is_reached(mutation))
        };
        for stage in stages {
            let verdict = self.test(mutation, &stage)?;
            if let Verdict::Noticed(test) = &verdict {
                self.choice().note(mutation, test);
            }
            if verdict != Verdict::Survived {
                return Ok(Judged { id: mutation.id, verdict, is_reached, slow_left: 0 });
            }
        }
        let slow_left = if kind == Kind::Quick { slow } else { 0 };
        Ok(Judged { id: mutation.id, verdict: Verdict::Survived, is_reached, slow_left })
    }

    fn test(&self, mutation: &Planned, stage: &[&Recorded]) -> anyhow::Result<Verdict> {
        for program in self.programs.paths.keys() {
            let tests = || stage.iter().filter(|test| test.test.program == *program);
            let names: Vec<&str> = tests().map(|test| &test.test.name[..]).collect();
            if names.is_empty() {
                continue;
            }
            let usual = Duration::from_secs_f64(tests().map(|test| test.seconds).sum());
            let verdict = self.programs.run(program, &names, Switch::On(mutation.id), usual)?;
            if verdict != Verdict::Survived {
                return Ok(verdict);
            }
        }
        Ok(Verdict::Survived)
    }

    fn choice(&self) -> MutexGuard<'_, Choice<'a>> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of mutations, by their numbers.
pub(super) fn judged(store: &Store) -> anyhow::Result<HashMap<u32, Judged>> {
    let all = store.list::<Judged>(JUDGED)?.into_iter();
    // What is tried again is in the list twice: the later one counts.
    Ok(all.map(|judged| (judged.id, judged)).collect())
}

/// What is left to try, in a random order that is always the same: those of a run that is stopped
/// are a fair sample.
fn tasks<'a>(
    mutations: &[&'a Planned],
    before: &HashMap<u32, Judged>,
    is_slow: bool,
) -> Vec<Task<'a>> {
    let task = |mutation: &&'a Planned| match before.get(&mutation.id) {
        None => Some((*mutation, if is_slow { Kind::All } else { Kind::Quick })),
        Some(judged) if is_slow && judged.slow_left > 0 => Some((*mutation, Kind::Slow)),
        Some(_) => None,
    };
    let mut tasks: Vec<Task<'_>> = mutations.iter().filter_map(task).collect();
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    tasks.sort_by_cached_key(|(mutation, _)| hasher.hash_one(&mutation.name));
    tasks
}

#[cfg(test)]
mod tests {
    use super::super::plan::Genre;
    use super::*;

    #[test]
    fn only_what_is_left_is_tried() {
        let mutation = |id| Planned::of(id, Genre::BinaryOperator, "a + b", "+", "-");
        let all = [1, 2, 3].map(mutation);
        let all: Vec<&Planned> = all.iter().collect();
        let judged = |id, slow_left| {
            let verdict = Verdict::Survived;
            (id, Judged { id, verdict, is_reached: true, slow_left })
        };
        let before = HashMap::from([judged(1, 0), judged(2, 4)]);
        let chosen = |is_slow| {
            let tasks = tasks(&all, &before, is_slow).into_iter();
            let mut chosen: Vec<(u32, Kind)> =
                tasks.map(|(mutation, kind)| (mutation.id, kind)).collect();
            chosen.sort_by_key(|(id, _)| *id);
            chosen
        };
        assert_eq!(chosen(false), [(3, Kind::Quick)]);
        assert_eq!(chosen(true), [(2, Kind::Slow), (3, Kind::All)]);
    }
}
