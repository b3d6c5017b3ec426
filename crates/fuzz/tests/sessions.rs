//! Sessions answer as their models say, whatever is called in whatever order and pieces.
//!
//! `FUZZ_SEED` chooses the calls; `make fuzz` makes millions of them.

#![allow(clippy::panic, reason = "a test")]

use zodium_fuzz::sessions::storage_calls::{self, Seen};
use zodium_fuzz::sessions::{Difference, orders, splits};

fn seed() -> u64 {
    std::env::var("FUZZ_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn must<T>(result: Result<T, Difference>) -> T {
    result.unwrap_or_else(|difference| panic!("{difference}"))
}

#[test]
fn calls_out_of_order_are_answered_as_the_stock_server_does_and_change_nothing() {
    for seed in seed()..seed() + 2 {
        assert!(must(orders::play(seed, 2_000)) > 2_000);
    }
}

#[test]
fn eight_clients_see_what_the_model_of_the_storage_says() {
    for seed in seed()..seed() + 2 {
        let seen = must(storage_calls::play(seed, 10_000));
        let Seen { calls, commits, undos, waits, conflicts, refusals, packs } = seen;
        assert!(calls >= 10_000 && commits > 200, "{seen:?}");
        assert!(
            [undos, waits, conflicts, refusals, packs].iter().all(|count| *count > 0),
            "{seen:?}"
        );
    }
}

#[test]
fn calls_in_any_pieces_get_the_same_answers() {
    assert!(must(splits::check()) > 1_000);
}
