//! A served database: its storage, its commit machine, its log writer, and its subscribers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tracing::warn;
use zodium_blobs::{BlobDirectory, StagedBlobs};
use zodium_disk::Clock;
use zodium_storage::{Access, Read, StorageError, Undo, WriteState};
use zodium_types::{Oid, Tid};

use crate::Config;
use crate::commit::{CommitStatus, TransactionNumber};
use crate::commit_table::CommitTable;
use crate::log_writer::LogWriter;
use crate::metrics::WriterMetrics;
use crate::pack_status::Packs;
use crate::reopening::WriteFailure;
use crate::spill::{Spill, Spilled};
use crate::subscribers::Subscribers;
use crate::write_progress::WriteProgress;

/// An open database with its writer thread.
pub struct Database {
    /// For a storage that tells of the end of a finish.
    pub(crate) this: Weak<Database>,
    pub(crate) store: Arc<dyn zodium_storage::Storage>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) commits: CommitTable,
    pub(crate) config: Config,
    pub(crate) packs: Packs,
    pub(crate) metrics: WriterMetrics,
    /// The failed write that makes the storage refuse commits.
    pub(crate) failure: Mutex<Option<WriteFailure>>,
    /// Blobs of transactions that the log may hold in part, until that part is cut.
    pub(crate) undecided: Mutex<Vec<StagedBlobs>>,
    pub(crate) subscribers: Arc<Subscribers>,
    /// When it was started, and the last transaction then.
    started: Tid,
    started_after: Tid,
    numbers: AtomicU64,
    pub(crate) writing: WriteProgress,
    writer: Mutex<Option<JoinHandle<()>>>,
    pub(crate) upkeep: Mutex<Option<JoinHandle<()>>>,
}

/// The newest transactions. None if the file is damaged there: clients that were disconnected then
/// drop their caches.
fn recent_of(store: &dyn Read, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
    match store.recent(count) {
        Err(error @ StorageError::Corrupt { .. }) => {
            warn!(file = %store.name(), %error,
                "the last transactions cannot be told to clients that come back");
            Ok(Vec::new())
        }
        recent => recent,
    }
}

/// Most objects listed for a client from the log; a client that missed more drops its cache.
const CHANGED_OIDS_MAX: usize = 1 << 20;

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
        let subscribers = Subscribers::new(last_tid, recent, config.invalidation_queue_size);
        let subscribers = Arc::new(subscribers);
        if let Some(following) = store.following() {
            following.follow(last_tid, Arc::clone(&subscribers) as _)?;
        }
        let started = Tid::from_unix_nanos(clock.unix_nanos());
        let database = Arc::new_cyclic(|this| Database {
            this: Weak::clone(this),
            store,
            clock,
            commits: CommitTable::new(last_tid),
            config: config.clone(),
            packs: Packs::default(),
            metrics: WriterMetrics::default(),
            failure: Mutex::default(),
            undecided: Mutex::default(),
            subscribers,
            started,
            started_after: last_tid,
            numbers: AtomicU64::new(1),
            writing: WriteProgress::default(),
            writer: Mutex::new(None),
            upkeep: Mutex::default(),
        });
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

    /// Whether other programs write to the storage as well, so that even new oids are asked for
    /// over a network.
    pub fn is_shared(&self) -> bool {
        self.store.shared().is_some()
    }

    /// Waits until all mailboxes have what is committed by now. If the storage [is
    /// shared](Database::is_shared), by other programs too: then this blocks.
    ///
    /// # Errors
    /// When the storage cannot be reached.
    pub fn catch_up(&self) -> Result<(), StorageError> {
        self.store.shared().map_or(Ok(()), |shared| shared.catch_up())
    }

    /// Hands out `count` oids never used before, ascending; `None` when no more are left. Blocking
    /// if the storage [is shared](Database::is_shared).
    pub fn new_oids(&self, count: u64) -> Option<std::ops::RangeInclusive<u64>> {
        self.store.new_oids(count)
    }

    /// Writes data of a large transaction to its spool. Blocking.
    pub fn run_spill(&self, spill: Spill) -> Result<Spilled, StorageError> {
        spill.run(self.store.as_ref())
    }

    /// Whether the storage accepts commits.
    pub fn write_state(&self) -> WriteState {
        self.store.write_state()
    }

    /// Its subscribers, which are told of each commit.
    pub fn subscribers(&self) -> &Subscribers {
        &self.subscribers
    }

    /// The last transaction that was posted to all mailboxes. Waits for an announcement in
    /// progress.
    pub fn last_tid(&self) -> Tid {
        self.subscribers.last_tid()
    }

    /// Whether any of these objects was written after `since`, or may have been: `since` may be no
    /// transaction of the storage. It may read the disk, and asks no other program.
    ///
    /// A companion may ask from under its locks, as it is told of commits.
    pub fn may_have_changed(&self, since: Tid, oids: &[Oid]) -> bool {
        if let Some(changed) = self.subscribers.may_have_changed(since, oids) {
            return changed;
        }
        // An older one may be of another state of the storage, in whose place this one was put.
        let is_of_this_state =
            since == self.started_after || since >= self.started.max(self.started_after);
        !is_of_this_state || !oids.iter().all(|oid| self.is_unchanged(*oid, since))
    }

    fn is_unchanged(&self, oid: Oid, since: Tid) -> bool {
        let access = if self.is_shared() { Access::NonBlocking } else { Access::Blocking };
        let serial = self.store.poll_serial(oid, access);
        // One that is not there may have been changed, and then packed away.
        matches!(serial, Ok(Poll::Ready(Some(serial))) if serial <= since)
    }

    /// Whether the log may be read for a client whose last transaction is `since`.
    pub fn reads_log_since(&self, since: Tid) -> bool {
        let nanos = self.clock.unix_nanos().saturating_sub(since.to_unix_nanos());
        self.config.invalidation_age.is_some_and(|age| Duration::from_nanos(nanos) < age)
    }

    /// As [`Subscribers::recently_changed`], from the log; `None` when the objects are too many or
    /// the log cannot be read there. The client then drops its cache and misses nothing. Blocking.
    pub fn changed_in_log(&self, since: Tid, told: Tid) -> Option<Vec<Oid>> {
        let changed = self.changed_up_to(CHANGED_OIDS_MAX, since, told);
        changed.unwrap_or_else(|error| {
            warn!(file = %self.store.name(), %error, %since,
                "cannot read from the log which objects were written since this transaction; the \
                 client that asked for them has to drop its cache");
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
        let machine = self.commits.machine();
        let status = machine.status();
        if self.subscribers.announced_tid() <= status.last_published {
            return status;
        }
        // What is being written is announced already: its clients may have their answers, and then
        // hold no locks, although these are not free yet.
        CommitStatus { oldest_grant: machine.oldest_unwritten_grant(), ..status }
    }

    /// The transaction whose client has held its locks for the longest time without asking for the
    /// finish, and for how long; the server's own checks are left out.
    pub fn longest_client_time(&self) -> Option<(TransactionNumber, Duration)> {
        let now = self.clock.monotonic();
        self.commits.machine().longest_client_time(now)
    }

    /// For how long the transactions that are being written have been so; `None` if none are. A
    /// disk that does not answer shows here only: times of writes are recorded when these end.
    pub fn write_time(&self) -> Option<Duration> {
        let since = self.writing.since()?;
        Some(self.clock.monotonic().saturating_sub(since))
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
        let _packing = self.packs.wait();
        self.store.close()
    }

    pub(crate) fn next_number(&self) -> TransactionNumber {
        TransactionNumber(self.numbers.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use bytes::Bytes;
    use zodium_disk::{ManualClock, MemoryDisk, SystemClock};
    use zodium_filestorage::FileStorage;
    use zodium_filestorage::OpenOptions;
    use zodium_types::{TransactionMetadata, TransactionStatus};

    use super::*;
    use crate::{Check, Mailbox, Notice, Transaction, Voted};

    struct NoMailbox;

    impl Mailbox for NoMailbox {
        fn post(&self, _: Notice) {}
    }

    fn start() -> (Arc<Database>, LogWriter) {
        start_on(MemoryDisk::new(), Config::default().invalidation_queue_size)
    }

    fn start_on(disk: MemoryDisk, invalidation_queue_size: usize) -> (Arc<Database>, LogWriter) {
        let options = OpenOptions::new(Path::new("Data.fs"));
        let file = FileStorage::open(Arc::new(disk), &options).unwrap();
        let config = Config { pack_keep_old: false, reopening: None, ..Config::default() };
        let config = Config { invalidation_queue_size, ..config };
        Database::with_writer(Arc::new(file), Arc::new(SystemClock::new()), &config).unwrap()
    }

    /// Votes on a transaction with new objects.
    fn vote(database: &Database, oids: std::ops::Range<u64>) -> (TransactionNumber, Voted) {
        let metadata = TransactionMetadata::default();
        let mut transaction = Transaction::new(metadata, None, TransactionStatus::Normal).unwrap();
        for oid in oids {
            transaction.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"data"));
        }
        let mailbox: Arc<dyn Mailbox> = Arc::new(NoMailbox);
        let (number, _) = database.begin_vote(&transaction, &mailbox).unwrap();
        let checked = database.check(number, &transaction, Access::Blocking).unwrap();
        let Check::Voted(voted) = checked else { panic!("a conflict between new objects") };
        (number, voted)
    }

    /// Writes new objects in one transaction.
    fn store(database: &Database, writer: &mut LogWriter, oids: std::ops::Range<u64>) -> Tid {
        let (number, voted) = vote(database, oids);
        database.finish(number, voted).unwrap();
        writer.step(Instant::now);
        database.last_tid()
    }

    #[test]
    fn the_client_that_holds_locks_longest_is_told_until_it_has_asked_to_finish() {
        let (database, _writer) = start();
        let longest = || database.longest_client_time().map(|(number, _)| number);
        assert_eq!(longest(), None);
        let [(first, of_first), (second, of_second)] =
            [0..1, 1..2].map(|oids| vote(&database, oids));
        assert_eq!(longest(), Some(first));
        database.abort(first, Some(of_first));
        assert_eq!(longest(), Some(second));
        database.finish(second, of_second).unwrap();
        assert_eq!(longest(), None);
    }

    #[test]
    fn a_monotonic_time_becomes_one_of_the_wall_clock_whether_past_or_future() {
        let options = OpenOptions::new(Path::new("Data.fs"));
        let file = FileStorage::open(Arc::new(MemoryDisk::new()), &options).unwrap();
        // The wall clock has moved on since the monotonic one began, at 1000 seconds.
        let clock = Arc::new(ManualClock::at(1_000_000_000_000));
        clock.advance(Duration::from_secs(60));
        let given = Arc::<ManualClock>::clone(&clock);
        let database = Database::start(Arc::new(file), given, &Config::default()).unwrap();
        for (monotonic, unix) in [(0, 1000.0), (45, 1045.0), (60, 1060.0), (90, 1090.0)] {
            let found = database.unix_seconds_at(Duration::from_secs(monotonic));
            assert!((found - unix).abs() < 1e-3, "{monotonic} s: {found}");
        }
        database.close().unwrap();
    }

    #[test]
    fn what_has_changed_since_a_forgotten_transaction_is_told_by_serials() {
        let disk = MemoryDisk::new();
        let (database, mut writer) = start_on(disk.clone(), 2);
        let old = store(&database, &mut writer, 1..3);
        for oid in 3..6 {
            store(&database, &mut writer, oid..oid + 1);
        }
        let changed = |since, oids: &[u64]| {
            let oids: Vec<Oid> = oids.iter().copied().map(Oid).collect();
            database.may_have_changed(since, &oids)
        };
        assert!(!changed(old, &[1, 2]));
        assert!(changed(old, &[1, 3]) && changed(Tid(old.0 - 1), &[1]));
        assert!(changed(old, &[7]), "it can have been changed, and packed away");
        database.close().unwrap();
        drop((database, writer));

        // What was before may have been another state of the storage.
        let (database, mut writer) = start_on(disk, 2);
        let first = database.last_tid();
        for oid in 7..10 {
            store(&database, &mut writer, oid..oid + 1);
        }
        assert!(database.may_have_changed(Tid(first.0 - 1), &[Oid(1)]));
        assert!(database.may_have_changed(first.next(), &[Oid(1)]));
        assert!(!database.may_have_changed(first, &[Oid(1)]));
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
