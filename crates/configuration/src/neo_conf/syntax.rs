//! The syntax of NEO's configuration file: that of Python's `ConfigParser`.
//!
//! Sections in brackets, settings with `=` or `:`, comments on lines of their own, values that go
//! on in indented lines, `%(name)s` for another setting, and a section of defaults.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Findings, Mistake};
use crate::source::Source;

/// The section whose settings every other one has, too.
const DEFAULTS: &str = "DEFAULT";
/// Most settings that refer to one another, as in Python.
const DEPTH_MAX: usize = 10;

/// The sections of a file.
pub(super) struct Sections {
    source: Arc<Source>,
    all: BTreeMap<String, Section>,
}

/// Settings by their names in lower case.
type Section = BTreeMap<String, Setting>;

/// A setting as it is written.
#[derive(Clone)]
pub(super) struct Setting {
    value: String,
    pub(super) place: Range<usize>,
}

/// The line that is read.
struct Line<'a> {
    text: &'a str,
    /// Where its text begins, in the file.
    start: usize,
    indent: usize,
}

impl Sections {
    /// Reads a file.
    pub(super) fn read(source: &Arc<Source>, findings: &mut Findings) -> Sections {
        let mut sections = Sections { source: Arc::clone(source), all: BTreeMap::new() };
        let mut section: Option<String> = None;
        // The setting whose value may go on, and how far its line is indented.
        let mut open: Option<(String, usize)> = None;
        for line in lines(&source.text) {
            if line.text.is_empty() || line.text.starts_with(['#', ';']) {
                continue;
            }
            if let (Some(section), Some((name, indent))) = (&section, &open)
                && line.indent > *indent
            {
                sections.add_line(section, name, &line);
                continue;
            }
            open = None;
            if let Some(name) = header(line.text) {
                let place = line.start..line.start + line.text.len();
                if name != DEFAULTS && sections.all.contains_key(name) {
                    let message = format!("section [{name}] is here a second time");
                    findings.mistake(Mistake::new(source.place(place), message));
                }
                sections.all.entry(name.to_owned()).or_default();
                section = Some(name.to_owned());
                continue;
            }
            open = sections.add_setting(section.as_deref(), &line, findings);
        }
        sections
    }

    fn add_line(&mut self, section: &str, name: &str, line: &Line<'_>) {
        let setting = self.all.get_mut(section).and_then(|section| section.get_mut(name));
        if let Some(setting) = setting {
            setting.value.push('\n');
            setting.value.push_str(line.text);
        }
    }

    fn add_setting(
        &mut self,
        section: Option<&str>,
        line: &Line<'_>,
        findings: &mut Findings,
    ) -> Option<(String, usize)> {
        let place = line.start..line.start + line.text.len();
        let mut mistake = |message: String| {
            findings.mistake(Mistake::new(self.source.place(place.clone()), message));
        };
        let Some((name, value)) = line.text.split_once(['=', ':']) else {
            mistake("neither a section, nor `name = value`, nor `name: value`".to_owned());
            return None;
        };
        let name = name.trim().to_lowercase();
        let Some(settings) = section.and_then(|section| self.all.get_mut(section)) else {
            mistake("a setting before the first section, such as [DEFAULT]".to_owned());
            return None;
        };
        match settings.entry(name.clone()) {
            Entry::Occupied(_) => mistake(format!("`{name}` is here a second time")),
            Entry::Vacant(vacant) => {
                vacant.insert(Setting { value: value.trim().to_owned(), place });
            }
        }
        Some((name, line.indent))
    }

    /// The names of all sections but that of the defaults.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str).filter(|name| *name != DEFAULTS)
    }

    /// Whether there is a section; there are always defaults.
    pub(super) fn has(&self, section: &str) -> bool {
        section == DEFAULTS || self.all.contains_key(section)
    }

    /// The settings that a section has itself.
    pub(super) fn own(&self, section: &str) -> impl Iterator<Item = (&String, &Setting)> {
        self.all.get(section).into_iter().flatten()
    }

    fn written(&self, section: &str, name: &str) -> Option<&Setting> {
        let of = |section: &str| self.all.get(section).and_then(|section| section.get(name));
        of(section).or_else(|| of(DEFAULTS))
    }

    /// A setting of a section, or of the defaults, with what it refers to; and its place.
    pub(super) fn value(
        &self,
        section: &str,
        name: &str,
    ) -> Option<(Range<usize>, Result<String, String>)> {
        let setting = self.written(section, name)?;
        Some((setting.place.clone(), self.resolved(section, &setting.value, 0)))
    }

    /// A text with the values of the settings that it names.
    fn resolved(&self, section: &str, text: &str, depth: usize) -> Result<String, String> {
        if depth == DEPTH_MAX {
            return Err("settings refer to one another without end".to_owned());
        }
        let mut resolved = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('%') {
            resolved.push_str(before);
            if let Some(after) = after.strip_prefix('%') {
                resolved.push('%');
                rest = after;
                continue;
            }
            let named = after.strip_prefix('(').and_then(|after| after.split_once(")s"));
            let Some((name, after)) = named else {
                return Err("a `%` is written `%%`, unless it begins `%(name)s`".to_owned());
            };
            let setting = self.written(section, &name.to_lowercase());
            let setting = setting.ok_or_else(|| format!("there is no setting `{name}`"))?;
            resolved.push_str(&self.resolved(section, &setting.value, depth + 1)?);
            rest = after;
        }
        resolved.push_str(rest);
        Ok(resolved)
    }
}

/// The name of a section, if a line begins one. As in Python, it goes up to the last bracket, and a
/// comment may follow.
fn header(line: &str) -> Option<&str> {
    let (name, _) = line.strip_prefix('[')?.rsplit_once(']')?;
    Some(name).filter(|name| !name.is_empty())
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let mut position = 0;
    text.split_inclusive('\n').map(move |whole| {
        let indent = whole.len() - whole.trim_start().len();
        let line = Line { text: whole.trim(), start: position + indent, indent };
        position += whole.len();
        line
    })
}
