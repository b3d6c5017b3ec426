//! Runs a fixed number of seeds, and shows that they would detect bugs.
//!
//! `SOAK_SEED` is the first seed (1); `cargo run -p zodium-simulation -- --seed N --trace` replays
//! one. `make simulate` runs as many as there is time for.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use zodium_simulation::{InjectedBug, Options, Report, Violation, run};

const STEPS: u64 = 20_000;
const SEEDS: u64 = 50;

fn options(seed: u64, bug: InjectedBug) -> Options {
    Options { seed, steps: STEPS, trace: false, bug }
}

fn run_seed(seed: u64) -> Result<Report, Violation> {
    run(&options(seed, InjectedBug::None))
}

#[test]
fn acknowledged_commits_survive_and_views_are_whole_whatever_happens() {
    let seed = std::env::var("SOAK_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!("seeds from {seed}");
    let mut total = Report::default();
    for seed in seed..seed + SEEDS {
        println!("cargo run -p zodium-simulation -- --seed {seed} --steps {STEPS} --trace");
        total.add(&run_seed(seed).unwrap_or_else(|violation| panic!("{violation}")));
    }
    println!("{total}");
    assert_eq!(total.lacking(SEEDS, STEPS), [""; 0]);
}

#[test]
fn runs_that_do_nothing_show_nothing() {
    let report = run(&Options { steps: 0, ..options(1, InjectedBug::None) }).unwrap();
    assert_eq!(report.lacking(1, 0), ["reads", "commits"]);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 1..6 {
        assert_eq!(run_seed(seed).unwrap(), run_seed(seed).unwrap());
    }
    assert_ne!(run_seed(1).unwrap().events.digest, run_seed(2).unwrap().events.digest);
}

/// Seeds within which an injected bug must be found; many seeds never reach the situation.
const SEEDS_MAX: u64 = 60;

fn assert_noticed(bug: InjectedBug, words: &str) {
    let mut seen = Vec::new();
    for seed in 1..=SEEDS_MAX {
        if let Err(violation) = run(&options(seed, bug)) {
            if violation.what.contains(words) {
                return;
            }
            seen.push(violation.to_string());
        }
    }
    panic!("{bug:?} was not noticed as such, but as {seen:#?}");
}

#[test]
fn a_commit_acknowledged_before_its_sync_is_noticed() {
    assert_noticed(InjectedBug::SyncsDoNothing, "is lost");
}

#[test]
fn an_invalidation_after_the_reply_is_noticed() {
    assert_noticed(InjectedBug::LateInvalidations, "is finished as");
}

#[test]
fn a_lost_invalidation_is_noticed() {
    assert_noticed(InjectedBug::LostInvalidations, "comes");
}

#[test]
fn a_repeated_invalidation_is_noticed() {
    assert_noticed(InjectedBug::RepeatedInvalidations, "comes");
}

#[test]
fn a_server_behind_what_its_clients_know_is_noticed() {
    assert_noticed(InjectedBug::NoCatchUp, "known before");
}

#[test]
fn a_wrong_byte_is_noticed() {
    assert_noticed(InjectedBug::WrongBytes, "or other bytes");
}

#[test]
fn a_lost_update_is_noticed() {
    assert_noticed(InjectedBug::NoConflicts, "was current");
}

#[test]
fn a_client_that_waits_for_ever_is_noticed() {
    assert_noticed(InjectedBug::LostReplies, "waits for ever");
}
