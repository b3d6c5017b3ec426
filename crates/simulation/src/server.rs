//! The real server without its threads and sockets: each part runs only when it is told to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Instant;

use tokio::task::LocalSet;
use zodium_disk::{Clock, FaultyDisk};
use zodium_engine::{Config as StorageConfig, Database, LogWriter};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_net::{Blocking, Host, Limits};
use zodium_storage::StorageError;
use zodium_zeo_server::{Config, ServedStorage, Server as ZeoServer, ZeoService};

use crate::history::path;
use crate::pipe::ServerEnd;
use crate::witness::Witness;

/// The name of the storage.
pub(crate) const STORAGE_NAME: &str = "1";
/// Bytes of the file whose checksums are computed at once.
const COVER_BYTES: u64 = 1 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// The settings of a server.
pub(crate) struct Setting {
    pub(crate) open: OpenOptions<'static>,
    pub(crate) storage: StorageConfig,
    pub(crate) zeo: Config,
    pub(crate) limits: Limits,
    pub(crate) workers: usize,
}

/// A running server.
pub(crate) struct Server {
    pub(crate) disk: FaultyDisk,
    pub(crate) storage: Arc<Database>,
    pub(crate) file: Arc<FileStorage>,
    witness: Arc<Witness>,
    writer: RefCell<LogWriter>,
    /// The clock value of all rounds of the log writer, which is never away.
    opened: Instant,
    workers: Vec<Worker>,
    jobs: Jobs,
    limits: Limits,
}

/// A worker as two sets of tasks, since a real worker may run its notices or its connections first.
struct Worker {
    host: Rc<Host<ZeoService>>,
    notices: Tasks,
    connections: Tasks,
}

/// Tasks of one thread, which run only when they are told to.
pub(crate) struct Tasks {
    pub(crate) set: RefCell<LocalSet>,
    awake: Arc<Awake>,
}

/// Jobs for blocking threads, in the order in which they were submitted.
#[derive(Clone, Default)]
struct Jobs(Rc<RefCell<Vec<Job>>>);

impl Blocking for Jobs {
    fn run(&self, job: Job) {
        self.0.borrow_mut().push(job);
    }
}

/// Whether a worker has something to do.
struct Awake(AtomicBool);

impl Wake for Awake {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Server {
    /// Opens the file on `disk` and serves it.
    pub(crate) fn start(
        disk: FaultyDisk,
        clock: Arc<dyn Clock>,
        setting: &Setting,
    ) -> Result<Server, StorageError> {
        let file = Arc::new(FileStorage::open(Arc::new(disk.clone()), &setting.open)?);
        cover(&file);
        let kept = Arc::<FileStorage>::clone(&file);
        let (storage, writer) = Database::with_writer(kept, clock, &setting.storage)?;
        let served = ServedStorage { storage: Arc::clone(&storage), allow: None };
        let storages = BTreeMap::from([(STORAGE_NAME.to_owned(), served)]);
        let served = Arc::new(ZeoServer::new(setting.zeo, storages));
        let jobs = Jobs::default();
        let worker = |_| Worker::new(&served, &jobs);
        let workers = (0..setting.workers).map(worker).collect();
        let limits = setting.limits.clone();
        let witness = Witness::subscribe(&storage);
        let (writer, opened) = (RefCell::new(writer), Instant::now());
        Ok(Server { disk, storage, file, witness, writer, opened, workers, jobs, limits })
    }

    /// One pass of the checksum upkeep thread.
    pub(crate) fn keep_checksums_up(&self) {
        cover(&self.file);
    }

    /// The periodic sync of the checksum upkeep thread.
    pub(crate) fn sync_checksums(&self) {
        self.file.sync_checksums();
    }

    /// Fails with the first violation found while commits were announced.
    pub(crate) fn check_announcements(&self) -> Result<(), String> {
        self.witness.check()
    }

    pub(crate) fn accept(&self, worker: usize, end: ServerEnd, peer: String) {
        let Worker { connections, host, .. } = &self.workers[worker];
        let (host, limits) = (Rc::clone(host), self.limits.clone());
        connections.spawn(async move { host.run(end, &peer, None, limits).await });
    }

    /// One round of the log writer; returns how many transactions it wrote or tried to write.
    pub(crate) fn write(&self) -> usize {
        self.writer.borrow_mut().step(|| self.opened)
    }

    /// Runs a worker's pending notices.
    pub(crate) fn run_notices(&self, worker: usize) -> bool {
        self.workers[worker].notices.run()
    }

    /// Runs a worker's connections.
    pub(crate) fn run_connections(&self, worker: usize) -> bool {
        self.workers[worker].connections.run()
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn jobs(&self) -> usize {
        self.jobs.0.borrow().len()
    }

    /// Removes a job from the queue, for the caller to run.
    pub(crate) fn take_job(&self, place: usize) -> Job {
        self.jobs.0.borrow_mut().swap_remove(place)
    }

    /// Finishes all pending work after the last client has gone.
    pub(crate) fn drain(&self) {
        loop {
            let mut busy = false;
            for worker in 0..self.workers() {
                busy |= self.run_notices(worker) | self.run_connections(worker);
            }
            while self.jobs() > 0 {
                self.take_job(0)();
                busy = true;
            }
            if !busy {
                return;
            }
        }
    }
}

/// The options that the program opens a file with, except for its cache.
pub(crate) fn open_options() -> OpenOptions<'static> {
    OpenOptions { checksums: ChecksumMode::Full, ..OpenOptions::new(path()) }
}

/// Computes missing checksums.
fn cover(file: &FileStorage) {
    while file.cover(COVER_BYTES) > 0 {}
}

impl Worker {
    fn new(served: &Arc<ZeoServer>, jobs: &Jobs) -> Worker {
        let (notices, connections) = (Tasks::new(), Tasks::new());
        let set = notices.set.borrow();
        let within = set.enter();
        let service = ZeoService::with_blocking(Arc::clone(served), Box::new(jobs.clone()));
        drop(within);
        drop(set);
        let host = Rc::new(Host::new(service, Arc::default(), None));
        Worker { host, notices, connections }
    }
}

impl Tasks {
    pub(crate) fn new() -> Tasks {
        let awake = Arc::new(Awake(AtomicBool::new(true)));
        Tasks { set: RefCell::new(LocalSet::new()), awake }
    }

    /// Adds a task.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.set.borrow().spawn_local(task);
        self.awake.0.store(true, Ordering::Relaxed);
    }

    /// Whether anything may be ready.
    pub(crate) fn is_awake(&self) -> bool {
        self.awake.0.load(Ordering::Relaxed)
    }

    /// Runs what is ready; returns `false` if nothing was.
    pub(crate) fn run(&self) -> bool {
        if !self.awake.0.swap(false, Ordering::Relaxed) {
            return false;
        }
        let waker = Waker::from(Arc::clone(&self.awake));
        // It does not matter whether all tasks have ended: others will follow.
        let _ = Pin::new(&mut *self.set.borrow_mut()).poll(&mut Context::from_waker(&waker));
        true
    }
}
