//! Targets that panic, hang, or take too much memory are noticed, with the input that does it.

use std::time::Duration;

use zodium_fuzz::targets::Target;

use crate::FEEDING;
use crate::feeding::{Budget, Failure, feed};

const BUDGET: Budget =
    Budget { seed: 1, time: Duration::from_secs(60), input_time_max: Duration::from_secs(20) };

fn seeds() -> Vec<Vec<u8>> {
    vec![b"a valid input".to_vec(), b"one more".to_vec()]
}

/// Inputs that are no seed.
fn is_changed(input: &[u8]) -> bool {
    !seeds().iter().any(|seed| seed == input)
}

fn failure(target: &'static Target) -> Failure {
    let _one = FEEDING.lock();
    feed(target, BUDGET).expect_err("it fails")
}

#[test]
fn a_panic_is_noticed_and_its_input_gets_small() {
    static TARGET: Target = Target {
        name: "panics",
        seeds,
        check: |input| assert!(!input.starts_with(b"one") || input.len() < 9, "it is too long"),
        memory_bytes_max: |_| 1 << 20,
    };
    let Failure { input, reason } = failure(&TARGET);
    assert_eq!(input.len(), 9, "{}", input.escape_ascii());
    assert!(reason.contains("too long"), "{reason}");
}

#[test]
fn a_known_input_that_fails_is_noticed() {
    static TARGET: Target = Target {
        name: "panics-at-once",
        seeds,
        check: |input| assert!(is_changed(input), "it is a seed"),
        memory_bytes_max: |_| 1 << 20,
    };
    assert_eq!(failure(&TARGET).input, seeds()[0]);
}

#[test]
fn an_input_that_takes_too_much_memory_is_noticed() {
    static TARGET: Target = Target {
        name: "allocates",
        seeds,
        check: |input| {
            let length = if is_changed(input) { 2 << 20 } else { 0 };
            std::hint::black_box(vec![1_u8; length]);
        },
        memory_bytes_max: |_| 1 << 20,
    };
    let reason = failure(&TARGET).reason;
    assert!(reason.contains("of 1048576 at most"), "{reason}");
}

#[test]
fn an_input_that_hangs_is_noticed() {
    static TARGET: Target = Target {
        name: "hangs",
        seeds,
        check: |input| {
            if is_changed(input) {
                std::thread::sleep(Duration::from_secs(5));
            }
        },
        memory_bytes_max: |_| 1 << 20,
    };
    let _one = FEEDING.lock();
    // The thread that hangs finds the time over when it goes on.
    let (time, input_time_max) = (Duration::from_secs(4), Duration::from_secs(1));
    let budget = Budget { time, input_time_max, ..BUDGET };
    let Failure { input, reason } = feed(&TARGET, budget).expect_err("it hangs");
    assert!(is_changed(&input));
    assert!(reason.contains("more than 1s"), "{reason}");
}
