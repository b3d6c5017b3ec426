//! The syntax of ZConfig: sections, settings, comments, and the directives `%define`, `%include`
//! and `%import`.
//!
//! The first characters of a line decide what it is. There are no continuation lines, quotes, or
//! comments after a value. Reading ends at a syntax error, because the meaning of the rest is
//! uncertain.

use std::path::PathBuf;
use std::sync::Arc;

use super::section::{Section, Value};
use super::substitution::{Definitions, is_name, substitute};
use crate::error::{ConfigurationError, Findings, Mistake};
use crate::names;
use crate::source::{Place, Source, without_scheme};
use crate::surroundings::Surroundings;

/// Deepest nesting of sections; ZEO's are three deep.
const DEPTH_MAX: usize = 16;

/// Deepest nesting of included files; a deeper one probably includes itself.
const INCLUDE_DEPTH_MAX: usize = 8;

/// Most bytes of all files, and of all values in them. Neither files that are included many times
/// nor definitions of definitions can use up the memory.
const BYTES_MAX: usize = 16 << 20;

/// Longest value, in bytes.
const VALUE_BYTES_MAX: usize = 64 << 10;

const DIRECTIVES: [&str; 3] = ["define", "import", "include"];

/// Packages that ZEO's own schema imports; importing them again has no effect.
const IMPORTED: [&str; 3] = ["ZODB", "ZConfig.components.logger", "zdaemon"];

/// Parses a file and those that it includes; gives its sections, and its definitions as a section.
pub(super) fn parse(
    source: &Arc<Source>,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> Result<(Section, Section), ConfigurationError> {
    let defined = Section::new(String::new(), None, source.place(0..0));
    let definitions = Definitions::new();
    let mut parser = Parser { surroundings, findings, definitions, defined, bytes_left: BYTES_MAX };
    let whole = Section::new(String::new(), None, source.place(0..0));
    let whole = parser.file(source, whole, 0)?;
    Ok((whole, parser.defined))
}

struct Parser<'a> {
    surroundings: &'a Surroundings<'a>,
    findings: &'a mut Findings,
    /// Shared by all files: definitions of an included file hold after it too.
    definitions: Definitions,
    /// The same definitions, with their places.
    defined: Section,
    bytes_left: usize,
}

/// A line without surrounding white space, and its position.
#[derive(Clone, Copy)]
struct Line<'a> {
    source: &'a Arc<Source>,
    text: &'a str,
    /// Position of `text` in the source.
    start: usize,
}

impl<'a> Line<'a> {
    fn place(&self) -> Place {
        self.source.place(self.start..self.start + self.text.len())
    }

    fn mistake(&self, message: impl Into<String>) -> Mistake {
        Mistake::new(self.place(), message)
    }

    /// The rest of this line, after a word and white space.
    fn behind(&self, rest: &'a str) -> Line<'a> {
        let text = rest.trim_start_matches(is_space);
        Line { text, start: self.start + self.text.len() - text.len(), ..*self }
    }
}

/// Whether Python strips this character as white space.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

/// Splits the first word from the rest.
fn split_word(text: &str) -> (&str, &str) {
    let end = text.find(|c| is_space(c) || c == '(' || c == ')').unwrap_or(text.len());
    text.split_at(end)
}

fn lines(source: &Arc<Source>) -> impl Iterator<Item = Line<'_>> {
    let mut start = 0;
    source.text.split('\n').map(move |text| {
        let line = Line { source, text, start }.behind(text);
        start += text.len() + 1;
        Line { text: line.text.trim_end_matches(is_space), ..line }
    })
}

impl Parser<'_> {
    /// Parses one file into the open section.
    fn file(
        &mut self,
        source: &Arc<Source>,
        section: Section,
        include_depth: usize,
    ) -> Result<Section, ConfigurationError> {
        let mut open = Open { section, outer: Vec::new() };
        for line in lines(source) {
            match line.text.as_bytes() {
                [] | [b'#', ..] => {}
                [b'<', b'/', ..] => open.end(&line)?,
                [b'<', ..] => open.start(&line)?,
                [b'%', ..] => self.directive(&line, &mut open, include_depth)?,
                _ => {
                    let value = self.value(&line)?;
                    open.section.values.push(value);
                }
            }
        }
        if open.outer.is_empty() {
            return Ok(open.section);
        }
        let message = format!("<{}> is not closed in this file", open.section.kind);
        let help = format!("end it with </{}>", open.section.kind);
        Err(Mistake::new(open.section.place, message).help(help).into())
    }

    fn value(&mut self, line: &Line) -> Result<Value, Mistake> {
        let (key, text) = split_word(line.text);
        if key.is_empty() {
            return Err(line.mistake("neither a setting nor a section"));
        }
        let key_place = line.source.place(line.start..line.start + key.len());
        let text = line.behind(text);
        let place = if text.text.is_empty() { key_place.clone() } else { text.place() };
        let text = self.replace(&text)?;
        Ok(Value { key: key.to_lowercase(), key_place, text, place })
    }

    /// Replaces the references in a text.
    fn replace(&mut self, line: &Line) -> Result<String, Mistake> {
        let text = substitute(line.text, &self.definitions, self.surroundings, VALUE_BYTES_MAX);
        let text = text.map_err(|message| line.mistake(message))?;
        self.spend(text.len(), line)?;
        Ok(text)
    }

    fn spend(&mut self, bytes: usize, line: &Line) -> Result<(), Mistake> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.ok_or_else(|| {
            line.mistake(format!("more than {BYTES_MAX} bytes, with all that is included"))
        })?;
        Ok(())
    }

    fn directive(
        &mut self,
        line: &Line,
        open: &mut Open,
        include_depth: usize,
    ) -> Result<(), ConfigurationError> {
        let (name, argument) = split_word(&line.text[1..]);
        let argument = line.behind(argument);
        if !DIRECTIVES.contains(&name) {
            let message = format!("there is no directive `%{name}`");
            return Err(names::unknown(line.place(), message, name, &DIRECTIVES).into());
        }
        if argument.text.is_empty() {
            return Err(line.mistake(format!("`%{name}` needs an argument")).into());
        }
        match name {
            "define" => Ok(self.define(&argument)?),
            "import" => Ok(self.import(&argument)?),
            _ => self.include(&argument, open, include_depth),
        }
    }

    fn define(&mut self, argument: &Line) -> Result<(), Mistake> {
        let (name, text) = argument.text.split_once(is_space).unwrap_or((argument.text, ""));
        let text = argument.behind(text);
        let key = name.to_lowercase();
        // As in ZConfig, the replaced earlier text is compared with the new one as written.
        if self.definitions.get(&key).is_some_and(|defined| defined != text.text) {
            return Err(argument.mistake(format!("`{name}` is already defined differently")));
        }
        if !is_name(name) {
            let help = "a name has letters, digits and underscores, and no digit first";
            return Err(argument.mistake(format!("`{name}` cannot be defined")).help(help));
        }
        let replaced = self.replace(&text)?;
        self.defined.values.push(Value {
            key: key.clone(),
            key_place: argument.place(),
            text: replaced.clone(),
            place: argument.place(),
        });
        self.definitions.insert(key, replaced);
        Ok(())
    }

    fn import(&mut self, argument: &Line) -> Result<(), Mistake> {
        let package = self.replace(argument)?;
        if !IMPORTED.contains(&&package[..]) {
            let message = format!(
                "`%import {package}` is ignored: nothing is ever imported, and sections that it \
                 would bring are not known"
            );
            self.findings.warning(&argument.place(), message);
        }
        Ok(())
    }

    fn include(
        &mut self,
        argument: &Line,
        open: &mut Open,
        include_depth: usize,
    ) -> Result<(), ConfigurationError> {
        let name = self.replace(argument)?;
        if include_depth == INCLUDE_DEPTH_MAX {
            let message = format!("included files are nested more than {INCLUDE_DEPTH_MAX} deep");
            return Err(argument.mistake(message).help("does a file include itself?").into());
        }
        let path = self.included_path(&name, argument)?;
        let included = Source::read(&path).map_err(|error| match error {
            ConfigurationError::Mistakes(_) => error,
            ConfigurationError::Missing { path } => {
                let message = format!("{}: cannot be read: there is no such file", path.display());
                argument.mistake(message).into()
            }
            other => argument.mistake(other.to_string()).into(),
        })?;
        self.spend(included.text.len(), argument)?;
        let place = open.section.place.clone();
        let section =
            std::mem::replace(&mut open.section, Section::new(String::new(), None, place));
        open.section = self.file(&included, section, include_depth + 1)?;
        Ok(())
    }

    /// An included path, relative to the file that includes it.
    fn included_path(&self, name: &str, argument: &Line) -> Result<PathBuf, Mistake> {
        let path = without_scheme(name);
        if path.contains("://") || path.starts_with("package:") {
            let message = format!("{name}: only files can be included");
            return Err(argument.mistake(message).help("give a path, relative to this file"));
        }
        let including = self.surroundings.absolute(&argument.source.path);
        Ok(including.parent().unwrap_or(&including).join(path))
    }
}

/// The open section, and those around it in the same file.
struct Open {
    section: Section,
    outer: Vec<Section>,
}

impl Open {
    fn start(&mut self, line: &Line) -> Result<(), Mistake> {
        let Some(header) = line.text[1..].strip_suffix('>') else {
            return Err(line.mistake("a section's first line ends with `>`"));
        };
        let (header, is_closed) = match header.strip_suffix('/') {
            Some(header) => (header, true),
            None => (header, false),
        };
        let header = header.trim_end_matches(is_space);
        let (kind, rest) = split_word(header);
        let (name, more) = split_word(rest.trim_start_matches(is_space));
        let is_apart = rest.is_empty() || rest.starts_with(is_space);
        if kind.is_empty() || !more.is_empty() || !is_apart {
            let help = "write `<kind>` or `<kind name>`; names have no white space or parentheses";
            return Err(line.mistake("no section can begin like this").help(help));
        }
        if self.outer.len() >= DEPTH_MAX {
            return Err(line.mistake(format!("more than {DEPTH_MAX} sections in sections")));
        }
        let name = (!name.is_empty()).then(|| name.to_lowercase());
        let section = Section::new(kind.to_lowercase(), name, line.place());
        if is_closed {
            self.section.sections.push(section);
        } else {
            self.outer.push(std::mem::replace(&mut self.section, section));
        }
        Ok(())
    }

    fn end(&mut self, line: &Line) -> Result<(), Mistake> {
        let Some(kind) = line.text[2..].strip_suffix('>') else {
            return Err(line.mistake("a section's last line ends with `>`"));
        };
        let Some(outer) = self.outer.pop() else {
            return Err(line.mistake("no section is open here"));
        };
        let open = &self.section;
        if kind.trim_end_matches(is_space).to_lowercase() != open.kind {
            let message = format!("<{}> of line {} is open here", open.kind, open.place.line());
            return Err(line.mistake(message).help(format!("end it with </{}>", open.kind)));
        }
        let section = std::mem::replace(&mut self.section, outer);
        self.section.sections.push(section);
        Ok(())
    }
}
