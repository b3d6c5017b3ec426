//! Warns the operator when transaction ids and the clock diverge.
//!
//! Ids strictly increase, whatever the clock does: once an id is far ahead, all later ids are too.
//! That does no harm to the data, but packs and histories, which read ids as times, go wrong. The
//! warning is logged once, not for every commit, and again only after ids and clock have met.

use std::time::Duration;

use tracing::{info, warn};
use zodium_types::Tid;

/// Ids further ahead of the clock are reported, and refused from clients. Clocks that were set by
/// hand differ by minutes.
pub(crate) const AHEAD_MAX: Duration = Duration::from_mins(10);

/// The clock's state when the log writer last looked.
#[derive(Debug, Default)]
pub(crate) struct ClockWatch {
    is_ahead: bool,
    /// Unix time less monotonic time, at the last look: it changes only when the clock is set.
    offset_nanos: Option<i128>,
}

/// A change to report to the operator.
#[derive(Debug, PartialEq, Eq)]
enum Remark {
    /// The clock was set forward by this much.
    PutForward(Duration),
    /// The last id is this far ahead of the clock.
    Ahead(Duration),
    /// The last id is no longer ahead.
    CaughtUp,
}

impl ClockWatch {
    /// Compares the last transaction id with the clock, and logs changes. `file` names the storage.
    pub(crate) fn look(
        &mut self,
        last: Tid,
        unix_nanos: u64,
        monotonic: Duration,
        file: impl Fn() -> String,
    ) {
        let remarks = [self.set_forward(unix_nanos, monotonic), self.ahead(last, unix_nanos)];
        for remark in remarks.into_iter().flatten() {
            tell(&remark, last, &file());
        }
    }

    fn set_forward(&mut self, unix_nanos: u64, monotonic: Duration) -> Option<Remark> {
        let nanos = i128::try_from(monotonic.as_nanos()).unwrap_or(i128::MAX);
        let offset = i128::from(unix_nanos) - nanos;
        let jump = offset - self.offset_nanos.unwrap_or(offset);
        self.offset_nanos = Some(offset);
        let forward = Duration::from_nanos(u64::try_from(jump).unwrap_or(0));
        (forward > AHEAD_MAX).then_some(Remark::PutForward(forward))
    }

    fn ahead(&mut self, last: Tid, unix_nanos: u64) -> Option<Remark> {
        let ahead = Duration::from_nanos(last.to_unix_nanos().saturating_sub(unix_nanos));
        let was_ahead = self.is_ahead;
        // Once ahead, it stays so until the clock has caught up: no repeats near the limit.
        self.is_ahead = ahead > AHEAD_MAX || (was_ahead && !ahead.is_zero());
        match (was_ahead, self.is_ahead) {
            (false, true) => Some(Remark::Ahead(ahead)),
            (true, false) => Some(Remark::CaughtUp),
            _ => None,
        }
    }
}

fn tell(remark: &Remark, last: Tid, file: &str) {
    match remark {
        Remark::PutForward(by) => warn!(
            file,
            forward_seconds = by.as_secs(),
            "the clock was put forward, or the machine slept. Transaction ids follow it, and never \
             go back: check it"
        ),
        Remark::Ahead(by) => warn!(
            file,
            last_tid = %last,
            ahead_seconds = by.as_secs(),
            "transaction ids are ahead of the clock; they go on from the last one. Check the \
             clock. If it is right now, nothing is lost, but packs and histories see these \
             transactions in the future"
        ),
        Remark::CaughtUp => info!(file, "the clock has come up with the transaction ids"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000_000;
    const HOUR: u64 = 3_600_000_000_000;

    #[test]
    fn ids_ahead_of_the_clock_are_told_once_until_they_have_come_together() {
        let mut watch = ClockWatch::default();
        let tid = Tid::from_unix_nanos;
        assert_eq!(watch.ahead(tid(NOW), NOW), None);
        assert_eq!(watch.ahead(tid(NOW + HOUR / 7), NOW), None, "within ten minutes");
        assert_eq!(watch.ahead(tid(NOW + HOUR / 6), NOW), None, "ten minutes");
        let Some(Remark::Ahead(by)) = watch.ahead(tid(NOW + HOUR), NOW) else { panic!() };
        assert_eq!(by.as_secs_f64().round(), 3600.0);
        for minute in 1..60 {
            let now = NOW + minute * HOUR / 60;
            assert_eq!(watch.ahead(tid(NOW + HOUR).next(), now), None, "minute {minute}");
        }
        assert_eq!(watch.ahead(tid(NOW + 2 * HOUR), NOW + 2 * HOUR), Some(Remark::CaughtUp));
        assert_eq!(watch.ahead(tid(NOW + 3 * HOUR), NOW + 3 * HOUR), None);
        assert!(matches!(watch.ahead(Tid::MAX, NOW), Some(Remark::Ahead(_))));
    }

    #[test]
    fn each_look_compares_both_with_the_clock_and_names_the_file_of_what_it_has_to_say() {
        let (mut watch, named) = (ClockWatch::default(), std::cell::Cell::new(0));
        let mut look = |last: u64, now: u64, seconds: u64| {
            let name = || {
                named.set(named.get() + 1);
                "Data.fs".to_owned()
            };
            watch.look(Tid::from_unix_nanos(last), now, Duration::from_secs(seconds), name);
            named.take()
        };
        assert_eq!(look(NOW, NOW, 1), 0);
        assert_eq!(look(NOW + HOUR, NOW, 1), 1, "the tid is ahead");
        assert_eq!(look(NOW + HOUR, NOW, 1), 0);
        assert_eq!(look(NOW + HOUR, NOW + HOUR, 1), 2, "the clock is put forward, and caught up");
        assert_eq!(look(NOW + HOUR, NOW + HOUR, 1), 0);
    }

    #[test]
    fn a_clock_put_forward_is_told_at_its_next_commit_and_only_then() {
        let mut watch = ClockWatch::default();
        let second = Duration::from_secs(1);
        assert_eq!(watch.set_forward(NOW, second), None, "the first look");
        assert_eq!(watch.set_forward(NOW + HOUR, second + Duration::from_nanos(HOUR)), None);
        let put = watch.set_forward(NOW + 4 * HOUR, second + Duration::from_nanos(HOUR));
        assert_eq!(put, Some(Remark::PutForward(Duration::from_nanos(3 * HOUR))));
        assert_eq!(watch.set_forward(NOW + 4 * HOUR, second + Duration::from_nanos(HOUR)), None);
        assert_eq!(watch.set_forward(0, second), None, "back is no harm");
        assert!(watch.set_forward(u64::MAX, second).is_some());
    }
}
