//! The time by which keys expire.
//!
//! Key decision: all of a server asks here, so a simulation gives each of its threads a time of its
//! own. For others that is a look at a word of the thread before the system is asked.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

thread_local! {
    /// The time of this thread, if not the system's clock tells it.
    static TIME: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Sets the time of this thread, in microseconds since 1970: it stands still until the next call.
/// For simulations.
pub fn set_time(microseconds: u64) {
    TIME.set(Some(microseconds));
}

/// The time, in milliseconds since 1970.
#[must_use]
pub fn now() -> u64 {
    now_in_microseconds() / 1000
}

/// The time, in microseconds since 1970.
#[must_use]
pub fn now_in_microseconds() -> u64 {
    TIME.get().unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_thread_is_what_it_was_set_to() {
        set_time(5_000_001);
        assert_eq!((now(), now_in_microseconds()), (5000, 5_000_001));
        let other = std::thread::spawn(now).join().unwrap();
        assert!(other > 5000, "{other}");
    }
}
