//! Opens and closes the storages of a server.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tracing::{error, info, warn};
use zodium_configuration::{Checksums, Configuration, ServerOptions, StorageKind, StorageOptions};
use zodium_disk::{Disk, MemoryDisk, RealDisk, SystemClock};
use zodium_engine::{Database, Reopening};
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError, OpenOptions};
use zodium_neo_client::NeoStorage;
use zodium_sql::SqlStorage;
use zodium_storage::StorageError;
use zodium_tls::AllowList;
use zodium_zeo_server::ServedStorage;

use super::conflicts::ServerResolver;
use super::new_oids::NEW_OIDS_GAP;
use crate::monitoring::{Remote, Remotes};
use crate::progress::Progress;
use crate::tools::is_sqlite;

/// After this time a stop names the storages that it waits for.
const CLOSING_TIME: Duration = Duration::from_secs(5);

/// Open storages, in the order of the configuration. Closed by [`Storages::close`].
pub(crate) struct Storages {
    opened: Vec<OpenStorage>,
}

/// An open storage.
pub(crate) struct OpenStorage {
    /// Its name for clients.
    pub(crate) name: String,
    /// The database.
    pub(crate) storage: Arc<Database>,
    /// The file that keeps it, if it is a FileStorage.
    pub(crate) file: Option<Arc<FileStorage>>,
    /// What keeps it on other machines.
    pub(crate) remote: Option<Arc<dyn Remote>>,
    /// The clients that may use it; `None` admits all that can connect.
    pub(super) allow: Option<AllowList>,
}

impl Storages {
    /// Opens all, or none: if one cannot be opened, those opened before are closed again.
    pub(crate) fn open(configuration: &Configuration) -> Result<Storages> {
        let mut storages = Storages { opened: Vec::new() };
        for options in &configuration.storages {
            match open(options, &configuration.server) {
                Ok(Opened { storage, file, remote }) => {
                    let allow = options.allow.as_ref();
                    storages.opened.push(OpenStorage {
                        name: options.name.clone(),
                        storage,
                        file,
                        remote,
                        allow: allow.map(|all| AllowList::new(all.iter().map(String::as_str))),
                    });
                }
                Err(error) => {
                    // The operator needs to know why the start failed, not this.
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

    /// Reopens storages whose writes have failed now, without waiting for the next attempt.
    pub(crate) fn reopen(&self) {
        for OpenStorage { name, storage, .. } in &self.opened {
            match storage.ask_to_reopen() {
                true => info!(storage = name, "SIGUSR1, reopening the file"),
                false => info!(storage = name, "SIGUSR1, but no write has failed"),
            }
        }
    }

    /// All storages.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenStorage> {
        self.opened.iter()
    }

    /// The files of FileStorages, by the names of their storages.
    pub(crate) fn files(&self) -> BTreeMap<String, Arc<FileStorage>> {
        let file = |opened: &OpenStorage| Some((opened.name.clone(), opened.file.clone()?));
        self.opened.iter().filter_map(file).collect()
    }

    /// What keeps storages on other machines, by the names of these.
    pub(crate) fn remotes(&self) -> Remotes {
        let remote = |opened: &OpenStorage| {
            Some((opened.name.clone(), Arc::downgrade(opened.remote.as_ref()?)))
        };
        self.opened.iter().filter_map(remote).collect()
    }

    /// The storages for sessions, by name.
    pub(crate) fn served(&self) -> BTreeMap<String, ServedStorage> {
        let served = |opened: &OpenStorage| {
            let storage = Arc::clone(&opened.storage);
            (opened.name.clone(), ServedStorage { storage, allow: opened.allow.clone() })
        };
        self.opened.iter().map(served).collect()
    }

    /// Cancels running packs, so that clients that wait for one are answered.
    pub(crate) fn cancel_packs(&self) {
        for opened in &self.opened {
            opened.storage.cancel_pack();
        }
    }

    /// Closes all side by side, since the disk of one may hang. Returns the first error, in the
    /// order of the configuration.
    pub(crate) fn close(self) -> Result<()> {
        thread::scope(|scope| {
            let opened = self.opened.iter();
            let closing: Vec<_> = opened.map(|one| (one, one.start_closing(scope))).collect();
            let deadline = Instant::now() + CLOSING_TIME;
            let mut outcome = Ok(());
            for (one, closed) in closing {
                let left = deadline.saturating_duration_since(Instant::now());
                let ended = closed.recv_timeout(left).or_else(|_| {
                    warn!(storage = one.name, "waiting for the storage to be closed");
                    closed.recv()
                });
                // A thread that panicked has ended the process already.
                outcome = outcome.and(ended.unwrap_or(Ok(())));
            }
            outcome
        })
    }
}

impl OpenStorage {
    /// Closes it in a thread, which sends the outcome.
    fn start_closing<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Receiver<Result<()>> {
        let (done, closed) = mpsc::channel();
        let here = done.clone();
        let close = move || drop(done.send(self.close()));
        let thread = thread::Builder::new().name("closer".to_owned());
        if thread.spawn_scoped(scope, close).is_err() {
            let _ = here.send(self.close());
        }
        closed
    }

    fn close(&self) -> Result<()> {
        let closed = self.storage.close();
        let outcome = match (&self.file, &closed) {
            (Some(_), _) => "the index could not be saved (the next start builds it again)",
            (None, Err(StorageError::Changed(_))) => {
                "the file of the database was replaced or removed"
            }
            (None, _) => "the log was not moved into the database (the next start does it)",
        };
        closed
            .inspect_err(|reason| {
                error!(storage = self.name, %reason, "the storage was not closed properly");
            })
            .context(outcome)
    }
}

/// A storage that was opened, and what keeps it.
struct Opened {
    storage: Arc<Database>,
    file: Option<Arc<FileStorage>>,
    remote: Option<Arc<dyn Remote>>,
}

fn open(options: &StorageOptions, server: &ServerOptions) -> Result<Opened> {
    let file = match &options.kind {
        StorageKind::Memory => open_in_memory(options, options.read_only || server.read_only)?,
        StorageKind::File { path, .. } => open_file(path, options, server)?,
        StorageKind::Sqlite { path, cluster } => {
            let kept = super::database::open(path, cluster.as_deref(), options, server)?;
            let storage = start(Arc::new(kept), options, server)?;
            return Ok(Opened { storage, file: None, remote: None });
        }
        StorageKind::Maria { url } => {
            let kept = Arc::new(super::database::open_on_server(url, options, server)?);
            let storage = start(Arc::<SqlStorage>::clone(&kept), options, server)?;
            return Ok(Opened { storage, file: None, remote: Some(kept) });
        }
        StorageKind::Neo { url } => {
            let cluster = Arc::new(super::cluster::open(url, options, server)?);
            let storage = start(Arc::<NeoStorage>::clone(&cluster), options, server)?;
            return Ok(Opened { storage, file: None, remote: Some(cluster) });
        }
    };
    let file = Arc::new(file);
    let storage = start(Arc::<FileStorage>::clone(&file), options, server)?;
    if let Some(upkeep) = file.upkeep(options.scrub_interval) {
        storage.keep_up(upkeep);
    }
    Ok(Opened { storage, file: Some(file), remote: None })
}

/// Starts the engine over an open storage.
fn start(
    kept: Arc<dyn zodium_storage::Storage>,
    options: &StorageOptions,
    server: &ServerOptions,
) -> Result<Arc<Database>> {
    let in_memory = options.kind == StorageKind::Memory;
    let config = zodium_engine::Config {
        invalidation_queue_size: server.invalidation_queue_size,
        invalidation_age: server.invalidation_age,
        transaction_timeout: server.transaction_timeout,
        pack_gc: options.pack.garbage_collection,
        // In memory the old file would only take space: no program could read it.
        pack_keep_old: options.pack.keep_old && !in_memory,
        pack_abort_on_dangling: options.pack.abort_on_dangling,
        resolver: ServerResolver::for_storage(server),
        resolvable_classes: server.resolvable_classes.clone(),
        reopening: server.reopen_after_failure.then(Reopening::default),
    };
    Ok(Database::start(kept, Arc::new(SystemClock::new()), &config)?)
}

fn open_file(path: &Path, options: &StorageOptions, server: &ServerOptions) -> Result<FileStorage> {
    let read_only = options.read_only || server.read_only;
    if server.read_only && !options.read_only && !RealDisk.exists(path).unwrap_or(true) {
        // The stock server would create the file, so clients expect a storage.
        warn!(file = %path.display(), "no such file: serving an empty database in its place");
        return open_in_memory(options, true);
    }
    if read_only && begins_anew(options) {
        bail!(
            "{}: a read-only server cannot recreate it; remove one of the two settings",
            path.display()
        );
    }
    open_on(Arc::new(RealDisk), path, options, read_only).map_err(|error| explain(path, error))
}

fn open_in_memory(options: &StorageOptions, read_only: bool) -> Result<FileStorage> {
    let path = match &options.kind {
        StorageKind::File { path, .. } | StorageKind::Sqlite { path, .. } => path.clone(),
        StorageKind::Neo { .. } | StorageKind::Maria { .. } | StorageKind::Memory => {
            format!("(memory of storage {})", options.name).into()
        }
    };
    let disk = Arc::new(MemoryDisk::volatile());
    // The disk in memory has no folders in which the configured path could be created.
    let blob_directory = options.blob_directory.as_ref().map(|_| "blobs".into());
    let options = StorageOptions { blob_directory, ..options.clone() };
    if read_only {
        // A storage that is opened read-only needs a file: an empty one.
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

/// Adds advice to an error for which another option or name would help.
fn explain(path: &Path, error: FileStorageError) -> anyhow::Error {
    if matches!(error, FileStorageError::NotFileStorage { .. }) && is_sqlite(path) {
        let path = path.display();
        return anyhow!(
            "{error}; it is an SQLite database: give sqlite://{path} (in TOML `sqlite` instead of \
             `path`)"
        );
    }
    let is_denied = matches!(&error, FileStorageError::Io { source, .. } if matches!(
        source.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
    ));
    let error = anyhow::Error::from(error);
    match is_denied && File::open(path).is_ok() {
        true => error.context("cannot open for writing (--read-only serves it as it is)"),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use zodium_disk::{FaultyDisk, Operation};

    use super::*;

    fn open_storage(disk: &FaultyDisk, name: &str) -> OpenStorage {
        let options = OpenOptions { create: true, ..OpenOptions::new(Path::new(name)) };
        let file = Arc::new(FileStorage::open(Arc::new(disk.clone()), &options).unwrap());
        let kept = Arc::<FileStorage>::clone(&file);
        let storage = Database::start(kept, Arc::new(SystemClock::new()), &Default::default());
        OpenStorage {
            name: name.to_owned(),
            storage: storage.unwrap(),
            file: Some(file),
            remote: None,
            allow: None,
        }
    }

    #[test]
    fn a_disk_that_hangs_does_not_keep_other_storages_from_being_closed() {
        let [hanging, sound] = [(); 2].map(|()| FaultyDisk::new(MemoryDisk::volatile()));
        let opened = vec![open_storage(&hanging, "hanging.fs"), open_storage(&sound, "sound.fs")];
        let storage = Arc::clone(&opened[1].storage);
        let (go_on, held_up) = mpsc::channel::<()>();
        hanging.before_next(Operation::Folder, move || held_up.recv().unwrap());
        let before = sound.count(Operation::Folder);
        let closing = thread::spawn(move || Storages { opened }.close());
        while !storage.is_closing() || sound.count(Operation::Folder) == before {
            assert!(!closing.is_finished(), "the other one is held up");
            thread::yield_now();
        }
        assert!(!closing.is_finished());
        go_on.send(()).unwrap();
        closing.join().unwrap().unwrap();
    }
}
