//! When transactions that have held their locks for too long may be looked for.
//!
//! Time in which this process did not run (stopped, frozen, a machine that slept, a disk that held
//! the writer up) is not the clients': what they sent meanwhile has to be read first.

use std::time::{Duration, Instant};

/// Looks further apart than this are not the writer's doing: it looks ten times as often.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// When the writer looked, and until when nobody is over time.
#[derive(Debug, Default)]
pub(crate) struct ExpiryWatch {
    looked: Option<Instant>,
    forgiven_until: Option<Instant>,
}

impl ExpiryWatch {
    /// The writer begins; a pause before it looks for the first time is one too.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.looked = Some(now);
    }

    /// Whether those over time are to be told now. After a pause clients get as much time as was
    /// taken from them, a whole `timeout` at most.
    pub(crate) fn is_due(&mut self, now: Instant, timeout: Duration) -> bool {
        let pause = self.looked.map_or(Duration::ZERO, |looked| now.duration_since(looked));
        self.looked = Some(now);
        if pause > PAUSE_MIN {
            self.forgiven_until = Some(now + pause.min(timeout));
        }
        self.forgiven_until.is_none_or(|until| now >= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Whether it is due at each of these times, in seconds.
    fn due(seconds: &[f64]) -> Vec<bool> {
        let (start, mut watch) = (Instant::now(), ExpiryWatch::default());
        let at = |seconds: &f64| start + Duration::from_secs_f64(*seconds);
        seconds.iter().map(|seconds| watch.is_due(at(seconds), TIMEOUT)).collect()
    }

    #[test]
    fn without_a_pause_it_is_always_due() {
        assert_eq!(due(&[0.0, 0.1, 0.2, 1.1]), [true; 4]);
    }

    #[test]
    fn after_a_pause_clients_get_the_time_that_it_took() {
        assert_eq!(due(&[0.0, 3.0, 4.0, 5.0, 5.9, 6.0]), [true, false, false, false, false, true]);
    }

    #[test]
    fn a_pause_before_the_first_look_is_the_writers_too() {
        let (start, mut watch) = (Instant::now(), ExpiryWatch::default());
        watch.begin(start);
        let mut is_due = |seconds| watch.is_due(start + Duration::from_secs(seconds), TIMEOUT);
        assert_eq!([3, 4, 5, 6].map(&mut is_due), [false, false, false, true]);
    }

    #[test]
    fn they_get_one_timeout_and_no_more() {
        let looks: Vec<_> = (0..=10).map(|n| 1000.0 + f64::from(n)).collect();
        let found = due(&[&[0.0], &looks[..]].concat());
        assert_eq!(found.iter().filter(|due| **due).count(), 2, "{found:?}");
        assert_eq!(found.last(), Some(&true));
    }
}
