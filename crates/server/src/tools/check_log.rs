//! `zodium check` of a storage that is no file.

use std::process::ExitCode;

use anyhow::Result;
use bytesize::ByteSize;
use serde_json::{Value, json};
use zodium_tools::check::{LogCheck, LogChecked, LogDamage, check_log};

use super::check_btrees::{check_btrees, unless_damaged};
use super::check_options::CheckOptions;
use super::storage_name::StorageName;
use crate::lines::Lines;
use crate::progress::Progress;

/// What only a data file shows.
const NOT_CHECKED: [&str; 3] = ["how the storage keeps its bytes", "blobs", "checksums"];

pub(super) fn run(options: &CheckOptions, name: &StorageName) -> Result<ExitCode> {
    let storage = options.storage.how().read(name)?.storage;
    let lines = Lines::new();
    let check = LogCheck { references: options.references, pickles: options.pickles };
    let progress = Progress::of_log(format!("checking {}", storage.name()), &*storage);
    let checked =
        check_log(&*storage, check, &mut |bytes| progress.advance(bytes), &mut |damage| {
            match options.json {
                true => lines.write(damage_json(damage)),
                false => lines.write(damage_line(damage)),
            }
        });
    drop(progress);
    let mut checked = match checked {
        Ok(checked) => checked,
        Err(error) => return lines.failed(&error.into()),
    };
    if options.btrees {
        let outcome = check_btrees(options, &*storage, &lines);
        match unless_damaged(options, outcome, checked.damages, &lines) {
            Ok(damages) => checked.damages += damages,
            Err(error) => return lines.failed(&error),
        }
    }
    match options.json {
        true => lines.write(summary_json(&checked)),
        false => lines.write(summary(&storage.name(), &checked)),
    }
    lines.finish()?;
    Ok(if checked.damages == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn damage_line(damage: &LogDamage) -> String {
    let LogDamage { oid, tid, what, .. } = damage;
    let object = oid.map_or(String::new(), |oid| format!(", object {oid}"));
    let transaction = tid.map_or(String::new(), |tid| format!(", transaction {tid}"));
    format!("{what}{object}{transaction}")
}

fn damage_json(damage: &LogDamage) -> Value {
    json!({
        "kind": damage.kind.name(),
        "what": damage.what,
        "oid": damage.oid.map(|oid| oid.to_string()),
        "tid": damage.tid.map(|tid| tid.to_string()),
    })
}

fn summary_json(checked: &LogChecked) -> Value {
    let LogChecked { bytes, transactions, records, objects, damages } = checked;
    json!({
        "kind": "summary",
        "bytes": bytes,
        "transactions": transactions,
        "records": records,
        "objects": objects,
        "damages": damages,
        "not_checked": NOT_CHECKED,
    })
}

fn summary(name: &str, checked: &LogChecked) -> String {
    let LogChecked { bytes, transactions, records, objects, damages } = checked;
    let found = match damages {
        0 => "whole".to_owned(),
        1 => "1 damage".to_owned(),
        more => format!("{more} damages"),
    };
    format!(
        "{name}: {found} ({} of data, {transactions} transactions, {records} records, {objects} \
         objects; not checked: {})",
        ByteSize(*bytes),
        NOT_CHECKED.join(", "),
    )
}
