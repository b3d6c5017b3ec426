//! Tids: each is later than all before it.
//!
//! The final tid of a transaction is of the same partition as its temporary one, since its metadata
//! are there already.

use zodium_types::{CalendarTime, Tid};

const MINUTE_BITS: u32 = 32;
const NANOS_PER_MINUTE: u64 = 60_000_000_000;
/// The last tid that a transaction begins with. Its final tid is later, and has to fit, too.
const LAST_TTID: Tid = Tid(Tid::MAX.0 - (1 << 40));

/// Gives tids.
#[derive(Debug, Default)]
pub(crate) struct Tids {
    last: Tid,
}

impl Tids {
    /// Later tids are after this one, and no longer after those that were given before.
    pub(crate) fn begin_after(&mut self, tid: Tid) {
        self.last = tid;
    }

    /// Later tids are after this one, too.
    pub(crate) fn note(&mut self, tid: Tid) {
        self.last = self.last.max(tid);
    }

    /// The next tid; `None` when there are no more.
    pub(crate) fn next(&mut self, now: Tid) -> Option<Tid> {
        let next = now.max(after(self.last));
        if next > LAST_TTID {
            return None;
        }
        self.last = next;
        Some(next)
    }

    /// The next tid in the partition of another one.
    pub(crate) fn next_like(&mut self, now: Tid, ttid: Tid, partitions: u32) -> Tid {
        let count = u64::from(partitions.max(1));
        let wanted = ttid.0 % count;
        let earliest = now.max(after(self.last));
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

/// The tid after one, which is a time that exists.
fn after(tid: Tid) -> Tid {
    let next = Tid(tid.0.saturating_add(1));
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
    fn no_tid_is_beyond_the_range() {
        let mut tids = Tids { last: Tid(LAST_TTID.0 - 1) };
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
        let next = CalendarTime::from_tid(after(last));
        assert_eq!((next.month, next.day, next.hour, next.minute), (3, 1, 0, 0));
        let mut tids = Tids { last: Tid(last.0 - 1) };
        let tid = tids.next_like(Tid(0), Tid(5), 100);
        assert_eq!((CalendarTime::from_tid(tid).month, tid.0 % 100), (3, 5));
    }
}
