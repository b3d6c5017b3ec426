//! `zodium copy`.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::json;
use zodium_client::Client;
use zodium_sql::SqlError;
use zodium_storage::{LogItem, Read, StorageError};
use zodium_tools::classes::is_blob;
use zodium_tools::compare::compare;
use zodium_tools::load::{LocalRestore, Restore};
use zodium_tools::{TidRange, ToolError, walk};
use zodium_types::{Oid, Tid};

use super::DIFFERENT;
use super::blobs::{BlobFolder, Blobs};
use super::open::{OpenArguments, Readable, StorageArguments, Writable};
use super::output::Output;
use super::part::{Part, files_of};
use super::remote::ServerRestore;
use super::storage_name::StorageName;
use super::view::ViewArguments;
use crate::progress::Progress;
use crate::streams::complain;

/// Options of `zodium copy`.
#[derive(Debug, Args)]
pub(crate) struct CopyOptions {
    #[command(flatten)]
    from: StorageArguments,

    /// The storage to copy to, of any kind; a missing file is created
    #[arg(required_unless_present = "config")]
    to: Option<String>,

    /// Go on behind the last transaction of a storage that has a part of the copy already
    ///
    /// Also after a copy that was interrupted. What is there is compared first; if it differs,
    /// nothing is copied.
    #[arg(long)]
    incremental: bool,

    /// The blob directory of the storage to copy from [default: that of the configuration]; a
    /// server sends its blobs itself
    #[arg(long, value_name = "DIRECTORY", requires = "to_blob_dir")]
    blob_dir: Option<PathBuf>,

    /// Copy blobs too, to this blob directory. Each is there before its transaction
    #[arg(long, value_name = "DIRECTORY")]
    to_blob_dir: Option<PathBuf>,

    /// Do not compare the two storages at the end
    #[arg(long)]
    no_verify: bool,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    view: ViewArguments,
}

pub(super) fn run(options: &CopyOptions) -> Result<ExitCode> {
    let (from, rest) = options.from.with_rest(options.to.as_slice())?;
    let [to] = &rest[..] else { bail!("give the storage to copy from, and the one to copy to") };
    let (how, to) = (options.from.how(), StorageName::parse(to)?);
    let Readable { storage: source, client, .. } = how.read(&from)?;
    let blobs = blobs_of(options, client.as_ref())?;
    let last = options.view.last(&*source)?;
    let Some(part) = part_of(&from, &to, options.incremental)? else {
        return match copy_to(options, (&from, &*source), &to, last, blobs)? {
            Some((copied, is_equal)) => report(options, last, &copied, is_equal),
            None => Ok(ExitCode::from(DIFFERENT)),
        };
    };
    match copy_to(options, (&from, &*source), &part.name, last, blobs) {
        Ok(Some((copied, is_equal))) => {
            part.finish()?;
            report(options, last, &copied, is_equal)
        }
        Ok(None) => Ok(ExitCode::from(DIFFERENT)),
        Err(error) if is_in_vain(&error) || !part.is_begun() => {
            part.discard();
            Err(error)
        }
        Err(error) => {
            let part = part.written.display();
            complain!("zodium: what was copied is in {part}: --incremental goes on with it");
            Err(error)
        }
    }
}

/// The part of a storage that does not exist yet. It has its name when it is whole.
fn part_of(from: &StorageName, to: &StorageName, goes_on: bool) -> Result<Option<Part>> {
    let Some(path) = to.path().filter(|path| path.symlink_metadata().is_err()) else {
        return Ok(None);
    };
    let part = Part::resume(to)?;
    let canonical = |path: &Path| path.canonicalize().ok();
    if from.path().and_then(canonical).is_some_and(|from| canonical(&part.written) == Some(from)) {
        let (part, path) = (part.written.display(), path.display());
        bail!("{part} is the part of a copy to {path}, which would be written over: rename it");
    }
    if !goes_on {
        part.clear()?;
    }
    Ok(Some(part))
}

/// Copies what the storage does not have yet, and compares; `None` if what it has is not that of
/// the source.
fn copy_to(
    options: &CopyOptions,
    (from, source): (&StorageName, &dyn Read),
    to: &StorageName,
    last: Tid,
    blobs: Option<BlobCopy>,
) -> Result<Option<(Copied, bool)>> {
    let how = options.from.how();
    let there = last_tid_of(how, to)?;
    if there > Tid::ZERO && !options.incremental {
        bail!("the storage to copy to has transactions already: see --incremental");
    }
    if there > Tid::ZERO && !is_prefix(how, to, source, TidRange::until(there))? {
        complain!(
            "zodium: what is there already differs from what would be copied: if one of the two \
             was packed since, copy to a new storage"
        );
        return Ok(None);
    }
    let is_new = to.is_absent();
    let before = to.path().map_or(Vec::new(), identities);
    to.begin_like(from)?;
    if is_new && source.is_of_python_2() {
        to.begin_for_python_2()?;
    }
    let missing_before = match &blobs {
        Some(blobs) if there > Tid::ZERO => copy_earlier_blobs(how, to, there, blobs)?,
        _ => 0,
    };
    let range = TidRange { min: Some(there.next()), max: Some(last) };
    let copied = copy(how, to, source, range, blobs.as_ref());
    if is_new && copied.as_ref().is_err_and(is_in_vain) {
        to.path().into_iter().for_each(|path| remove_made(path, &before));
    }
    let mut copied = copied?;
    copied.missing_blobs += missing_before;
    copied.damaged_blobs = blobs.as_ref().map_or(0, |blobs| blobs.from.damaged_count());
    let range = TidRange { min: (there > Tid::ZERO).then_some(there.next()), max: Some(last) };
    let is_equal = options.no_verify || is_prefix(how, to, source, range)?;
    Ok(Some((copied, is_equal)))
}

/// Whether no later copy can go on from what was copied before an error.
fn is_in_vain(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ToolError::NotLater { .. }))
}

/// The files of a storage that are there, with their numbers in the file system.
fn identities(path: &Path) -> Vec<(PathBuf, u64)> {
    let identity = |file: PathBuf| file.metadata().ok().map(|found| (file, found.ino()));
    files_of(path).filter_map(identity).collect()
}

/// Removes a new storage, and the files beside it that are not those of before. Any that cannot be
/// removed does no harm.
fn remove_made(path: &Path, before: &[(PathBuf, u64)]) {
    for made in identities(path).iter().filter(|made| made.0 == path || !before.contains(made)) {
        let _ = fs::remove_file(&made.0);
    }
}

/// Prints what was copied.
fn report(options: &CopyOptions, last: Tid, copied: &Copied, is_equal: bool) -> Result<ExitCode> {
    let Copied { transactions, blobs_left_out, missing_blobs, damaged_blobs } = copied;
    let mut output = Output::new()?;
    match options.json {
        true => output.line(json!({
            "transactions": transactions,
            "last": last.to_string(),
            "verified": !options.no_verify && is_equal,
            "blobs_left_out": blobs_left_out,
            "missing_blobs": missing_blobs,
            "damaged_blobs": damaged_blobs,
        }))?,
        false => output.line(format_args!(
            "copied {transactions} transaction{} up to {last}{}",
            if *transactions == 1 { "" } else { "s" },
            if options.no_verify || !is_equal { "" } else { ", verified" },
        ))?,
    }
    output.flush()?;
    if *blobs_left_out > 0 {
        complain!(
            "zodium: {blobs_left_out} records are of blobs, whose files were not copied: see \
             --to-blob-dir"
        );
    }
    if missing_blobs > damaged_blobs {
        let missing = missing_blobs - damaged_blobs;
        complain!("zodium: {missing} blobs were not found, and were not copied");
    }
    if *damaged_blobs > 0 {
        complain!("zodium: {damaged_blobs} blobs are damaged, and were not copied");
    }
    if !is_equal {
        complain!(
            "zodium: the copy differs from its source: if that was packed meanwhile, copy it anew \
             to compare them"
        );
    }
    let is_whole = is_equal && *missing_blobs == 0;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

/// What was copied.
#[derive(Clone, Copy, Default)]
struct Copied {
    transactions: u64,
    /// Records of blobs whose files were not to be copied.
    blobs_left_out: u64,
    /// Records of blobs whose files were not found, or are damaged.
    missing_blobs: u64,
    /// Those that are damaged.
    damaged_blobs: u64,
}

/// Where blobs come from, and where they go.
struct BlobCopy {
    from: Blobs,
    to: BlobFolder,
}

impl BlobCopy {
    /// Copies a blob, unless it is there; whether there is a sound one now. A shorter one is half
    /// of it, as an interrupted program leaves. A longer one may be what is lost at the source.
    fn copy(&self, oid: Oid, tid: Tid) -> Result<bool, ToolError> {
        if let Some(found) = self.to.length_of(oid, tid).map_err(StorageError::from)? {
            let length = self.from.length_of(oid, tid).map_err(StorageError::from)?;
            if length.is_none_or(|length| length <= found) {
                return Ok(true);
            }
        }
        let Some(mut file) = self.from.find(oid, tid)? else { return Ok(false) };
        Ok(self.to.copy(oid, tid, &mut *file)?)
    }
}

fn blobs_of(options: &CopyOptions, client: Option<&Arc<Client>>) -> Result<Option<BlobCopy>> {
    let Some(to) = &options.to_blob_dir else { return Ok(None) };
    let directory = options.from.how().blob_directory(options.blob_dir.as_deref())?;
    let from = Blobs::of(client, directory.as_deref())?;
    if from.are_absent() {
        bail!("--to-blob-dir needs --blob-dir: where the blobs of the storage are");
    }
    let is_new = !to.exists();
    let folder = BlobFolder::open(to)?;
    if let Some(model) = directory.as_deref().filter(|_| is_new) {
        let cannot =
            || format!("cannot give {} the permissions of {}", to.display(), model.display());
        copy_mode(model, to).with_context(cannot)?;
    }
    Ok(Some(BlobCopy { from, to: folder }))
}

/// Opens a folder to the users that another one is open to. Its mode may be all that keeps others
/// from the blobs in it.
fn copy_mode(from: &Path, to: &Path) -> io::Result<()> {
    let mode = from.metadata()?.permissions().mode() & 0o777;
    fs::set_permissions(to, Permissions::from_mode(mode | 0o700))
}

/// The last transaction of a storage that need not exist.
fn last_tid_of(how: &OpenArguments, name: &StorageName) -> Result<Tid> {
    if name.is_absent() {
        return Ok(Tid::ZERO);
    }
    match how.read(name) {
        Ok(readable) => Ok(readable.storage.last_tid()),
        // A database on a server is there before it has tables.
        Err(error) if matches!(error.downcast_ref(), Some(SqlError::Missing { .. })) => {
            Ok(Tid::ZERO)
        }
        Err(error) => Err(error),
    }
}

/// Whether a part of both storages is equal.
fn is_prefix(
    how: &OpenArguments,
    copy: &StorageName,
    source: &dyn Read,
    range: TidRange,
) -> Result<bool> {
    let copy = how.read(copy)?.storage;
    let progress = Progress::of_log(format!("comparing {}", copy.name()), source);
    Ok(compare(source, &*copy, range, &mut |bytes| progress.advance(bytes))?.is_none())
}

/// Copies the blobs of what is there already, which an earlier copy may have left out; the number
/// of those that were not found.
fn copy_earlier_blobs(
    how: &OpenArguments,
    to: &StorageName,
    there: Tid,
    blobs: &BlobCopy,
) -> Result<u64> {
    // Its records are those of the source, and often nearer.
    let records = how.read(to)?.storage;
    let progress = Progress::of_log(format!("looking for blobs of {}", records.name()), &*records);
    let (mut current, mut missing) = (Tid::ZERO, 0);
    walk(&*records, TidRange::until(there), &mut |item| {
        match item {
            LogItem::Transaction { tid, .. } => current = tid,
            LogItem::Record { oid, data: Some(data), .. } => {
                missing += u64::from(is_blob(data) && !blobs.copy(oid, current)?);
                progress.advance(data.len());
            }
            LogItem::Record { .. } | LogItem::Skipped => {}
        }
        Ok(())
    })?;
    Ok(missing)
}

/// Copies a range.
fn copy(
    how: &OpenArguments,
    to: &StorageName,
    source: &dyn Read,
    range: TidRange,
    blobs: Option<&BlobCopy>,
) -> Result<Copied> {
    match how.write(to, true)? {
        Writable::Server(client) => {
            copy_into(Box::new(ServerRestore::new(client)), source, range, blobs)
        }
        Writable::Local(storage) => {
            let copied = copy_into(Box::new(LocalRestore::new(&*storage)), source, range, blobs);
            // What was copied before an error stays, and a later copy goes on from there.
            let closed = storage.close();
            let copied = copied?;
            closed?;
            Ok(copied)
        }
    }
}

fn copy_into(
    mut target: Box<dyn Restore + '_>,
    source: &dyn Read,
    range: TidRange,
    blobs: Option<&BlobCopy>,
) -> Result<Copied> {
    let mut current = Tid::ZERO;
    let progress = Progress::of_log(format!("copying {}", source.name()), source);
    let mut done = Copied::default();
    let copied = walk(source, range, &mut |item| {
        match item {
            LogItem::Transaction { tid, .. } => {
                if done.transactions > 0 && tid <= current {
                    return Err(ToolError::NotLater { tid, last: current });
                }
                done.transactions += 1;
                current = tid;
            }
            LogItem::Record { oid, data, .. } => {
                if data.is_some_and(is_blob) {
                    match blobs {
                        None => done.blobs_left_out += 1,
                        Some(blobs) => {
                            done.missing_blobs += u64::from(!blobs.copy(oid, current)?);
                        }
                    }
                }
                progress.advance(data.map_or(0, <[u8]>::len));
            }
            LogItem::Skipped => {}
        }
        target.apply(item)
    });
    if copied.is_err() {
        target.forget_unfinished();
    }
    let finished = target.finish();
    if let Some(blobs) = blobs {
        blobs.to.finish();
    }
    copied?;
    finished?;
    Ok(done)
}
