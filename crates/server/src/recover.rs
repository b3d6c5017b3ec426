//! `zodium recover`: copies the whole transactions of a damaged data file into a new one.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use bytesize::ByteSize;
use clap::Args;
use serde_json::{Value, json};
use zodium_disk::{RealDisk, with_suffix};
use zodium_filestorage::{FileStorageError, RecoveryKind, RecoveryNote, RecoverySummary};
use zodium_types::{Oid, Tid};

use crate::lines::Lines;
use crate::progress::Progress;
use crate::tools::part::Part;
use crate::tools::storage_name::StorageName;

/// Most ids on a line of text; `--json` has all.
const NAMED_MAX: usize = 10;

/// Options of `zodium recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverOptions {
    /// The damaged data file
    file: PathBuf,

    /// The new data file, which must not exist
    out: PathBuf,

    /// Also copy whole records out of damaged transactions
    #[arg(long)]
    partial: bool,

    /// Leave out transactions and records that do not match their checksums, though their
    /// structure is whole. By default they are copied as they are, and reported
    #[arg(long)]
    drop_mismatches: bool,

    /// Print JSON: one object a line for each part left out or repaired, and a summary at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &RecoverOptions) -> Result<ExitCode> {
    let lines = Lines::new();
    // An index that is there would be used as that of the new file.
    let index = with_suffix(&options.out, ".index");
    let mut names = [&options.out, &index].into_iter();
    if let Some(there) = names.find(|name| name.symlink_metadata().is_ok()) {
        return lines.failed(&anyhow!("{} exists already: name a new file", there.display()));
    }
    if Part::would_replace(&options.file, &options.out) {
        let (file, out) = (options.file.display(), options.out.display());
        return lines
            .failed(&anyhow!("{file} would be replaced while {out} is written: name another"));
    }
    // A part that a killed process leaves must not be taken for the recovered file.
    let part = match Part::begin(&StorageName::File(options.out.clone())) {
        Ok(part) => part,
        Err(error) => return lines.failed(&error),
    };
    let summary = match recover(options, &part.written, &lines) {
        Ok(summary) => summary,
        Err(error) => {
            part.discard();
            return lines.unreadable(&error);
        }
    };
    if let Err(error) = part.finish() {
        return lines.failed(&error);
    }
    match options.json {
        true => lines.write(summary_json(&summary)),
        false => lines.write(in_words(options, &summary)),
    }
    lines.finish()?;
    let is_clean = [summary.left_out, summary.mismatches, summary.redated] == [0; 3];
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Copies to a new file, and tells of what is left out or repaired.
fn recover(
    options: &RecoverOptions,
    to: &Path,
    lines: &Lines,
) -> Result<RecoverySummary, FileStorageError> {
    let progress = Progress::new(format!("recovering {}", options.file.display()));
    zodium_filestorage::recover(
        &RealDisk,
        &zodium_filestorage::RecoverOptions {
            from: options.file.clone(),
            to: to.to_owned(),
            partial: options.partial,
            drop_mismatches: options.drop_mismatches,
            progress: &|done, total| progress.report(done, total),
        },
        &mut |note| match options.json {
            true => lines.write(note_json(note)),
            false => lines.write(line(note)),
        },
    )
}

fn note_json(note: &RecoveryNote) -> Value {
    json!({
        "kind": kind(note),
        "start": note.start,
        "end": note.end,
        "what": note.what,
        "tids": note.tids.iter().map(Tid::to_string).collect::<Vec<_>>(),
        "oids": note.oids.iter().map(Oid::to_string).collect::<Vec<_>>(),
        "records_kept": note.records_kept,
    })
}

fn kind(note: &RecoveryNote) -> &'static str {
    match note.kind {
        RecoveryKind::LeftOut => "left-out",
        RecoveryKind::Mended => "mended",
        _ => "mismatch",
    }
}

fn line(note: &RecoveryNote) -> String {
    let mut line = match note.kind {
        RecoveryKind::LeftOut => {
            format!("{}: left out up to {}: {}", note.start, note.end, note.what)
        }
        RecoveryKind::Mended => format!("{}: mended: {}", note.start, note.what),
        _ => format!("{}: taken as it is: {}", note.start, note.what),
    };
    if note.records_kept > 0 {
        line += &format!(", but for {} records", note.records_kept);
    }
    line += &named("object", &note.oids);
    line += &named("transaction", &note.tids);
    line
}

/// The first ids of a list, and the number of the others.
fn named(kind: &str, ids: &[impl Display]) -> String {
    let first: Vec<_> = ids.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    match ids.len() - first.len() {
        _ if ids.is_empty() => String::new(),
        0 => format!(", {kind} {}", first.join(" ")),
        more => format!(", {kind} {} and {more} more", first.join(" ")),
    }
}

fn summary_json(summary: &RecoverySummary) -> Value {
    json!({
        "kind": "summary",
        "bytes_before": summary.bytes_before,
        "bytes_after": summary.bytes_after,
        "bytes_left_out": summary.bytes_left_out,
        "transactions": summary.transactions,
        "transactions_partial": summary.transactions_partial,
        "records": summary.records,
        "left_out": summary.left_out,
        "mended": summary.mended,
        "redated": summary.redated,
        "mismatches": summary.mismatches,
        "checksums_not_used": summary.distrust.map(|reason| reason.to_string()),
    })
}

fn in_words(options: &RecoverOptions, summary: &RecoverySummary) -> String {
    let RecoverySummary { transactions, transactions_partial, records, .. } = summary;
    let left_out = match summary.left_out {
        0 => "nothing left out".to_owned(),
        places => {
            let unit = if places == 1 { "place" } else { "places" };
            format!("{} bytes left out in {places} {unit}", summary.bytes_left_out)
        }
    };
    let mut words = format!(
        "{}: {left_out}, {} mended; {} with {transactions} transactions ({transactions_partial} of \
         them in part) and {records} records",
        options.out.display(),
        summary.mended,
        ByteSize(summary.bytes_after),
    );
    if summary.mismatches > 0 {
        words += &format!(
            "; {} of them do not fit their checksums and were taken as they are \
             (--drop-mismatches leaves them out)",
            summary.mismatches
        );
    }
    if summary.redated > 0 {
        words += &format!(
            "; {} transactions have other tids now: if they wrote blobs, rename the files in the \
             blob directory (0xOLD.blob to 0xNEW.blob)",
            summary.redated
        );
    }
    if let Some(reason) = summary.distrust {
        words += &format!("; checksums not used: {reason}");
    }
    words
}
