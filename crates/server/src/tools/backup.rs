//! `zodium backup`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use bytesize::ByteSize;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::json;
use zodium_backup::BackupError;
use zodium_backup::repository::{
    self, Backup, BackupSummary, Listing, NewestPoint, Repository, Source, Verified,
};
use zodium_backup::repozo::{self, Date, Done, RepozoOptions};
use zodium_filestorage::FileStorage;
use zodium_storage::StorageError;

use super::DIFFERENT;
use super::archiving::{self, Task, WatchArguments};
use super::blobs::Blobs;
use super::open::OpenArguments;
use super::output::Output;
use super::repositories::{RepositoryArguments, check_repozo_blobs, folder_of};
use super::storage_name::StorageName;
use crate::progress::Progress;
use crate::streams::complain;

/// Options of `zodium backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupOptions {
    /// The storage, and the repository of its backups, which is created if absent: a folder, or
    /// s3://BUCKET/FOLDER, gs://BUCKET/FOLDER or az://CONTAINER/FOLDER. With --verify only the
    /// repository
    #[arg(value_name = "STORAGE REPOSITORY")]
    places: Vec<String>,

    #[command(flatten)]
    how: OpenArguments,

    #[command(flatten)]
    repository: RepositoryArguments,

    /// Follow the storage: archive what is committed, until SIGTERM
    #[arg(long, short, conflicts_with_all = ["verify", "full", "gzip", "kill_old_on_full"])]
    watch: bool,

    #[command(flatten)]
    watching: WatchArguments,

    /// Verify what is backed up instead, by reading all of it: exit code 1 if it is damaged
    #[arg(long)]
    verify: bool,

    /// The format of a new repository: ours, for any kind of storage, or that of repozo, for data
    /// files. One that exists keeps its format
    #[arg(long, value_enum, default_value = "zodium")]
    format: Format,

    /// Back up the blobs of this blob directory too, in our format [default: that of the
    /// configuration]. Those of a server come over its connection
    #[arg(long, value_name = "DIRECTORY")]
    blob_dir: Option<PathBuf>,

    /// Copy everything into a repozo folder, even if a part is backed up already
    #[arg(long, short = 'F')]
    full: bool,

    /// Compare only the last part of what is backed up with the storage; with --verify only sizes
    #[arg(long, short = 'Q')]
    quick: bool,

    /// Back up a storage that has no transaction of the newest restore point: it has taken the
    /// place of the one that was backed up there
    #[arg(long, conflicts_with = "verify")]
    replaced: bool,

    /// Compress files of a repozo folder, which repozo can read
    #[arg(long, short = 'z')]
    gzip: bool,

    /// Remove older backups of a repozo folder after a full one
    #[arg(long, short)]
    kill_old_on_full: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The formats of repositories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Zodium,
    Repozo,
}

impl Format {
    /// The folder, if it is one of repozo. It is refused where an option is for our own format,
    /// and ours where an option is for repozo's.
    fn checked_repozo_folder<'r>(
        repository: &'r str,
        options: &BackupOptions,
    ) -> Result<Option<&'r Path>> {
        let folder = Format::repozo_folder(repository, options.format)?;
        match folder {
            Some(folder) => {
                options.repository.check_repozo(folder)?;
                check_repozo_blobs(folder, options.blob_dir.as_deref())?;
            }
            None if options.full || options.gzip || options.kill_old_on_full => bail!(
                "{repository}: --full, --gzip and --kill-old-on-full are for folders of repozo: \
                 leave them out, or give --format repozo"
            ),
            None => {}
        }
        if options.replaced && folder.is_some() {
            bail!("{repository}: --replaced is not for folders of repozo: leave it out");
        }
        Ok(folder)
    }

    /// The folder, if it has repozo's format, or none yet and that one is asked for.
    fn repozo_folder(repository: &str, asked: Format) -> Result<Option<&Path>> {
        let is_asked = asked == Format::Repozo;
        let Some(folder) = folder_of(repository) else {
            if is_asked {
                bail!(
                    "{repository}: repozo's format is for folders only: leave out --format repozo"
                );
            }
            return Ok(None);
        };
        if !repository::is_repository(folder) {
            return Ok((is_asked || repozo::is_repozo(folder)).then_some(folder));
        }
        if is_asked {
            bail!(
                "{repository} is a repository in Zodium's own format: give another folder for \
                 backups in repozo's, or leave out --format repozo"
            );
        }
        Ok(None)
    }
}

pub(super) fn run(options: &BackupOptions) -> Result<ExitCode> {
    if options.verify {
        return verify(options);
    }
    let (name, rest) = options.how.first_of(&options.places)?;
    let [repository] = &rest[..] else {
        bail!("give the storage, and the folder of its backups");
    };
    let mut output = Output::new()?;
    match Format::checked_repozo_folder(repository, options)? {
        Some(_) if options.watch => {
            bail!("a repozo folder cannot follow a storage; use our format")
        }
        Some(folder) => {
            let created = fs::create_dir_all(folder);
            created.with_context(|| format!("cannot create {}", folder.display()))?;
            let done = repozo_backup(options, &name, folder)?;
            print_repozo(options.json, &done, &mut output)?;
        }
        None => {
            let repository = options.repository.open_or_create(repository)?;
            if options.watch {
                return archiving::run(&Task {
                    name: &name,
                    how: &options.how,
                    blob_dir: options.how.blob_directory(options.blob_dir.as_deref())?,
                    repository: &repository,
                    quick: options.quick,
                    replaced: options.replaced,
                    arguments: &options.watching,
                });
            }
            let (done, damaged_blobs) = own_backup(options, &name, &repository)?;
            print_own(options.json, &done, damaged_blobs, &mut output)?;
            output.flush()?;
            archiving::complain_of_point(&done);
            if complain_of_blobs(done.missing_blobs, damaged_blobs) {
                return Ok(ExitCode::from(DIFFERENT));
            }
        }
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Tells how many blobs a backup lacks; whether some of them are damaged. `missing` counts these
/// too.
fn complain_of_blobs(missing: u64, damaged: u64) -> bool {
    if missing > damaged {
        complain!(
            "zodium: {} blobs were not found, and are not in the backup: give their directory \
             (--blob-dir), unless a pack has removed them meanwhile",
            missing - damaged
        );
    }
    if damaged > 0 {
        complain!(
            "zodium: {damaged} blobs are damaged, and are not in the backup: put sound files in \
             their place, and back up again"
        );
    }
    damaged > 0
}

fn print_repozo(json: bool, done: &Done, output: &mut Output) -> Result<()> {
    match (json, done) {
        (true, Done::Unchanged) => output.line(json!({ "changed": false })),
        (true, Done::Copied { name, is_full, bytes }) => {
            output.line(json!({ "changed": true, "name": name, "full": is_full, "bytes": bytes }))
        }
        (false, Done::Unchanged) => output.line("no changes"),
        (false, Done::Copied { name, is_full, bytes }) => {
            let kind = if *is_full { "full" } else { "incremental" };
            output.line(format_args!("{kind}: {name}, {}", ByteSize(*bytes)))
        }
    }
}

fn print_own(
    json: bool,
    done: &BackupSummary,
    damaged_blobs: u64,
    output: &mut Output,
) -> Result<()> {
    let BackupSummary { point, is_new, stored_bytes, missing_blobs, .. } = done;
    output.line(match (json, is_new) {
        (true, _) => json!({
            "changed": is_new,
            "point": point.number,
            "last": point.last().to_string(),
            "transactions": point.transactions,
            "bytes": point.bytes,
            "stored_bytes": stored_bytes,
            "missing_blobs": missing_blobs,
            "damaged_blobs": damaged_blobs,
        })
        .to_string(),
        (false, false) if *stored_bytes > 0 => {
            format!("no changes; {} that were lost are stored again", ByteSize(*stored_bytes))
        }
        (false, false) => "no changes".to_owned(),
        (false, true) => format!(
            "point {}: {} transactions ({}) up to {}; {} are new, with blobs, compressed",
            point.number,
            point.transactions,
            ByteSize(point.bytes),
            point.last(),
            ByteSize(*stored_bytes)
        ),
    })
}

/// Backs a storage up; also gives the number of blobs that are damaged.
fn own_backup(
    options: &BackupOptions,
    name: &StorageName,
    repository: &Repository,
) -> Result<(BackupSummary, u64)> {
    let readable = options.how.read(name)?;
    let directory = options.how.blob_directory(options.blob_dir.as_deref())?;
    let blobs = Blobs::of(readable.client.as_ref(), directory.as_deref())?;
    let storage = &*readable.storage;
    let progress = Progress::of_log(format!("backing {} up", storage.name()), storage);
    let source = Source { storage, blobs: &blobs, progress: &|bytes| progress.advance(bytes) };
    let seconds = Timestamp::now().as_second();
    let BackupOptions { quick, replaced, .. } = *options;
    let backup = Backup { source, quick, replaced, seconds };
    let summary = repository::backup(repository, &backup)?;
    Ok((summary, blobs.damaged_count()))
}

fn repozo_backup(options: &BackupOptions, name: &StorageName, repository: &Path) -> Result<Done> {
    let StorageName::File(path) = name else {
        bail!("repozo's format is for data files; give the path of one");
    };
    let (file, storage) = open_file(options, name, path)?;
    let end = storage.size();
    let mut write_index = |output: &mut dyn std::io::Write| match storage.write_index(output) {
        Ok(covered) if covered == end => Ok(()),
        Ok(_) => Err(BackupError::Refused("the index does not end with the file".to_owned())),
        Err(error) => Err(BackupError::Storage(StorageError::from(error))),
    };
    let mut source = repozo::Source { path, file: &file, end, write_index: &mut write_index };
    let repozo_options = RepozoOptions {
        full: options.full,
        quick: options.quick,
        gzip: options.gzip,
        kill_old: options.kill_old_on_full,
    };
    let date = Date::of(Timestamp::now());
    Ok(repozo::backup(repository, &mut source, repozo_options, &date)?)
}

/// The file, and the storage of the same file: a pack replaces it.
fn open_file(
    options: &BackupOptions,
    name: &StorageName,
    path: &PathBuf,
) -> Result<(File, Arc<FileStorage>)> {
    loop {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let Some(storage) = options.how.read(name)?.file else { bail!("this is no data file") };
        let (ours, now) = (file.metadata()?, path.metadata()?);
        if (ours.dev(), ours.ino()) == (now.dev(), now.ino()) {
            return Ok((file, storage));
        }
    }
}

fn verify(options: &BackupOptions) -> Result<ExitCode> {
    let [name] = &options.places[..] else { bail!("give the repository of the backups") };
    let mut output = Output::new()?;
    if let Some(folder) = Format::checked_repozo_folder(name, options)? {
        let files = repozo::verify(folder, options.quick)?;
        match options.json {
            true => output.line(json!({ "whole": true, "files": files }))?,
            false => output.line(format_args!("whole: {files} files"))?,
        }
    } else if is_locked(options, name)? {
        let found = repository::list(&*options.repository.place(name)?, options.quick)?;
        print_listing(options, &found, &mut output)?;
    } else {
        let mut damages = BTreeSet::new();
        let mut report = |damage: BackupError| {
            let text = damage.to_string();
            // An object may be needed more than once.
            if damages.insert(text.clone()) {
                complain!("zodium: {text}");
            }
        };
        let opened = options.repository.open(name)?;
        let found = repository::find_damage(&opened, options.quick, &mut report)?;
        if !damages.is_empty() {
            return Ok(ExitCode::from(DIFFERENT));
        }
        print_verified(options.json, &found, &mut output)?;
    }
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Whether a repository is encrypted, and there is no key.
fn is_locked(options: &BackupOptions, name: &str) -> Result<bool> {
    let is_encrypted = Repository::is_encrypted(&*options.repository.place(name)?)?;
    Ok(is_encrypted && options.repository.key()?.is_none())
}

fn print_verified(json: bool, found: &Verified, output: &mut Output) -> Result<()> {
    let Verified { points, chunks, blobs, bytes, newest } = found;
    let newest = newest.map(|NewestPoint { number, seconds, last }| {
        let made = Timestamp::from_second(seconds).unwrap_or_default();
        (number, made.to_string(), last)
    });
    match json {
        true => output.line(json!({
            "whole": true,
            "points": points,
            "chunks": chunks,
            "blobs": blobs,
            "bytes": bytes,
            "newest": newest.as_ref().map(|(number, made, last)| {
                json!({ "point": number, "made": made, "last": last.to_string() })
            }),
        })),
        false => {
            let counts = format!("whole: {points} restore points, {chunks} chunks, {blobs} blobs");
            output.line(match newest {
                Some((number, made, last)) => {
                    format!("{counts}; the newest is point {number} of {made}, up to {last}")
                }
                None => counts,
            })
        }
    }
}

fn print_listing(options: &BackupOptions, found: &Listing, output: &mut Output) -> Result<()> {
    let Listing { points, objects, bytes } = found;
    match options.json {
        true => output.line(json!({ "points": points, "objects": objects, "bytes": bytes })),
        false => output.line(format_args!(
            "{points} restore points, {objects} objects, {}; {}. The repository is encrypted: only \
             its key shows whether all is there",
            ByteSize(*bytes),
            if options.quick { "only names were read" } else { "all have their checksums" },
        )),
    }
}
