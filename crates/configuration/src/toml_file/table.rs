//! Tables of a TOML file: takes settings by name, with the place of each mistake.

use std::path::PathBuf;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Findings, Mistake};
use crate::names;
use crate::source::{Place, Source};

/// The file that is read.
pub(crate) struct Document {
    pub(crate) source: Arc<Source>,
    /// The base of relative paths.
    pub(crate) directory: PathBuf,
}

/// One table of the file.
pub(crate) struct Table<'a> {
    pub(crate) document: &'a Document,
    /// Its name in messages.
    title: String,
    pub(super) place: Place,
    entries: &'a DeTable<'a>,
}

impl<'a> Table<'a> {
    pub(super) fn new(
        document: &'a Document,
        title: &str,
        table: &'a Spanned<DeTable<'a>>,
    ) -> Table<'a> {
        let place = document.source.place(table.span());
        Table { document, title: title.to_owned(), place, entries: table.get_ref() }
    }

    pub(crate) fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.entries.get(key)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Whether a switch is given, and on.
    pub(super) fn is_true(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| value.get_ref().as_bool() == Some(true))
    }

    /// Whether a similar name is given, which is reported as unknown.
    pub(super) fn is_misspelt(&self, key: &str) -> bool {
        self.entries.keys().any(|name| names::nearest(name.get_ref(), &[key]).is_some())
    }

    fn place_of(&self, value: &Spanned<DeValue>) -> Place {
        self.document.source.place(value.span())
    }

    /// Reports unknown settings.
    pub(super) fn check_keys(&self, known: &[&str], findings: &mut Findings) {
        let unknown = self.entries.keys().filter(|key| !known.contains(&&key.get_ref()[..]));
        for key in unknown {
            if findings.is_full() {
                return;
            }
            let place = self.document.source.place(key.span());
            let message = format!("unknown setting `{}` in {}", key.get_ref(), self.title);
            findings.mistake(names::unknown(place, message, key.get_ref(), known));
        }
    }

    pub(super) fn mistake(&self, key: &str, message: impl Into<String>) -> Mistake {
        Mistake::new(self.place_of_key(key), message)
    }

    /// Where the value of a setting is; without one, the table.
    pub(super) fn place_of_key(&self, key: &str) -> Place {
        self.value(key).map_or_else(|| self.place.clone(), |value| self.place_of(value))
    }

    /// Reports a required setting that is missing.
    pub(crate) fn require(&self, key: &str, findings: &mut Findings) {
        if !self.has(key) && !self.is_misspelt(key) {
            findings.mistake(self.mistake(key, format!("{} needs `{key}`", self.title)));
        }
    }

    /// An optional inner table; reports a value that is not a table.
    pub(super) fn table(
        &self,
        key: &str,
        title: &str,
        findings: &mut Findings,
    ) -> Option<Table<'a>> {
        let value = self.value(key)?;
        let table = self.as_table(value, title);
        if table.is_none() {
            let message = format!("`{key}` is a table: begin it with {title} on a line of its own");
            findings.mistake(self.mistake(key, message));
        }
        table
    }

    /// The tables of `[[key]]`; reports a value that is not a table.
    pub(super) fn tables(&self, key: &str, findings: &mut Findings) -> Vec<Table<'a>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let title = format!("[[{key}]]");
        let tables: Option<Vec<_>> = match value.get_ref() {
            DeValue::Array(values) => {
                values.iter().map(|value| self.as_table(value, &title)).collect()
            }
            _ => None,
        };
        tables.unwrap_or_else(|| {
            let message = format!("there may be many: begin each with {title}, in double brackets");
            findings.mistake(self.mistake(key, message));
            Vec::new()
        })
    }

    fn as_table(&self, value: &'a Spanned<DeValue<'a>>, title: &str) -> Option<Table<'a>> {
        let entries = value.get_ref().as_table()?;
        let place = self.place_of(value);
        Some(Table { document: self.document, title: title.to_owned(), place, entries })
    }
}
