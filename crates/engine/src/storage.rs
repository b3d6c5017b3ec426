//! One served database: the file, its commit machine, its writer, and those who watch it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use zodium_disk::Clock;
use zodium_filestorage::{FileStorage, StorageError};
use zodium_types::{Oid, Tid};

use crate::commit::{CommitMachine, CommitStatus, TransactionNumber};
use crate::log_writer::FinishQueue;
use crate::notice::{Commit, Mailbox, Notice};

/// What can be set for a storage.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many transactions are remembered for clients that come back.
    pub invalidation_queue_size: usize,
    /// How far back the log is read for those that come back later than that.
    pub invalidation_age: Option<Duration>,
    /// How long a transaction may hold its locks before its client is disconnected.
    pub transaction_timeout: Option<Duration>,
    /// Whether a pack drops objects that cannot be reached from the root.
    pub pack_gc: bool,
    /// Whether a pack keeps the old file as `Data.fs.old`.
    pub pack_keep_old: bool,
}

/// An open database with its writer thread.
pub struct Storage {
    pub(crate) file: FileStorage,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) machine: Mutex<CommitMachine>,
    pub(crate) queue: FinishQueue,
    /// Whom to tell about transactions between vote and end.
    pub(crate) owners: Mutex<FxHashMap<TransactionNumber, Arc<dyn Mailbox>>>,
    pub(crate) transaction_timeout: Option<Duration>,
    /// Held by the writer while it writes a batch, by a pack while it replaces the file. Taken
    /// before all other locks.
    pub(crate) appending: Mutex<()>,
    /// Held by a pack from beginning to end.
    pub(crate) packing: Mutex<()>,
    pub(crate) pack_cancelled: Arc<AtomicBool>,
    pub(crate) pack_gc: bool,
    pub(crate) pack_keep_old: bool,
    invalidation_queue_size: usize,
    invalidation_age: Option<Duration>,
    subscribers: Mutex<Subscribers>,
    numbers: AtomicU64,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Changed together under one lock, so that who subscribes knows exactly what comes next.
struct Subscribers {
    last_tid: Tid,
    mailboxes: Vec<Arc<dyn Mailbox>>,
    /// The newest commits, oldest first.
    recent: VecDeque<Arc<Commit>>,
}

/// The answer to [`Storage::invalidations_since`].
#[derive(Debug, PartialEq, Eq)]
pub enum Invalidations {
    /// These objects were written after the tid asked for, up to this transaction.
    Changed(Tid, Vec<Oid>),
    /// Too long ago to tell.
    Unknown,
}

impl Storage {
    /// Starts serving an open file.
    pub fn start(
        file: FileStorage,
        clock: Arc<dyn Clock>,
        config: &Config,
    ) -> Result<Arc<Storage>, StorageError> {
        let last_tid = file.last_tid();
        let recent = file.recent(config.invalidation_queue_size)?;
        let number = TransactionNumber(0); // Nobody waits for these.
        let recent = recent.into_iter().map(|(tid, oids)| Arc::new(Commit { tid, oids, number }));
        let recent = recent.collect();
        let subscribers = Subscribers { last_tid, mailboxes: Vec::new(), recent };
        let storage = Arc::new(Storage {
            file,
            clock,
            machine: Mutex::new(CommitMachine::new(last_tid)),
            queue: FinishQueue::default(),
            owners: Mutex::default(),
            transaction_timeout: config.transaction_timeout,
            appending: Mutex::default(),
            packing: Mutex::default(),
            pack_cancelled: Arc::default(),
            pack_gc: config.pack_gc,
            pack_keep_old: config.pack_keep_old,
            invalidation_queue_size: config.invalidation_queue_size,
            invalidation_age: config.invalidation_age,
            subscribers: Mutex::new(subscribers),
            numbers: AtomicU64::new(1),
            writer: Mutex::new(None),
        });
        let writer = Arc::clone(&storage);
        let spawned = std::thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || writer.write_log());
        let thread = spawned.map_err(|source| StorageError::Io {
            path: storage.file.path().to_owned(),
            operation: "start the log writer",
            source,
        })?;
        *storage.writer.lock() = Some(thread);
        Ok(storage)
    }

    /// Reading: revisions, histories, transactions. Needs no lock.
    pub fn file(&self) -> &FileStorage {
        &self.file
    }

    /// Adds a mailbox and tells the last tid: every later commit will be posted to it.
    pub fn subscribe(&self, mailbox: Arc<dyn Mailbox>) -> Tid {
        let mut subscribers = self.subscribers.lock();
        subscribers.mailboxes.push(mailbox);
        subscribers.last_tid
    }

    /// The last transaction that was announced.
    pub fn last_tid(&self) -> Tid {
        self.subscribers.lock().last_tid
    }

    /// Which objects were written after `since`, up to `told`: what the asking client has been
    /// told already, so that later commits come to it as notices and only so.
    pub fn invalidations_since(
        &self,
        since: Tid,
        told: Tid,
    ) -> Result<Invalidations, StorageError> {
        if since >= told {
            return Ok(Invalidations::Changed(told, Vec::new()));
        }
        if let Some(changed) = self.recently_changed(since, told) {
            return Ok(changed);
        }
        let nanos = self.clock.unix_nanos().saturating_sub(since.to_unix_nanos());
        match self.invalidation_age {
            Some(age) if Duration::from_nanos(nanos) < age => self.changed_in_log(since, told),
            _ => Ok(Invalidations::Unknown),
        }
    }

    /// What the commit machine is doing.
    pub fn commit_status(&self) -> CommitStatus {
        self.machine.lock().status()
    }

    /// Seconds since the Unix epoch at which a monotonic time was.
    pub fn unix_seconds_at(&self, monotonic: Duration) -> f64 {
        let ago = self.clock.monotonic().saturating_sub(monotonic);
        self.clock.unix_nanos() as f64 / 1e9 - ago.as_secs_f64()
    }

    /// Gives up a pack, writes what has been asked to finish, ends the writer, saves the index.
    pub fn close(&self) -> Result<(), StorageError> {
        self.cancel_pack();
        self.queue.stop();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            // A writer that panicked has ended the process already.
            let _ = writer.join();
        }
        let _packing = self.packing.lock();
        self.file.close()
    }

    pub(crate) fn next_number(&self) -> TransactionNumber {
        TransactionNumber(self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// Posts a commit to everybody. Called by the writer only, in tid order.
    pub(crate) fn announce(&self, commit: Arc<Commit>) {
        let mut subscribers = self.subscribers.lock();
        assert!(commit.tid > subscribers.last_tid, "commits are announced in tid order");
        subscribers.last_tid = commit.tid;
        if self.invalidation_queue_size > 0 {
            if subscribers.recent.len() >= self.invalidation_queue_size {
                subscribers.recent.pop_front();
            }
            subscribers.recent.push_back(Arc::clone(&commit));
        }
        for mailbox in &subscribers.mailboxes {
            mailbox.post(Notice::Committed(Arc::clone(&commit)));
        }
    }

    /// Posts a notice to everybody, after the commits announced before.
    pub(crate) fn post_to_all(&self, notice: &Notice) {
        for mailbox in &self.subscribers.lock().mailboxes {
            mailbox.post(notice.clone());
        }
    }

    pub(crate) fn post_granted(&self, granted: Vec<TransactionNumber>) {
        if granted.is_empty() {
            return;
        }
        let owners = self.owners.lock();
        for number in granted {
            if let Some(owner) = owners.get(&number) {
                owner.post(Notice::Granted(number));
            }
        }
    }

    fn recently_changed(&self, since: Tid, told: Tid) -> Option<Invalidations> {
        let subscribers = self.subscribers.lock();
        let oldest = subscribers.recent.front()?;
        if oldest.tid > since {
            return None;
        }
        let mut seen = FxHashSet::default();
        let newer = subscribers.recent.iter().filter(|r| r.tid > since && r.tid <= told);
        let oids = newer.flat_map(|recent| recent.oids.iter().copied());
        let oids = oids.filter(|oid| seen.insert(*oid)).collect();
        Some(Invalidations::Changed(told, oids))
    }

    fn changed_in_log(&self, since: Tid, told: Tid) -> Result<Invalidations, StorageError> {
        let mut seen = FxHashSet::default();
        let mut transactions = self.file.iterate(Some(since.next()), Some(told))?;
        while let Some(transaction) = transactions.step()? {
            let mut records = transactions.records(&transaction);
            while let Some(record) = records.step()? {
                seen.insert(record.oid);
            }
        }
        Ok(Invalidations::Changed(told, seen.into_iter().collect()))
    }
}
