//! How ZODB prints oids, tids and their times.

use zodium_types::{CalendarTime, Tid};

/// Seconds of a step of the lower half of a tid.
const STEP_SECONDS: f64 = 60.0 / 65536.0 / 65536.0;

/// An oid or a tid as ZODB's `oid_repr` prints it: an even number of digits behind `0x`.
pub fn id_repr(id: u64) -> String {
    let digits = format!("{id:x}");
    let zero = if digits.len() % 2 == 1 { "0" } else { "" };
    format!("0x{zero}{digits}")
}

/// The time of a tid in UTC, to the microsecond.
pub fn time_of(tid: Tid) -> String {
    let CalendarTime { year, month, day, hour, minute, .. } = CalendarTime::from_tid(tid);
    let seconds = (tid.0 & 0xffff_ffff) as f64 * STEP_SECONDS;
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{seconds:09.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_times_are_as_zodb_prints_them() {
        for (id, expected) in [(0, "0x00"), (1, "0x01"), (0x123, "0x0123"), (0x1234, "0x1234")] {
            assert_eq!(id_repr(id), expected);
        }
        assert_eq!(time_of(Tid(0x040d_34df_ad42_0944)), "2026-11-23 10:07:40.607333");
        assert_eq!(time_of(Tid(0x03f5_9458_1777_7777)), "2024-01-02 03:04:05.500000");
    }
}
