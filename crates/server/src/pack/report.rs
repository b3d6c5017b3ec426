//! Reports the result of a pack, as text or as JSON.

use bytesize::ByteSize;
use serde_json::{Value, json};
use zodium_filestorage::DroppedRecord;

use super::{OfFile, Outcome};
use crate::lines::Lines;

/// `None` means that there was nothing to pack.
pub(super) fn write(lines: &Lines, outcome: Option<&Outcome>, json: bool) {
    let of_file = outcome.and_then(|outcome| outcome.of_file.as_ref());
    for record in of_file.iter().flat_map(|found| &found.dropped) {
        match json {
            true => lines.write(record_json(record)),
            false => lines.write(record_line(record)),
        }
    }
    match outcome {
        Some(outcome) if json => lines.write(summary_json(outcome)),
        Some(outcome) => write_summary(lines, outcome),
        None if json => lines.write(json!({ "kind": "summary", "packed": false })),
        None => lines.write("nothing to pack"),
    }
}

fn record_json(record: &DroppedRecord) -> Value {
    json!({
        "kind": "dropped",
        "position": record.position,
        "oid": record.oid.map(|oid| oid.to_string()),
        "tid": record.tid.to_string(),
        "what": record.what,
        "object_gone": record.is_current,
    })
}

fn record_line(record: &DroppedRecord) -> String {
    let DroppedRecord { position, oid, tid, what, is_current } = record;
    let object = oid.map_or("an unknown object".to_owned(), |oid| format!("object {oid}"));
    let became = match is_current {
        true => "the object is gone",
        false => "an old revision",
    };
    format!("{position}: dropped: {what}; {object}, transaction {tid}: {became}")
}

fn summary_json(outcome: &Outcome) -> Value {
    let Outcome { bytes_before, bytes_after, objects_before, objects_after, of_file } = outcome;
    let mut summary = json!({
        "kind": "summary",
        "packed": true,
        "bytes_before": bytes_before,
        "bytes_after": bytes_after,
        "objects_before": objects_before,
        "objects_after": objects_after,
    });
    if let (Some(OfFile { dangling, dropped, objects_dropped, garbage_kept, .. }), Some(fields)) =
        (of_file, summary.as_object_mut())
    {
        fields.insert("dangling".to_owned(), json!(dangling));
        fields.insert("dropped".to_owned(), json!(dropped.len()));
        fields.insert("objects_dropped".to_owned(), json!(objects_dropped));
        fields.insert("garbage_kept".to_owned(), json!(garbage_kept));
    }
    summary
}

fn write_summary(lines: &Lines, outcome: &Outcome) {
    let Outcome { bytes_before, bytes_after, objects_before, objects_after, of_file } = outcome;
    let freed = bytes_before.saturating_sub(*bytes_after);
    let percent = freed as f64 * 100.0 / (*bytes_before).max(1) as f64;
    lines.write(format_args!(
        "packed: {} before, {} after ({percent:.0} % freed)",
        ByteSize(*bytes_before),
        ByteSize(*bytes_after),
    ));
    lines.write(format_args!("objects: {objects_before} before, {objects_after} after"));
    let Some(OfFile { dropped, objects_dropped, garbage_kept, .. }) = of_file else { return };
    if dropped.is_empty() {
        return;
    }
    lines.write(format_args!(
        "damaged: {} dropped, {} gone",
        counted(dropped.len() as u64, "record"),
        counted(*objects_dropped, "object"),
    ));
    if *garbage_kept {
        lines.write(
            "garbage: kept, since it is not known what the dropped records refer to. Store the \
             objects that are gone again before the next pack, or it drops what only they refer to",
        );
    }
}

fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        more => format!("{more} {noun}s"),
    }
}
