//! `zodium check`: reports whether a data file is whole.

use std::cell::RefCell;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use bytesize::ByteSize;
use clap::Args;
use serde_json::{Value, json};
use zodium_blobs::BlobDirectory;
use zodium_disk::RealDisk;
use zodium_filestorage::{
    BlobsToCheck, Checked, CheckedBlobs, ChecksumMode, Damage, FileStorage, FileStorageError,
    IndexVerdict, OpenOptions,
};
use zodium_tools::btrees::{self, BTreeDamage, BTreesChecked};
use zodium_tools::references::CurrentObjects;

use crate::progress::Progress;

/// Exit code for a file that cannot be read or written, and for a wrong command line.
pub(crate) const UNREADABLE: u8 = 2;
/// Bytes whose checksums are computed between two reports of progress.
const COVER_BYTES: u64 = 8 << 20;
/// How long an end that seems unfinished may be a commit in progress.
const PATIENCE: Duration = Duration::from_secs(1);

/// Options of `zodium check`.
#[derive(Debug, Args)]
pub(crate) struct CheckOptions {
    /// The data file (Data.fs)
    file: PathBuf,

    /// Also report references to objects that do not exist
    #[arg(long)]
    references: bool,

    /// Also report data of objects, and extensions of transactions, that are not pickles
    #[arg(long)]
    pickles: bool,

    /// Also report BTrees whose keys, bounds, buckets or chains of buckets contradict each other
    ///
    /// Looks at current objects, of all families of BTrees. Classes are not imported, so keys whose
    /// order only Python knows are counted and not compared.
    #[arg(long)]
    btrees: bool,

    /// Also report blobs whose files are missing in this blob directory, or have another length
    /// than was committed. Files without a record are reported too, and are not damage
    #[arg(long, value_name = "DIRECTORY")]
    blob_dir: Option<PathBuf>,

    /// With --blob-dir: also read all blobs, and compare their bytes with the checksums that were
    /// recorded at their commit. Takes as long as copying them
    #[arg(long, requires = "blob_dir")]
    blob_data: bool,

    /// If nothing is wrong, compute the checksums that are missing beside the file. It must not be
    /// served meanwhile; a server computes them itself
    #[arg(long)]
    write_checksums: bool,

    /// Print JSON: one object a line for each damage, and a summary at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &CheckOptions) -> Result<ExitCode> {
    let lines = Lines::new();
    let progress = Progress::new(format!("checking {}", options.file.display()));
    let directory = options.blob_dir.as_deref();
    let directory = directory.map(|path| BlobDirectory::open(Arc::new(RealDisk), path, true));
    let directory = match directory.transpose() {
        Ok(directory) => directory,
        Err(error) => return lines.unreadable(&error.into()),
    };
    let outcome = zodium_filestorage::check_with_blobs(
        &RealDisk,
        &zodium_filestorage::CheckOptions {
            path: options.file.clone(),
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
        match check_btrees(options, &lines) {
            Ok(damages) => checked.damages += damages,
            Err(error) => return lines.failed(&error),
        }
    }
    match options.json {
        true => lines.write(summary_json(&checked)),
        false => lines.write(summary(options, &checked)),
    }
    lines.finish()?;
    if options.write_checksums && checked.damages == 0 && checked.uncovered > 0 {
        write_checksums(options)?;
    }
    Ok(if checked.damages == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks the BTrees of the file; the number of damaged places.
fn check_btrees(options: &CheckOptions, lines: &Lines) -> Result<u64> {
    let read_only =
        OpenOptions { read_only: true, create: false, ..OpenOptions::new(&options.file) };
    let storage = FileStorage::open(Arc::new(RealDisk), &read_only)?;
    let objects = CurrentObjects::of(&storage, storage.last_tid())?;
    let checked = btrees::check_btrees(&objects, &mut |damage| {
        let BTreeDamage { oid, class, what } = damage;
        match options.json {
            true => lines.write(json!({
                "kind": "btree",
                "oid": oid.to_string(),
                "class": class,
                "what": what,
            })),
            false => lines.write(format_args!(
                "BTree: object {oid}{}: {what}",
                class.map_or(String::new(), |class| format!(" ({class})"))
            )),
        }
        Ok(())
    })?;
    let BTreesChecked { trees, leaves, keys, uncertain, damages } = checked;
    match options.json {
        true => lines.write(json!({
            "kind": "btrees",
            "trees": trees,
            "leaves": leaves,
            "keys": keys,
            "uncertain": uncertain,
            "damages": damages,
        })),
        false => lines.write(format_args!(
            "BTrees: trees {trees}, buckets {leaves}, keys {keys}, comparisons left to Python \
             {uncertain}"
        )),
    }
    Ok(damages)
}

fn write_checksums(options: &CheckOptions) -> Result<()> {
    let progress = Progress::new(format!("computing checksums of {}", options.file.display()));
    let storage = FileStorage::open(
        Arc::new(RealDisk),
        &OpenOptions {
            create: false,
            checksums: ChecksumMode::Full,
            progress: &|done, total| progress.report(done, total),
            ..OpenOptions::new(&options.file)
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

fn summary(options: &CheckOptions, checked: &Checked) -> String {
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
        options.file.display(),
        ByteSize(*bytes),
    )
}

/// Lines on standard output. If it is closed the work goes on, for its exit code.
pub(crate) struct Lines {
    output: RefCell<io::Result<BufWriter<io::Stdout>>>,
}

impl Lines {
    pub(crate) fn new() -> Lines {
        Lines { output: RefCell::new(Ok(BufWriter::new(io::stdout()))) }
    }

    pub(crate) fn write(&self, line: impl std::fmt::Display) {
        let mut output = self.output.borrow_mut();
        let written = output.as_mut().map(|output| writeln!(output, "{line}"));
        if let Ok(Err(error)) = written {
            *output = Err(error);
        }
    }

    /// Flushes what was written.
    pub(crate) fn finish(self) -> Result<()> {
        match self.output.into_inner().and_then(|mut output| output.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Ends a command that failed in the middle.
    fn failed(self, error: &anyhow::Error) -> Result<ExitCode> {
        self.finish()?;
        eprintln!("zodium: {error:#}");
        Ok(ExitCode::from(UNREADABLE))
    }

    /// Ends a command that failed.
    pub(crate) fn unreadable(self, error: &FileStorageError) -> Result<ExitCode> {
        self.finish()?;
        eprintln!("zodium: {error}");
        Ok(ExitCode::from(UNREADABLE))
    }
}
