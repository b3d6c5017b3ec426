//! The TOML format, which has the whole model.
//!
//! The values are taken from the parsed tables by the entries of the table of settings, rather than
//! by derived code. So all mistakes are reported at once, each with its place.

pub(crate) mod table;
mod write;

use std::path::Path;
use std::sync::Arc;

use toml::de::DeTable;

use self::table::{Document, Table};
use crate::error::{ConfigurationError, Findings, Mistake, Warning};
use crate::model::Configuration;
use crate::settings::field::Group;
use crate::settings::neo::{NodeAdapter, NodeOptions};
use crate::settings::packing::PackOptions;
use crate::settings::server::ServerOptions;
use crate::settings::storage::{StorageKind, StorageOptions, begins_anew};
use crate::settings::tls::TlsOptions;
use crate::source::Source;
use crate::surroundings::Surroundings;

const TABLES: [&str; 7] =
    ["server", "storage", "log", "monitor", "neo-storage", "neo-admin", "neo-master"];

/// Whether a file can be read, and is TOML with any settings, known or not.
pub fn is_toml(path: &Path) -> bool {
    Source::read(path).is_ok_and(|source| {
        let (root, errors) = DeTable::parse_recoverable(&source.text);
        errors.is_empty() && !root.get_ref().is_empty()
    })
}

/// Reads a configuration from a text in TOML. The path is for messages and for relative paths.
///
/// # Errors
///
/// It is not TOML, or has unknown or invalid settings.
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
    let server = server.map(|table| server_options(&table, findings));
    let storages = root.tables("storage", findings);
    let storages = storages.iter().map(|table| storage_options(table, findings)).collect();
    let log = root.table("log", "[log]", findings);
    let monitor = root.table("monitor", "[monitor]", findings);
    let node = root.table("neo-storage", "[neo-storage]", findings);
    let admin = root.table("neo-admin", "[neo-admin]", findings);
    let master = root.table("neo-master", "[neo-master]", findings);
    Configuration {
        server: server.unwrap_or_default(),
        storages,
        log: log.map(|table| group(&table, &[], findings)).unwrap_or_default(),
        monitor: monitor.map(|table| group(&table, &[], findings)),
        neo_storage: node.map(|table| node_options(&table, findings)),
        neo_admin: admin.map(|table| group(&table, &[], findings)),
        neo_master: master.map(|table| group(&table, &[], findings)),
    }
}

/// Reads a group of settings. Reports settings that are neither its own nor inner tables.
fn group<G: Group>(table: &Table, tables: &[&'static str], findings: &mut Findings) -> G {
    let known: Vec<_> = G::keys().chain(tables.iter().copied()).collect();
    table.check_keys(&known, findings);
    let mut group = G::default();
    group.take_toml(table, findings);
    group
}

fn node_options(table: &Table, findings: &mut Findings) -> NodeOptions {
    let node: NodeOptions = group(table, &[], findings);
    // It is no path, which would be relative to the directory of the file.
    let is_on_server = node.kind_of_database() == NodeAdapter::Mysql;
    let place = table.value("database").filter(|_| is_on_server);
    match place.and_then(|place| place.get_ref().as_str()) {
        Some(database) => NodeOptions { database: database.to_owned(), ..node },
        None => node,
    }
}

fn server_options(table: &Table, findings: &mut Findings) -> ServerOptions {
    let tls = table.table("tls", "[server.tls]", findings);
    let tls = tls.map(|table| tls_options(&table, findings));
    ServerOptions { tls, ..group(table, &["tls"], findings) }
}

fn tls_options(table: &Table, findings: &mut Findings) -> TlsOptions {
    if table.has("key-password-file") && table.has("key-password-environment") {
        let message = "the password of the key is in a file or in the environment, not in both";
        findings.mistake(table.mistake("key-password-environment", message));
    }
    group(table, &[], findings)
}

fn storage_options(table: &Table, findings: &mut Findings) -> StorageOptions {
    let pack = table.table("pack", "[storage.pack]", findings);
    let pack = pack.map(|table| pack_options(&table, findings)).unwrap_or_default();
    let storage = StorageOptions { pack, ..group(table, &["pack"], findings) };
    if matches!(storage.kind, StorageKind::File { truncate: true, .. }) {
        findings.warning(&table.place_of_key("truncate"), begins_anew("truncate"));
    }
    let is_in_memory = storage.kind == StorageKind::Memory;
    if is_in_memory && (table.has("path") || table.is_true("truncate")) {
        let message = "a storage in memory has no file: remove `memory`, or `path` and `truncate`";
        findings.mistake(table.mistake("memory", message));
    }
    let is_database = table.has("sqlite");
    if is_database && (is_in_memory || table.has("path") || table.is_true("truncate")) {
        let message = "a storage is in one place: `sqlite`, or `path`, or `memory`";
        findings.mistake(table.mistake("sqlite", message));
    }
    let is_elsewhere =
        is_in_memory || is_database || table.has("path") || table.is_true("truncate");
    if table.has("neo") && is_elsewhere {
        let message = "a storage is in one place: `neo`, or `path`, `sqlite` or `memory`";
        findings.mistake(table.mistake("neo", message));
    }
    if table.has("mysql") && (is_elsewhere || table.has("neo")) {
        let message = "a storage is in one place: `mysql`, or `path`, `sqlite`, `neo` or `memory`";
        findings.mistake(table.mistake("mysql", message));
    }
    if table.has("cluster") && !is_database {
        let message = "only a storage with `sqlite` has the name of a cluster";
        findings.mistake(table.mistake("cluster", message));
    }
    let is_remote = table.has("neo") || table.has("mysql");
    let has_place = is_in_memory || is_database || is_remote || table.has("path");
    if !has_place && !table.is_misspelt("path") {
        let message = "[[storage]] needs `path`, the data file";
        let help = "or `memory = true` for one that is gone when the server ends";
        findings.mistake(table.mistake("path", message).help(help));
    }
    storage
}

fn pack_options(table: &Table, findings: &mut Findings) -> PackOptions {
    if !table.has("at") {
        for key in ["on", "keep-days"].into_iter().filter(|key| table.has(key)) {
            let message = format!("`{key}` has no effect without `at`");
            let help = "add a time of day, `at = \"03:30\"`";
            findings.mistake(table.mistake(key, message).help(help));
        }
    }
    group(table, &[], findings)
}
