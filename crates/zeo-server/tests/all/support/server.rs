//! A server with one storage in memory, on a Unix socket.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::oneshot;
use zodium_disk::{FaultyDisk, MemoryDisk, Operation, SystemClock};
use zodium_engine::{Config as StorageConfig, Database};
use zodium_filestorage::{CheckOptions, FileStorage, OpenOptions, check};
use zodium_net::{Bound, Limits, Share, WorkerOptions, Workers};
use zodium_storage::Storage;
use zodium_tls::AllowList;
use zodium_types::{Address, Memory, Tid};
use zodium_zeo::codec::Encoding;
use zodium_zeo_server::{Config, Inspection, ServedStorage, Server, SessionMetrics, ZeoService};

use super::counted::{Counted, Loads};
use super::{Difference, same};

const DATA: &str = "Data.fs";
const BLOBS: &str = "blobs";
/// Most bytes that clients may send at once; a stock server has no limit.
const FRAME_BYTES_MAX: u32 = 1 << 20;
/// Commits that a server remembers for reconnecting clients.
pub(crate) const REMEMBERED: usize = 100;
const WORKERS: usize = 2;
/// Time between two moves of connections, where they move.
const MOVE_INTERVAL: Duration = Duration::from_micros(300);

/// How long a server that stops waits for the commits that are under way.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// What a server has, beside a storage in memory.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    /// Its file.
    pub(crate) data: Option<Vec<u8>>,
    /// Whether connections move between the workers all the time.
    pub(crate) is_moving: bool,
    /// Whether it takes blobs.
    pub(crate) has_blobs: bool,
    /// One in so many reads finds its bytes not in memory, and is done by a thread; 0: none does.
    pub(crate) cold_every: u64,
    /// Whether its storage takes no commits.
    pub(crate) read_only: bool,
    /// Longest time that a transaction may hold its locks.
    pub(crate) transaction_timeout: Option<Duration>,
    /// How far back the log is read for clients that missed commits.
    pub(crate) invalidation_age: Option<Duration>,
    /// How long invalidations wait for an answer to leave with.
    pub(crate) notice_interval: Duration,
    /// The clients that may use it; absent: all.
    pub(crate) allow: Option<AllowList>,
    /// How long a client may take to register.
    pub(crate) handshake_time_max: Option<Duration>,
    /// Counts how loads come to its storage.
    pub(crate) loads: Option<Arc<Loads>>,
}

/// A running server; stopped when dropped.
pub(crate) struct InProcess {
    socket: PathBuf,
    disk: FaultyDisk,
    storage: Arc<Database>,
    server: Arc<Server>,
    /// Counts what is held for its clients.
    memory: Arc<Memory>,
    stop: Option<oneshot::Sender<()>>,
    /// Moves of connections between workers.
    moves: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<()>>>,
    _folder: TempDir,
}

/// An operation of the disk that does not go on by itself.
pub(crate) struct HeldUp {
    has_come: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

impl HeldUp {
    /// Waits until the operation has come.
    pub(crate) fn wait(&self) {
        self.has_come.recv_timeout(Duration::from_secs(20)).unwrap();
    }

    /// Lets it go on; so does the end of a test that fails.
    pub(crate) fn go_on(self) {
        self.go_on.send(()).unwrap();
    }
}

impl InProcess {
    pub(crate) fn start(
        encoding: Encoding,
        data: Option<Vec<u8>>,
    ) -> Result<InProcess, Difference> {
        InProcess::start_with(encoding, Setup { data, ..Setup::default() })
    }

    /// As [`InProcess::start`] without data; connections move between the workers all the time.
    pub(crate) fn start_moving(encoding: Encoding) -> Result<InProcess, Difference> {
        InProcess::start_with(encoding, Setup { is_moving: true, ..Setup::default() })
    }

    pub(crate) fn start_with(encoding: Encoding, setup: Setup) -> Result<InProcess, Difference> {
        let Setup { data, is_moving, has_blobs, read_only, .. } = setup;
        let disk = FaultyDisk::new(MemoryDisk::volatile());
        if let Some(data) = data {
            disk.files().put(Path::new(DATA), data);
        }
        disk.forget_every(setup.cold_every);
        let options = OpenOptions {
            cache_bytes: 1 << 20,
            read_only,
            blob_directory: has_blobs.then(|| BLOBS.into()),
            ..OpenOptions::new(DATA)
        };
        let file = FileStorage::open(Arc::new(disk.clone()), &options)?;
        let config = StorageConfig {
            invalidation_queue_size: REMEMBERED,
            invalidation_age: setup.invalidation_age,
            transaction_timeout: setup.transaction_timeout,
            pack_gc: false,
            pack_keep_old: false,
            reopening: None,
            ..StorageConfig::default()
        };
        let file: Arc<dyn Storage> = Arc::new(file);
        let kept: Arc<dyn Storage> = match setup.loads {
            Some(loads) => Arc::new(Counted::new(file, loads)),
            None => file,
        };
        let storage = Database::start(kept, Arc::new(SystemClock::new()), &config)?;
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("zeo");
        let (stop, stopped) = oneshot::channel();
        let (ready, listening) = mpsc::channel();
        let server = make_server(encoding, &storage, setup.notice_interval, setup.allow);
        let address = Address::Unix(socket.clone());
        let served = Arc::clone(&server);
        let moves = Arc::<AtomicU64>::default();
        let moved = is_moving.then(|| Arc::clone(&moves));
        let memory = Memory::new(u64::MAX);
        let mut limits = Limits { memory: Arc::clone(&memory), ..Limits::default() };
        limits.handshake_time_max = setup.handshake_time_max.unwrap_or(limits.handshake_time_max);
        let serve = move || serve(&served, &address, limits, moved.as_deref(), &ready, stopped);
        let thread = Some(std::thread::spawn(serve));
        listening.recv()?;
        let (stop, _folder) = (Some(stop), folder);
        Ok(InProcess { socket, disk, storage, server, memory, stop, moves, thread, _folder })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The bytes of its file.
    pub(crate) fn data(&self) -> Vec<u8> {
        self.disk.files().bytes(Path::new(DATA)).unwrap()
    }

    /// Its disk, to let reads find their bytes not in memory.
    pub(crate) fn disk(&self) -> &FaultyDisk {
        &self.disk
    }

    /// Holds up the next operation of its disk of this kind.
    pub(crate) fn hold_up(&self, operation: Operation) -> HeldUp {
        let (come, has_come) = mpsc::channel();
        let (go_on, held_up) = mpsc::channel();
        self.disk.before_next(operation, move || {
            // The ends are gone only if the test has failed already.
            let _ = come.send(());
            let _ = held_up.recv();
        });
        HeldUp { has_come, go_on }
    }

    /// Bytes of all blobs, also of those that are being received.
    pub(crate) fn blob_bytes(&self) -> usize {
        let files = self.disk.files();
        let paths = files.paths().into_iter().filter(|path| path.starts_with(BLOBS));
        paths.filter_map(|path| files.bytes(&path)).map(|bytes| bytes.len()).sum()
    }

    pub(crate) fn storage(&self) -> &Arc<Database> {
        &self.storage
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// What its workers report of their sessions, of which each describes so many.
    pub(crate) fn inspect(&self, listed_max: usize) -> Inspection {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(self.server.inspect(listed_max, Duration::from_secs(20)))
    }

    /// Bytes that are held for its clients.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.memory.held_bytes()
    }

    /// The metrics of the sessions of its storage.
    pub(crate) fn metrics(&self) -> SessionMetrics {
        self.server.metrics().pop().unwrap().2
    }

    pub(crate) fn last_tid(&self) -> Tid {
        self.storage.last_tid()
    }

    /// How often a connection has moved to another worker.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Stops it and checks its file.
    pub(crate) fn close(mut self) -> Result<(), Difference> {
        self.stop();
        self.storage.close()?;
        let options = CheckOptions::new(DATA);
        let mut damages = Vec::new();
        check(self.disk.files(), &options, &mut |damage| damages.push(format!("{damage:?}")))?;
        same("damages of the file", damages, Vec::new())
    }

    pub(crate) fn stop(&mut self) {
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

fn make_server(
    encoding: Encoding,
    storage: &Arc<Database>,
    notice_interval: Duration,
    allow: Option<AllowList>,
) -> Arc<Server> {
    let frame_bytes_max = FRAME_BYTES_MAX;
    let config = Config { encoding, frame_bytes_max, read_only: false, notice_interval };
    let served = ServedStorage { storage: Arc::clone(storage), allow };
    Arc::new(Server::new(config, BTreeMap::from([("1".to_owned(), served)])))
}

fn serve(
    server: &Arc<Server>,
    address: &Address,
    limits: Limits,
    moves: Option<&AtomicU64>,
    ready: &mpsc::Sender<()>,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let server = Arc::clone(server);
    let make = move |_| ZeoService::new(Arc::clone(&server));
    let options = WorkerOptions { count: WORKERS, limits, ..WorkerOptions::default() };
    let workers = Workers::start(options, make).map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = Bound::bind(address).await?.listen()?;
        // The receiver is gone only if the test has failed already.
        let _ = ready.send(());
        let mut interval = tokio::time::interval(MOVE_INTERVAL);
        // All to one worker, half of them back, all to the other one, and so on.
        let turns = [(Share::All, 0), (Share::Half, 1), (Share::All, 1), (Share::Half, 0)];
        let mut turns = turns.into_iter().cycle();
        loop {
            tokio::select! {
                (incoming, peer) = listener.accept() => workers.assign(incoming, peer),
                _ = interval.tick(), if moves.is_some() => {
                    let (share, from) = turns.next().unwrap();
                    workers.hand_over(share, from, 1 - from);
                    let moved = workers.metrics().iter().map(|metrics| metrics.moved.value()).sum();
                    moves.unwrap().store(moved, Ordering::Relaxed);
                }
                _ = &mut stopped => break Ok::<(), io::Error>(()),
            }
        }
    })?;
    workers.stop(STOP_PATIENCE);
    Ok(())
}
