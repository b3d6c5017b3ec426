//! Texts of configuration files, and the places in them that messages point to.

use std::cmp::Ordering;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{ConfigurationError, Mistake};

/// Longest file that is read. A thousand storages fit; a data file given by mistake does not.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Characters of a line that a message shows.
const SHOWN_CHARACTERS_MAX: usize = 160;

/// Characters of a long line that are shown before the place.
const SHOWN_BEFORE: usize = 20;

/// The text of one file.
#[derive(Debug)]
pub(crate) struct Source {
    /// The path as it was given, for messages.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn new(path: &Path, text: &str) -> Arc<Source> {
        Arc::new(Source { path: path.to_owned(), text: text.to_owned() })
    }

    /// Reads a file, which must be UTF-8 and no longer than [`FILE_BYTES_MAX`]. It may be given as
    /// `file:///PATH`, as to runzeo.
    pub(crate) fn read(path: &Path) -> Result<Arc<Source>, ConfigurationError> {
        let path = path.to_str().map_or(path, |text| Path::new(without_scheme(text)));
        let bytes = read_bytes(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => ConfigurationError::Missing { path: path.to_owned() },
            _ => ConfigurationError::Unreadable { path: path.to_owned(), source },
        })?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(ConfigurationError::TooLong { path: path.to_owned() });
        }
        match String::from_utf8(bytes) {
            // Editors on Windows put a byte order mark before a text.
            Ok(text) => Ok(Source::new(path, text.trim_start_matches('\u{feff}'))),
            Err(error) => {
                let start = error.utf8_error().valid_up_to();
                let source = Source::new(path, &String::from_utf8_lossy(error.as_bytes()));
                let mistake = Mistake::new(source.place(start..start), "not UTF-8 from here on")
                    .help("save the file as UTF-8");
                Err(mistake.into())
            }
        }
    }

    /// A place by its byte range, which is clamped to the text.
    pub(crate) fn place(self: &Arc<Source>, bytes: Range<usize>) -> Place {
        let end_max = self.text.trim_end().len();
        let inside = |position: usize| {
            (0..=position.min(end_max)).rev().find(|at| self.text.is_char_boundary(*at))
        };
        let start = inside(bytes.start).unwrap_or(0);
        let end = inside(bytes.end).unwrap_or(0).max(start);
        Place { source: Arc::clone(self), bytes: start..end }
    }
}

/// A path that may be given as the URL of a file.
pub(crate) fn without_scheme(path: &str) -> &str {
    path.strip_prefix("file://").unwrap_or(path)
}

/// A line of a file with stars in place of the password of a URL or of a login,
/// `USER:PASSWORD@DATABASE`. No error shows it.
fn without_password(line: &str) -> String {
    let user = line.find("://").map_or(0, |scheme| scheme + 3);
    let password = line.rfind('@').filter(|end| *end > user).and_then(|end| {
        let start = user + line[user..end].find(':')? + 1;
        Some(start..end)
    });
    let Some(password) = password else { return line.to_owned() };
    let stars = "*".repeat(line[password.clone()].chars().count());
    format!("{}{stars}{}", &line[..password.start], &line[password.end..])
}

fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A part of a configuration file that a message is about.
#[derive(Clone)]
pub struct Place {
    source: Arc<Source>,
    /// Both ends are at character boundaries of the text.
    bytes: Range<usize>,
}

impl Place {
    /// The file, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// The line where it begins, counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.before().matches('\n').count() + 1
    }

    /// The column where it begins, counted from 1, in characters.
    #[must_use]
    pub fn column(&self) -> usize {
        self.before()[self.line_start()..].chars().count() + 1
    }

    /// The order of places: by file, then by position.
    pub(crate) fn order(&self, other: &Place) -> Ordering {
        let position = |place: &Place| (place.bytes.start, place.bytes.end);
        self.path().cmp(other.path()).then(position(self).cmp(&position(other)))
    }

    fn before(&self) -> &str {
        &self.source.text[..self.bytes.start]
    }

    fn line_start(&self) -> usize {
        self.before().rfind('\n').map_or(0, |newline| newline + 1)
    }

    /// The line with marks below the place, as compilers show it; only a part of a long line.
    pub(crate) fn excerpt(&self) -> String {
        let text = &self.source.text[self.line_start()..];
        let line = without_password(text.lines().next().unwrap_or_default());
        let marked = self.source.text[self.bytes.clone()].lines().next().unwrap_or_default();
        let start = self.column() - 1;
        let skipped = if start < SHOWN_CHARACTERS_MAX / 2 { 0 } else { start - SHOWN_BEFORE };
        let shown = line.chars().skip(skipped).take(SHOWN_CHARACTERS_MAX);
        let shown: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let indent = start - skipped;
        let room = shown.chars().count().saturating_sub(indent);
        let marks = marked.chars().count().min(room).max(1);
        let number = self.line().to_string();
        let margin = " ".repeat(number.len());
        let (indent, marks) = (" ".repeat(indent), "^".repeat(marks));
        format!("{margin} |\n{number} | {}\n{margin} | {indent}{marks}", shown.trim_end())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.path().display(), self.line(), self.column())
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_shows_its_line_and_column() {
        let source = Source::new(Path::new("a.conf"), "one\n  t\u{fc}r two\n");
        let place = source.place(11..14);
        assert_eq!(place.to_string(), "a.conf:2:7");
        assert_eq!(place.excerpt(), "  |\n2 |   t\u{fc}r two\n  |       ^^^");
    }

    #[test]
    fn a_byte_order_mark_is_no_text() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "\u{feff}<zeo>\n").unwrap();
        assert_eq!(Source::read(file.path()).unwrap().text, "<zeo>\n");
    }

    #[test]
    fn a_place_is_always_inside_of_the_text() {
        let source = Source::new(Path::new("a"), "\u{fc}b\n\n\n");
        for (start, end) in [(0, 0), (1, 2), (3, 9), (9, 2), (99, 100)] {
            assert_eq!(source.place(start..end).line(), 1, "{start} {end}");
        }
        assert_eq!(Source::new(Path::new("a"), "").place(0..1).to_string(), "a:1:1");
    }

    #[test]
    fn passwords_are_not_shown() {
        for (line, expected) in [
            ("m = \"mysql://u:p\u{e4}:@s@h:1/d\" x", "m = \"mysql://u:*****@h:1/d\" x"),
            ("m = \"mysql://u@h:1/d\"", "m = \"mysql://u@h:1/d\""),
            ("a = \"zeo://h:1/d\"", "a = \"zeo://h:1/d\""),
            ("a = \"x@y:z\"", "a = \"x@y:z\""),
            ("d = \"u:p:s@n", "d = \"u:***@n"),
            ("database = root:s3cr%et@neo", "database = root:*******@neo"),
            // What follows the name may be the password: a line may be a part of a value.
            ("database: root:secret@neo", "database:************@neo"),
        ] {
            let source = Source::new(Path::new("a.toml"), line);
            let excerpt = source.place(0..1).excerpt();
            assert!(excerpt.contains(&format!("1 | {expected}\n")), "{excerpt}");
        }
    }

    #[test]
    fn long_lines_are_cut_and_control_characters_are_not_shown() {
        let source = Source::new(Path::new("a"), &format!("\u{1b}[31m{}", "x".repeat(1_000)));
        let excerpt = source.place(900..905).excerpt();
        assert!(excerpt.ends_with(" |                     ^^^^^"), "{excerpt}");
        let excerpt = source.place(0..1000).excerpt();
        assert!(excerpt.len() < 400 && !excerpt.contains('\u{1b}'), "{excerpt:?}");
    }
}
