//! `[[storage]]` and `[storage.pack]`.

use super::table::Table;
use super::values;
use crate::error::Findings;
use crate::model::{Checksums, PackOptions, PackSchedule, StorageKind, StorageOptions};

pub(super) const STORAGE: [&str; 12] = [
    "name",
    "path",
    "memory",
    "truncate",
    "blob-directory",
    "read-only",
    "cache-size",
    "quota",
    "checksums",
    "scrub-interval",
    "allow",
    "pack",
];

pub(super) const PACK: [&str; 6] =
    ["garbage-collection", "keep-old", "abort-on-dangling", "at", "on", "keep-days"];

/// The name of a storage without one, as in ZEO.
const DEFAULT_NAME: &str = "1";

pub(super) fn storage(table: &Table, findings: &mut Findings) -> Option<StorageOptions> {
    table.check_keys(&STORAGE, findings);
    let document = table.document;
    let name = table.setting("name", findings, values::text);
    let pack = table.table("pack", "[storage.pack]", findings);
    let pack = pack.map(|table| pack_options(&table, findings)).unwrap_or_default();
    let blob_directory = table.setting("blob-directory", findings, |value| document.path(value));
    let read_only = table.setting("read-only", findings, values::boolean);
    let cache_bytes = table.setting("cache-size", findings, values::bytes);
    let quota_bytes = table.setting("quota", findings, values::bytes);
    let checksums =
        table.setting("checksums", findings, |word| values::choice(word, &Checksums::NAMED));
    let scrub_interval = table.setting("scrub-interval", findings, values::duration);
    let allow = table.list("allow", findings, values::text);
    let kind = kind(table, findings)?;
    let defaults = StorageOptions::new(name.unwrap_or_else(|| DEFAULT_NAME.to_owned()), kind);
    Some(StorageOptions {
        blob_directory,
        read_only: read_only.unwrap_or(defaults.read_only),
        cache_bytes: cache_bytes.unwrap_or(defaults.cache_bytes),
        quota_bytes,
        checksums: checksums.unwrap_or(defaults.checksums),
        scrub_interval: match scrub_interval {
            Some(interval) => Some(interval).filter(|interval| !interval.is_zero()),
            None => defaults.scrub_interval,
        },
        pack,
        allow,
        ..defaults
    })
}

fn kind(table: &Table, findings: &mut Findings) -> Option<StorageKind> {
    let path = table.setting("path", findings, |value| table.document.path(value));
    let memory = table.setting("memory", findings, values::boolean).unwrap_or(false);
    let truncate = table.setting("truncate", findings, values::boolean).unwrap_or(false);
    if memory && (table.has("path") || truncate) {
        let message = "a storage in memory has no file: remove `memory`, or `path` and `truncate`";
        findings.mistake(table.mistake("memory", message));
        return None;
    }
    if !memory && !table.has("path") && !table.is_misspelt("path") {
        let message = "[[storage]] needs `path`, the data file";
        let help = "or `memory = true` for one that is gone when the server ends";
        findings.mistake(table.mistake("path", message).help(help));
    }
    if memory {
        Some(StorageKind::Memory)
    } else {
        Some(StorageKind::File { path: path?, truncate })
    }
}

fn pack_options(table: &Table, findings: &mut Findings) -> PackOptions {
    table.check_keys(&PACK, findings);
    let defaults = PackOptions::default();
    let mut flag = |key, default| table.setting(key, findings, values::boolean).unwrap_or(default);
    PackOptions {
        garbage_collection: flag("garbage-collection", defaults.garbage_collection),
        keep_old: flag("keep-old", defaults.keep_old),
        abort_on_dangling: flag("abort-on-dangling", defaults.abort_on_dangling),
        schedule: schedule(table, findings),
    }
}

fn schedule(table: &Table, findings: &mut Findings) -> Option<PackSchedule> {
    let at = table.setting("at", findings, values::time_of_day);
    let on = table.list("on", findings, values::weekday);
    let keep_days = table.setting("keep-days", findings, values::days);
    if !table.has("at") {
        for key in ["on", "keep-days"].into_iter().filter(|key| table.has(key)) {
            let message = format!("`{key}` has no effect without `at`");
            let help = "add a time of day, `at = \"03:30\"`";
            findings.mistake(table.mistake(key, message).help(help));
        }
    }
    Some(PackSchedule {
        at: at?,
        on: on.unwrap_or_default(),
        keep_days: keep_days.unwrap_or(PackSchedule::KEEP_DAYS_DEFAULT),
    })
}
