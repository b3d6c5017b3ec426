//! Conversions of TOML values to those of the model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use toml::de::DeValue;
use zodium_types::{Address, AddressError};

use super::table::{Converted, Document};
use crate::model::Weekday;
use crate::names;
use crate::surroundings::absolute;

/// Log levels.
const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

const NANOSECONDS: usize = 9;

fn found(value: &DeValue) -> &'static str {
    value.type_str()
}

pub(super) fn text(value: &DeValue) -> Converted<String> {
    let text = value.as_str().ok_or_else(|| format!("give a string, not a {}", found(value)))?;
    Ok(text.to_owned())
}

pub(super) fn boolean(value: &DeValue) -> Converted<bool> {
    value.as_bool().ok_or_else(|| format!("give `true` or `false`, not a {}", found(value)))
}

/// A whole number, not below zero.
pub(super) fn count(value: &DeValue) -> Converted<u64> {
    let integer = value.as_integer();
    let count = integer.and_then(|int| u64::from_str_radix(int.as_str(), int.radix()).ok());
    count.ok_or_else(|| "give a whole number, not below zero".to_owned())
}

/// A number of days, with or without a fraction.
pub(super) fn days(value: &DeValue) -> Converted<f64> {
    let days = match value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        other => count(other).ok().map(|days| days as f64),
    };
    let days = days.filter(|days: &f64| days.is_finite() && *days >= 0.0);
    days.ok_or_else(|| "give a number of days, not below zero".to_owned())
}

/// A size: a number of bytes, or with a unit.
pub(super) fn bytes(value: &DeValue) -> Converted<u64> {
    let bytes = match value.as_str() {
        Some(text) => text.parse::<ByteSize>().ok().map(|size| size.as_u64()),
        None => count(value).ok(),
    };
    bytes.ok_or_else(|| {
        "give a size: \"256MiB\", \"4GiB\" (powers of 1024), \"4GB\" (powers of 1000), or bytes"
            .to_owned()
    })
}

/// A duration: a number of seconds, or with a unit.
pub(super) fn duration(value: &DeValue) -> Converted<Duration> {
    let duration = match value {
        DeValue::String(text) => duration_of_text(text),
        DeValue::Integer(_) => count(value).ok().map(Duration::from_secs),
        DeValue::Float(number) => {
            number.as_str().parse().ok().and_then(|secs| Duration::try_from_secs_f64(secs).ok())
        }
        _ => None,
    };
    duration.ok_or_else(|| {
        "give a time: \"50us\", \"5ms\", \"30s\", \"5m\", \"2h\", \"1d\", or a number of seconds"
            .to_owned()
    })
}

/// A decimal number with `us`, `ms`, `s`, `m`, `h` or `d`; exact to the nanosecond, unlike a float.
fn duration_of_text(text: &str) -> Option<Duration> {
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

/// A time of day, `HH:MM`.
pub(super) fn time_of_day(value: &DeValue) -> Converted<(u8, u8)> {
    let part = |text: &str, end: u8| {
        let is_part = matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|part| is_part && *part < end)
    };
    let parts = value.as_str().and_then(|text| text.split_once(':'));
    let time = parts.and_then(|(hour, minute)| Some((part(hour, 24)?, part(minute, 60)?)));
    time.ok_or_else(|| "give a time of day as \"HH:MM\", from \"00:00\" to \"23:59\"".to_owned())
}

pub(super) fn weekday(value: &DeValue) -> Converted<Weekday> {
    let name = text(value)?.to_lowercase();
    let day = Weekday::ALL.into_iter().find(|day| day.name() == name);
    day.ok_or_else(|| unknown_word(&name, &Weekday::ALL.map(Weekday::name)))
}

/// One of some words.
pub(super) fn choice<T: Copy>(value: &DeValue, choices: &[(&str, T)]) -> Converted<T> {
    let word = text(value)?;
    let chosen = choices.iter().find(|(choice, _)| *choice == word);
    chosen.map(|(_, chosen)| *chosen).ok_or_else(|| {
        let words: Vec<_> = choices.iter().map(|(choice, _)| *choice).collect();
        unknown_word(&word, &words)
    })
}

fn unknown_word(word: &str, known: &[&str]) -> String {
    let hint = names::nearest(word, known);
    let hint = hint.map(|word| format!(", did you mean {word:?}")).unwrap_or_default();
    format!("{word:?} is none of {}{hint}", known.join(", "))
}

/// A log level, or several with modules: `warn,zodium_zeo=debug`.
pub(super) fn level(value: &DeValue) -> Converted<String> {
    let text = text(value)?;
    for part in text.split(',') {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level).trim();
        if !LEVELS.contains(&&level.to_lowercase()[..]) {
            return Err(unknown_word(level, &LEVELS));
        }
    }
    Ok(text)
}

impl Document {
    /// A path, relative to the file's directory.
    pub(super) fn path(&self, value: &DeValue) -> Converted<PathBuf> {
        let path = text(value)?;
        if path.is_empty() || path.contains('\0') {
            return Err(format!("{path:?} is not a path"));
        }
        Ok(absolute(&self.directory, Path::new(&path)))
    }

    /// A path, or the name of a program that is looked up in `PATH`.
    pub(super) fn program(&self, value: &DeValue) -> Converted<PathBuf> {
        let path = self.path(value)?;
        let is_path = text(value)?.contains('/');
        Ok(if is_path { path } else { path.file_name().map(PathBuf::from).unwrap_or(path) })
    }

    pub(super) fn address(&self, value: &DeValue) -> Converted<Address> {
        let text = match value {
            DeValue::Integer(port) => port.to_string(),
            other => text(other)?,
        };
        match text.parse().map_err(|error: AddressError| error.to_string())? {
            Address::Unix(_) => self.path(value).map(Address::Unix),
            tcp => Ok(tcp),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> DeValue<'_> {
        DeValue::parse(text).unwrap().into_inner()
    }

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
            assert_eq!(duration(&value(text)), Ok(expected), "{text}");
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
            assert!(duration(&value(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, expected) in
            [("0x10", 16), ("\"256MiB\"", 256 << 20), ("\"1.5 GiB\"", 3 << 29), ("\"1kB\"", 1_000)]
        {
            assert_eq!(bytes(&value(text)), Ok(expected), "{text}");
        }
        for text in ["-1", "1.5", "\"many\"", "\"-1MiB\"", "\"\"", "[]"] {
            assert!(bytes(&value(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn times_of_the_day_are_hours_and_minutes() {
        assert_eq!(time_of_day(&value("\"03:30\"")), Ok((3, 30)));
        assert_eq!(time_of_day(&value("\"23:59\"")), Ok((23, 59)));
        for text in ["\"24:00\"", "\"12:60\"", "\"3\"", "\"+3:30\"", "\"03:30:00\"", "3"] {
            assert!(time_of_day(&value(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn levels_may_be_of_modules() {
        for text in ["\"info\"", "\"WARN, zodium_zeo=debug\"", "\"off,a::b=trace\""] {
            assert!(level(&value(text)).is_ok(), "{text}");
        }
        assert!(level(&value("\"inof\"")).unwrap_err().contains("did you mean \"info\""));
        assert!(level(&value("\"info,\"")).is_err() && level(&value("\"a=\"")).is_err());
    }
}
