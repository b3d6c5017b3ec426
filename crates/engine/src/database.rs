//! A served database: its storage, its commit machine, its log writer, and its subscribers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tracing::warn;
use zodium_blobs::{BlobDirectory, StagedBlobs};
use zodium_disk::Clock;
use zodium_storage::{Read, StorageError, Undo, WriteState};
use zodium_types::{Oid, Tid};

use crate::Config;
use crate::Resolver;
use crate::commit::{CommitStatus, TransactionNumber};
use crate::commit_table::CommitTable;
use crate::figures::WriterFigures;
use crate::log_writer::LogWriter;
use crate::notice::{Commit, Commits, Mailbox, Notice};
use crate::pack_status::PackStatus;
use crate::reopening::{Reopening, WriteFailure};

/// An open database with its writer thread.
pub struct Database {
    pub(crate) store: Arc<dyn zodium_storage::Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) commits: CommitTable,
    pub(crate) transaction_timeout: Option<Duration>,
    /// Held by a pack from its start to its end.
    pub(crate) packing: Mutex<()>,
    pub(crate) pack_cancelled: Arc<AtomicBool>,
    pub(crate) pack_gc: bool,
    pub(crate) pack_keep_old: bool,
    pub(crate) pack_status: Mutex<PackStatus>,
    pub(crate) figures: WriterFigures,
    pub(crate) pack_abort_on_dangling: bool,
    pub(crate) resolver: Option<Arc<dyn Resolver>>,
    pub(crate) resolvable_classes: Vec<String>,
    pub(crate) reopening: Option<Reopening>,
    /// The failed write that makes the storage refuse commits.
    pub(crate) failure: Mutex<Option<WriteFailure>>,
    /// Blobs of transactions that the log may hold in part, until that part is cut.
    pub(crate) undecided: Mutex<Vec<StagedBlobs>>,
    invalidation_queue_size: usize,
    invalidation_age: Option<Duration>,
    subscribers: Mutex<Subscribers>,
    /// The tid of the last commit that may have been posted to any mailbox. Release before the
    /// first post, Acquire by workers: a commit known from any source is then visible here.
    announced: AtomicU64,
    numbers: AtomicU64,
    writer: Mutex<Option<JoinHandle<()>>>,
    pub(crate) upkeep: Mutex<Option<JoinHandle<()>>>,
}

/// The newest transactions. None if the file is damaged there: clients that were disconnected then
/// drop their caches.
fn recent_of(store: &dyn Read, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
    match store.recent(count) {
        Err(error @ StorageError::Corrupt { .. }) => {
            warn!(%error, "the last transactions cannot be told to clients that come back");
            Ok(Vec::new())
        }
        recent => recent,
    }
}

/// Changed together under one lock, so that a new subscriber misses no commit and gets none twice.
struct Subscribers {
    last_tid: Tid,
    mailboxes: Vec<Arc<dyn Mailbox>>,
    /// The newest commits, oldest first.
    recent: VecDeque<Arc<Commit>>,
    /// Number of objects in all of them.
    recent_oids: usize,
}

/// Most objects in the remembered commits together: of large commits, fewer are remembered.
const RECENT_OIDS_MAX: usize = 1 << 20;
/// Most objects listed for a client from the log; a client that missed more drops its cache.
const CHANGED_OIDS_MAX: usize = 1 << 20;

impl Subscribers {
    /// Drops the oldest recent commits beyond `commits_max`, or beyond [`RECENT_OIDS_MAX`] objects.
    /// The newest commit stays, unless `commits_max` is 0.
    fn forget_old(&mut self, commits_max: usize) {
        while self.recent.len() > commits_max
            || (self.recent_oids > RECENT_OIDS_MAX && self.recent.len() > 1)
        {
            let Some(oldest) = self.recent.pop_front() else { return };
            self.recent_oids -= oldest.oids.len();
        }
    }
}

impl Database {
    /// Starts serving an open file, with a thread that writes its log.
    pub fn start(
        store: Arc<dyn zodium_storage::Storage>,
        clock: Arc<dyn Clock>,
        config: &Config,
    ) -> Result<Arc<Database>, StorageError> {
        let (database, writer) = Database::with_writer(store, clock, config)?;
        let spawned =
            std::thread::Builder::new().name("log-writer".to_owned()).spawn(move || writer.run());
        let name = database.store.name();
        let refused =
            |error| StorageError::Io(format!("{name}: start the log writer: {error}").into());
        let thread = spawned.map_err(refused)?;
        *database.writer.lock() = Some(thread);
        Ok(database)
    }

    /// As [`Database::start`] without the thread: only steps of the writer write the log. For
    /// callers that run everything on one thread.
    pub fn with_writer(
        store: Arc<dyn zodium_storage::Storage>,
        clock: Arc<dyn Clock>,
        config: &Config,
    ) -> Result<(Arc<Database>, LogWriter), StorageError> {
        let last_tid = store.last_tid();
        let recent = recent_of(store.as_ref(), config.invalidation_queue_size)?;
        let number = TransactionNumber(0); // No session waits for these.
        let recent = recent.into_iter().map(|(tid, oids)| Arc::new(Commit { tid, oids, number }));
        let mut recent: VecDeque<_> = recent.collect();
        if recent.is_empty() && config.invalidation_queue_size > 0 {
            // A client that knows the last transaction of an empty file can get all that follow.
            recent.push_back(Arc::new(Commit { tid: last_tid, oids: Vec::new(), number }));
        }
        let mut subscribers =
            Subscribers { last_tid, mailboxes: Vec::new(), recent, recent_oids: 0 };
        subscribers.recent_oids = subscribers.recent.iter().map(|commit| commit.oids.len()).sum();
        subscribers.forget_old(config.invalidation_queue_size);
        let database = Arc::new(Database {
            store,
            clock,
            commits: CommitTable::new(last_tid),
            transaction_timeout: config.transaction_timeout,
            packing: Mutex::default(),
            pack_cancelled: Arc::default(),
            pack_gc: config.pack_gc,
            pack_keep_old: config.pack_keep_old,
            pack_status: Mutex::default(),
            figures: WriterFigures::default(),
            pack_abort_on_dangling: config.pack_abort_on_dangling,
            resolver: config.resolver.clone(),
            resolvable_classes: config.resolvable_classes.clone(),
            reopening: config.reopening,
            failure: Mutex::default(),
            undecided: Mutex::default(),
            invalidation_queue_size: config.invalidation_queue_size,
            invalidation_age: config.invalidation_age,
            subscribers: Mutex::new(subscribers),
            announced: AtomicU64::new(last_tid.0),
            numbers: AtomicU64::new(1),
            writer: Mutex::new(None),
            upkeep: Mutex::default(),
        });
        database.follow()?;
        let writer = LogWriter::new(&database);
        Ok((database, writer))
    }

    /// Reading: revisions, histories, transactions.
    pub fn reader(&self) -> &dyn Read {
        self.store.as_ref()
    }

    /// Its blobs; `None` when it is served without a blob directory, or its kind has no blobs.
    pub fn blobs(&self) -> Option<&BlobDirectory> {
        self.store.blobs()
    }

    /// Transactions that can be undone.
    ///
    /// # Errors
    /// `Unsupported` when this kind of storage has no undo.
    pub fn undo_side(&self) -> Result<&dyn Undo, StorageError> {
        self.store.undo().ok_or_else(|| StorageError::Unsupported {
            what: format!("{}: this kind of storage has no undo", self.store.name()),
        })
    }

    /// Hands out `count` oids never used before, ascending; `None` when no more are left.
    pub fn new_oids(&self, count: u64) -> Option<std::ops::RangeInclusive<u64>> {
        self.store.new_oids(count)
    }

    /// Whether the storage accepts commits.
    pub fn write_state(&self) -> WriteState {
        self.store.write_state()
    }

    /// Adds a mailbox and returns the last tid: every later commit will be posted to the mailbox.
    pub fn subscribe(&self, mailbox: Arc<dyn Mailbox>) -> Tid {
        let mut subscribers = self.subscribers.lock();
        subscribers.mailboxes.push(mailbox);
        subscribers.last_tid
    }

    /// Removes a mailbox: later commits are not posted to it.
    pub fn unsubscribe(&self, mailbox: &Arc<dyn Mailbox>) {
        // Without the vtables: one type may have several.
        let is_other =
            |one: &Arc<dyn Mailbox>| !std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(mailbox));
        self.subscribers.lock().mailboxes.retain(is_other);
    }

    /// The last transaction that any client may know of; some mailboxes may not have it yet.
    pub fn announced_tid(&self) -> Tid {
        Tid(self.announced.load(Ordering::Acquire))
    }

    /// The last transaction that was posted to all mailboxes. Waits for an announcement in
    /// progress.
    pub fn last_tid(&self) -> Tid {
        self.subscribers.lock().last_tid
    }

    /// The objects written after `since` and not after `told`, from the recent transactions; `None`
    /// when these do not go back that far.
    ///
    /// `told` is the last transaction that the client knows of. Later commits reach it as notices,
    /// and only as notices.
    pub fn recently_changed(&self, since: Tid, told: Tid) -> Option<Vec<Oid>> {
        if since >= told {
            return Some(Vec::new());
        }
        let subscribers = self.subscribers.lock();
        if subscribers.recent.front()?.tid > since {
            return None;
        }
        let newer = subscribers.recent.iter().filter(|r| r.tid > since && r.tid <= told);
        let mut seen = FxHashSet::default();
        let oids = newer.flat_map(|commit| commit.oids.iter().copied());
        Some(oids.filter(|oid| seen.insert(*oid)).collect())
    }

    /// Whether the log may be read for a client whose last transaction is `since`.
    pub fn reads_log_since(&self, since: Tid) -> bool {
        let nanos = self.clock.unix_nanos().saturating_sub(since.to_unix_nanos());
        self.invalidation_age.is_some_and(|age| Duration::from_nanos(nanos) < age)
    }

    /// As [`Database::recently_changed`], from the log; `None` when the objects are too many or the
    /// log cannot be read there. The client then drops its cache and misses nothing. Blocking.
    pub fn changed_in_log(&self, since: Tid, told: Tid) -> Option<Vec<Oid>> {
        let changed = self.changed_up_to(CHANGED_OIDS_MAX, since, told);
        changed.unwrap_or_else(|error| {
            warn!(%error, %since, "cannot read from the log which objects were written since this \
                transaction; the client that asked for them has to drop its cache");
            None
        })
    }

    fn changed_up_to(
        &self,
        oids_max: usize,
        since: Tid,
        told: Tid,
    ) -> Result<Option<Vec<Oid>>, StorageError> {
        let mut seen = FxHashSet::default();
        let mut transactions = self.store.iterate(Some(since.next()), Some(told))?;
        while transactions.step()?.is_some() {
            let Some(mut records) = transactions.records() else { break };
            while let Some(record) = records.step()? {
                seen.insert(record.oid);
            }
            if seen.len() > oids_max {
                return Ok(None);
            }
        }
        Ok(Some(seen.into_iter().collect()))
    }

    /// The state of the commit machine.
    pub fn commit_status(&self) -> CommitStatus {
        self.commits.machine().status()
    }

    /// Converts a monotonic time, past or future, to seconds since the Unix epoch.
    pub fn unix_seconds_at(&self, monotonic: Duration) -> f64 {
        let now = self.clock.monotonic();
        let ago = now.as_secs_f64() - monotonic.as_secs_f64();
        self.clock.unix_nanos() as f64 / 1e9 - ago
    }

    /// Cancels a pack, writes the finished transactions, ends the writer, saves the index.
    pub fn close(&self) -> Result<(), StorageError> {
        self.cancel_pack();
        self.commits.stop();
        let writer = self.writer.lock().take();
        let upkeep = self.upkeep.lock().take();
        for thread in [writer, upkeep].into_iter().flatten() {
            // A thread that panicked has ended the process already.
            let _ = thread.join();
        }
        let _packing = self.packing.lock();
        self.store.close()
    }

    pub(crate) fn next_number(&self) -> TransactionNumber {
        TransactionNumber(self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// Posts commits to all mailboxes, in tid order. Only one thread calls this at a time: the log
    /// writer, or what follows a storage that is only read.
    pub(crate) fn announce(&self, commits: &Commits) {
        let Some(last) = commits.last() else { return };
        self.announced.store(last.tid.0, Ordering::Release);
        let mut subscribers = self.subscribers.lock();
        for commit in commits.iter() {
            assert!(commit.tid > subscribers.last_tid, "commits are announced in tid order");
            subscribers.last_tid = commit.tid;
            if self.invalidation_queue_size > 0 {
                subscribers.recent_oids += commit.oids.len();
                subscribers.recent.push_back(Arc::clone(commit));
                subscribers.forget_old(self.invalidation_queue_size);
            }
        }
        for mailbox in &subscribers.mailboxes {
            mailbox.post(Notice::Committed(Arc::clone(commits)));
        }
    }

    /// Posts a notice to all mailboxes, after the commits announced before.
    pub(crate) fn post_to_all(&self, notice: &Notice) {
        for mailbox in &self.subscribers.lock().mailboxes {
            mailbox.post(notice.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use bytes::Bytes;
    use zodium_disk::{MemoryDisk, SystemClock};
    use zodium_filestorage::FileStorage;
    use zodium_filestorage::OpenOptions;
    use zodium_storage::Access;
    use zodium_types::{TransactionMetadata, TransactionStatus};

    use super::*;
    use crate::{Check, Transaction};

    struct NoMailbox;

    impl Mailbox for NoMailbox {
        fn post(&self, _: Notice) {}
    }

    fn start() -> (Arc<Database>, LogWriter) {
        let options = OpenOptions::new(Path::new("Data.fs"));
        let file = FileStorage::open(Arc::new(MemoryDisk::new()), &options).unwrap();
        let config = Config { pack_keep_old: false, reopening: None, ..Config::default() };
        Database::with_writer(Arc::new(file), Arc::new(SystemClock::new()), &config).unwrap()
    }

    /// Writes new objects in one transaction.
    fn store(database: &Database, writer: &mut LogWriter, oids: std::ops::Range<u64>) -> Tid {
        let metadata = TransactionMetadata::default();
        let mut transaction = Transaction::new(metadata, None, TransactionStatus::Normal).unwrap();
        for oid in oids {
            transaction.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"data"));
        }
        let mailbox: Arc<dyn Mailbox> = Arc::new(NoMailbox);
        let (number, _) = database.begin_vote(&transaction, &mailbox).unwrap();
        let checked = database.check(number, &transaction, Access::Blocking).unwrap();
        let Check::Voted(voted) = checked else { panic!("a conflict between new objects") };
        database.finish(number, voted).unwrap();
        writer.step(Instant::now);
        database.last_tid()
    }

    #[test]
    fn commits_with_more_objects_than_are_remembered_push_out_older_ones() {
        let (database, _writer) = start();
        let half = RECENT_OIDS_MAX as u64 / 2;
        let announce = |tid, oids: std::ops::Range<u64>| {
            let oids = oids.map(Oid).collect();
            let commit = Commit { tid: Tid(tid), oids, number: TransactionNumber(0) };
            database.announce(&[Arc::new(commit)].into());
        };
        let told = |since| {
            let changed = database.recently_changed(Tid(since), database.last_tid());
            changed.map(|oids| oids.len() as u64)
        };
        announce(10, 0..half);
        announce(20, half..2 * half);
        // Exactly the limit.
        assert_eq!(told(10), Some(half));
        announce(30, 0..1);
        assert_eq!(told(10), None);
        assert_eq!(told(20), Some(1));
        // The newest commit is remembered, however many objects it has.
        announce(40, 0..2 * half + 1);
        assert_eq!(told(30), None);
        assert_eq!(told(40), Some(0));
        assert_eq!(database.subscribers.lock().recent.len(), 1);
        database.close().unwrap();
    }

    #[test]
    fn who_missed_more_objects_than_are_told_from_the_log_is_told_of_none() {
        let (database, mut writer) = start();
        let first = store(&database, &mut writer, 0..1);
        let second = store(&database, &mut writer, 1..11);
        let third = store(&database, &mut writer, 11..12);
        assert!(first < second && second < third);
        let told =
            |since, told| database.changed_up_to(10, since, told).unwrap().map(|oids| oids.len());
        assert_eq!(told(first, second), Some(10));
        assert_eq!(told(first, third), None);
        assert_eq!(told(second, third), Some(1));
        database.close().unwrap();
    }
}
