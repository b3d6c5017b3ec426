//! The log of a server, and what belongs to it.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use zodium_disk::Disk;
use zodium_keylog::{Log, OpenError, Reached, Sync};
use zodium_keyspace::now;

use super::recovery::Recovery;
use crate::Server;
use crate::fail::{Fail, Outcome};
use crate::local::Letter;

/// Where and how a server keeps its keys.
#[derive(Clone, Debug)]
pub struct KeeperOptions {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The file.
    pub path: PathBuf,
    /// `always`, `everysec` or `no`.
    pub sync: String,
}

/// What was read at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadReport {
    /// Number of keys in all databases.
    pub keys: usize,
    /// Bytes of the log.
    pub bytes: u64,
    /// How long it took.
    pub time: Duration,
}

/// The log of a server.
pub(crate) struct Keeper {
    pub(crate) log: Log,
    /// Whether clients of a worker wait for the log.
    waiting: Vec<AtomicBool>,
    pub(crate) is_compacting: AtomicBool,
    /// When the log was compacted last, in seconds since 1970; or when it was opened.
    pub(crate) compacted_at: AtomicU64,
    /// Whether the last compaction succeeded.
    pub(crate) is_compacted: AtomicBool,
}

/// The value of `appendfsync` as one of a log.
fn sync_named(name: &str) -> Option<Sync> {
    match name {
        "always" => Some(Sync::Always),
        "everysec" => Some(Sync::EverySecond),
        "no" => Some(Sync::No),
        _ => None,
    }
}

impl Keeper {
    pub(crate) fn new(log: Log, workers: usize) -> Keeper {
        Keeper {
            log,
            waiting: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            is_compacting: AtomicBool::new(false),
            compacted_at: AtomicU64::new(now() / 1000),
            is_compacted: AtomicBool::new(true),
        }
    }

    /// The position up to which readers need not wait for the log. They never wait for a disk that
    /// fails.
    pub(crate) fn safe(&self) -> u64 {
        match self.log.sync() == Sync::Always && self.log.failure().is_none() {
            true => self.log.reached(Reached::Synced),
            false => u64::MAX,
        }
    }

    /// What answers wait for.
    pub(crate) fn has_reached(&self, position: u64) -> bool {
        let wanted = match self.log.sync() {
            Sync::Always => Reached::Synced,
            Sync::EverySecond | Sync::No => Reached::Written,
        };
        self.log.has_reached(position, wanted)
    }

    /// Has a worker be told of progress. It looks at the log once more after this.
    pub(crate) fn note_waiting(&self, worker: usize) {
        if let Some(waiting) = self.waiting.get(worker) {
            waiting.store(true, Ordering::SeqCst);
        }
        // Either the writer sees the mark, or the worker its progress.
        fence(Ordering::SeqCst);
    }

    /// The workers whose clients wait.
    fn take_waiting(&self) -> impl Iterator<Item = usize> {
        fence(Ordering::SeqCst);
        let waiting = self.waiting.iter().enumerate();
        waiting.filter(|(_, is_set)| is_set.swap(false, Ordering::SeqCst)).map(|(worker, _)| worker)
    }
}

impl Server {
    /// Reads the log of a server, and keeps its changes in it from now on. Called once, before
    /// there are clients, and with the storages that the server is beside.
    ///
    /// # Errors
    /// The log cannot be read, or is damaged.
    pub fn keep(self: &Arc<Self>, options: &KeeperOptions) -> Result<LoadReport, OpenError> {
        let began = Instant::now();
        let sync = sync_named(&options.sync).unwrap_or_default();
        let recovery = Mutex::new(Recovery::default());
        let log = thread::scope(|scope| {
            // While the records of a chunk are executed, the next one is read.
            let (chunks, read) = mpsc::sync_channel(1);
            let opening = scope.spawn(move || {
                Log::open(&options.disk, &options.path, sync, |chunk| {
                    // An error would be a panic of the other thread, which ends this one too.
                    chunks.send(chunk).ok();
                    Ok::<(), OpenError>(())
                })
            });
            read.iter().for_each(|chunk| self.replay(&chunk, &recovery));
            opening.join().unwrap_or_else(|panic| resume_unwind(panic))
        })?;
        let (bytes, _) = log.lengths();
        self.settings.keep(&options.path, &options.sync);
        let keeper = Keeper::new(log, self.statistics.workers.len());
        if self.keeper.set(keeper).is_err() {
            tracing::error!("the RESP server has its log already");
        }
        self.recover(recovery.into_inner());
        if let Some(keeper) = self.keeper.get() {
            let server = Arc::downgrade(self);
            keeper.log.on_progress(move || {
                if let Some(server) = server.upgrade() {
                    server.tell_progress();
                }
            });
        }
        let totals = (0..zodium_keyspace::DATABASES).map(|number| self.keyspace.totals(number));
        let keys = totals.map(|totals| totals.keys).sum();
        Ok(LoadReport { keys, bytes, time: began.elapsed() })
    }

    /// Writes and syncs what was not yet. Changes after this are lost.
    pub fn close_log(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.log.close();
        }
    }

    /// Has the log follow the setting `appendfsync`.
    pub(crate) fn apply_sync(&self) {
        let Some(keeper) = self.keeper.get() else { return };
        if let Some(sync) = sync_named(&self.settings.text("appendfsync"))
            && sync != keeper.log.sync()
        {
            keeper.log.set_sync(sync);
        }
    }

    fn tell_progress(&self) {
        let Some(keeper) = self.keeper.get() else { return };
        for worker in keeper.take_waiting() {
            self.clients.send(worker, Letter::Logged);
        }
    }

    /// The error of commands that write while the log cannot be written.
    pub(crate) fn check_log(&self) -> Outcome {
        match self.keeper.get().and_then(|keeper| keeper.log.failure()) {
            None => Ok(()),
            Some(reason) => {
                Err(Fail::text(format!("MISCONF Errors writing to the AOF file: {reason}")))
            }
        }
    }
}
