//! Runs a fixed number of seeds of a simulated NEO cluster, and shows that they would detect bugs.
//!
//! `SOAK_SEED` is the first seed (1); `cargo run -p zodium-simulation -- --of neo --seed N --trace`
//! replays one. `make simulate` runs as many as there is time for.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use zodium_simulation::{
    ClusterBug, ClusterMasters, ClusterOptions, ClusterReport, Violation, run_cluster,
};

const STEPS: u64 = 4_000;
/// Seeds of the run, within which an injected bug must be found.
const SEEDS: u64 = 40;

fn run_seed(
    seed: u64,
    masters: ClusterMasters,
    bug: ClusterBug,
) -> Result<ClusterReport, Violation> {
    run_cluster(&ClusterOptions { seed, steps: STEPS, trace: false, masters, bug })
}

fn name_of(masters: ClusterMasters) -> &'static str {
    match masters {
        ClusterMasters::Model => "neo",
        ClusterMasters::Real => "neo-masters",
    }
}

fn check(masters: ClusterMasters) {
    let name = name_of(masters);
    let seed = std::env::var("SOAK_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!("seeds from {seed}");
    let mut total = ClusterReport::default();
    for seed in seed..seed + SEEDS {
        println!(
            "cargo run -p zodium-simulation -- --of {name} --seed {seed} --steps {STEPS} --trace"
        );
        let report = run_seed(seed, masters, ClusterBug::None);
        total.add(&report.unwrap_or_else(|violation| panic!("{violation}")));
    }
    println!("{total}");
    assert_eq!(total.lacking(masters, (SEEDS, STEPS)), [""; 0]);
}

#[test]
fn acknowledged_commits_are_on_every_readable_cell_whatever_happens() {
    check(ClusterMasters::Model);
}

#[test]
fn acknowledged_commits_are_on_every_readable_cell_with_real_masters() {
    check(ClusterMasters::Real);
}

/// Seeds of real masters that once ended with what must not be:
///
/// - 214: a ttid that two masters had given while their clocks were behind;
/// - 350, 351, 455: metadata of a commit in a storage whose cell for it had been taken away.
#[test]
fn seeds_that_once_failed_with_real_masters_do_not_any_more() {
    for seed in [214, 350, 351, 455] {
        let report = run_seed(seed, ClusterMasters::Real, ClusterBug::None);
        report.unwrap_or_else(|violation| panic!("{violation}"));
    }
}

#[test]
fn a_seed_of_a_cluster_gives_the_same_run_again() {
    for masters in [ClusterMasters::Model, ClusterMasters::Real] {
        for seed in 1..4 {
            let run = || run_seed(seed, masters, ClusterBug::None).unwrap();
            assert_eq!(run(), run());
        }
    }
}

fn assert_noticed(bug: ClusterBug, words: &[&str]) {
    assert_noticed_with(ClusterMasters::Model, bug, words);
}

fn assert_noticed_with(masters: ClusterMasters, bug: ClusterBug, words: &[&str]) {
    let mut seen = Vec::new();
    for seed in 1..=SEEDS {
        if let Err(violation) = run_seed(seed, masters, bug) {
            if words.iter().any(|words| violation.what.contains(words)) {
                println!("{bug:?} is noticed by seed {seed}");
                return;
            }
            seen.push(violation.to_string());
        }
    }
    panic!("{bug:?} was not noticed as such, but as {seen:#?}");
}

#[test]
fn a_vote_that_is_not_durable_is_noticed() {
    let words = ["the last committed one", "lacks", "cannot be opened"];
    assert_noticed(ClusterBug::SyncsDoNothing, &words);
}

#[test]
fn a_store_that_is_never_answered_is_noticed() {
    assert_noticed(ClusterBug::LostAnswers, &["waits for ever"]);
}

#[test]
fn a_replica_that_lacks_a_record_is_noticed() {
    assert_noticed(ClusterBug::LostRows, &["lacks", "is read as"]);
}

#[test]
fn a_lost_update_is_noticed() {
    assert_noticed(ClusterBug::NoConflicts, &["is based on"]);
}

#[test]
fn a_wrong_byte_is_noticed() {
    assert_noticed(ClusterBug::WrongBytes, &["is read as"]);
}

#[test]
fn a_lock_that_stays_is_noticed() {
    assert_noticed(ClusterBug::LostUnlocks, &["waits for ever", "unfinished", "lacks"]);
}

#[test]
fn a_locked_commit_that_a_verification_does_not_see_is_noticed() {
    assert_noticed_with(ClusterMasters::Real, ClusterBug::LostLocks, &["lacks", "starts with"]);
}

/// A master does not start with the table: it is not the one that was offered.
#[test]
fn a_storage_that_tells_of_an_old_table_is_noticed() {
    assert_noticed_with(ClusterMasters::Real, ClusterBug::OldTables, &["waits for ever"]);
}

#[test]
fn masters_that_are_all_primary_are_noticed() {
    assert_noticed_with(ClusterMasters::Real, ClusterBug::DeafMasters, &["waits for ever"]);
}

#[test]
fn a_vote_that_is_not_durable_is_noticed_with_real_masters() {
    let words = ["lacks", "starts with", "cannot be opened"];
    assert_noticed_with(ClusterMasters::Real, ClusterBug::SyncsDoNothing, &words);
}

#[test]
fn a_replica_that_lacks_a_record_is_noticed_with_real_masters() {
    let words = ["lacks", "is read as", "starts without"];
    assert_noticed_with(ClusterMasters::Real, ClusterBug::LostRows, &words);
}
