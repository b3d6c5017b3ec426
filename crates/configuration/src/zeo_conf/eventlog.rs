//! `<eventlog>`: destinations and level of the log.

use super::section::Section;
use crate::error::Findings;
use crate::settings::kinds::{Kind, zconfig_values};
use crate::settings::log::{Destination, LogDestination, LogOptions};
use crate::surroundings::Surroundings;

pub(super) const EVENTLOG: [&str; 1] = ["level"];

pub(super) const LOGFILE: [&str; 13] = [
    "path",
    "level",
    "max-size",
    "when",
    "interval",
    "old-files",
    "format",
    "dateformat",
    "formatter",
    "style",
    "arbitrary-fields",
    "encoding",
    "delay",
];

/// Log handlers that do not write to a file.
pub(super) const OTHER_HANDLERS: [&str; 4] =
    ["syslog", "win32-eventlog", "http-logger", "email-notifier"];

/// Settings of log rotation.
const ROTATION: [&str; 4] = ["max-size", "when", "interval", "old-files"];

/// Settings of the format of log lines.
const LOOKS: [&str; 7] =
    ["format", "dateformat", "formatter", "style", "arbitrary-fields", "encoding", "delay"];

/// Python's level of a handler without a threshold of its own.
const NOTSET: u8 = 0;

/// The log of an `<eventlog>`.
pub(super) fn log_options(
    eventlog: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> LogOptions {
    eventlog.check_keys(&EVENTLOG, findings);
    let known: Vec<_> = ["logfile"].into_iter().chain(OTHER_HANDLERS).collect();
    eventlog.check_sections(&known, findings);
    let level = eventlog.setting("level", findings, level).unwrap_or(20);
    let mut destinations = Vec::new();
    let mut levels = Vec::new();
    for handler in &eventlog.sections {
        if handler.kind == "logfile" {
            destinations.extend(logfile(handler, surroundings, findings));
            levels.push(handler.setting("level", findings, self::level).unwrap_or(NOTSET));
        } else {
            let message = format!(
                "<{}> is ignored: let the log go to standard error, and to wherever you need \
                 it from there (systemd's journal, a log collector)",
                handler.kind
            );
            findings.warning(&handler.place, message);
        }
    }
    if destinations.is_empty() {
        let message = "no <logfile> is left in <eventlog>: logging to standard error";
        findings.warning(&eventlog.place, message);
        destinations.push(LogDestination::Stderr);
    }
    let level = common_level(eventlog, level, &levels, findings);
    LogOptions { destinations, level: name_of(level).to_owned(), ..LogOptions::default() }
}

/// The lowest of the files' effective thresholds.
fn common_level(eventlog: &Section, level: u8, files: &[u8], findings: &mut Findings) -> u8 {
    let thresholds = || files.iter().map(|file| level.max(*file));
    let lowest = thresholds().min().unwrap_or(level);
    if thresholds().any(|threshold| name_of(threshold) != name_of(lowest)) {
        let name = name_of(lowest);
        let message = format!("all log files get the same lines, those from {name} on");
        findings.warning(&eventlog.place, message);
    }
    lowest
}

fn logfile(
    section: &Section,
    surroundings: &Surroundings,
    findings: &mut Findings,
) -> Option<LogDestination> {
    section.check_keys(&LOGFILE, findings);
    section.check_sections(&[], findings);
    let given = |keys: &[&str]| {
        let is_given = |key: &&&str| section.value(key).is_some_and(|value| !is_none(&value.text));
        let given = keys.iter().filter(is_given).copied();
        given.collect::<Vec<_>>().join(", ")
    };
    let rotation = given(&ROTATION);
    if !rotation.is_empty() {
        let message = format!(
            "{rotation}: ignored, log files are not turned over here: let logrotate do it, and \
             send SIGUSR2 to have them opened anew"
        );
        findings.warning(&section.place, message);
    }
    let looks = given(&LOOKS);
    if !looks.is_empty() {
        let message = format!("{looks}: ignored, lines look as `format` in TOML says");
        findings.warning(&section.place, message);
    }
    section.require("path", findings);
    section.setting("path", findings, |text| Destination.zeo_conf(text, surroundings))
}

/// Whether a rotation setting means no rotation.
fn is_none(text: &str) -> bool {
    matches!(text, "" | "0")
}

/// A level of Python's logging, by name or number.
fn level(text: &str) -> Result<u8, String> {
    let level = match &text.to_lowercase()[..] {
        "critical" | "fatal" => 50,
        "error" => 40,
        "warn" | "warning" => 30,
        "info" => 20,
        "blather" => 15,
        "debug" => 10,
        "trace" => 5,
        "all" => 1,
        "notset" => NOTSET,
        number => zconfig_values::integer(number)
            .ok()
            .and_then(|number| u8::try_from(number).ok())
            .filter(|number| *number <= 50)
            .ok_or_else(|| {
                format!(
                    "{text:?} is not a level: give critical, error, warn, info, blather, debug, \
                     trace, all, notset, or a number up to 50"
                )
            })?,
    };
    Ok(level)
}

/// The log level that admits the same lines as a threshold of Python.
fn name_of(threshold: u8) -> &'static str {
    match threshold {
        31.. => "error",
        21..=30 => "warn",
        11..=20 => "info",
        6..=10 => "debug",
        _ => "trace",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_let_the_same_lines_through_as_pythons() {
        let ours = [("error", 40), ("warn", 30), ("info", 20), ("debug", 10), ("trace", 5)];
        for threshold in 0..=40 {
            let passing = ours.iter().rev().find(|(_, number)| *number >= threshold);
            assert_eq!(passing.map(|(name, _)| *name), Some(name_of(threshold)), "{threshold}");
        }
        assert_eq!(level("Fatal"), Ok(50));
        assert_eq!(level("15"), level("BLATHER"));
        assert!(level("51").is_err() && level("-1").is_err() && level("loud").is_err());
    }
}
