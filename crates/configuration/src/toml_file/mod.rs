//! The TOML format, which has the whole model.
//!
//! The values are taken from the parsed tables by hand, rather than by derived code. So all
//! mistakes are reported at once, each with its place.

mod server;
mod storage;
mod table;
mod values;
mod write;

use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use self::table::{Document, Table};
use crate::error::{ConfigurationError, Findings, Mistake, Warning};
use crate::model::{Configuration, LogDestination, LogFormat, LogOptions, MonitorOptions};
use crate::source::Source;
use crate::surroundings::Surroundings;

const TABLES: [&str; 4] = ["server", "storage", "log", "monitor"];

/// All tables with their settings, for the test of the documentation.
#[cfg(test)]
pub(crate) const KNOWN: &[(&str, &[&str])] = &[
    ("[server]", server::SERVER.split_last().expect("`tls` is last").1),
    ("[server.tls]", &server::TLS),
    ("[[storage]]", storage::STORAGE.split_last().expect("`pack` is last").1),
    ("[storage.pack]", &storage::PACK),
    ("[log]", &LOG),
    ("[monitor]", &MONITOR),
];

const LOG: [&str; 3] = ["to", "format", "level"];

const MONITOR: [&str; 1] = ["address"];

const FORMATS: [(&str, LogFormat); 2] = [("human", LogFormat::Human), ("json", LogFormat::Json)];

/// Reads a configuration in TOML. Relative paths in it begin at the file's directory.
///
/// # Errors
///
/// The file cannot be read, is not TOML, or has unknown or invalid settings.
pub fn read_toml(path: &Path) -> Result<(Configuration, Vec<Warning>), ConfigurationError> {
    let surroundings = Surroundings::of_this_process()?;
    interpret(Source::read(path)?, &surroundings)
}

/// Reads a configuration from a text in TOML. The path is for messages and for relative paths.
///
/// # Errors
///
/// As [`read_toml`].
pub fn parse_toml(
    text: &str,
    path: &Path,
    surroundings: &Surroundings,
) -> Result<(Configuration, Vec<Warning>), ConfigurationError> {
    interpret(Source::new(path, text), surroundings)
}

pub(crate) fn interpret(
    source: Arc<Source>,
    surroundings: &Surroundings,
) -> Result<(Configuration, Vec<Warning>), ConfigurationError> {
    let mut findings = Findings::default();
    let (root, errors) = DeTable::parse_recoverable(&source.text);
    let mut reported_line = 0..0;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        // Further mistakes in a line are mostly consequences of its first.
        if findings.is_full() || reported_line.contains(&span.start) {
            continue;
        }
        reported_line = span.start..line_end(&source.text, span.start);
        findings.mistake(Mistake::new(source.place(span), error.message()));
    }
    if !findings.mistakes.is_empty() {
        return findings.conclude(None);
    }
    let directory = surroundings.absolute(&source.path);
    let directory = directory.parent().unwrap_or(&directory).to_owned();
    let document = Document { source: Arc::clone(&source), directory };
    let configuration = configuration(&Table::new(&document, "the file", &root), &mut findings);
    findings.conclude(Some(configuration))
}

/// The end of the line that contains a position.
fn line_end(text: &str, position: usize) -> usize {
    let rest = text.as_bytes().get(position..).unwrap_or_default();
    rest.iter().position(|byte| *byte == b'\n').map_or(text.len() + 1, |end| position + end + 1)
}

fn configuration(root: &Table, findings: &mut Findings) -> Configuration {
    root.check_keys(&TABLES, findings);
    let server = root.table("server", "[server]", findings);
    let server = server.map(|table| server::server(&table, findings));
    let storages = root.tables("storage", findings);
    let storages = storages.iter().filter_map(|table| storage::storage(table, findings)).collect();
    let log = root.table("log", "[log]", findings);
    let monitor = root.table("monitor", "[monitor]", findings);
    Configuration {
        server: server.unwrap_or_default(),
        storages,
        log: log.map(|table| log_options(&table, findings)).unwrap_or_default(),
        monitor: monitor.and_then(|table| monitor_options(&table, findings)),
    }
}

fn log_options(table: &Table, findings: &mut Findings) -> LogOptions {
    table.check_keys(&LOG, findings);
    let defaults = LogOptions::default();
    let destinations = table.list("to", findings, |value| match value.as_str() {
        Some("stdout") => Ok(LogDestination::Stdout),
        Some("stderr") => Ok(LogDestination::Stderr),
        _ => table.document.path(value).map(LogDestination::File),
    });
    let format = table.setting("format", findings, |value| values::choice(value, &FORMATS));
    let level = table.setting("level", findings, values::level);
    LogOptions {
        destinations: destinations.unwrap_or(defaults.destinations),
        format: format.unwrap_or(defaults.format),
        level: level.unwrap_or(defaults.level),
    }
}

fn monitor_options(table: &Table, findings: &mut Findings) -> Option<MonitorOptions> {
    table.check_keys(&MONITOR, findings);
    let address = table.required("address", findings, |value| table.document.address(value));
    Some(MonitorOptions { address: address? })
}
