//! Sessions answer as their models say, whatever is called in whatever order and pieces.
//!
//! `ZODIUM_SEED` is the first seed (1). `ZODIUM_TEST_ORDERS` is the number of sequences of calls
//! for each seed (2,000), and `ZODIUM_TEST_CALLS` that of calls (10,000). `make sessions` makes
//! millions of them. A failure prints its seed.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod answers;
mod arguments;
mod backlogs;
mod blobs;
mod cached_loads;
mod calls;
mod cold_loads;
mod departures;
mod extensions;
mod facts;
mod failures;
mod greetings;
mod histories;
mod iterators;
mod large_requests;
mod log_reads;
mod monitoring;
mod moves;
mod notices;
mod orders;
mod splits;
mod stops;
mod support;

use std::time::Instant;

use calls::Seen;
use support::server::Setup;
use support::{Difference, from_environment};
use zodium_zeo::codec::Encoding;

/// Number of seeds in a run: both encodings take turns.
const SEEDS: u64 = 2;

fn must<T>(result: Result<T, Difference>) -> T {
    result.unwrap_or_else(|difference| panic!("{difference}"))
}

fn seeds() -> std::ops::Range<u64> {
    let first = from_environment("ZODIUM_SEED", 1);
    first..first + SEEDS
}

#[test]
fn calls_out_of_order_are_answered_as_the_stock_server_does_and_change_nothing() {
    let sequences = from_environment("ZODIUM_TEST_ORDERS", 2_000);
    for seed in seeds() {
        let begun = Instant::now();
        let calls = must(orders::play(seed, sequences));
        let seconds = begun.elapsed().as_secs_f64();
        println!("seed {seed}: {sequences} sequences of {calls} calls in {seconds:.1} s");
        assert!(calls > sequences);
    }
}

#[test]
fn eight_clients_see_what_the_model_of_the_storage_says() {
    play_calls(&Setup::default());
}

#[test]
fn eight_clients_that_move_between_workers_see_the_same() {
    play_calls(&Setup { is_moving: true, ..Setup::default() });
}

#[test]
fn eight_clients_that_wait_for_a_cold_disk_see_the_same() {
    play_calls(&Setup { cold_every: 2, ..Setup::default() });
}

fn play_calls(setup: &Setup) {
    let count = from_environment("ZODIUM_TEST_CALLS", 10_000);
    for seed in seeds() {
        let begun = Instant::now();
        let seen = must(calls::play(seed, count, setup));
        println!("seed {seed}: {seen:?} in {:.1} s", begun.elapsed().as_secs_f64());
        let Seen { calls, commits, undos, waits, conflicts, refusals, packs } = seen;
        assert!(calls >= count);
        // Fewer calls may leave a situation out by chance.
        if count >= 10_000 {
            let rare = [undos, waits, conflicts, refusals, packs];
            assert!(commits > 200 && rare.iter().all(|count| *count > 0), "{seen:?}");
        }
    }
}

#[test]
fn clients_that_move_are_told_of_each_commit_once_and_in_order() {
    let commits = from_environment("ZODIUM_TEST_COMMITS", 500);
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let moves = must(moves::check(encoding, commits));
        println!("{commits} commits of each client, {moves} moves");
        assert!(moves > 20, "{moves} moves");
    }
}

#[test]
fn calls_in_any_pieces_get_the_same_answers() {
    assert!(must(splits::check()) > 1_000);
}
