//! `zeo.conf`: what `runzeo -C` reads, in the syntax of ZConfig.
//!
//! It is read in two steps. `syntax` makes a tree of sections, whatever they mean; the other
//! modules take their settings from it. Settings that runzeo does not know are not accepted here,
//! so that the file still works with runzeo. The exception is one that is written as a definition.

mod eventlog;
pub(crate) mod section;
mod storage;
mod substitution;
mod syntax;
mod zeo;

use std::path::Path;
use std::sync::Arc;

use self::section::Section;
use crate::error::{ConfigurationError, Findings, Warning};
use crate::model::Configuration;
use crate::settings::kinds::{Kind, Program};
use crate::settings::log::LogOptions;
use crate::source::Source;
use crate::surroundings::Surroundings;

/// Sections that a file may have.
const SECTIONS: [&str; 6] =
    ["zeo", "filestorage", "blobstorage", "mappingstorage", "eventlog", "runner"];

/// The setting that is a `%define`; runzeo ignores it, since no value refers to it.
const PYTHON_RESOLVER: &str = "zodium_python_resolver";

/// Sections with their settings that the table of settings has not, for the documentation's test.
#[cfg(test)]
pub(crate) const KNOWN: &[(&str, &[&str])] = &[
    ("ssl", &[zeo::PASSWORD_FUNCTION]),
    ("filestorage", &[storage::PACKER]),
    ("blobstorage", &storage::BLOBSTORAGE),
    ("mappingstorage", &storage::MAPPINGSTORAGE),
    ("eventlog", &eventlog::EVENTLOG),
    ("logfile", &eventlog::LOGFILE),
    ("syslog", &[]),
    ("runner", &[]),
];

/// Reads a `zeo.conf`. Relative paths in it are relative to the working directory.
///
/// # Errors
///
/// The file cannot be read, its syntax is wrong, or it has settings that are not supported.
pub fn read_zeo_conf(path: &Path) -> Result<(Configuration, Vec<Warning>), ConfigurationError> {
    let surroundings = Surroundings::of_this_process()?;
    interpret(&Source::read(path)?, &surroundings)
}

/// Reads the text of a `zeo.conf`. The path is for messages and for `%include`.
///
/// # Errors
///
/// As [`read_zeo_conf`].
pub fn parse_zeo_conf(
    text: &str,
    path: &Path,
    surroundings: &Surroundings,
) -> Result<(Configuration, Vec<Warning>), ConfigurationError> {
    interpret(&Source::new(path, text), surroundings)
}

pub(crate) fn interpret(
    source: &Arc<Source>,
    surroundings: &Surroundings,
) -> Result<(Configuration, Vec<Warning>), ConfigurationError> {
    let mut findings = Findings::default();
    let (whole, defined) = syntax::parse(source, surroundings, &mut findings)?;
    let program = |text: &str| Program.zeo_conf(text, surroundings);
    let python = defined.setting(PYTHON_RESOLVER, &mut findings, program);
    let mut configuration = configuration(&whole, surroundings, &mut findings);
    if let Some(configuration) = &mut configuration {
        configuration.server.python_resolver = python;
    }
    findings.conclude(configuration)
}

fn configuration(
    whole: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> Option<Configuration> {
    whole.check_keys(&[], findings);
    whole.check_sections_beside(&storage::refused_kinds(), &SECTIONS, findings);
    if let Some(runner) = whole.only("runner", findings) {
        let message = "<runner> is for zdaemon and does nothing here: start zodium from systemd \
                       or another supervisor, which restart it and know when it is ready";
        findings.warning(&runner.place, message);
    }
    let eventlog = whole.only("eventlog", findings);
    let log = eventlog.map_or_else(LogOptions::default, |eventlog| {
        eventlog::log_options(eventlog, surroundings, findings)
    });
    let storages = storage::storages(whole, surroundings, findings);
    let server = zeo::server(whole, surroundings, findings)?;
    Some(Configuration { server, storages, log, ..Configuration::default() })
}
