//! Times on the command line, as tids.
//!
//! Absolute times are those of RFC 3339 and RFC 822, and a few like them; relative ones are counted
//! from now: `3.days.ago`, `noon yesterday`. Dates whose meaning differs from program to program
//! are refused: `2009-12-01` alone, `06/05/2009`.
//!
//! Times are printed rounded to the microsecond, which is 71 steps of a tid. So a printed time
//! stands for all tids that are printed like it.

use std::ops::RangeInclusive;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, Timestamp, ToSpan, Zoned};
use zodium_types::Tid;

use crate::error::NameError;

/// Seconds of a minute, divided by the 2^32 steps that a tid has for them.
const STEP_SECONDS: f64 = 60.0 / 65536.0 / 65536.0;

/// Parses a time; `now` is the moment, and the zone, of texts that name none.
pub(crate) fn parse(text: &str, now: &Zoned) -> Result<Tid, NameError> {
    let spaced;
    let plain = match text.contains("ago") {
        true => {
            spaced = text.replace(['.', '_'], " ");
            spaced.trim()
        }
        false => text.trim(),
    };
    let time = relative(plain, now).or_else(|| absolute(plain, now.time_zone()));
    let tid = time.and_then(|time| tid_of(&time.to_zoned(TimeZone::UTC)));
    tid.ok_or_else(|| {
        let advice = match is_date(plain) {
            true => {
                "a date alone is read differently by different tools; say which zone: \
                     \"2018-01-02 UTC\", or 2018-01-02T00:00:00+01:00"
            }
            false => {
                "give 16 hexadecimal digits, or a time such as 2018-01-01T10:30:00Z, \
                      3.days.ago or \"noon yesterday\""
            }
        };
        NameError::new(format!("{text:?} is neither a tid nor a time: {advice}"))
    })
}

/// The tid of a time in UTC, counted in microseconds as ZODB does.
fn tid_of(utc: &Zoned) -> Option<Tid> {
    let years = u64::try_from(i64::from(utc.year()) - 1900).ok()?;
    let part = |part: i8| u64::try_from(part).ok();
    let months = years * 12 + part(utc.month())? - 1;
    let hours = (months * 31 + part(utc.day())? - 1) * 24 + part(utc.hour())?;
    let minutes = hours * 60 + part(utc.minute())?;
    let microseconds = utc.subsec_nanosecond() / 1000;
    let seconds = f64::from(utc.second()) + f64::from(microseconds) / 1_000_000.0;
    let fraction = (seconds / STEP_SECONDS) as u64;
    Some(Tid(minutes << 32 | fraction))
}

/// The tids that are printed with the same time as this one.
pub(crate) fn printed_alike(tid: Tid) -> RangeInclusive<Tid> {
    /// Steps of 2^32 half-microseconds.
    const HALVES: u64 = 120_000_000;
    let (minutes, steps) = (tid.0 >> 32 << 32, tid.0 & 0xffff_ffff);
    let halves = 2 * ((steps * (HALVES / 2) + (1 << 31)) >> 32);
    let first_step_of = |halves: u64| (halves << 32).div_ceil(HALVES);
    let first = first_step_of(halves.saturating_sub(1));
    let last = (first_step_of(halves + 1) - 1).min(0xffff_ffff);
    Tid(minutes | first)..=Tid(minutes | last)
}

/// A time that is counted from now.
fn relative(text: &str, now: &Zoned) -> Option<Timestamp> {
    let words: Vec<String> = text.split_whitespace().map(str::to_ascii_lowercase).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let yesterday = || now.checked_sub(1.day()).ok();
    let moment = match words[..] {
        ["now"] => now.clone(),
        ["yesterday"] => yesterday()?,
        [count, unit, "ago"] => now.checked_sub(span(count, unit)?).ok()?,
        [time] | [time, "today"] => at(now, clock(time)?)?,
        [time, "yesterday"] | ["yesterday", time] => at(&yesterday()?, clock(time)?)?,
        _ => return None,
    };
    Some(moment.timestamp())
}

fn at(day: &Zoned, time: Time) -> Option<Zoned> {
    day.with().time(time).build().ok()
}

fn span(count: &str, unit: &str) -> Option<Span> {
    let count: i64 = count.parse().ok().filter(|count| *count >= 0)?;
    let span = Span::new();
    let span = match unit.strip_suffix('s').unwrap_or(unit) {
        "second" => span.try_seconds(count),
        "minute" => span.try_minutes(count),
        "hour" => span.try_hours(count),
        "day" => span.try_days(count),
        "week" => span.try_weeks(count),
        "month" => span.try_months(count),
        "year" => span.try_years(count),
        _ => return None,
    };
    span.ok()
}

/// A time of day: `noon`, `6am`, `6:30pm`, `15:00`, `15:00:30`.
fn clock(text: &str) -> Option<Time> {
    let text = text.to_ascii_lowercase();
    if text == "noon" {
        return Time::new(12, 0, 0, 0).ok();
    }
    let (digits, half) = match (text.strip_suffix("am"), text.strip_suffix("pm")) {
        (Some(digits), _) => (digits, Some(0)),
        (_, Some(digits)) => (digits, Some(12)),
        _ => (&text[..], None),
    };
    let mut parts = digits.split(':');
    let hour: i8 = number(parts.next()?)?;
    let minute = parts.next().map(two_digits);
    let second = parts.next().map(two_digits);
    if parts.next().is_some() || (minute.is_none() && half.is_none()) {
        return None;
    }
    let hour = match half {
        Some(half) if (1..=12).contains(&hour) => hour % 12 + half,
        Some(_) => return None,
        None => hour,
    };
    Time::new(hour, minute.unwrap_or(Some(0))?, second.unwrap_or(Some(0))?, 0).ok()
}

/// A time that does not depend on now, but perhaps on the zone.
fn absolute(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    if let Some(utc) = text.strip_suffix(" UTC").or_else(|| text.strip_suffix(" GMT"))
        && let Some(time) =
            iso(utc).or_else(|| Some(utc.parse::<Date>().ok()?.to_datetime(Time::midnight())))
    {
        return TimeZone::UTC.to_timestamp(time).ok();
    }
    match iso(text) {
        Some(time) => zone.to_timestamp(time).ok(),
        None => rfc822(text, zone).or_else(|| spoken(text, zone)),
    }
}

/// A date and a time of day without a zone.
fn iso(text: &str) -> Option<DateTime> {
    let has_time = text.contains(':');
    text.parse().ok().filter(|_| has_time)
}

/// `26 Aug 76 14:29 GMT`, with the day of the week before it or not.
fn rfc822(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = match words.first() {
        Some(first) if first.ends_with(',') => &words[1..],
        _ => &words[..],
    };
    let (date, zone) = match words {
        [day, month, year, time] => ((day, month, year, time), zone.clone()),
        [day, month, year, time, zone] => ((day, month, year, time), offset(zone)?),
        _ => return None,
    };
    let (day, month, year, time) = date;
    let year = match (year.len(), number::<i16>(year)?) {
        (2, year) if year < 69 => 2000 + year,
        (2, year) => 1900 + year,
        (4, year) => year,
        _ => return None,
    };
    let date = Date::new(year, month_of(month)?, number(day)?).ok()?;
    zone.to_timestamp(date.to_datetime(clock(time)?)).ok()
}

/// `6AM, June 7, 2009`.
fn spoken(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let words: Vec<&str> = text.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let [time, month, day, year] = words[..] else { return None };
    let date = Date::new(number(year).filter(|_| year.len() == 4)?, month_of(month)?, number(day)?);
    zone.to_timestamp(date.ok()?.to_datetime(clock(time)?)).ok()
}

fn offset(text: &str) -> Option<TimeZone> {
    if matches!(text, "GMT" | "UTC" | "UT" | "Z") {
        return Some(TimeZone::UTC);
    }
    let (sign, digits) = match text.as_bytes() {
        [b'+', ..] => (1, &text[1..]),
        [b'-', ..] => (-1, &text[1..]),
        _ => return None,
    };
    let digits = digits.replace(':', "");
    let (hours, minutes) = digits.split_at_checked(2)?;
    let seconds = i32::from(two_digits(hours)?) * 3600 + i32::from(two_digits(minutes)?) * 60;
    Some(Offset::from_seconds(sign * seconds).ok()?.to_time_zone())
}

fn month_of(name: &str) -> Option<i8> {
    const NAMES: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    let name = name.to_ascii_lowercase();
    let is_it = |full: &&str| *full == name || (name.len() == 3 && full.starts_with(&name));
    let index = NAMES.iter().position(is_it)?;
    i8::try_from(index + 1).ok()
}

fn two_digits(text: &str) -> Option<i8> {
    number(text).filter(|_| text.len() == 2)
}

/// A number of digits only.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

fn is_date(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'-' | b'/' | b'.');
    text.len() >= 8 && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::time_of;

    /// The times that zodbtools is tested with, at 2009-08-30T19:20:00Z in Paris.
    const KNOWN: [(u64, &str); 28] = [
        (0x03c4857600000000, "2018-01-01T10:30:00Z"),
        (0x02b914f8d78d4fdf, "1985-04-12T23:20:50.52Z"),
        (0x03189927f3333333, "1996-12-19T16:39:57-08:00"),
        (0x03c4844a00000000, "2018-01-01T10:30:00+05:00"),
        (0x02728aa500000000, "26 Aug 76 14:29 GMT"),
        (0x02728a2d00000000, "26 Aug 76 14:29 +02:00"),
        (0x03c4857600000000, "2018-01-01 10:30:00 UTC"),
        (0x03c488a000000000, "2018-01-02 UTC"),
        (0x03805ec800000000, "now"),
        (0x03805ec7eaaaaaaa, "5 seconds ago"),
        (0x03805ec7eaaaaaaa, "5.seconds.ago"),
        (0x03805ebe00000000, "10.minutes.ago"),
        (0x0380592800000000, "yesterday"),
        (0x03804de800000000, "3.days.ago"),
        (0x037fe8a800000000, "3.weeks.ago"),
        (0x037e53a800000000, "3.months.ago"),
        (0x03805ec700000000, "1 minute ago"),
        (0x0380592800000000, "1 day ago"),
        (0x037fb06800000000, "1 month ago"),
        (0x0380559000000000, "6am yesterday"),
        (0x0380586000000000, "6pm yesterday"),
        (0x03805a7c00000000, "3:00"),
        (0x03805d4c00000000, "15:00"),
        (0x03805c9800000000, "noon today"),
        (0x038056f800000000, "noon yesterday"),
        (0x037e7d1000000000, "6AM, June 7, 2009"),
        (0x03805e8c00000000, "1_hour_ago"),
        (0x03c4857600000000, "2018-01-01T11:30:00"),
    ];

    fn now() -> Zoned {
        let paris = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        Timestamp::from_second(1_251_660_000).unwrap().to_zoned(paris)
    }

    #[test]
    fn times_are_those_of_zodbtools() {
        for (tid, text) in KNOWN {
            assert_eq!(parse(text, &now()), Ok(Tid(tid)), "{text}");
        }
    }

    #[test]
    fn tids_that_are_printed_alike_are_one_time() {
        for tid in [
            0x03c4_8576_0000_0000,
            0x03c4_8576_0000_0023,
            0x03c4_8576_0000_0024,
            0x02b9_14f8_d78d_4fdf,
            0x040d_34df_ad42_0944,
            0x040d_34df_ffff_fff0,
        ] {
            let tid = Tid(tid);
            let alike = printed_alike(tid);
            assert!(alike.contains(&tid), "{tid}: {alike:?}");
            let (first, last) = (*alike.start(), *alike.end());
            assert_eq!((time_of(first), time_of(last)), (time_of(tid), time_of(tid)), "{tid}");
            if first.0 & 0xffff_ffff > 0 {
                assert_ne!(time_of(Tid(first.0 - 1)), time_of(tid), "{tid}");
            }
            assert_ne!(time_of(last.next()), time_of(tid), "{tid}");
            // The end of a minute is printed as its 60th second.
            if !time_of(tid).ends_with(":60.000000") {
                let printed = format!("{} UTC", time_of(tid));
                assert_eq!(parse(&printed, &now()).map(printed_alike), Ok(alike), "{tid}");
            }
        }
    }

    #[test]
    fn ambiguous_and_wrong_times_are_refused() {
        for ambiguous in ["2008-12-01", "06/05/2009", "06.05.2009"] {
            let said = parse(ambiguous, &now()).unwrap_err().to_string();
            assert!(said.contains("a date alone"), "{said}");
        }
        for wrong in [
            "",
            "invalid",
            "2009-06-34T22:00:00Z",
            "2009-06-01T1:2:3",
            "2009-O6-01T22:00:00Z",
            "25:00",
            "13pm",
            "3",
            "-1 days ago",
            "3 fortnights ago",
            "1066-01-01 UTC",
            "last tuesday",
        ] {
            assert!(parse(wrong, &now()).is_err(), "{wrong}");
        }
    }
}
