//! Tids: each is later than all before it.
//!
//! The final tid of a transaction is of the same partition as its temporary one, since its metadata
//! are there already.

use zodium_types::{CalendarTime, Tid};

const MINUTE_BITS: u32 = 32;
const NANOS_PER_MINUTE: u64 = 60_000_000_000;
/// The difference of tids of times that are a second apart.
const SECOND: u64 = (1 << MINUTE_BITS) / 60;
/// The last tid that a transaction begins with. Its final tid is later, and has to fit, too.
const LAST_TTID: Tid = Tid(Tid::MAX.0 - (1 << 40));

/// Gives tids.
#[derive(Debug, Default)]
pub(crate) struct Tids {
    last: Tid,
    /// Whether an earlier master, or this one before a recovery, may have given later ones, to
    /// transactions that were not committed.
    may_be_given: bool,
}

impl Tids {
    /// Later tids are after this one, and no longer after those that were given before.
    ///
    /// If the clock is behind, the next one is up to a second after it, as the clock says. So those
    /// that were given before, and not committed, are not given again: a client that asks for the
    /// outcome of its transaction is not told that of another one.
    pub(crate) fn begin_after(&mut self, tid: Tid) {
        (self.last, self.may_be_given) = (tid, true);
    }

    /// Later tids are after this one, too.
    pub(crate) fn note(&mut self, tid: Tid) {
        self.last = self.last.max(tid);
    }

    /// The next tid; `None` when there are no more.
    pub(crate) fn next(&mut self, now: Tid) -> Option<Tid> {
        let next = self.earliest(now);
        if next > LAST_TTID {
            return None;
        }
        (self.last, self.may_be_given) = (next, false);
        Some(next)
    }

    /// The earliest tid that may be given.
    fn earliest(&self, now: Tid) -> Tid {
        let step = if self.may_be_given { 1 + now.0 % SECOND } else { 1 };
        if now > self.last { now } else { after(self.last, step) }
    }

    /// The next tid in the partition of another one.
    pub(crate) fn next_like(&mut self, now: Tid, ttid: Tid, partitions: u32) -> Tid {
        let count = u64::from(partitions.max(1));
        let wanted = ttid.0 % count;
        let earliest = self.earliest(now);
        let back = (earliest.0 % count + count - wanted) % count;
        let lower = Tid(earliest.0.saturating_sub(back));
        let is_same_minute = |tid: Tid| minute(tid) == minute(earliest);
        let upper = Tid(lower.0.saturating_add(count));
        self.last = if lower > self.last && is_same_minute(lower) {
            lower
        } else if is_same_minute(upper) {
            upper
        } else {
            let start = next_minute(earliest);
            Tid(start.0.saturating_add((wanted + count - start.0 % count) % count))
        };
        self.last
    }
}

fn minute(tid: Tid) -> u64 {
    tid.0 >> MINUTE_BITS
}

/// The tid that is a step after one, or the first of the next minute: a time that exists.
fn after(tid: Tid, step: u64) -> Tid {
    let next = Tid(tid.0.saturating_add(step));
    if minute(next) == minute(tid) { next } else { next_minute(tid) }
}

/// The first tid of the minute after that of a tid. Months of a tid have 31 days, others less.
fn next_minute(tid: Tid) -> Tid {
    let begin = CalendarTime::from_tid(Tid(minute(tid) << MINUTE_BITS));
    let nanos = begin.to_unix_nanos().saturating_add(NANOS_PER_MINUTE);
    let by_calendar = CalendarTime::from_unix_nanos(nanos).to_tid();
    // Times after 2554 have no such number.
    by_calendar.max(Tid((minute(tid).saturating_add(1)) << MINUTE_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tids_increase_while_the_clock_stands() {
        let mut tids = Tids::default();
        let now = Tid(0x0409_ae7f_9e5a_1c33);
        assert_eq!(tids.next(now), Some(now));
        assert_eq!(tids.next(now), Some(Tid(now.0 + 1)));
        assert_eq!(tids.next(Tid(1)), Some(Tid(now.0 + 2)));
        tids.note(Tid(now.0 + 100));
        assert_eq!(tids.next(now), Some(Tid(now.0 + 101)));
    }

    #[test]
    fn what_was_given_before_a_recovery_is_not_given_again_while_the_clock_is_behind() {
        let committed = Tid(0x0409_ae7f_9e5a_1c33);
        let mut given = std::collections::BTreeSet::new();
        for behind in [3_000_000, 2_000_000, 1_000_000] {
            let mut tids = Tids::default();
            tids.begin_after(committed);
            let now = Tid(committed.0 - behind);
            let ttids = [tids.next(now).unwrap(), tids.next(now).unwrap()];
            assert!(committed < ttids[0] && ttids[1].0 == ttids[0].0 + 1);
            given.extend(ttids);
        }
        assert_eq!(given.len(), 6);
    }

    #[test]
    fn no_tid_is_beyond_the_range() {
        let mut tids = Tids { last: Tid(LAST_TTID.0 - 1), ..Tids::default() };
        let last = tids.next(Tid(0)).unwrap();
        assert_eq!((last, tids.next(Tid(0))), (LAST_TTID, None));
        for _ in 0..1000 {
            assert!(tids.next_like(Tid(0), last, 1000) <= Tid::MAX);
        }
    }

    #[test]
    fn a_tid_is_of_the_partition_of_its_ttid_and_later_than_all() {
        let mut tids = Tids::default();
        let mut now = Tid(0x0409_ae7f_ffff_ff00);
        for step in 0..2000_u64 {
            let before = tids.last;
            let ttid = tids.next(now).unwrap();
            assert!(ttid > before);
            let partitions = 1 + (step % 113) as u32;
            let tid = tids.next_like(now, ttid, partitions);
            assert!(tid > ttid);
            assert_eq!(tid.0 % u64::from(partitions), ttid.0 % u64::from(partitions));
            now = Tid(now.0 + step % 7);
        }
    }

    #[test]
    fn the_minute_after_the_last_one_of_a_month_is_in_the_next_month() {
        let last = CalendarTime {
            year: 2026,
            month: 2,
            day: 28,
            hour: 23,
            minute: 59,
            minute_nanos: 59_999_999_999,
        };
        let last = Tid(last.to_tid().0 | 0xffff_ffff);
        let next = CalendarTime::from_tid(after(last, 1));
        assert_eq!((next.month, next.day, next.hour, next.minute), (3, 1, 0, 0));
        let mut tids = Tids { last: Tid(last.0 - 1), ..Tids::default() };
        let tid = tids.next_like(Tid(0), Tid(5), 100);
        assert_eq!((CalendarTime::from_tid(tid).month, tid.0 % 100), (3, 5));
    }
}
