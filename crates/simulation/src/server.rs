//! The real server but for its threads and sockets: nothing runs in it unless it is told to.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use tokio::task::LocalSet;
use zodium_disk::{Clock, FaultyDisk};
use zodium_engine::Storage;
use zodium_filestorage::{FileStorage, OpenOptions, StorageError};
use zodium_net::{Host, Limits};
use zodium_zeo::server::{Blocking, Config, Offer, Server as ZeoServer, ZeoService};

use crate::history::path;
use crate::pipe::ServerEnd;
use crate::plan::Plan;

/// What clients ask for.
pub(crate) const STORAGE_NAME: &str = "1";
const FRAME_BYTES_MAX: u32 = 1 << 24;

type Job = Box<dyn FnOnce() + Send>;

/// A running server.
pub(crate) struct Server {
    pub(crate) disk: FaultyDisk,
    pub(crate) storage: Arc<Storage>,
    workers: Vec<Worker>,
    jobs: Jobs,
    limits: Limits,
}

struct Worker {
    tasks: RefCell<LocalSet>,
    host: Rc<Host<ZeoService>>,
    awake: Arc<Awake>,
}

/// What would be done on blocking threads, in the order in which it was asked for.
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
        plan: &Plan,
    ) -> Result<Server, StorageError> {
        let cache_bytes = plan.cache_bytes;
        let options = OpenOptions { cache_bytes, ..OpenOptions::new(path()) };
        let file = FileStorage::open(Arc::new(disk.clone()), &options)?;
        let storage = Storage::without_writer(file, clock, &plan.storage_config())?;
        let config = Config {
            encoding: plan.encoding,
            frame_bytes_max: FRAME_BYTES_MAX,
            read_only: false,
        };
        let offer = Offer { storage: Arc::clone(&storage), allow: None };
        let offers = BTreeMap::from([(STORAGE_NAME.to_owned(), offer)]);
        let served = Arc::new(ZeoServer::new(config, offers));
        let jobs = Jobs::default();
        let worker = |_| Worker::new(&served, &jobs);
        let workers = (0..plan.workers).map(worker).collect();
        let limits = Limits {
            output_bytes_high: plan.output_bytes_high,
            unasked_bytes_max: plan.unasked_bytes_max,
        };
        Ok(Server { disk, storage, workers, jobs, limits })
    }

    pub(crate) fn accept(&self, worker: usize, end: ServerEnd, peer: String) {
        let Worker { tasks, host, awake } = &self.workers[worker];
        let (host, limits) = (Rc::clone(host), self.limits);
        tasks.borrow().spawn_local(async move { host.run(end, &peer, None, limits).await });
        awake.0.store(true, Ordering::Relaxed);
    }

    /// Lets a worker do what it has to; false when there was nothing.
    pub(crate) fn run_worker(&self, worker: usize) -> bool {
        let Worker { tasks, awake, .. } = &self.workers[worker];
        if !awake.0.swap(false, Ordering::Relaxed) {
            return false;
        }
        let waker = Waker::from(Arc::clone(awake));
        // Never ready: a worker waits for connections for ever.
        let _ = Pin::new(&mut *tasks.borrow_mut()).poll(&mut Context::from_waker(&waker));
        true
    }

    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(crate) fn jobs(&self) -> usize {
        self.jobs.0.borrow().len()
    }

    /// Takes a job away, to run it.
    pub(crate) fn take_job(&self, place: usize) -> Job {
        self.jobs.0.borrow_mut().swap_remove(place)
    }

    /// Lets everything under way come to its end, with nobody there any more.
    pub(crate) fn drain(&self) {
        loop {
            let mut busy = false;
            for worker in 0..self.workers() {
                busy |= self.run_worker(worker);
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

impl Worker {
    fn new(served: &Arc<ZeoServer>, jobs: &Jobs) -> Worker {
        let tasks = LocalSet::new();
        let within = tasks.enter();
        let service = ZeoService::with_blocking(Arc::clone(served), Box::new(jobs.clone()));
        drop(within);
        let host = Rc::new(Host::new(service, Arc::default()));
        Worker { tasks: RefCell::new(tasks), host, awake: Arc::new(Awake(AtomicBool::new(true))) }
    }
}
