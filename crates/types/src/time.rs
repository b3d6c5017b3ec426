//! Transaction ids as times.
//!
//! The high 32 bits count minutes since 1900, as if every month had 31 days. The low 32 bits are
//! the fraction of the minute times 2^32 (about 14 ns a step).

use crate::Tid;

const NANOS_PER_MINUTE: u64 = 60_000_000_000;

/// A moment in UTC, split into the parts that a tid is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarTime {
    /// Year, for example 2026.
    pub year: u64,
    /// Month, 1 to 12.
    pub month: u64,
    /// Day of the month, 1 to 31.
    pub day: u64,
    /// Hour, 0 to 23.
    pub hour: u64,
    /// Minute, 0 to 59.
    pub minute: u64,
    /// Nanoseconds within the minute.
    pub minute_nanos: u64,
}

impl CalendarTime {
    /// The moment so many nanoseconds after the Unix epoch.
    pub fn from_unix_nanos(nanos: u64) -> CalendarTime {
        let minutes = nanos / NANOS_PER_MINUTE;
        let (year, month, day) = civil_from_days(minutes / 1440);
        CalendarTime {
            year,
            month,
            day,
            hour: minutes / 60 % 24,
            minute: minutes % 60,
            minute_nanos: nanos % NANOS_PER_MINUTE,
        }
    }

    /// The moment a tid stands for.
    pub fn from_tid(tid: Tid) -> CalendarTime {
        let minutes = tid.0 >> 32;
        let days = minutes / 1440;
        CalendarTime {
            year: 1900 + days / 31 / 12,
            month: days / 31 % 12 + 1,
            day: days % 31 + 1,
            hour: minutes / 60 % 24,
            minute: minutes % 60,
            minute_nanos: fraction_to_nanos(tid.0 & 0xffff_ffff),
        }
    }

    /// The tid of this moment. Moments before 1900 do not occur: the epoch is 1970.
    pub fn to_tid(self) -> Tid {
        let months = self.year.saturating_sub(1900) * 12 + self.month - 1;
        let minutes = ((months * 31 + self.day - 1) * 24 + self.hour) * 60 + self.minute;
        Tid((minutes << 32) | nanos_to_fraction(self.minute_nanos))
    }

    /// Nanoseconds since the Unix epoch.
    ///
    /// Moments before it count as the epoch. Those after 2554, which a foreign tid may name, count
    /// as the largest number.
    pub fn to_unix_nanos(self) -> u64 {
        if self.year < 1970 {
            return 0;
        }
        let days = days_from_civil(self.year, self.month, self.day);
        let minutes = (days * 24 + self.hour) * 60 + self.minute;
        minutes.saturating_mul(NANOS_PER_MINUTE).saturating_add(self.minute_nanos)
    }
}

impl Tid {
    /// The tid of a clock reading in nanoseconds since the Unix epoch.
    pub fn from_unix_nanos(nanos: u64) -> Tid {
        CalendarTime::from_unix_nanos(nanos).to_tid()
    }

    /// Seconds since the Unix epoch, as ZODB's `TimeStamp.timeTime()` gives them.
    pub fn to_unix_seconds(self) -> f64 {
        CalendarTime::from_tid(self).to_unix_nanos() as f64 / 1e9
    }

    /// Nanoseconds since the Unix epoch.
    pub fn to_unix_nanos(self) -> u64 {
        CalendarTime::from_tid(self).to_unix_nanos()
    }
}

// In u128: both products need up to 68 bits.
fn nanos_to_fraction(minute_nanos: u64) -> u64 {
    ((u128::from(minute_nanos) << 32) / u128::from(NANOS_PER_MINUTE)) as u64
}

fn fraction_to_nanos(fraction: u64) -> u64 {
    ((u128::from(fraction) * u128::from(NANOS_PER_MINUTE)) >> 32) as u64
}

// Days since 1970-01-01 to (year, month, day) and back; eras of 400 years, March-based years.
// See Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let day_of_era = z % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let era = year / 400;
    let year_of_era = year % 400;
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).saturating_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tid_of_the_documented_moment() {
        // 2024-01-02 03:04:05.5 UTC: ZODB writes this tid for it.
        let tid = Tid::from_unix_nanos(1_704_164_645_500_000_000);
        assert_eq!(tid, Tid(0x03f5_9458_1777_7777));
    }

    #[test]
    fn tid_to_time_and_back_keeps_the_tid() {
        for nanos in (0..200).map(|i| i * 39_916_801_234_567_891 % 8_000_000_000_000_000_000) {
            let tid = Tid::from_unix_nanos(nanos);
            let back = tid.to_unix_nanos();
            assert!(nanos - back < 20, "{nanos} became {back}");
        }
    }

    #[test]
    fn no_tid_is_too_far_from_now_for_a_time() {
        for tid in [Tid::ZERO, Tid(1), Tid::MAX, Tid(u64::MAX)] {
            let nanos = tid.to_unix_nanos();
            assert!(nanos == 0 || nanos == u64::MAX || Tid::from_unix_nanos(nanos) == tid);
        }
        assert_eq!(Tid::MAX.to_unix_nanos(), u64::MAX);
    }

    #[test]
    fn time_order_is_tid_order_over_month_ends() {
        let day = 86_400_000_000_000_u64;
        let tids: Vec<_> = (0..20_000).map(|d| Tid::from_unix_nanos(d * day)).collect();
        assert!(tids.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
