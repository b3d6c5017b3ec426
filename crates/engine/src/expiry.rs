//! Decides when to look for transactions that have held their locks for too long.
//!
//! Time in which this process did not run does not count against clients: stopped, frozen, a
//! machine asleep, a disk that delayed the log writer. Requests that arrived meanwhile must be read
//! first. Clients get one timeout at most: on a slow disk each look may come after a pause.

use std::time::{Duration, Instant};

/// A longer interval between two looks is a pause: the log writer looks ten times as often.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// When the log writer last looked, and in which time no transaction expires.
#[derive(Debug, Default)]
pub(crate) struct ExpiryWatch {
    looked: Option<Instant>,
    forgiven: Option<Forgiven>,
}

/// A time in which no transaction expires, perhaps after several pauses.
#[derive(Clone, Copy, Debug)]
struct Forgiven {
    since: Instant,
    until: Instant,
}

impl ExpiryWatch {
    /// Starts the watch, so that a pause before the first look counts too.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.looked = Some(now);
    }

    /// Whether expired transactions are to be reported now. After a pause, clients get as much time
    /// as the pause took, at most one `timeout` in a row.
    pub(crate) fn is_due(&mut self, now: Instant, timeout: Duration) -> bool {
        let pause = self.looked.map_or(Duration::ZERO, |looked| now.duration_since(looked));
        self.looked = Some(now);
        if pause > PAUSE_MIN {
            // A pause that is longer than all pauses in a row may be: the process was stopped.
            let earlier = self.forgiven.filter(|_| pause <= timeout);
            let since = earlier.map_or(now, |forgiven| forgiven.since);
            self.forgiven = Some(Forgiven { since, until: now + pause.min(timeout) });
        }
        let goes_on = |forgiven: &Forgiven| now < forgiven.until.min(forgiven.since + timeout);
        self.forgiven = self.forgiven.filter(goes_on);
        self.forgiven.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Whether a report is due at each of these times, in seconds.
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
    fn pauses_in_a_row_count_as_one() {
        let looks: Vec<_> = (0..20).map(|n| 1.3 * f64::from(n)).collect();
        let found = due(&looks);
        let is_due: Vec<_> = (0..20).filter(|n| found[*n]).collect();
        assert_eq!(is_due, [0, 9, 18], "{found:?}");
    }

    #[test]
    fn a_long_pause_counts_also_soon_after_another_one() {
        assert_eq!(
            due(&[0.0, 3.0, 3.5, 18.5, 19.4, 28.4, 28.5]),
            [true, false, false, false, false, false, true]
        );
    }

    #[test]
    fn they_get_one_timeout_and_no_more() {
        let looks: Vec<_> = (0..=10).map(|n| 1000.0 + f64::from(n)).collect();
        let found = due(&[&[0.0], &looks[..]].concat());
        assert_eq!(found.iter().filter(|due| **due).count(), 2, "{found:?}");
        assert_eq!(found.last(), Some(&true));
    }
}
