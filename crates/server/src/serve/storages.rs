//! The storages of a server: opened in order, closed together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tracing::{error, info, warn};
use zodium_configuration::{Checksums, Configuration, ServerOptions, StorageKind, StorageOptions};
use zodium_disk::{Disk, MemoryDisk, RealDisk, SystemClock};
use zodium_engine::{Reopening, Storage};
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError, OpenOptions};
use zodium_tls::AllowList;
use zodium_zeo_server::Offer;

use super::conflicts::ServerResolver;
use crate::progress::Progress;

/// New oids begin so far above the largest in the file. A stock client takes 100 ahead and keeps
/// them over a restart of its server: so many are those of 655 clients. Each costs a start a part
/// of the 2^32 oids that are found fastest: enough for 65,536 starts with new objects between.
const NEW_OIDS_GAP: u64 = 1 << 16;

/// Open storages, in the order of the configuration. Closed by [`Storages::close`].
pub(crate) struct Storages {
    opened: Vec<OpenStorage>,
}

/// One of them.
pub(crate) struct OpenStorage {
    /// What clients ask for.
    pub(crate) name: String,
    /// The running database.
    pub(crate) storage: Arc<Storage>,
    /// The file that keeps it.
    pub(crate) file: Arc<FileStorage>,
    /// Who may use it; absent: all that get in.
    allow: Option<AllowList>,
}

impl Storages {
    /// Opens all, or none: when one cannot be opened those before it are closed again.
    pub(crate) fn open(configuration: &Configuration) -> Result<Storages> {
        let mut storages = Storages { opened: Vec::new() };
        for options in &configuration.storages {
            match open(options, &configuration.server) {
                Ok((storage, file)) => {
                    let allow = options.allow.as_ref();
                    storages.opened.push(OpenStorage {
                        name: options.name.clone(),
                        storage,
                        file,
                        allow: allow.map(|all| AllowList::new(all.iter().map(String::as_str))),
                    });
                }
                Err(error) => {
                    // What the user has to know is why the start failed.
                    let _ = storages.close();
                    return Err(match configuration.storages.len() {
                        1 => error,
                        _ => error.context(format!("storage {}", options.name)),
                    });
                }
            }
        }
        Ok(storages)
    }

    /// Has those reopened now that a write has failed for.
    pub(crate) fn reopen(&self) {
        for OpenStorage { name, storage, .. } in &self.opened {
            match storage.ask_to_reopen() {
                true => info!(storage = name, "SIGUSR1, reopening the file"),
                false => info!(storage = name, "SIGUSR1, but no write has failed"),
            }
        }
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenStorage> {
        self.opened.iter()
    }

    /// The files, by the names of their storages.
    pub(crate) fn files(&self) -> BTreeMap<String, Arc<FileStorage>> {
        let file = |opened: &OpenStorage| (opened.name.clone(), Arc::clone(&opened.file));
        self.opened.iter().map(file).collect()
    }

    /// What is offered to clients, by name.
    pub(crate) fn offers(&self) -> BTreeMap<String, Offer> {
        let offer = |opened: &OpenStorage| {
            let storage = Arc::clone(&opened.storage);
            (opened.name.clone(), Offer { storage, allow: opened.allow.clone() })
        };
        self.opened.iter().map(offer).collect()
    }

    /// Gives up packs that are under way, so that who waits for one is answered.
    pub(crate) fn cancel_packs(&self) {
        for opened in &self.opened {
            opened.storage.cancel_pack();
        }
    }

    /// Closes all, whatever becomes of each; the first error.
    pub(crate) fn close(self) -> Result<()> {
        let mut outcome = Ok(());
        for OpenStorage { name, storage, .. } in self.opened {
            if let Err(reason) = storage.close() {
                error!(storage = name, %reason, "not closed in order");
                let failed = Err(reason)
                    .context("the index could not be saved (it will be built anew at start)");
                outcome = outcome.and(failed);
            }
        }
        outcome
    }
}

fn open(
    options: &StorageOptions,
    server: &ServerOptions,
) -> Result<(Arc<Storage>, Arc<FileStorage>)> {
    let file = match &options.kind {
        StorageKind::Memory => open_in_memory(options, options.read_only || server.read_only)?,
        StorageKind::File { path, .. } => open_file(path, options, server)?,
    };
    let in_memory = options.kind == StorageKind::Memory;
    let config = zodium_engine::Config {
        invalidation_queue_size: server.invalidation_queue_size,
        invalidation_age: server.invalidation_age,
        transaction_timeout: server.transaction_timeout,
        pack_gc: options.pack.garbage_collection,
        // What is kept would be kept in memory, where nobody finds it.
        pack_keep_old: options.pack.keep_old && !in_memory,
        pack_abort_on_dangling: options.pack.abort_on_dangling,
        resolver: ServerResolver::for_storage(server),
        resolvable_classes: server.resolvable_classes.clone(),
        reopening: server.reopen_after_failure.then(Reopening::default),
    };
    let file = Arc::new(file);
    let kept: Arc<FileStorage> = Arc::clone(&file);
    let storage = Storage::start(kept, Arc::new(SystemClock::new()), &config)?;
    if let Some(upkeep) = file.upkeep(options.scrub_interval) {
        storage.keep_up(upkeep);
    }
    Ok((storage, file))
}

fn open_file(path: &Path, options: &StorageOptions, server: &ServerOptions) -> Result<FileStorage> {
    let read_only = options.read_only || server.read_only;
    if server.read_only && !options.read_only && !RealDisk.exists(path).unwrap_or(true) {
        // The stock server would make the file: its clients expect to be served something.
        warn!(file = %path.display(), "no such file: serving an empty database in its place");
        return open_in_memory(options, true);
    }
    if read_only && begins_anew(options) {
        bail!(
            "{}: not begun anew by a server that only reads; drop one of the two",
            path.display()
        );
    }
    open_on(Arc::new(RealDisk), path, options, read_only).map_err(|error| explain(path, error))
}

fn open_in_memory(options: &StorageOptions, read_only: bool) -> Result<FileStorage> {
    let path = match &options.kind {
        StorageKind::File { path, .. } => path.clone(),
        StorageKind::Memory => format!("(memory of storage {})", options.name).into(),
    };
    let disk = Arc::new(MemoryDisk::volatile());
    // In memory no folder is there that a directory of blobs could be made in.
    let blob_directory = options.blob_directory.as_ref().map(|_| "blobs".into());
    let options = StorageOptions { blob_directory, ..options.clone() };
    if read_only {
        // A storage that is opened for reading needs a file: one with nothing in it.
        drop(open_on(Arc::<MemoryDisk>::clone(&disk), &path, &options, false)?);
    }
    Ok(open_on(disk, &path, &options, read_only)?)
}

fn open_on(
    disk: Arc<dyn Disk>,
    path: &Path,
    options: &StorageOptions,
    read_only: bool,
) -> Result<FileStorage, FileStorageError> {
    let progress = Progress::new(format!("building the index of {}", path.display()));
    let open = OpenOptions {
        read_only,
        create: !read_only,
        truncate: !read_only && begins_anew(options),
        quota_bytes: options.quota_bytes,
        cache_bytes: usize::try_from(options.cache_bytes).unwrap_or(usize::MAX),
        blob_directory: options.blob_directory.clone(),
        checksums: match (&options.kind, options.checksums) {
            (StorageKind::Memory, _) | (_, Checksums::Off) => ChecksumMode::Off,
            (_, Checksums::Full) => ChecksumMode::Full,
            (_, Checksums::Commit) => ChecksumMode::Commit,
        },
        new_oids_gap: NEW_OIDS_GAP,
        progress: &|done, total| progress.report(done, total),
        ..OpenOptions::new(path)
    };
    FileStorage::open(disk, &open)
}

fn begins_anew(options: &StorageOptions) -> bool {
    matches!(options.kind, StorageKind::File { truncate: true, .. })
}

/// Adds what to do next where an option would help.
fn explain(path: &Path, error: FileStorageError) -> anyhow::Error {
    let is_denied = matches!(&error, FileStorageError::Io { source, .. } if matches!(
        source.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    ));
    let can_be_read = File::open(path).is_ok();
    let error = anyhow::Error::from(error);
    match is_denied && can_be_read {
        true => error.context("cannot open for writing (--read-only serves it as it is)"),
        false => error,
    }
}
