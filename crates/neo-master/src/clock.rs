//! The time, as the driver tells it.

use std::time::Duration;

use zodium_types::Tid;

/// The difference of two timestamps at one time, in seconds.
const STEP_SECONDS: f64 = 1e-3;

/// The time, and the timestamps that were given.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// Since 1970.
    now: Duration,
    last: f64,
}

impl Clock {
    /// The time is this, since 1970.
    pub(crate) fn set(&mut self, now: Duration) {
        self.now = now;
    }

    /// The time, since 1970.
    pub(crate) fn now(&self) -> Duration {
        self.now
    }

    /// A timestamp in seconds since 1970, after all that were given before.
    pub(crate) fn stamp(&mut self) -> f64 {
        let now = self.now.as_secs_f64();
        self.last = if self.last < now { now } else { self.last + STEP_SECONDS };
        self.last
    }

    /// The tid of this time.
    pub(crate) fn tid(&self) -> Tid {
        Tid::from_unix_nanos(u64::try_from(self.now.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_increase_when_the_clock_stands_or_goes_back() {
        let mut clock = Clock::default();
        clock.set(Duration::from_secs(100));
        let (one, two) = (clock.stamp(), clock.stamp());
        clock.set(Duration::from_secs(50));
        let three = clock.stamp();
        assert!(one == 100.0 && one < two && two < three);
        clock.set(Duration::from_secs(200));
        assert_eq!(clock.stamp(), 200.0);
    }
}
