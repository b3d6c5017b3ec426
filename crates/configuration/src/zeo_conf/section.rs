//! Sections of the file, before they are interpreted.

use std::collections::HashMap;

use crate::error::{Findings, Mistake};
use crate::names;
use crate::source::Place;

/// `<kind name>` with its content, also from included files.
#[derive(Debug)]
pub(crate) struct Section {
    /// In lower case; empty for the file as a whole.
    pub(super) kind: String,
    /// In lower case, as ZConfig makes it.
    pub(super) name: Option<String>,
    pub(super) place: Place,
    pub(super) values: Vec<Value>,
    pub(super) sections: Vec<Section>,
}

/// `key text`.
#[derive(Debug)]
pub(super) struct Value {
    /// In lower case.
    pub(super) key: String,
    pub(super) key_place: Place,
    /// With references replaced.
    pub(super) text: String,
    /// The place of the text, or of the key if there is no text.
    pub(super) place: Place,
}

impl Section {
    pub(super) fn new(kind: String, name: Option<String>, place: Place) -> Section {
        Section { kind, name, place, values: Vec::new(), sections: Vec::new() }
    }

    /// Its name in messages.
    pub(super) fn title(&self) -> String {
        if self.kind.is_empty() { "the file".to_owned() } else { format!("<{}>", self.kind) }
    }

    /// Reports settings that are unknown in this section, or given twice.
    pub(super) fn check_keys(&self, known: &[&str], findings: &mut Findings) {
        self.check_keys_beside(&[], known, findings);
    }

    /// As [`Section::check_keys`]; `gone` are settings of old versions, with what to do instead.
    pub(super) fn check_keys_beside(
        &self,
        gone: &[(&str, &str)],
        known: &[&str],
        findings: &mut Findings,
    ) {
        for (position, value) in self.values.iter().enumerate() {
            if findings.is_full() {
                return;
            }
            let key = &value.key[..];
            if let Some((_, advice)) = gone.iter().find(|(gone, _)| *gone == key) {
                let message = format!("`{key}` is gone from ZEO");
                findings.mistake(Mistake::new(value.key_place.clone(), message).help(*advice));
            } else if !known.contains(&key) {
                findings.mistake(self.unknown_key(value, known));
            } else if let Some(first) = self.values[..position].iter().find(|v| v.key == key) {
                let line = first.key_place.line();
                let message = format!("`{key}` is given twice, first in line {line}");
                findings.mistake(Mistake::new(value.key_place.clone(), message));
            }
        }
    }

    fn unknown_key(&self, value: &Value, known: &[&str]) -> Mistake {
        let place = value.key_place.clone();
        if known.is_empty() {
            let message = format!("{} has no settings of its own", self.title());
            return Mistake::new(place, message).help("put it into a section");
        }
        let message = format!("unknown setting `{}` in {}", value.key, self.title());
        names::unknown(place, message, &value.key, known)
    }

    /// Reports inner sections of unknown kinds, and names that are given twice or not allowed.
    pub(super) fn check_sections(&self, known: &[&str], findings: &mut Findings) {
        self.check_sections_beside(&[], known, findings);
    }

    /// As [`Section::check_sections`]; `refused` are kinds that the caller reports.
    pub(super) fn check_sections_beside(
        &self,
        refused: &[&str],
        known: &[&str],
        findings: &mut Findings,
    ) {
        let mut named = HashMap::new();
        for section in &self.sections {
            if findings.is_full() {
                return;
            }
            if !known.contains(&&section.kind[..]) && !refused.contains(&&section.kind[..]) {
                findings.mistake(self.unknown_section(section, refused, known));
            }
            let Some(name) = section.name.as_deref() else { continue };
            if name == "*" || name == "+" {
                let message = format!("no section can be named `{name}`");
                findings.mistake(Mistake::new(section.place.clone(), message));
            }
            if let Some(first) = named.insert(name, section) {
                let line = first.place.line();
                let message = format!("`{name}` is also the name of the section in line {line}");
                let help = "names are told apart without their case";
                findings.mistake(Mistake::new(section.place.clone(), message).help(help));
            }
        }
    }

    fn unknown_section(&self, section: &Section, refused: &[&str], known: &[&str]) -> Mistake {
        let place = section.place.clone();
        if known.is_empty() {
            return Mistake::new(place, format!("{} has no sections in it", self.title()));
        }
        let message = format!("unknown section <{}> in {}", section.kind, self.title());
        names::unknown_beside(refused, place, message, &section.kind, known)
    }

    /// The text of an optional setting.
    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|value| value.key == key)
    }

    /// The value of an optional setting; reports one that cannot be converted.
    pub(crate) fn setting<T>(
        &self,
        key: &str,
        findings: &mut Findings,
        convert: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = self.value(key)?;
        let converted = convert(&value.text);
        let report = |message| findings.mistake(Mistake::new(value.place.clone(), message));
        converted.map_err(|message| format!("`{key}`: {message}")).map_err(report).ok()
    }

    /// Reports a required setting that is missing.
    pub(crate) fn require(&self, key: &str, findings: &mut Findings) {
        // A misspelt one is reported as unknown.
        let is_misspelt = |value: &Value| names::nearest(&value.key, &[key]).is_some();
        if self.value(key).is_none() && !self.values.iter().any(is_misspelt) {
            let message = format!("{} needs `{key}`", self.title());
            findings.mistake(Mistake::new(self.place.clone(), message));
        }
    }

    /// The optional inner section of a kind; reports a second one.
    pub(super) fn only(&self, kind: &str, findings: &mut Findings) -> Option<&Section> {
        let mut sections = self.sections.iter().filter(|section| section.kind == kind);
        let first = sections.next();
        for another in sections {
            let message = format!("{} has only one <{kind}>", self.title());
            findings.mistake(Mistake::new(another.place.clone(), message));
        }
        first
    }
}
