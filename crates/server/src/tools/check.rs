//! `zodium check` of a data file.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use bytesize::ByteSize;
use serde_json::{Value, json};
use zodium_blobs::BlobDirectory;
use zodium_disk::RealDisk;
use zodium_filestorage::{
    BlobsToCheck, Checked, CheckedBlobs, ChecksumMode, Damage, FileStorage, IndexVerdict,
    OpenOptions,
};

use super::check_btrees::{check_btrees, unless_damaged};
use super::check_log;
use super::check_options::CheckOptions;
use super::open::check_presence;
use super::storage_name::StorageName;
use crate::lines::Lines;
use crate::progress::Progress;

/// Bytes whose checksums are computed between two reports of progress.
const COVER_BYTES: u64 = 8 << 20;
/// How long an end that seems unfinished may be a commit in progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the command.
pub(super) fn run(options: &CheckOptions) -> Result<ExitCode> {
    let name = options.storage.alone()?;
    let StorageName::File(path) = &name else {
        let unsuited = [
            ("--blob-dir", options.blob_dir.is_some()),
            ("--blob-data", options.blob_data),
            ("--write-checksums", options.write_checksums),
        ];
        if let Some((option, _)) = unsuited.iter().find(|(_, is_given)| *is_given) {
            bail!("{option} is for data files, and this storage is none");
        }
        return check_log::run(options, &name);
    };
    check_file(options, path)
}

fn check_file(options: &CheckOptions, path: &Path) -> Result<ExitCode> {
    let lines = Lines::new();
    check_presence(path)?;
    let directory = options.storage.how().blob_directory(options.blob_dir.as_deref())?;
    if options.blob_data && directory.is_none() {
        bail!("--blob-data needs --blob-dir: where the blobs of the file are");
    }
    let progress = Progress::new(format!("checking {}", path.display()));
    let directory = directory.as_deref();
    let directory = directory.map(|folder| BlobDirectory::open(Arc::new(RealDisk), folder, true));
    let directory = match directory.transpose() {
        Ok(directory) => directory,
        Err(error) => return lines.unreadable(&error.into()),
    };
    let outcome = zodium_filestorage::check_with_blobs(
        &RealDisk,
        &zodium_filestorage::CheckOptions {
            path: path.to_owned(),
            references: options.references,
            pickles: options.pickles,
            patience: PATIENCE,
            progress: &|done, total| progress.report(done, total),
        },
        directory.as_ref().map(|directory| BlobsToCheck { directory, data: options.blob_data }),
        &mut |damage| match options.json {
            true => lines.write(damage_json(damage)),
            false => lines.write(damage),
        },
    );
    drop(progress);
    let mut checked = match outcome {
        Ok(checked) => checked,
        Err(error) => return lines.unreadable(&error),
    };
    if options.btrees {
        let outcome = btrees_of_file(options, path, &lines);
        match unless_damaged(options, outcome, checked.damages, &lines) {
            Ok(damages) => checked.damages += damages,
            Err(error) => return lines.failed(&error),
        }
    }
    match options.json {
        true => lines.write(summary_json(&checked)),
        false => lines.write(summary(path, &checked)),
    }
    lines.finish()?;
    if options.write_checksums && checked.damages == 0 && checked.uncovered > 0 {
        write_checksums(path)?;
        if !options.json {
            let lines = Lines::new();
            lines.write(format_args!("{}: the missing checksums were written", path.display()));
            lines.finish()?;
        }
    }
    Ok(if checked.damages == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn btrees_of_file(options: &CheckOptions, path: &Path, lines: &Lines) -> Result<u64> {
    let read_only = OpenOptions { read_only: true, create: false, ..OpenOptions::new(path) };
    let storage = FileStorage::open(Arc::new(RealDisk), &read_only)?;
    check_btrees(options, &storage, lines)
}

fn write_checksums(path: &Path) -> Result<()> {
    let progress = Progress::new(format!("computing checksums of {}", path.display()));
    let storage = FileStorage::open(
        Arc::new(RealDisk),
        &OpenOptions {
            create: false,
            checksums: ChecksumMode::Full,
            progress: &|done, total| progress.report(done, total),
            ..OpenOptions::new(path)
        },
    )?;
    let total = storage.uncovered_bytes();
    while storage.cover(COVER_BYTES) > 0 {
        progress.report(total - storage.uncovered_bytes(), total);
    }
    let missing = storage.uncovered_bytes();
    storage.close()?;
    anyhow::ensure!(missing == 0, "the checksums of {missing} bytes could not be written");
    Ok(())
}

fn damage_json(damage: &Damage) -> Value {
    json!({
        "kind": damage.kind.name(),
        "position": damage.position,
        "what": damage.what,
        "oid": damage.oid.map(|oid| oid.to_string()),
        "tid": damage.tid.map(|tid| tid.to_string()),
    })
}

fn index_name(verdict: IndexVerdict) -> &'static str {
    match verdict {
        IndexVerdict::None => "none",
        IndexVerdict::Agrees => "agrees",
        IndexVerdict::Differs => "differs",
    }
}

fn summary_json(checked: &Checked) -> Value {
    json!({
        "kind": "summary",
        "bytes": checked.bytes,
        "transactions": checked.transactions,
        "records": checked.records,
        "objects": checked.objects,
        "damages": checked.damages,
        "index": index_name(checked.index),
        "checksums": checked.has_checksums,
        "checksums_not_used": checked.distrust.map(|reason| reason.to_string()),
        "covered": checked.covered,
        "uncovered": checked.uncovered,
        "blobs": checked.blobs.map(blobs_json),
    })
}

/// `null` when the two could not be compared.
fn blobs_json(blobs: CheckedBlobs) -> Value {
    match blobs {
        CheckedBlobs { is_replaced: true, .. } => Value::Null,
        CheckedBlobs { records, missing, damaged, unrecorded, orphaned, .. } => json!({
            "records": records,
            "missing": missing,
            "damaged": damaged,
            "unrecorded": unrecorded,
            "orphaned": orphaned,
        }),
    }
}

fn summary(path: &Path, checked: &Checked) -> String {
    let Checked { bytes, transactions, records, objects, damages, index, .. } = checked;
    let found = match damages {
        0 => "whole".to_owned(),
        1 => "1 damage".to_owned(),
        more => format!("{more} damages"),
    };
    let index = match index {
        IndexVerdict::None => "no index file",
        IndexVerdict::Agrees => "the index file agrees",
        IndexVerdict::Differs => "the index file differs",
    };
    let checksums = match (checked.distrust, checked.has_checksums, checked.uncovered) {
        (Some(reason), ..) => format!("checksums not used: {reason}"),
        (None, false, _) => "no checksums".to_owned(),
        (None, true, 0) => "all have checksums".to_owned(),
        (None, true, some) => format!("{} have checksums, {some} do not", checked.covered),
    };
    let blobs = match checked.blobs {
        None => String::new(),
        Some(CheckedBlobs { is_replaced: true, .. }) => {
            "; the file was packed meanwhile: check the blobs again".to_owned()
        }
        Some(CheckedBlobs { records, missing, damaged, unrecorded, orphaned, .. }) => format!(
            "; {records} blobs, {missing} missing, {damaged} damaged, {unrecorded} without a \
             recorded length, {orphaned} files of no record"
        ),
    };
    format!(
        "{}: {found} ({}, {transactions} transactions, {records} records, {objects} objects; \
         {index}; {checksums}{blobs})",
        path.display(),
        ByteSize(*bytes),
    )
}
