//! A server with one storage in memory, on a Unix socket.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::oneshot;
use zodium_disk::{MemoryDisk, SystemClock};
use zodium_engine::{Config as StorageConfig, Database};
use zodium_filestorage::{CheckOptions, FileStorage, OpenOptions, check};
use zodium_net::{Bound, WorkerOptions, Workers};
use zodium_types::{Address, Tid};
use zodium_zeo::codec::Encoding;
use zodium_zeo_server::{Config, ServedStorage, Server, ZeoService};

use super::{Difference, same};

const DATA: &str = "Data.fs";
/// Most bytes that clients may send at once; a stock server has no limit.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// Commits that a server remembers for reconnecting clients.
pub(crate) const REMEMBERED: usize = 100;
const WORKERS: usize = 2;

/// A running server; stopped when dropped.
pub(crate) struct InProcess {
    socket: PathBuf,
    disk: MemoryDisk,
    storage: Arc<Database>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
    _folder: TempDir,
}

impl InProcess {
    pub(crate) fn start(
        encoding: Encoding,
        data: Option<Vec<u8>>,
    ) -> Result<InProcess, Difference> {
        let disk = MemoryDisk::volatile();
        if let Some(data) = data {
            disk.put(Path::new(DATA), data);
        }
        let options = OpenOptions { cache_bytes: 1 << 20, ..OpenOptions::new(DATA) };
        let file = FileStorage::open(Arc::new(disk.clone()), &options)?;
        let config = StorageConfig {
            invalidation_queue_size: REMEMBERED,
            pack_gc: false,
            pack_keep_old: false,
            reopening: None,
            ..StorageConfig::default()
        };
        let storage = Database::start(Arc::new(file), Arc::new(SystemClock::new()), &config)?;
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("zeo");
        let (stop, stopped) = oneshot::channel();
        let (ready, listening) = std::sync::mpsc::channel();
        let (served, address) = (Arc::clone(&storage), Address::Unix(socket.clone()));
        let serve = move || serve(served, encoding, &address, &ready, stopped);
        let thread = Some(std::thread::spawn(serve));
        listening.recv()?;
        let stop = Some(stop);
        Ok(InProcess { socket, disk, storage, stop, thread, _folder: folder })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn last_tid(&self) -> Tid {
        self.storage.last_tid()
    }

    /// Stops it and checks its file.
    pub(crate) fn close(mut self) -> Result<(), Difference> {
        self.stop();
        self.storage.close()?;
        let options = CheckOptions {
            path: DATA.into(),
            references: false,
            pickles: false,
            patience: Duration::ZERO,
            progress: &|_, _| (),
        };
        let mut damages = Vec::new();
        check(&self.disk, &options, &mut |damage| damages.push(format!("{damage:?}")))?;
        same("damages of the file", damages, Vec::new())
    }

    fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(
    storage: Arc<Database>,
    encoding: Encoding,
    address: &Address,
    ready: &std::sync::mpsc::Sender<()>,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let config = Config {
        encoding,
        frame_bytes_max: FRAME_BYTES_MAX,
        read_only: false,
        notice_interval: Duration::ZERO,
    };
    let storages = BTreeMap::from([("1".to_owned(), ServedStorage { storage, allow: None })]);
    let server = Arc::new(Server::new(config, storages));
    let make = move |_| ZeoService::new(Arc::clone(&server));
    let options = WorkerOptions { count: WORKERS, ..WorkerOptions::default() };
    let workers = Workers::start(options, make).map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = Bound::bind(address).await?.listen()?;
        // The receiver is gone only if the test has failed already.
        let _ = ready.send(());
        loop {
            tokio::select! {
                (incoming, peer) = listener.accept() => workers.assign(incoming, peer),
                _ = &mut stopped => break Ok::<(), io::Error>(()),
            }
        }
    })?;
    workers.stop(Duration::from_secs(1));
    Ok(())
}
