//! Errors and warnings of configuration files. Each says where, what, and what to do next.

use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::source::{FILE_BYTES_MAX, Place};

/// Most mistakes that are reported; a file with more is probably no configuration.
const MISTAKES_MAX: usize = 20;

/// Most warnings that are reported.
const WARNINGS_MAX: usize = 100;

/// Why a configuration cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// There is no such file.
    #[error(
        "{path}: there is no such configuration file. Give the path of a zeo.conf or of our TOML; \
         to serve a data file takes none (zodium serve Data.fs)",
        path = path.display()
    )]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("{path}: cannot be read: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file that is much longer than any configuration.
    #[error("{path}: longer than {FILE_BYTES_MAX} bytes: is it a configuration?",
        path = path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A path that TOML, which is UTF-8, cannot hold.
    #[error("{path:?} is not UTF-8 and cannot be written as TOML: rename it")]
    NotUnicode {
        /// The path.
        path: PathBuf,
    },
    /// The file has mistakes.
    #[error("{}", join(.0))]
    Mistakes(Vec<Mistake>),
}

/// A mistake in a file.
#[derive(Clone, Debug)]
pub struct Mistake {
    /// Where.
    pub place: Place,
    /// What.
    pub message: String,
    /// What to do next, a line each.
    pub help: Vec<String>,
}

/// A warning: a part of a file that may not have the expected effect.
#[derive(Clone, Debug)]
pub struct Warning {
    /// Where.
    pub place: Place,
    /// What, and what to do next.
    pub message: String,
}

/// Mistakes and warnings found while reading a file.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) mistakes: Vec<Mistake>,
    pub(crate) warnings: Vec<Warning>,
}

impl Mistake {
    pub(crate) fn new(place: Place, message: impl Into<String>) -> Mistake {
        Mistake { place, message: message.into(), help: Vec::new() }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Mistake {
        self.help.push(help.into());
        self
    }
}

impl Findings {
    /// Whether more mistakes would not be reported.
    pub(crate) fn is_full(&self) -> bool {
        self.mistakes.len() >= MISTAKES_MAX
    }

    pub(crate) fn mistake(&mut self, mistake: Mistake) {
        if !self.is_full() {
            self.mistakes.push(mistake);
        }
    }

    pub(crate) fn warning(&mut self, place: &Place, message: impl Into<String>) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(Warning { place: place.clone(), message: message.into() });
        }
    }

    /// The value that was read, if no mistake was found. `None` means that one was reported.
    pub(crate) fn conclude<T>(
        mut self,
        read: Option<T>,
    ) -> Result<(T, Vec<Warning>), ConfigurationError> {
        self.mistakes.sort_by(|one, other| one.place.order(&other.place));
        self.warnings.sort_by(|one, other| one.place.order(&other.place));
        match read {
            Some(read) if self.mistakes.is_empty() => Ok((read, self.warnings)),
            _ => Err(ConfigurationError::Mistakes(self.mistakes)),
        }
    }
}

impl From<Mistake> for ConfigurationError {
    fn from(mistake: Mistake) -> ConfigurationError {
        ConfigurationError::Mistakes(vec![mistake])
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n{}", self.place, self.message, self.place.excerpt())?;
        self.help.iter().try_for_each(|help| write!(f, "\n  = {help}"))
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.place.path().display(), self.place.line(), self.message)
    }
}

fn join(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n\n")
}
