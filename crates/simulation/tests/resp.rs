//! Runs a fixed number of seeds of simulated Redis clients.
//!
//! `SOAK_SEED` is the first seed (1). To replay one:
//! `cargo run -p zodium-simulation -- --of resp --seed N --trace`.
//! `make simulate` runs as many as there is time for.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use zodium_simulation::{Events, RespOptions, lacking_of_resp, run_resp};

const STEPS: u64 = 2_000;
const SEEDS: u64 = 60;

fn run_seed(seed: u64) -> Events {
    let options = RespOptions { seed, steps: STEPS, trace: false };
    run_resp(&options).unwrap_or_else(|violation| panic!("{violation}"))
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
        total.add(&run_seed(seed));
    }
    println!("{total}");
    assert_eq!(lacking_of_resp(&total, SEEDS, STEPS), [""; 0]);
}

#[test]
fn a_seed_gives_the_same_run_again() {
    assert_eq!(run_seed(7), run_seed(7));
}
