//! Words: switches, choices, texts, log levels, and lists of any other kind.

use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::Path;

use toml::de::DeValue;
use toml::{Spanned, Value};

use super::{Converted, Kind, Values, Written, unicode, zconfig_values};
use crate::names;
use crate::surroundings::Surroundings;

/// On or off. On the command line it is a flag, whose entry says which of the two.
pub(crate) struct Switch;

/// Any text.
pub(crate) struct Text;

/// A log level, or several with modules.
pub(crate) struct Level;

/// One of some words, each with its value and its meaning.
pub(crate) struct Choice<T: 'static>(pub(crate) &'static [(&'static str, T, &'static str)]);

/// Several values of a kind. In TOML a single value may stand for a list of one.
pub(crate) struct List<K>(pub(crate) K);

impl Kind for Switch {
    type Value = bool;

    fn text(&self, text: &OsStr) -> Converted<bool> {
        zconfig_values::boolean(unicode(text)?)
    }

    fn toml(&self, value: &DeValue, _directory: &Path) -> Converted<bool> {
        let found = value.type_str();
        value.as_bool().ok_or_else(|| format!("give `true` or `false`, not a {found}"))
    }

    fn written(&self, value: &bool) -> Written<Value> {
        Ok(Value::from(*value))
    }
}

impl Kind for Text {
    type Value = String;

    fn text(&self, text: &OsStr) -> Converted<String> {
        unicode(text).map(str::to_owned)
    }

    fn written(&self, value: &String) -> Written<Value> {
        Ok(Value::from(value.clone()))
    }
}

/// The log's filter would take any other word as the name of a module, and be silent otherwise.
impl Kind for Level {
    type Value = String;

    fn text(&self, text: &OsStr) -> Converted<String> {
        // The filter takes no spaces.
        let text: String = unicode(text)?.split_whitespace().collect();
        for part in text.split(',') {
            let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
            if !LEVELS.contains(&&level.to_lowercase()[..]) {
                return Err(unknown_word(level, &LEVELS));
            }
        }
        Ok(text)
    }

    fn written(&self, value: &String) -> Written<Value> {
        Text.written(value)
    }
}

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

fn unknown_word(word: &str, known: &[&str]) -> String {
    let hint = names::nearest(word, known);
    let hint = hint.map(|word| format!(", did you mean {word:?}")).unwrap_or_default();
    format!("{word:?} is none of {}{hint}", known.join(", "))
}

impl<T: Copy + PartialEq + Sync> Choice<T> {
    /// The value of a word, in any case.
    fn chosen(&self, word: &str) -> Converted<T> {
        let lower = word.to_lowercase();
        let chosen = self.0.iter().find(|(name, ..)| *name == lower);
        chosen.map(|(_, value, _)| *value).ok_or_else(|| {
            let words: Vec<_> = self.0.iter().map(|(word, ..)| *word).collect();
            unknown_word(word, &words)
        })
    }
}

impl<T: Copy + PartialEq + Sync> Kind for Choice<T> {
    type Value = T;

    fn text(&self, text: &OsStr) -> Converted<T> {
        self.chosen(unicode(text)?)
    }

    /// Every value has a word.
    fn written(&self, value: &T) -> Written<Value> {
        let word = self.0.iter().find(|(_, named, _)| named == value);
        Ok(Value::from(word.map_or("", |(word, ..)| *word)))
    }

    fn values(&self) -> Values {
        let words = self.0.iter().map(|(word, _, meaning)| (*word, *meaning)).collect();
        Values { words, ..Values::default() }
    }
}

impl<K: Kind> Kind for List<K> {
    type Value = Vec<K::Value>;

    fn values(&self) -> Values {
        Values { is_list: true, ..self.0.values() }
    }

    fn text(&self, text: &OsStr) -> Converted<Vec<K::Value>> {
        Ok(vec![self.0.text(text)?])
    }

    fn texts(&self, texts: &[OsString]) -> Converted<Vec<K::Value>> {
        texts.iter().map(|text| self.0.text(text)).collect()
    }

    fn toml(&self, value: &DeValue, directory: &Path) -> Converted<Vec<K::Value>> {
        match value {
            DeValue::Array(values) => {
                values.iter().map(|value| self.0.toml(value.get_ref(), directory)).collect()
            }
            single => Ok(vec![self.0.toml(single, directory)?]),
        }
    }

    fn toml_value(
        &self,
        value: &Spanned<DeValue>,
        directory: &Path,
        report: &mut dyn FnMut(Range<usize>, String),
    ) -> Option<Vec<K::Value>> {
        let single = std::slice::from_ref(value);
        let values = match value.get_ref() {
            DeValue::Array(values) => values,
            _ => single,
        };
        let read = values.iter().map(|value| self.0.toml_value(value, directory, report));
        // All of them are read, so that each mistake is reported.
        read.collect::<Vec<_>>().into_iter().collect()
    }

    fn zeo_conf(&self, text: &str, surroundings: &Surroundings) -> Converted<Vec<K::Value>> {
        Ok(vec![self.0.zeo_conf(text, surroundings)?])
    }

    fn written(&self, values: &Vec<K::Value>) -> Written<Value> {
        values.iter().map(|value| self.0.written(value)).collect::<Written<_>>().map(Value::Array)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::toml;
    use super::*;

    #[test]
    fn levels_may_be_of_modules() {
        let level = |text| toml(&Level, text);
        for (text, expected) in [
            ("\"info\"", "info"),
            ("\" WARN, zodium_zeo = debug \"", "WARN,zodium_zeo=debug"),
            ("\"off,a::b=trace\"", "off,a::b=trace"),
        ] {
            assert_eq!(level(text).as_deref(), Ok(expected), "{text}");
        }
        assert!(level("\"inof\"").unwrap_err().contains("did you mean \"info\""));
        assert!(level("\"info,\"").is_err() && level("\"a=\"").is_err());
        assert!(Level.text(OsStr::new("info,zodium_zeo=debug")).is_ok());
        let refused = Level.text(OsStr::new("warning")).unwrap_err();
        assert!(refused.starts_with("\"warning\" is none of error, warn, info"), "{refused}");
    }
}
