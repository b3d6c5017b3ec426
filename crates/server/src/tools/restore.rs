//! `zodium restore`.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use bytesize::ByteSize;
use clap::Args;
use jiff::{Timestamp, Zoned};
use rustix::fs::{Advice, fadvise};
use serde_json::json;
use zodium_backup::BackupError;
use zodium_backup::repository::{
    BlobTarget, Point, Repository, RestoreTarget, Restored, is_repository, restore, restored_point,
};
use zodium_backup::repozo::{self, Date};
use zodium_storage::{LogItem, StorageError};
use zodium_tools::classes::is_blob;
use zodium_tools::load::{LocalRestore, Restore};
use zodium_tools::{ToolError, parse_tid};
use zodium_types::{Oid, Tid};

use super::DIFFERENT;
use super::blob_part::BlobPart;
use super::blobs::BlobFolder;
use super::open::{OpenArguments, Writable};
use super::output::Output;
use super::part::Part;
use super::repositories::{RepositoryArguments, check_repozo_blobs, folder_of};
use super::storage_name::StorageName;
use crate::progress::Progress;
use crate::streams::complain;

/// More than the time between two tids, in nanoseconds.
const TID_NANOS: i128 = 100;

/// Options of `zodium restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreOptions {
    /// The repository of the backups: a folder, or the URL of an object store
    #[arg(value_name = "REPOSITORY")]
    source: String,

    /// The storage to restore to, which must not exist: a data file or sqlite://PATH
    output: String,

    #[command(flatten)]
    repository: RepositoryArguments,

    /// Restore blobs too, to this blob directory, which must be empty or absent
    #[arg(long, value_name = "DIRECTORY")]
    blob_dir: Option<PathBuf>,

    /// Restore what was there at this time, or after this transaction [default: the last backup]
    ///
    /// Of a repozo folder the last backup that was made by then, and YYYY-MM-DD-HH-MM-SS or the
    /// beginning of it is a time too, as for repozo.
    #[arg(long, value_name = "TID|TIME")]
    at: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(options: &RestoreOptions) -> Result<ExitCode> {
    match folder_of(&options.source) {
        Some(folder) if !is_repository(folder) => restore_repozo(options, folder),
        _ => restore_own(options),
    }
}

fn restore_repozo(options: &RestoreOptions, folder: &Path) -> Result<ExitCode> {
    if repozo::is_repozo(folder) {
        check_repozo_blobs(folder, options.blob_dir.as_deref())?;
    }
    let until = options.at.as_deref().map(date).transpose()?;
    let StorageName::File(path) = StorageName::parse(&options.output)? else {
        bail!("a repozo folder is restored to a data file; give its path");
    };
    let restored = repozo::restore(folder, until.as_ref(), &path)?;
    let mut output = Output::new()?;
    match options.json {
        true => output.line(json!({ "bytes": restored.bytes, "last": restored.last }))?,
        false => {
            let bytes = ByteSize(restored.bytes);
            output.line(format_args!("restored {bytes}, up to {}", restored.last))?;
        }
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn restore_own(options: &RestoreOptions) -> Result<ExitCode> {
    let at = options.at.as_deref().map(|text| parse_tid(text, &Zoned::now())).transpose()?;
    let name = StorageName::parse(&options.output)?;
    if name.path().is_none() {
        bail!(
            "{}: backups are restored to a data file or sqlite://PATH; restore to one, then \
             `zodium copy` it",
            options.output
        );
    }
    if !name.is_absent() {
        bail!("{} exists already; restore to another path", options.output);
    }
    let repository = options.repository.open(&options.source)?;
    let point = restored_point(&repository, at)?;
    let part = Part::begin(&name)?;
    let blobs = match options.blob_dir.as_deref().map(BlobPart::begin).transpose() {
        Ok(blobs) => blobs,
        Err(error) => {
            part.discard();
            return Err(error);
        }
    };
    let done = match write(options, &repository, (&point, at), &part.name) {
        Ok(written) => {
            // A storage that is there has its blobs.
            finish(&name, part, blobs)?;
            written
        }
        Err(error) => {
            part.discard();
            blobs.into_iter().for_each(BlobPart::discard);
            return Err(error);
        }
    };
    report(options, &point, &done)
}

/// Moves what is written to its place. A storage that is there has its blobs.
fn finish(name: &StorageName, part: Part, blobs: Option<BlobPart>) -> Result<()> {
    blobs.as_ref().map_or(Ok(()), BlobPart::finish)?;
    let finished = part.finish();
    // The next restore replaces blobs without a storage.
    if let Some(blobs) = blobs.filter(|_| finished.is_err() && name.is_absent()) {
        blobs.mark_again();
    }
    finished
}

/// What was written.
struct Written {
    restored: Restored,
    last: Tid,
    /// Records of blobs that no point has.
    missing_blobs: u64,
}

/// Prints what was restored.
fn report(options: &RestoreOptions, point: &Point, done: &Written) -> Result<ExitCode> {
    let Written { restored: Restored { transactions, blobs_left_out }, last, missing_blobs } = done;
    let (mut output, number) = (Output::new()?, point.number);
    match options.json {
        true => output.line(json!({
            "point": number,
            "transactions": transactions,
            "last": last.to_string(),
            "blobs_left_out": blobs_left_out,
            "missing_blobs": missing_blobs,
        }))?,
        false => output.line(format_args!(
            "restored {transactions} transactions up to {last}, from point {number}"
        ))?,
    }
    output.flush()?;
    if *blobs_left_out > 0 {
        complain!(
            "zodium: {blobs_left_out} blobs are in the backup, and were not restored: see \
             --blob-dir"
        );
    }
    if *missing_blobs > 0 {
        complain!(
            "zodium: {missing_blobs} blobs are neither in point {number} nor in a later one, and \
             were not restored: was the backup made without --blob-dir?"
        );
        return Ok(ExitCode::from(DIFFERENT));
    }
    Ok(ExitCode::SUCCESS)
}

/// Restores into a new storage.
fn write(
    options: &RestoreOptions,
    repository: &Repository,
    (point, at): (&Point, Option<Tid>),
    name: &StorageName,
) -> Result<Written> {
    if point.python_2 {
        name.begin_for_python_2()?;
    }
    let Writable::Local(storage) = OpenArguments::default().write(name, true)? else {
        bail!("restore to a data file or to sqlite://PATH, and serve that");
    };
    let folder = options.blob_dir.as_deref().map(BlobFolder::open).transpose()?;
    let progress = Progress::new(format!("restoring {}", options.output));
    let target = LocalRestore::new(&*storage);
    let expected = ExpectedBlobs { folder: folder.as_ref(), ..ExpectedBlobs::default() };
    let mut target = Target { target, cached: Cached::of(name), bytes: 0, expected };
    let blobs = folder.as_ref().map(|folder| folder as &dyn BlobTarget);
    let report = |done, total| progress.report(done, total);
    let restored = restore(repository, point, at, &mut target, blobs, &report);
    let missing_blobs = target.expected.missing;
    let finished = match &restored {
        Ok(_) => Box::new(target.target).finish(),
        Err(_) => Ok(Tid::ZERO),
    };
    if let Some(folder) = &folder {
        folder.finish();
    }
    let closed = storage.close();
    let restored = restored?;
    let last = finished?;
    closed?;
    Ok(Written { restored, last, missing_blobs })
}

/// Writes what is restored into a storage of this process.
struct Target<'s> {
    target: LocalRestore<'s>,
    cached: Option<Cached>,
    /// Bytes of data since pages were dropped last.
    bytes: usize,
    expected: ExpectedBlobs<'s>,
}

/// The blobs that the restored records are of.
#[derive(Default)]
struct ExpectedBlobs<'f> {
    /// Where they are; `None` if they are not restored.
    folder: Option<&'f BlobFolder>,
    /// The current transaction.
    tid: Tid,
    /// Records of blobs: a later one may have the same data as one of them.
    records: HashSet<(Oid, Tid)>,
    /// Those whose blobs are not there.
    missing: u64,
}

impl ExpectedBlobs<'_> {
    fn note(&mut self, item: &LogItem<'_>) -> Result<(), BackupError> {
        match item {
            _ if self.folder.is_none() => {}
            LogItem::Transaction { tid, .. } => self.tid = *tid,
            LogItem::Record { oid, data: Some(data), .. } if is_blob(data) => self.expect(*oid)?,
            _ => {}
        }
        Ok(())
    }

    fn note_same(&mut self, oid: Oid, earlier: Tid) -> Result<(), BackupError> {
        match self.records.contains(&(oid, earlier)) {
            true => self.expect(oid),
            false => Ok(()),
        }
    }

    fn expect(&mut self, oid: Oid) -> Result<(), BackupError> {
        let Some(folder) = self.folder else { return Ok(()) };
        self.records.insert((oid, self.tid));
        let is_there = folder.has(oid, self.tid).map_err(StorageError::from)?;
        self.missing += u64::from(!is_there);
        Ok(())
    }
}

impl RestoreTarget for Target<'_> {
    fn apply(&mut self, item: LogItem<'_>) -> Result<(), BackupError> {
        self.expected.note(&item)?;
        if let LogItem::Record { data: Some(data), .. } = &item {
            self.bytes += data.len();
        }
        if self.bytes >= DROP_BYTES {
            self.bytes = 0;
            self.cached.iter().for_each(Cached::drop_pages);
        }
        self.target.apply(item).map_err(failed)
    }

    fn apply_same(&mut self, oid: Oid, earlier: Tid) -> Result<(), BackupError> {
        self.expected.note_same(oid, earlier)?;
        self.target.apply_copy(oid, earlier).map_err(failed)
    }
}

/// Bytes after which pages are dropped: more than a storage commits with one sync.
const DROP_BYTES: usize = 32 << 20;

/// The restored file in the page cache, which is left to the files that servers read. New pages
/// also cost more than those that are used again.
struct Cached(File);

impl Cached {
    /// Of a data file: a database reads its pages again.
    fn of(name: &StorageName) -> Option<Cached> {
        let StorageName::File(path) = name else { return None };
        File::open(path).ok().map(Cached)
    }

    /// Drops what is on the disk. Only advice: a file system may ignore it.
    fn drop_pages(&self) {
        let _ = fadvise(&self.0, 0, None, Advice::DontNeed);
    }
}

fn failed(error: ToolError) -> BackupError {
    match error {
        ToolError::Storage(error) => BackupError::Storage(error),
        other => BackupError::Refused(other.to_string()),
    }
}

/// A date of repozo, or a time.
fn date(text: &str) -> Result<Date> {
    if let Some(date) = Date::parse(text) {
        return Ok(date);
    }
    let tid = parse_tid(text, &Zoned::now())?;
    // A tid is a little earlier than the time that it was made from.
    let time = Timestamp::from_nanosecond(i128::from(tid.to_unix_nanos()) + TID_NANOS);
    Ok(Date::of(time.context("there is no such time")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_of_a_storage_that_is_not_moved_to_its_place_are_replaced_by_the_next_restore() {
        let folder = tempfile::tempdir().unwrap();
        let (path, blob_dir) = (folder.path().join("a.fs"), folder.path().join("blobs"));
        let name = StorageName::File(path.clone());
        let attempt = |is_written: bool| {
            let part = Part::begin(&name).unwrap();
            let blobs = BlobPart::begin(&blob_dir).unwrap();
            assert!(!blob_dir.join("one.blob").exists());
            std::fs::write(blob_dir.join("one.blob"), b"x").unwrap();
            if is_written {
                std::fs::write(folder.path().join("a.fs.part"), b"x").unwrap();
            }
            finish(&name, part, Some(blobs))
        };
        attempt(false).unwrap_err();
        attempt(true).unwrap();
        assert!(path.exists());
        assert_eq!(std::fs::read_dir(&blob_dir).unwrap().count(), 1, "there is a mark");
    }
}
