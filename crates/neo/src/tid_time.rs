//! Times of transactions as NEO writes them for people.

use zodium_types::{CalendarTime, Tid};

/// When a transaction was committed, in UTC, as NEO's commands and logs write it:
/// `2026-11-23 09:46:10.123456`. A fraction of 0 is left out.
pub fn tid_time(tid: Tid) -> String {
    let CalendarTime { year, month, day, hour, minute, minute_nanos } = CalendarTime::from_tid(tid);
    let (second, micros) = (minute_nanos / 1_000_000_000, minute_nanos / 1000 % 1_000_000);
    let time = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
    if micros == 0 { time } else { format!("{time}.{micros:06}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_neo() {
        // What NEO/py's datetimeFromTID gives.
        for (tid, expected) in [
            (0, "1900-01-01 00:00:00"),
            (0x0393_7af2_eeee_eeee, "2012-01-01 12:34:55.999999"),
            (0x0400_0000_0000_0001, "2025-04-11 09:04:00"),
            (0x0409_ae7f_9e5a_1c33, "2026-06-17 23:59:37.113748"),
            (0x7fff_ffff_ffff_ffff, "5908-11-23 02:07:59.999999"),
        ] {
            assert_eq!(tid_time(Tid(tid)), expected);
        }
    }
}
