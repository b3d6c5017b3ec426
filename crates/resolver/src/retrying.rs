//! Rate-limits restarts of failing helpers, and log messages about them.

use std::time::{Duration, Instant};

/// Consecutive failures without a pause before the next start.
const FAILURES_FREE: u32 = 2;
/// The first pause; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause. Failures this far apart are not consecutive.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Interval of log messages about events that can happen at every conflict.
const SAID_INTERVAL: Duration = Duration::from_secs(10);

/// Counters of failures, and the state of the log.
#[derive(Debug, Default)]
pub(crate) struct Retrying {
    in_row: u32,
    failed: Option<Instant>,
    /// Whether the last logged state is that a helper runs.
    is_running: bool,
    /// Whether the last logged state is that none can be started.
    is_absent: bool,
    said: Option<Instant>,
    unsaid: u64,
}

impl Retrying {
    /// Whether a helper may be started now.
    pub(crate) fn may_try(&self, now: Instant) -> bool {
        self.failed.is_none_or(|failed| now.duration_since(failed) >= self.pause())
    }

    fn pause(&self) -> Duration {
        match self.in_row.checked_sub(FAILURES_FREE + 1) {
            None => Duration::ZERO,
            Some(doublings) => PAUSE.saturating_mul(1 << doublings.min(16)).min(PAUSE_MAX),
        }
    }

    /// A helper was started. Returns whether to log it: the first time, and after a failure to
    /// start.
    pub(crate) fn has_started(&mut self) -> bool {
        self.is_absent = false;
        !std::mem::replace(&mut self.is_running, true)
    }

    /// A helper failed. Returns whether to log it, with the number of failures since the last
    /// message. A failure to start is logged once, until a start succeeds.
    pub(crate) fn has_failed(&mut self, is_at_start: bool, now: Instant) -> Option<u64> {
        let is_in_row = self.failed.is_some_and(|failed| now - failed < PAUSE_MAX + PAUSE);
        self.in_row = if is_in_row { self.in_row.saturating_add(1) } else { 1 };
        self.failed = Some(now);
        if is_at_start {
            self.is_running = false;
            return (!std::mem::replace(&mut self.is_absent, true)).then_some(1);
        }
        self.is_said_at(now)
    }

    /// Returns whether to log an event of a conflict, with the number of events since the last
    /// message.
    pub(crate) fn is_said(&mut self) -> Option<u64> {
        self.is_said_at(Instant::now())
    }

    fn is_said_at(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self.said.is_some_and(|said| now - said < SAID_INTERVAL) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_failures_far_apart_do_not_count() {
        let (mut retrying, mut now) = (Retrying::default(), Instant::now());
        assert!(retrying.may_try(now));
        for pause_seconds in [0, 0, 1, 2, 4, 8, 16, 32, 60, 60] {
            let _ = retrying.has_failed(false, now);
            let pause = Duration::from_secs(pause_seconds);
            assert!(retrying.may_try(now + pause));
            assert!(pause.is_zero() || !retrying.may_try(now + pause - Duration::from_millis(1)));
            now += pause;
        }
        now += 2 * PAUSE_MAX;
        let _ = retrying.has_failed(false, now);
        assert!(retrying.may_try(now));
    }

    #[test]
    fn a_helper_that_cannot_be_started_is_logged_once_until_one_was() {
        let (mut retrying, now) = (Retrying::default(), Instant::now());
        assert_eq!(retrying.has_failed(true, now), Some(1));
        assert_eq!(retrying.has_failed(true, now + PAUSE_MAX), None);
        assert!(retrying.has_started());
        assert!(!retrying.has_started());
        assert_eq!(retrying.has_failed(true, now + PAUSE_MAX), Some(1));
        assert!(retrying.has_started());
    }

    #[test]
    fn other_failures_are_logged_every_ten_seconds_with_their_number() {
        let (mut retrying, now) = (Retrying::default(), Instant::now());
        assert_eq!(retrying.has_failed(false, now), Some(1));
        for _ in 0..500 {
            assert_eq!(retrying.has_failed(false, now), None);
        }
        assert_eq!(retrying.has_failed(false, now + SAID_INTERVAL), Some(501));
    }
}
