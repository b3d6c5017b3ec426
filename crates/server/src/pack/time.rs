//! Parses times on the command line.

use anyhow::{Context, Result, anyhow};
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

/// Parses a time with its zone or offset, a local time, a local day, or a time of today.
pub(super) fn parse(text: &str) -> Result<Timestamp> {
    parse_in(text, &Zoned::now())
}

/// The time `days` of 24 hours before `now`, as zeopack counts them.
pub(super) fn days_ago(now: Timestamp, days: f64) -> Result<Timestamp> {
    let back = SignedDuration::try_from_secs_f64(days * 86_400.0)?;
    now.checked_sub(back).context("that many days ago is before the first possible date")
}

fn parse_in(text: &str, now: &Zoned) -> Result<Timestamp> {
    if let Ok(time) = text.parse::<Zoned>() {
        return Ok(time.timestamp());
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time);
    }
    let zone: &TimeZone = now.time_zone();
    let local = match (text.parse::<DateTime>(), text.parse::<Time>()) {
        (Ok(moment), _) => moment,
        (_, Ok(time)) => now.date().to_datetime(time),
        _ => {
            return Err(anyhow!(
                "expected a time such as 2026-01-31, 2026-01-31T18:00, 2026-01-31T18:00Z or 18:00"
            ));
        }
    };
    Ok(zone.to_timestamp(local)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_local_unless_they_say_otherwise() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        let now = now.to_zoned(zone);
        for (text, expected) in [
            ("2026-01-31", "2026-01-30T23:00:00Z"),
            ("2026-01-31T18:00", "2026-01-31T17:00:00Z"),
            ("2026-07-31 18:00:30", "2026-07-31T16:00:30Z"),
            ("2026-01-31T18:00Z", "2026-01-31T18:00:00Z"),
            ("2026-01-31T18:00+05:00", "2026-01-31T13:00:00Z"),
            ("10:30", "2026-07-01T08:30:00Z"),
            ("10:30:15", "2026-07-01T08:30:15Z"),
        ] {
            let expected: Timestamp = expected.parse().unwrap();
            assert_eq!(parse_in(text, &now).unwrap(), expected, "{text}");
        }
        for wrong in ["", "tomorrow", "2026-13-01", "25:00", "1700000000"] {
            assert!(parse_in(wrong, &now).is_err(), "{wrong}");
        }
    }

    #[test]
    fn days_are_counted_back_in_hours() {
        let now: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
        let expected: Timestamp = "2026-06-30T00:00:00Z".parse().unwrap();
        assert_eq!(days_ago(now, 1.5).unwrap(), expected);
        assert!(days_ago(now, 1e7).is_err());
    }
}
