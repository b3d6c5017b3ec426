//! The kinds of values: each reads a text of the command line, a value of TOML and a text of
//! `zeo.conf`, and writes TOML.

mod numbers;
mod places;
mod times;
mod words;
pub(crate) mod zconfig_values;

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::DeValue;

pub(crate) use self::numbers::{Bytes, Count, Days};
pub(crate) use self::places::{File, Location, Program};
pub(crate) use self::times::{Time, TimeOfDay};
pub(crate) use self::words::{Choice, Level, List, Switch, Text};
use crate::error::ConfigurationError;
use crate::surroundings::Surroundings;

/// A converted value, or why it cannot be converted.
pub(crate) type Converted<T> = Result<T, String>;

/// A value as TOML, or the path that TOML cannot hold.
pub(crate) type Written<T> = Result<T, ConfigurationError>;

/// A word of a choice, with its meaning.
pub type Word = (&'static str, &'static str);

/// The values of a setting, as far as a command line has to know them.
#[derive(Debug, Default)]
pub struct Values {
    /// Whether there may be several.
    pub is_list: bool,
    /// Whether a shell may complete them with the names of files.
    pub is_path: bool,
    /// The words that they can be; empty: they are no choice.
    pub words: Vec<Word>,
}

/// A kind of values.
pub(crate) trait Kind: Sync + 'static {
    type Value;

    /// What the command line has to know of its values.
    fn values(&self) -> Values {
        Values::default()
    }

    /// Reads an argument of the command line or an environment variable.
    fn text(&self, text: &OsStr) -> Converted<Self::Value>;

    /// Reads all values of an option; there is one at least.
    fn texts(&self, texts: &[OsString]) -> Converted<Self::Value> {
        self.text(texts.last().map_or(OsStr::new(""), |text| text))
    }

    /// Reads a value of TOML; if not said otherwise, a string, as on the command line. Relative
    /// paths begin at the directory.
    fn toml(&self, value: &DeValue, _directory: &Path) -> Converted<Self::Value> {
        self.text(OsStr::new(string(value)?))
    }

    /// As [`Kind::toml`], and reports each mistake with its place.
    fn toml_value(
        &self,
        value: &Spanned<DeValue>,
        directory: &Path,
        report: &mut dyn FnMut(Range<usize>, String),
    ) -> Option<Self::Value> {
        let read = self.toml(value.get_ref(), directory);
        read.map_err(|message| report(value.span(), message)).ok()
    }

    /// Reads a value of `zeo.conf`; if not said otherwise, as on the command line.
    fn zeo_conf(&self, text: &str, _surroundings: &Surroundings) -> Converted<Self::Value> {
        self.text(OsStr::new(text))
    }

    /// Its form in TOML.
    fn written(&self, value: &Self::Value) -> Written<toml::Value>;
}

/// An argument that must be Unicode.
fn unicode(text: &OsStr) -> Converted<&str> {
    text.to_str().ok_or_else(|| "not UTF-8".to_owned())
}

/// A value of TOML that must be a string.
fn string<'a>(value: &'a DeValue) -> Converted<&'a str> {
    value.as_str().ok_or_else(|| format!("give a string, not a {}", value.type_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a value of TOML.
    pub(super) fn toml<K: Kind>(kind: &K, text: &str) -> Converted<K::Value> {
        kind.toml(&DeValue::parse(text).unwrap().into_inner(), Path::new("/srv"))
    }
}
