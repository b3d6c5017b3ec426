//! Reads the configuration file of a server or a node, and refuses one with problems.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use zodium_configuration::{Configuration, ConfigurationError, Problem, Warning};
use zodium_disk::explain_denied;

/// Reads a configuration in either format.
pub(crate) fn read(file: &Path) -> Result<(Configuration, Vec<Warning>)> {
    zodium_configuration::read(file).map_err(explained)
}

/// An error in words, with the reason if a folder does not let the file be read.
pub(crate) fn explained(error: ConfigurationError) -> anyhow::Error {
    match error {
        ConfigurationError::Unreadable { path, source } => {
            let reason = explain_denied(source, &path);
            anyhow!("{}: cannot be read: {reason}", path.display())
        }
        error => error.into(),
    }
}

/// Refuses a configuration with problems, all of which are told.
pub(crate) fn refuse(problems: &[Problem]) -> Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    bail!(lines.join("\n"))
}
