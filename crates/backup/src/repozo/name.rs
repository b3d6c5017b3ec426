//! Names of files: the time of the backup, and its kind.

use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// `YYYY-MM-DD-HH-MM-SS` in UTC, or the first parts of it, which are a bound in the order of texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(String);

/// The digits of the parts of a date.
const PARTS: [usize; 6] = [4, 2, 2, 2, 2, 2];

impl Date {
    /// The date of a backup that is made at this time.
    pub fn of(time: Timestamp) -> Date {
        Date(time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d-%H-%M-%S").to_string())
    }

    /// Parses a date of one to six parts.
    pub fn parse(text: &str) -> Option<Date> {
        let parts: Vec<&str> = text.split('-').collect();
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_part = |(part, digits): (&&str, &usize)| part.len() == *digits && is_number(part);
        let is_date = parts.len() <= PARTS.len() && parts.iter().zip(&PARTS).all(is_part);
        is_date.then(|| Date(text.to_owned()))
    }

    /// Whether all parts are there.
    fn is_whole(&self) -> bool {
        self.0.len() == PARTS.iter().sum::<usize>() + PARTS.len() - 1
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a file with data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    pub(super) date: Date,
    pub(super) is_full: bool,
    pub(super) is_gzipped: bool,
}

impl Name {
    pub(super) fn parse(name: &str) -> Option<Name> {
        let (date, extension) = name.split_once('.')?;
        let (is_full, is_gzipped) = match extension {
            "fs" => (true, false),
            "fsz" => (true, true),
            "deltafs" => (false, false),
            "deltafsz" => (false, true),
            _ => return None,
        };
        let date = Date::parse(date).filter(Date::is_whole)?;
        Some(Name { date, is_full, is_gzipped })
    }

    /// The base name of a path in a list, as far as it is one of ours.
    pub(super) fn of_path(path: &str) -> Option<Name> {
        Name::parse(Path::new(path).file_name()?.to_str()?)
    }

    /// The name of a file beside it.
    pub(super) fn beside(&self, extension: &str) -> String {
        format!("{}.{extension}", self.date)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_full { "fs" } else { "deltafs" };
        let end = if self.is_gzipped { "z" } else { "" };
        write!(f, "{}.{kind}{end}", self.date)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_repozo() {
        for name in ["2026-11-23-10-59-41.fs", "2026-11-23-10-59-41.deltafsz"] {
            assert_eq!(Name::parse(name).unwrap().to_string(), name);
        }
        for other in ["2026-11-23.fs", "2026-11-23-10-59-41.dat", "x.fs", "2026-11-23-10-59-4a.fs"]
        {
            assert_eq!(Name::parse(other), None, "{other}");
        }
        assert!(Date::parse("2026-11") < Date::parse("2026-11-23-10-59-41"));
        assert_eq!(Date::parse("26-11"), None);
        let time = "2026-11-23T10:59:41.9Z".parse().unwrap();
        assert_eq!(Date::of(time).to_string(), "2026-11-23-10-59-41");
    }
}
