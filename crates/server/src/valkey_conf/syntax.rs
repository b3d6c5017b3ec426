//! The lines of a configuration file of Valkey or Redis.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use zodium_resp_server::split_line;

/// Files within files: one may include itself.
const INCLUDES_MAX: usize = 16;

/// A directive: its name in lower case, and its words.
#[derive(Debug)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) words: Vec<String>,
    pub(super) place: Place,
}

impl Directive {
    /// Its only word.
    pub(super) fn word(&self) -> Result<&str> {
        match self.words.as_slice() {
            [word] => Ok(word),
            words => {
                bail!("{}: {}: one value belongs here, not {}", self.place, self.name, words.len())
            }
        }
    }

    /// Its only word, as a number.
    pub(super) fn number<N: FromStr>(&self) -> Result<N> {
        let word = self.word()?;
        let none = || format!("{}: {}: {word:?} is no number for it", self.place, self.name);
        word.parse().ok().with_context(none)
    }
}

/// Where a directive is written.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: Arc<Path>,
    line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// The directives of a file, and of those that it includes.
///
/// # Errors
/// A file cannot be read, or a line is none.
pub(super) fn read(path: &Path) -> Result<Vec<Directive>> {
    let mut directives = Vec::new();
    add(path, &mut directives, 0)?;
    Ok(directives)
}

fn add(path: &Path, directives: &mut Vec<Directive>, depth: usize) -> Result<()> {
    if depth > INCLUDES_MAX {
        bail!("{}: more than {INCLUDES_MAX} files include each other", path.display());
    }
    if path.to_string_lossy().contains('*') {
        bail!("{}: patterns are not followed: include each file by its name", path.display());
    }
    let text = std::fs::read(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let file: Arc<Path> = path.into();
    for (line, text) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let place = Place { path: Arc::clone(&file), line };
        let text = text.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        let words = split_line(text).with_context(|| format!("{place}"))?;
        let words = words.into_iter().map(String::from_utf8).collect::<Result<Vec<_>, _>>();
        let mut words = words.with_context(|| format!("{place}"))?.into_iter();
        let Some(name) = words.next() else { continue };
        let directive =
            Directive { name: name.to_ascii_lowercase(), words: words.collect(), place };
        match (directive.name.as_str(), directive.words.as_slice()) {
            ("include", [included]) => add(&PathBuf::from(included), directives, depth + 1)
                .with_context(|| format!("{}: include", directive.place))?,
            _ => directives.push(directive),
        }
    }
    Ok(())
}
