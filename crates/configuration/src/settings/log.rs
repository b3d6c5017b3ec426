//! `[log]`: destinations, format and level.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Value;
use toml::de::DeValue;

use super::kinds::zconfig_values::plain_path;
use super::kinds::{Choice, Converted, File, Kind, Level, List, Values, Written};
use crate::surroundings::Surroundings;

/// A destination of log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDestination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, reopened on SIGUSR2.
    File(PathBuf),
}

/// The format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for humans.
    Human,
    /// One JSON object per line.
    Json,
}

const FORMATS: [(&str, LogFormat, &str); 2] = [
    ("human", LogFormat::Human, "Time, level, text; in colour on a terminal"),
    ("json", LogFormat::Json, "One JSON object a line"),
];

settings! {
    /// Logging.
    pub struct LogOptions {
        /// Append log lines to this file, reopened on SIGUSR2, or to stdout or stderr
        destinations: Vec<LogDestination> = vec![LogDestination::Stderr], {
            List(Destination);
            key: "to", elsewhere: "`path` of each `<logfile>`", option: "log-file", value: "PATH",
            env: "ZODIUM_LOG_FILE"
        }

        /// Format of log lines
        format: LogFormat = LogFormat::Human, {
            Choice(&FORMATS);
            key: "format", option: "log-format", value: "FORMAT", env: "ZODIUM_LOG_FORMAT"
        }

        /// Log level: error, warn, info, debug, trace or off, also by module
        ///
        /// `info,zodium_zeo=debug`, for instance.
        level: String = "info".to_owned(), {
            Level;
            key: "level", elsewhere: "`level`", option: "log-level", value: "LEVEL",
            env: "ZODIUM_LOG"
        }
    }
}

/// The kind of [`LogDestination`].
pub(crate) struct Destination;

impl Kind for Destination {
    type Value = LogDestination;

    fn values(&self) -> Values {
        File.values()
    }

    fn text(&self, text: &OsStr) -> Converted<LogDestination> {
        match text.to_str() {
            Some("stdout" | "STDOUT") => Ok(LogDestination::Stdout),
            Some("stderr" | "STDERR") => Ok(LogDestination::Stderr),
            _ => File.text(text).map(LogDestination::File),
        }
    }

    fn toml(&self, value: &DeValue, directory: &Path) -> Converted<LogDestination> {
        match value.as_str() {
            Some("stdout") => Ok(LogDestination::Stdout),
            Some("stderr") => Ok(LogDestination::Stderr),
            _ => File.toml(value, directory).map(LogDestination::File),
        }
    }

    fn zeo_conf(&self, text: &str, surroundings: &Surroundings) -> Converted<LogDestination> {
        match text {
            "STDOUT" | "STDERR" => self.text(OsStr::new(text)),
            path => plain_path(path, surroundings).map(LogDestination::File),
        }
    }

    fn written(&self, value: &LogDestination) -> Written<Value> {
        match value {
            LogDestination::File(path) => File.written(path),
            standard => Ok(Value::from(standard.to_string())),
        }
    }
}

impl fmt::Display for LogDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogDestination::Stdout => f.write_str("stdout"),
            LogDestination::Stderr => f.write_str("stderr"),
            LogDestination::File(path) => write!(f, "{}", path.display()),
        }
    }
}
