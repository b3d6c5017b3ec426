//! Runs a fixed number of seeds of simulated Redis clients, and shows that they would detect bugs.
//!
//! `SOAK_SEED` is the first seed (1). To replay one:
//! `cargo run -p zodium-simulation -- --of resp --seed N --trace`.
//! `make simulate` runs as many as there is time for.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use zodium_simulation::{Events, RespBug, RespOptions, Violation, lacking_of_resp, run_resp};

const STEPS: u64 = 2_000;
/// Seeds of the run, within which an injected bug must be found.
const SEEDS: u64 = 60;

fn run_seed(seed: u64, bug: RespBug) -> Result<Events, Violation> {
    run_resp(&RespOptions { seed, steps: STEPS, trace: false, bug })
}

#[test]
fn clients_are_answered_as_by_one_that_executes_their_commands_one_by_one() {
    let seed = std::env::var("SOAK_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    println!("seeds from {seed}");
    let mut total = Events::default();
    for seed in seed..seed + SEEDS {
        println!(
            "cargo run -p zodium-simulation -- --of resp --seed {seed} --steps {STEPS} --trace"
        );
        let events = run_seed(seed, RespBug::None);
        total.add(&events.unwrap_or_else(|violation| panic!("{violation}")));
    }
    println!("{total}");
    assert_eq!(lacking_of_resp(&total, SEEDS, STEPS), [""; 0]);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for seed in 1..6 {
        let run = || run_seed(seed, RespBug::None).unwrap();
        assert_eq!(run(), run());
    }
}

fn assert_noticed(bug: RespBug, words: &[&str]) {
    let mut seen = Vec::new();
    for seed in 1..=SEEDS {
        if let Err(violation) = run_seed(seed, bug) {
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
fn a_lost_message_is_noticed() {
    assert_noticed(RespBug::LostMessages, &["was sent", "waits for ever for"]);
}

#[test]
fn a_repeated_message_is_noticed() {
    assert_noticed(RespBug::RepeatedMessages, &["was sent"]);
}

#[test]
fn an_invalidation_after_the_answer_is_noticed() {
    assert_noticed(RespBug::LateInvalidations, &["was sent"]);
}

#[test]
fn a_wrong_byte_is_noticed() {
    assert_noticed(RespBug::WrongBytes, &["was sent"]);
}

#[test]
fn an_element_that_is_given_twice_is_noticed() {
    assert_noticed(RespBug::TakesTwice, &["was sent"]);
}

#[test]
fn a_transaction_of_changed_keys_is_noticed() {
    assert_noticed(RespBug::ForgetsWatches, &["was sent"]);
}

#[test]
fn a_command_in_a_pause_is_noticed() {
    assert_noticed(RespBug::IgnoresPauses, &["is executed in a pause"]);
}

#[test]
fn a_key_that_expires_late_is_noticed() {
    assert_noticed(RespBug::ExpiresLate, &["was sent"]);
}

#[test]
fn a_client_that_waits_for_ever_is_noticed() {
    assert_noticed(RespBug::WaitsForEver, &["waits for ever"]);
}

#[test]
fn clients_that_are_served_in_another_order_are_noticed() {
    assert_noticed(RespBug::ServesLastFirst, &["was sent"]);
}

#[test]
fn an_answer_to_a_client_that_wants_none_is_noticed() {
    assert_noticed(RespBug::AnswersAgain, &["was sent"]);
}

#[test]
fn a_commit_that_is_not_announced_is_noticed() {
    assert_noticed(RespBug::LosesCommits, &["was sent", "waits for ever for"]);
}
