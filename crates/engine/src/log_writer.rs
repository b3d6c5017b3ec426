//! The thread that writes the log, with group commit.
//!
//! While one batch is written and synced, the next one gathers. So one sync serves all transactions
//! whose finish was asked for meanwhile.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::error;
use zodium_blobs::{BlobError, StagedBlobs};
use zodium_storage::{Committed, StorageError};
use zodium_types::Tid;

use crate::Database;
use crate::clock_watch::ClockWatch;
use crate::commit::{CommitError, TransactionNumber};
use crate::commit_table::TakenTransaction;
use crate::expiry::ExpiryWatch;
use crate::group_commit_delay::GroupCommitDelay;
use crate::notice::{Commit, Commits, Notice};
use crate::transaction::Voted;

/// Most transactions in one batch, which has one sync.
const BATCH_TRANSACTIONS_MAX: usize = 1024;
/// Interval between checks for expired transactions and a pending reopen.
const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Writes the log of a storage, batch by batch.
pub struct LogWriter {
    database: Arc<Database>,
    clock: ClockWatch,
    expiry: ExpiryWatch,
    delay: GroupCommitDelay,
}

impl LogWriter {
    pub(crate) fn new(database: &Arc<Database>) -> LogWriter {
        let database = Arc::clone(database);
        LogWriter {
            database,
            clock: ClockWatch::default(),
            expiry: ExpiryWatch::default(),
            delay: GroupCommitDelay::default(),
        }
    }

    /// Writes until the storage is closed.
    pub(crate) fn run(mut self) {
        let database = Arc::clone(&self.database);
        let now = database.clock.unix_nanos();
        let (last, monotonic) = (database.store.last_tid(), database.clock.monotonic());
        self.clock.look(last, now, monotonic, || database.store.name());
        self.expiry.begin(Instant::now());
        loop {
            let expiring = database.config.transaction_timeout.map(|_| WATCH_INTERVAL);
            // Not longer than the interval: a test that moves its clock does not wake the writer.
            let reopening = database.time_to_reopening().map(|time| time.min(WATCH_INTERVAL));
            let now = database.clock.monotonic();
            if !database.commits.wait(reopening.or(expiring), now) {
                break;
            }
            self.gather();
            let began = Instant::now();
            let transactions = self.step(Instant::now);
            self.delay.note_batch(transactions, began.elapsed());
        }
        // The log decides about these blobs when it is opened again.
        database.undecided.lock().drain(..).for_each(StagedBlobs::leave);
    }

    /// Waits for voted transactions, whose clients will soon ask for their finish: if they ask in
    /// time, the same sync serves them.
    fn gather(&mut self) {
        let status = self.database.commits.machine().status();
        if status.ready == 0 || status.voted == 0 {
            return;
        }
        if let Some(time_max) = self.delay.time_max() {
            let all_came = self.database.commits.gather(status.ready + status.voted, time_max);
            self.delay.note_waiting(all_came);
        }
    }

    /// Runs one round: checks for expired transactions, ends reservations, reopens the file if due,
    /// writes and publishes the ready transactions. Returns how many were ready.
    ///
    /// A long time between the `now` of two rounds means that this process did not run meanwhile.
    pub fn step(&mut self, now: impl FnOnce() -> Instant) -> usize {
        let database = &self.database;
        // Before `now`: a stop between the two then counts as a pause, and nothing expires.
        let monotonic = database.clock.monotonic();
        database.post_expired(&mut self.expiry, monotonic, now());
        database.commits.end_reservations(monotonic).post();
        database.reopen_if_due();
        let now = database.clock.unix_nanos();
        let clock_tid = Tid::from_unix_nanos(now);
        let batch = database.commits.take_batch(BATCH_TRANSACTIONS_MAX, clock_tid);
        let count = batch.len();
        if let Some((_, last, _)) = batch.last() {
            self.clock.look(*last, now, database.clock.monotonic(), || database.store.name());
            database.write_batch(batch);
        }
        count
    }
}

impl Database {
    /// Commits a voted transaction. [`Notice::Committed`] with this number (or [`Notice::Failed`])
    /// is posted to the mailbox given at its vote.
    ///
    /// # Errors
    /// When the transaction is not voted, an earlier write failed, or the storage was closed. The
    /// transaction is then over.
    pub fn finish(&self, number: TransactionNumber, voted: Voted) -> Result<(), CommitError> {
        if let Some(shared) = self.store.shared() {
            return self.pass_on(shared, number, voted);
        }
        self.commits.finish(number, voted).map_err(|refused| {
            let (error, voted) = *refused;
            self.abort(number, Some(voted));
            error
        })
    }

    fn write_batch(&self, batch: Vec<TakenTransaction>) {
        let _writing = self.writing.begin(self.clock.monotonic());
        let mut taken = Vec::with_capacity(batch.len());
        let mut prepared = Vec::with_capacity(batch.len());
        // Dropped at the end: after the commits were told, or after the failure.
        let mut claims = Vec::new();
        for (number, tid, voted) in self.commit_blobs(batch) {
            taken.push((number, voted.blobs));
            claims.extend(voted.claim);
            prepared.push((tid, voted.prepared));
        }
        if prepared.is_empty() {
            return;
        }
        let started = Instant::now();
        match self.store.commit(prepared) {
            Ok(committed) => {
                self.metrics.appends.record(started.elapsed());
                self.metrics.batches.record(taken.len() as u64);
                let written = taken.into_iter().zip(committed);
                self.publish(written.map(|((number, blobs), committed)| {
                    if let Some(blobs) = blobs {
                        blobs.keep();
                    }
                    (number, committed)
                }));
            }
            Err(error) => {
                // The log may hold these transactions until the storage is reopened.
                let blobs = taken.into_iter().filter_map(|(_, blobs)| blobs);
                self.undecided.lock().extend(blobs.map(|blobs| *blobs));
                self.fail(error);
            }
        }
    }

    /// Gives the blobs of transactions their final names, before the log commits the transactions.
    /// If that fails, only the transaction concerned is over: none of it has been written.
    fn commit_blobs(&self, mut batch: Vec<TakenTransaction>) -> Vec<TakenTransaction> {
        let with_blobs = batch.iter_mut().filter_map(|(number, tid, voted)| {
            let blobs = voted.blobs.as_deref_mut()?;
            Some((*number, (*tid, blobs)))
        });
        let (numbers, mut blobs): (Vec<_>, Vec<_>) = with_blobs.unzip();
        let outcomes = StagedBlobs::commit_all(&mut blobs);
        for (number, outcome) in numbers.into_iter().zip(outcomes) {
            let Err(error) = outcome else { continue };
            let failed = batch.iter().position(|(failed, ..)| *failed == number);
            if let Some(place) = failed {
                let (_, _, voted) = batch.remove(place);
                self.withdraw(number, voted, error);
            }
        }
        batch
    }

    fn withdraw(&self, number: TransactionNumber, voted: Voted, error: BlobError) {
        error!(file = %self.store.name(), %error, "a transaction with blobs failed");
        self.store.abort(voted.prepared);
        // Before its client is notified: the client then finds the blobs already being removed.
        drop(voted.blobs);
        let (owner, granted) = self.commits.withdraw(number, self.clock.monotonic());
        if let Some(owner) = owner {
            owner.post(Notice::Failed(number, Arc::new(error.into())));
        }
        granted.post();
    }

    /// Announces the transactions of a batch, which loads see already. Posts the notices first,
    /// then frees the locks.
    fn publish(&self, written: impl Iterator<Item = (TransactionNumber, Committed)>) {
        let commits: Commits = written
            .map(|(number, Committed { tid, oids })| Arc::new(Commit { tid, oids, number }))
            .collect();
        let numbers: Vec<TransactionNumber> = commits.iter().map(|commit| commit.number).collect();
        self.subscribers.announce(&commits);
        self.commits.published(&numbers, self.clock.monotonic()).post();
    }

    fn fail(&self, error: StorageError) {
        self.note_write_failure(&error);
        let error = Arc::new(error);
        let failed = self.commits.write_failed(self.clock.monotonic());
        for (number, owner, voted) in failed.ended {
            if let Some(voted) = voted {
                self.store.abort(voted.prepared);
            }
            owner.post(Notice::Failed(number, Arc::clone(&error)));
        }
        failed.granted.post();
    }

    fn post_expired(&self, watch: &mut ExpiryWatch, monotonic: Duration, now: Instant) {
        let Some(timeout) = self.config.transaction_timeout else { return };
        if !watch.is_due(now, timeout) {
            return;
        }
        for (number, owner) in self.commits.expired(monotonic, timeout) {
            owner.post(Notice::Expired(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use zodium_disk::ManualClock;
    use zodium_memorystorage::MemoryStorage;
    use zodium_storage::Access;
    use zodium_types::{Oid, TransactionMetadata, TransactionStatus};

    use super::*;
    use crate::{Check, Config, Mailbox, Transaction};

    struct Ignored;

    impl Mailbox for Ignored {
        fn post(&self, _: Notice) {}
    }

    fn vote(database: &Database, oid: u64) -> (TransactionNumber, Voted) {
        let metadata = TransactionMetadata::default();
        let mut transaction = Transaction::new(metadata, None, TransactionStatus::Normal).unwrap();
        transaction.store(Oid(oid), Tid::ZERO, Bytes::from_static(b"data"));
        let mailbox: Arc<dyn Mailbox> = Arc::new(Ignored);
        let (number, _) = database.begin_vote(&transaction, &mailbox).unwrap();
        let checked = database.check(number, &transaction, Access::Blocking).unwrap();
        let Check::Voted(voted) = checked else { panic!("a conflict between new objects") };
        (number, voted)
    }

    /// Whether a writer has waited in vain, with so many ready transactions and so many voted ones.
    fn waits_in_vain(ready: u64, voted: u64) -> bool {
        let kept = Arc::new(MemoryStorage::new());
        let clock = Arc::new(ManualClock::default());
        let (database, mut writer) =
            Database::with_writer(kept, clock, &Config::default()).unwrap();
        for oid in 0..ready {
            let (number, voted) = vote(&database, oid);
            database.finish(number, voted).unwrap();
        }
        let _voted: Vec<_> = (ready..ready + voted).map(|oid| vote(&database, oid)).collect();
        // A slow disk.
        (0..100).for_each(|_| writer.delay.note_batch(1, Duration::from_millis(1)));
        (0..10).for_each(|_| writer.gather());
        writer.delay.time_max().is_none()
    }

    #[test]
    fn the_writer_waits_only_if_a_transaction_is_ready_and_another_one_may_be_soon() {
        assert!(waits_in_vain(1, 1) && waits_in_vain(2, 3));
        for (ready, voted) in [(0, 0), (0, 2), (2, 0)] {
            assert!(!waits_in_vain(ready, voted), "{ready} ready, {voted} voted");
        }
    }
}
