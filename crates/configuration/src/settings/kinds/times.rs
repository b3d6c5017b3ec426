//! Times: durations, times of day.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use toml::Value;
use toml::de::DeValue;

use super::numbers::count;
use super::{Converted, Kind, Written, unicode, zconfig_values};
use crate::surroundings::Surroundings;

/// A duration.
pub(crate) struct Time {
    /// The unit of numbers without one on the command line, and its name.
    unit_seconds: f64,
    unit: &'static str,
    bounds: Option<(Duration, Duration)>,
}

/// A time of day: hour and minute.
pub(crate) struct TimeOfDay;

impl Time {
    pub(crate) const ANY: Time = Time { unit_seconds: 1.0, unit: "seconds", bounds: None };

    /// In microseconds, if the command line does not say otherwise; at least one.
    pub(crate) const fn micros(max: Duration) -> Time {
        let bounds = Some((Duration::from_micros(1), max));
        Time { unit_seconds: 1e-6, unit: "microseconds", bounds }
    }

    fn bounded(&self, duration: Duration) -> Converted<Duration> {
        match self.bounds {
            Some((min, max)) if !(min..=max).contains(&duration) => {
                Err(format!("give a time from {} to {}", in_units(min), in_units(max)))
            }
            _ => Ok(duration),
        }
    }

    fn without_unit(&self, text: &str) -> Option<Duration> {
        let number: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(number * self.unit_seconds).ok()
    }
}

impl Kind for Time {
    type Value = Duration;

    fn text(&self, text: &OsStr) -> Converted<Duration> {
        let text = unicode(text)?;
        let duration = self.without_unit(text).or_else(|| with_unit(text));
        self.bounded(duration.ok_or_else(|| no_time(self.unit))?)
    }

    fn toml(&self, value: &DeValue, _directory: &Path) -> Converted<Duration> {
        let time = match value {
            DeValue::String(text) => with_unit(text),
            DeValue::Integer(_) => count(value).map(Duration::from_secs),
            DeValue::Float(number) => Time::ANY.without_unit(number.as_str()),
            _ => None,
        };
        self.bounded(time.ok_or_else(|| no_time("seconds"))?)
    }

    fn zeo_conf(&self, text: &str, _surroundings: &Surroundings) -> Converted<Duration> {
        self.bounded(zconfig_values::seconds(text)?)
    }

    fn written(&self, value: &Duration) -> Written<Value> {
        Ok(Value::from(in_units(*value)))
    }
}

/// The error for what is no duration; `unit` is that of numbers without one.
fn no_time(unit: &str) -> String {
    let examples = "\"50us\", \"5ms\", \"30s\", \"5m\", \"2h\", \"1d\"";
    format!("give a time: {examples}, or a number of {unit}")
}

const NANOSECONDS: usize = 9;

/// A decimal number with `us`, `ms`, `s`, `m`, `h` or `d`; exact to the nanosecond, unlike a float.
fn with_unit(text: &str) -> Option<Duration> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (unit_seconds, units_a_second) = match &text[number.len()..] {
        "us" => (1, 1_000_000),
        "ms" => (1, 1_000),
        "s" => (1, 1),
        "m" => (60, 1),
        "h" => (60 * 60, 1),
        "d" => (24 * 60 * 60, 1),
        _ => return None,
    };
    let number = number.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > NANOSECONDS {
        return None;
    }
    let nanoseconds: u32 = format!("{fraction:0<NANOSECONDS$}").parse().ok()?;
    let duration = Duration::new(whole.parse().ok()?, nanoseconds).checked_mul(unit_seconds)?;
    Some(duration / units_a_second)
}

/// A duration in the largest unit that gives a whole number, or exact to the nanosecond.
fn in_units(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 && !duration.is_zero() && duration.subsec_nanos().is_multiple_of(1000) {
        return format!("{}us", duration.subsec_micros());
    }
    if duration.subsec_nanos() > 0 {
        return format!("{seconds}.{:09}s", duration.subsec_nanos());
    }
    let units = [("d", 24 * 60 * 60), ("h", 60 * 60), ("m", 60)];
    let whole = units.iter().find(|(_, unit)| seconds > 0 && seconds.is_multiple_of(*unit));
    let (name, unit) = whole.copied().unwrap_or(("s", 1));
    format!("{}{name}", seconds / unit)
}

impl Kind for TimeOfDay {
    type Value = (u8, u8);

    fn text(&self, text: &OsStr) -> Converted<(u8, u8)> {
        let text = unicode(text)?;
        let part = |text: &str, end: u8| {
            let is_part = matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit());
            text.parse().ok().filter(|part| is_part && *part < end)
        };
        let time = text
            .split_once(':')
            .and_then(|(hour, minute)| Some((part(hour, 24)?, part(minute, 60)?)));
        time.ok_or_else(|| {
            "give a time of day as \"HH:MM\", from \"00:00\" to \"23:59\"".to_owned()
        })
    }

    fn written(&self, (hour, minute): &(u8, u8)) -> Written<Value> {
        Ok(Value::from(format!("{hour:02}:{minute:02}")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::toml;
    use super::*;

    #[test]
    fn durations_are_exact() {
        for (text, expected) in [
            ("30", Duration::from_secs(30)),
            ("1.5", Duration::from_millis(1_500)),
            ("\"90s\"", Duration::from_secs(90)),
            ("\"50us\"", Duration::from_micros(50)),
            ("\"2.5 ms\"", Duration::from_micros(2_500)),
            ("\"1.5 h\"", Duration::from_secs(5_400)),
            ("\"2d\"", Duration::from_secs(172_800)),
            ("\"18446744073709551615.999999999s\"", Duration::MAX),
        ] {
            assert_eq!(toml(&Time::ANY, text), Ok(expected), "{text}");
        }
        for text in [
            "-1",
            "true",
            "nan",
            "inf",
            "1e300",
            "\"\"",
            "\"s\"",
            "\"5\"",
            "\"-5s\"",
            "\"1.s\"",
            "\".5s\"",
            "\"0.1234567891s\"",
            "\"99999999999999999999s\"",
            "\"18446744073709551615d\"",
            "\"5min\"",
        ] {
            assert!(toml(&Time::ANY, text).is_err(), "{text}");
        }
    }

    #[test]
    fn bounds_hold_in_all_sources() {
        let time = Time::micros(Duration::from_secs(1));
        let surroundings = Surroundings { directory: "/srv".into(), environment: &|_| None };
        assert_eq!(toml(&time, "\"50us\""), Ok(Duration::from_micros(50)));
        assert_eq!(time.zeo_conf("1", &surroundings), Ok(Duration::from_secs(1)));
        let beyond = Err("give a time from 1us to 1s".to_owned());
        for text in ["0", "50", "\"2s\""] {
            assert_eq!(toml(&time, text), beyond, "{text}");
        }
        assert_eq!(time.text(OsStr::new("2s")), beyond);
        assert_eq!(time.zeo_conf("50", &surroundings), beyond);
    }

    #[test]
    fn times_of_the_day_are_hours_and_minutes() {
        assert_eq!(toml(&TimeOfDay, "\"03:30\""), Ok((3, 30)));
        assert_eq!(toml(&TimeOfDay, "\"23:59\""), Ok((23, 59)));
        for text in ["\"24:00\"", "\"12:60\"", "\"3\"", "\"+3:30\"", "\"03:30:00\"", "3"] {
            assert!(toml(&TimeOfDay, text).is_err(), "{text}");
        }
    }
}
