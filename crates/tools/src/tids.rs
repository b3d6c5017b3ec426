//! Transactions and ranges of them on the command line.

use std::ops::RangeInclusive;

use jiff::Zoned;
use zodium_types::{Oid, Tid};

use crate::error::NameError;
use crate::times;

/// Transactions from `min` to `max`, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TidRange {
    /// The first; `None` for the beginning.
    pub min: Option<Tid>,
    /// The last; `None` for the end.
    pub max: Option<Tid>,
}

impl TidRange {
    /// All transactions up to `max`.
    pub fn until(max: Tid) -> TidRange {
        TidRange { min: None, max: Some(max) }
    }

    /// Whether no transaction can be in it.
    pub fn is_empty(&self) -> bool {
        matches!((self.min, self.max), (Some(min), Some(max)) if min > max)
    }

    /// The part of the range that ends at `last`.
    pub fn up_to(self, last: Tid) -> TidRange {
        TidRange { max: Some(self.max.map_or(last, |max| max.min(last))), ..self }
    }

    /// The smallest range with the transactions of both.
    pub fn joined(self, other: TidRange) -> TidRange {
        let min = self.min.zip(other.min).map(|(one, two)| one.min(two));
        let max = self.max.zip(other.max).map(|(one, two)| one.max(two));
        TidRange { min, max }
    }

    /// Parses `TIDMIN..TIDMAX`; each side may be empty. Times include what is printed with them.
    pub fn parse(text: &str, now: &Zoned) -> Result<TidRange, NameError> {
        let wrong = || {
            NameError::new(format!(
                "{text:?} is no range: give TIDMIN..TIDMAX, of which both sides are optional"
            ))
        };
        let (min, max) = text.split_once("..").ok_or_else(wrong)?;
        if max.contains("..") {
            return Err(wrong());
        }
        let side = |text: &str| match text {
            "" => Ok(None),
            text => parse_tids(text, now).map(Some),
        };
        let min = side(min)?.map(|tids| *tids.start());
        Ok(TidRange { min, max: side(max)?.map(|tids| *tids.end()) })
    }
}

/// Parses a tid: 16 hexadecimal digits, or a time. A time stands for the last tid that is printed
/// with it, so that the state as of a printed time includes its transaction.
pub fn parse_tid(text: &str, now: &Zoned) -> Result<Tid, NameError> {
    Ok(*parse_tids(text, now)?.end())
}

/// The tids that a text stands for.
fn parse_tids(text: &str, now: &Zoned) -> Result<RangeInclusive<Tid>, NameError> {
    match hexadecimal(text) {
        Some(tid) => Ok(Tid(tid)..=Tid(tid)),
        None => times::parse(text, now).map(times::printed_alike),
    }
}

/// Parses an oid: decimal, or hexadecimal behind `0x`, or 16 hexadecimal digits.
pub fn parse_oid(text: &str) -> Result<Oid, NameError> {
    let number = match (text.strip_prefix("0x"), hexadecimal(text)) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
        (None, Some(oid)) => Some(oid),
        (None, None) => text.parse().ok(),
    };
    number.map(Oid).ok_or_else(|| {
        NameError::new(format!("{text:?} is no oid: give 16 hexadecimal digits, 0x1a or 26"))
    })
}

/// Parses `TID:OID`, each of 16 hexadecimal digits: the newest revision of the object up to that
/// transaction.
pub fn parse_revision(text: &str) -> Result<(Tid, Oid), NameError> {
    let parts = text
        .split_once(':')
        .and_then(|(tid, oid)| Some((Tid(hexadecimal(tid)?), Oid(hexadecimal(oid)?))));
    parts.ok_or_else(|| {
        NameError::new(format!(
            "{text:?} is no revision: give TID:OID, each of 16 hexadecimal digits"
        ))
    })
}

/// The number of exactly 16 hexadecimal digits.
pub(crate) fn hexadecimal(text: &str) -> Option<u64> {
    let is_digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_digits { u64::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::tz::TimeZone;

    use super::*;

    fn range(text: &str) -> Result<TidRange, NameError> {
        TidRange::parse(text, &Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC))
    }

    #[test]
    fn both_sides_of_a_range_are_optional() {
        let (min, max) = (Some(Tid(0xaaaa)), Some(Tid(0xbbbb)));
        for (text, expected) in [
            ("000000000000aaaa..000000000000bbbb", (min, max)),
            ("000000000000AAAA..", (min, None)),
            ("..000000000000bbbb", (None, max)),
            ("..", (None, None)),
        ] {
            let found = range(text).unwrap();
            assert_eq!((found.min, found.max), expected, "{text}");
        }
        let dates = range("2018-01-01T10:30:00Z..2018-01-02T00:00:00.000000+00:00").unwrap();
        assert_eq!(dates.min, Some(Tid(0x03c4_8576_0000_0000)));
        assert_eq!(dates.max, Some(Tid(0x03c4_88a0_0000_0023)));
        for wrong in ["", "000000000000aaaa", "inv.alid", "invalid..", "..x", "....", "a..b..c"] {
            assert!(range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_range_that_ends_before_it_begins_is_empty() {
        assert!(range("000000000000bbbb..000000000000aaaa").unwrap().is_empty());
        assert!(!range("000000000000aaaa..000000000000aaaa").unwrap().is_empty());
        assert!(!TidRange::default().is_empty());
    }

    #[test]
    fn oids_and_revisions_are_numbers() {
        for (text, oid) in [("0x1a", 26), ("26", 26), ("000000000000001a", 26), ("0", 0)] {
            assert_eq!(parse_oid(text).unwrap(), Oid(oid));
        }
        for wrong in ["", "1a", "0x", "-1", "x"] {
            assert!(parse_oid(wrong).is_err(), "{wrong}");
        }
        let text = "000000000000aaaa:0000000000000001";
        assert_eq!(parse_revision(text).unwrap(), (Tid(0xaaaa), Oid(1)));
        for wrong in ["", "1:2", "000000000000aaaa", "000000000000aaaa:1"] {
            assert!(parse_revision(wrong).is_err(), "{wrong}");
        }
    }
}
