//! Numbers: counts, sizes in bytes, days.

use std::ffi::OsStr;
use std::marker::PhantomData;
use std::path::Path;

use bytesize::ByteSize;
use toml::Value;
use toml::de::DeValue;

use super::{Converted, Kind, Written, unicode, zconfig_values};
use crate::surroundings::Surroundings;

/// A whole number of the type `T`.
pub(crate) struct Count<T> {
    min: u64,
    max: u64,
    number: PhantomData<fn() -> T>,
}

/// A size in bytes, a number of the type `T`.
pub(crate) struct Bytes<T> {
    min: u64,
    /// The error for sizes that are no `T`.
    beyond: &'static str,
    number: PhantomData<fn() -> T>,
}

/// A number of days, with or without a fraction.
pub(crate) struct Days;

/// Numbers that fields of the model may have.
pub(crate) trait Number:
    Copy + PartialEq + TryFrom<u64> + TryInto<u64> + Send + Sync + 'static
{
}

impl<T: Copy + PartialEq + TryFrom<u64> + TryInto<u64> + Send + Sync + 'static> Number for T {}

impl<T> Count<T> {
    pub(crate) const fn any() -> Count<T> {
        Count { min: 0, max: u64::MAX, number: PhantomData }
    }

    pub(crate) const fn within(min: u64, max: u64) -> Count<T> {
        Count { min, max, number: PhantomData }
    }
}

impl<T> Bytes<T> {
    pub(crate) const fn any() -> Bytes<T> {
        Bytes { min: 0, beyond: "", number: PhantomData }
    }

    pub(crate) const fn at_least(min: u64, beyond: &'static str) -> Bytes<T> {
        Bytes { min, beyond, number: PhantomData }
    }
}

const NO_COUNT: &str = "give a whole number, not below zero";

const NO_SIZE: &str =
    "give a size: \"256MiB\", \"4GiB\" (powers of 1024), \"4GB\" (powers of 1000), or bytes";

/// A whole number, not below zero.
pub(super) fn count(value: &DeValue) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

fn bytes(text: &str) -> Option<u64> {
    text.parse::<ByteSize>().ok().map(|size| size.as_u64())
}

fn narrow<T: Number>(count: u64) -> Converted<T> {
    T::try_from(count).map_err(|_| format!("{count} are too many"))
}

/// An integer as TOML, whose integers are signed; a larger one is written as a size in text.
fn integer(number: u64) -> Value {
    i64::try_from(number).map_or_else(|_| Value::from(number.to_string()), Value::from)
}

impl<T: Number> Count<T> {
    fn bounded(&self, count: Option<u64>) -> Converted<T> {
        let count = count.filter(|count| (self.min..=self.max).contains(count));
        let wrong = || match self {
            Count { min: 0, .. } => NO_COUNT.to_owned(),
            Count { min, max: u64::MAX, .. } => format!("give a whole number from {min} on"),
            Count { min, max, .. } => format!("give a whole number from {min} to {max}"),
        };
        narrow(count.ok_or_else(wrong)?)
    }
}

impl<T: Number> Kind for Count<T> {
    type Value = T;

    fn text(&self, text: &OsStr) -> Converted<T> {
        self.bounded(unicode(text)?.parse().ok())
    }

    fn toml(&self, value: &DeValue, _directory: &Path) -> Converted<T> {
        self.bounded(count(value))
    }

    fn zeo_conf(&self, text: &str, _surroundings: &Surroundings) -> Converted<T> {
        self.bounded(Some(zconfig_values::count(text)?))
    }

    fn written(&self, value: &T) -> Written<Value> {
        Ok(integer((*value).try_into().unwrap_or(u64::MAX)))
    }
}

impl<T: Number> Bytes<T> {
    fn fitting(&self, bytes: u64) -> Converted<T> {
        if bytes < self.min {
            return Err(format!("give {} bytes or more", self.min));
        }
        T::try_from(bytes).map_err(|_| self.beyond.to_owned())
    }
}

impl<T: Number> Kind for Bytes<T> {
    type Value = T;

    fn text(&self, text: &OsStr) -> Converted<T> {
        self.fitting(bytes(unicode(text)?).ok_or(NO_SIZE)?)
    }

    fn toml(&self, value: &DeValue, _directory: &Path) -> Converted<T> {
        let bytes = value.as_str().map_or_else(|| count(value), bytes);
        self.fitting(bytes.ok_or(NO_SIZE)?)
    }

    fn zeo_conf(&self, text: &str, _surroundings: &Surroundings) -> Converted<T> {
        self.fitting(zconfig_values::byte_size(text)?)
    }

    /// In the largest unit that gives a whole number.
    fn written(&self, value: &T) -> Written<Value> {
        let bytes = (*value).try_into().unwrap_or(u64::MAX);
        let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let whole = units.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
        Ok(match whole {
            Some((name, unit)) => Value::from(format!("{}{name}", bytes / unit)),
            None => integer(bytes),
        })
    }
}

impl Kind for Days {
    type Value = f64;

    fn text(&self, text: &OsStr) -> Converted<f64> {
        let days = unicode(text)?.parse().ok();
        let days = days.filter(|days: &f64| days.is_finite() && *days >= 0.0);
        days.ok_or_else(|| "give a number of days, not below zero".to_owned())
    }

    fn toml(&self, value: &DeValue, _directory: &Path) -> Converted<f64> {
        let text = match value {
            DeValue::Float(number) => number.as_str().to_owned(),
            other => count(other).map(|days| days.to_string()).unwrap_or_default(),
        };
        self.text(OsStr::new(&text))
    }

    fn written(&self, value: &f64) -> Written<Value> {
        Ok(Value::from(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::toml;
    use super::*;

    #[test]
    fn bounds_hold_in_all_sources() {
        let surroundings = Surroundings { directory: "/srv".into(), environment: &|_| None };
        let read = |number: &str| {
            let (count, bytes) = (Count::<u16>::within(2, 9), Bytes::<u32>::at_least(2, "long"));
            let [from_toml, from_text, from_zeo_conf] = [
                (toml(&count, number), toml(&bytes, number)),
                (count.text(OsStr::new(number)), bytes.text(OsStr::new(number))),
                (count.zeo_conf(number, &surroundings), bytes.zeo_conf(number, &surroundings)),
            ];
            assert!(from_toml == from_text && from_text == from_zeo_conf, "{number}");
            from_toml
        };
        let (beyond, small) = ("give a whole number from 2 to 9", "give 2 bytes or more");
        assert_eq!(read("2"), (Ok(2), Ok(2)));
        assert_eq!(read("9"), (Ok(9), Ok(9)));
        assert_eq!(read("10"), (Err(beyond.to_owned()), Ok(10)));
        assert_eq!(read("1"), (Err(beyond.to_owned()), Err(small.to_owned())));
    }

    #[test]
    fn sizes_have_units() {
        let bytes = Bytes::<u64>::any();
        for (text, expected) in
            [("0x10", 16), ("\"256MiB\"", 256 << 20), ("\"1.5 GiB\"", 3 << 29), ("\"1kB\"", 1_000)]
        {
            assert_eq!(toml(&bytes, text), Ok(expected), "{text}");
        }
        for text in ["-1", "1.5", "\"many\"", "\"-1MiB\"", "\"\"", "[]"] {
            assert!(toml(&bytes, text).is_err(), "{text}");
        }
    }
}
