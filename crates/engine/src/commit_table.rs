//! The transactions of a storage between their vote and their end, with their mailboxes and
//! records, and the signals between sessions and the log writer.
//!
//! Key decision: one table under one mutex. The vote adds the mailbox, and the finish adds the
//! records. So each grant finds its mailbox, and the log writer finds the records to write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, MappedMutexGuard, Mutex, MutexGuard};
use zodium_types::Tid;

use crate::commit::{
    AbortOutcome, CommitError, CommitMachine, LockAnswer, LockSet, TransactionNumber,
};
use crate::notice::{Mailbox, Notice};
use crate::transaction::Voted;

/// A transaction that the log writer has taken.
pub(crate) type TakenTransaction = (TransactionNumber, Tid, Voted);

/// The payload of a transaction in the commit machine.
pub(crate) struct Carried {
    /// The mailbox of its session.
    owner: Arc<dyn Mailbox>,
    /// The voted records, from the finish until the log writer takes them.
    voted: Option<Voted>,
}

/// The commit machine of a storage, with the payloads of its transactions.
pub(crate) struct CommitTable {
    state: Mutex<TableState>,
    /// Wakes the log writer.
    changed: Condvar,
    /// Wakes threads that wait only for the stop.
    stopped: Condvar,
}

struct TableState {
    machine: CommitMachine<Carried>,
    stopping: bool,
    /// The log writer sleeps until this many transactions are ready.
    wanted: usize,
    /// The log writer has other work to check.
    woken: bool,
    /// The log writer sleeps, and will not wake up for a reservation.
    misses_reservations: bool,
}

/// Transactions that got their locks. Their sessions must be notified, outside the mutex.
#[must_use]
pub(crate) struct Granted(Vec<(TransactionNumber, Arc<dyn Mailbox>)>);

impl Granted {
    /// Notifies the sessions.
    pub(crate) fn post(self) {
        for (number, owner) in self.0 {
            owner.post(Notice::Granted(number));
        }
    }
}

/// Transactions ended by a failed write.
pub(crate) struct Failed {
    /// Each with its mailbox, and its records if the log writer had not taken them.
    pub(crate) ended: Vec<(TransactionNumber, Arc<dyn Mailbox>, Option<Voted>)>,
    pub(crate) granted: Granted,
}

impl CommitTable {
    /// A table for a storage whose last transaction is `last_tid`.
    pub(crate) fn new(last_tid: Tid) -> CommitTable {
        let machine = CommitMachine::new(last_tid);
        let state = TableState {
            machine,
            stopping: false,
            wanted: 0,
            woken: false,
            misses_reservations: false,
        };
        CommitTable {
            state: Mutex::new(state),
            changed: Condvar::default(),
            stopped: Condvar::default(),
        }
    }

    /// The state machine, for steps that end no transaction.
    pub(crate) fn machine(&self) -> MappedMutexGuard<'_, CommitMachine<Carried>> {
        MutexGuard::map(self.state.lock(), |state| &mut state.machine)
    }

    /// See [`CommitMachine::vote`].
    pub(crate) fn vote(
        &self,
        number: TransactionNumber,
        locks: LockSet,
        explicit_tid: Option<Tid>,
        owner: Arc<dyn Mailbox>,
        now: Duration,
    ) -> Result<LockAnswer, CommitError> {
        self.machine().vote(number, locks, explicit_tid, Carried { owner, voted: None }, now)
    }

    /// See [`CommitMachine::refuse`]. A transaction that was aborted before holds no locks.
    pub(crate) fn refuse(&self, number: TransactionNumber, now: Duration) -> Granted {
        let mut state = self.state.lock();
        let granted = state.machine.refuse(number, now).unwrap_or_default();
        state.owners(granted)
    }

    /// See [`CommitMachine::abort`].
    pub(crate) fn abort(&self, number: TransactionNumber, now: Duration) -> Granted {
        let mut state = self.state.lock();
        match state.machine.abort(number, now) {
            AbortOutcome::Aborted { granted } => state.owners(granted),
            AbortOutcome::TooLate | AbortOutcome::Unknown => Granted(Vec::new()),
        }
    }

    /// See [`CommitMachine::reserve`]. The log writer will end the reservation.
    pub(crate) fn reserve(
        &self,
        number: TransactionNumber,
        now: Duration,
    ) -> Result<(), CommitError> {
        let mut state = self.state.lock();
        state.machine.reserve(number, now)?;
        if state.misses_reservations {
            state.misses_reservations = false;
            self.changed.notify_one();
        }
        Ok(())
    }

    /// See [`CommitMachine::end_reservations`].
    pub(crate) fn end_reservations(&self, now: Duration) -> Granted {
        let mut state = self.state.lock();
        let granted = state.machine.end_reservations(now);
        state.owners(granted)
    }

    /// Hands a voted transaction to the log writer.
    ///
    /// # Errors
    /// As [`CommitMachine::finish`], and when the storage is closed. The transaction is unchanged.
    pub(crate) fn finish(
        &self,
        number: TransactionNumber,
        voted: Voted,
    ) -> Result<(), Box<(CommitError, Voted)>> {
        let mut state = self.state.lock();
        if state.stopping {
            return Err(Box::new((CommitError::StorageClosed, voted)));
        }
        if let Err(error) = state.machine.finish(number) {
            return Err(Box::new((error, voted)));
        }
        if let Some(carried) = state.machine.payload_mut(number) {
            carried.voted = Some(voted);
        }
        if state.ready() >= state.wanted {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// See [`CommitMachine::settled`]. Also returns the mailbox of the transaction.
    pub(crate) fn settled(
        &self,
        number: TransactionNumber,
        tid: Option<Tid>,
        now: Duration,
    ) -> (Option<Arc<dyn Mailbox>>, Granted) {
        let mut state = self.state.lock();
        let (carried, granted) = state.machine.settled(number, tid, now);
        (carried.map(|carried| carried.owner), state.owners(granted))
    }

    /// See [`CommitMachine::next_batch`].
    pub(crate) fn take_batch(
        &self,
        transactions_max: usize,
        clock_tid: Tid,
    ) -> Vec<TakenTransaction> {
        let mut state = self.state.lock();
        let batch = state.machine.next_batch(transactions_max, clock_tid);
        let take = |(number, tid)| {
            let voted = state.machine.payload_mut(number).and_then(|carried| carried.voted.take());
            assert!(voted.is_some(), "a ready transaction has its records");
            Some((number, tid, voted?))
        };
        batch.into_iter().filter_map(take).collect()
    }

    /// See [`CommitMachine::published`].
    pub(crate) fn published(&self, numbers: &[TransactionNumber], now: Duration) -> Granted {
        let mut state = self.state.lock();
        match state.machine.published(numbers, now) {
            Ok(granted) => state.owners(granted),
            Err(error) => unreachable!("batches are published as taken: {error}"),
        }
    }

    /// See [`CommitMachine::withdraw`]. Also returns the mailbox of the transaction.
    pub(crate) fn withdraw(
        &self,
        number: TransactionNumber,
        now: Duration,
    ) -> (Option<Arc<dyn Mailbox>>, Granted) {
        let mut state = self.state.lock();
        let (carried, granted) = state.machine.withdraw(number, now);
        (carried.map(|carried| carried.owner), state.owners(granted))
    }

    /// See [`CommitMachine::write_failed`].
    pub(crate) fn write_failed(&self, now: Duration) -> Failed {
        let mut state = self.state.lock();
        let failure = state.machine.write_failed(now);
        let ended = failure.ended.into_iter();
        let ended = ended.map(|(number, carried)| (number, carried.owner, carried.voted)).collect();
        Failed { ended, granted: state.owners(failure.granted) }
    }

    /// See [`CommitMachine::expired`]. Also returns the mailbox of each transaction.
    pub(crate) fn expired(
        &self,
        now: Duration,
        timeout: Duration,
    ) -> Vec<(TransactionNumber, Arc<dyn Mailbox>)> {
        let state = self.state.lock();
        let expired = state.machine.expired(now, timeout);
        state.owners(expired).0
    }

    /// Lets the log writer end once it has written all ready transactions.
    pub(crate) fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
        self.stopped.notify_all();
    }

    /// Wakes the log writer to check for other work.
    pub(crate) fn wake(&self) {
        self.state.lock().woken = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state.lock().stopping
    }

    /// Sleeps for `time`, or until the table is stopping.
    pub(crate) fn sleep(&self, time: Duration) {
        let mut state = self.state.lock();
        if !state.stopping {
            self.stopped.wait_for(&mut state, time);
        }
    }

    /// Waits until `wanted` transactions are ready; false when that takes too long.
    pub(crate) fn gather(&self, wanted: usize, time_max: Duration) -> bool {
        let deadline = Instant::now() + time_max;
        let mut state = self.state.lock();
        state.wanted = wanted;
        while state.ready() < wanted && !state.stopping && !state.woken {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.wanted = 0;
        state.ready() >= wanted
    }

    /// Waits for work, or for the end of a reservation; `false` when stopped and nothing is ready.
    pub(crate) fn wait(&self, timeout: Option<Duration>, now: Duration) -> bool {
        let mut state = self.state.lock();
        if state.ready() == 0 && !state.stopping && !state.woken {
            let reserved = state.machine.first_reservation_end();
            let reserved = reserved.map(|until| until.saturating_sub(now));
            state.misses_reservations = reserved.is_none();
            match timeout.into_iter().chain(reserved).min() {
                Some(timeout) => {
                    self.changed.wait_for(&mut state, timeout);
                }
                None => self.changed.wait(&mut state),
            }
            state.misses_reservations = false;
        }
        state.woken = false;
        !(state.ready() == 0 && state.stopping)
    }
}

impl TableState {
    /// How many transactions wait for the log writer.
    fn ready(&self) -> usize {
        self.machine.ready_count()
    }

    fn owners(&self, numbers: Vec<TransactionNumber>) -> Granted {
        let owner = |number| {
            let carried = self.machine.payload(number)?;
            Some((number, Arc::clone(&carried.owner)))
        };
        Granted(numbers.into_iter().filter_map(owner).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use zodium_storage::Prepared;
    use zodium_types::Oid;

    use super::*;
    use crate::commit::{LockKey, LockMode};

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(3600);
    const SHORT: Duration = Duration::from_millis(10);

    struct Ignored;

    impl Mailbox for Ignored {
        fn post(&self, _: Notice) {}
    }

    /// A table with so many voted transactions.
    fn voted(count: u64) -> CommitTable {
        let table = CommitTable::new(Tid::ZERO);
        for number in 1..=count {
            let lock = (LockKey::Object(Oid(number)), LockMode::Exclusive);
            let (number, now) = (TransactionNumber(number), Duration::ZERO);
            let locks = [lock].into_iter().collect();
            let granted = table.vote(number, locks, None, Arc::new(Ignored), now);
            assert_eq!(granted, Ok(LockAnswer::Granted));
            table.machine().voted(number, now).unwrap();
        }
        table
    }

    fn finish(table: &CommitTable, number: u64) {
        let voted = Voted {
            prepared: Prepared::new(()),
            blobs: None,
            changed: Vec::new(),
            resolved: 0,
            claim: None,
            _merged: None,
        };
        assert!(table.finish(TransactionNumber(number), voted).is_ok());
    }

    /// Does something on another thread while this one waits.
    fn meanwhile<T>(act: impl FnOnce() + Send, wait: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(SHORT);
                act();
            });
            wait()
        })
    }

    #[test]
    fn the_writer_waits_for_as_many_transactions_as_it_wants() {
        let table = voted(3);
        finish(&table, 1);
        assert!(table.gather(1, LONG), "it is there");
        assert!(!table.gather(2, SHORT), "it takes too long");
        let others = || [2, 3].into_iter().for_each(|number| finish(&table, number));
        assert!(meanwhile(others, || table.gather(3, LONG)));
    }

    #[test]
    fn the_writer_gathers_no_more_when_it_is_woken_or_stopped() {
        let table = voted(1);
        assert!(!meanwhile(|| table.wake(), || table.gather(1, LONG)));
        assert!(!table.gather(1, LONG), "it has not looked yet");
        let table = voted(1);
        assert!(!meanwhile(|| table.stop(), || table.gather(1, LONG)));
        assert!(!table.gather(1, LONG));
    }

    #[test]
    fn the_writer_waits_for_work_and_ends_without_it() {
        let table = voted(2);
        let now = Duration::ZERO;
        assert!(table.wait(Some(SHORT), now), "there may be other work");
        table.wake();
        assert!(table.wait(Some(LONG), now));
        assert!(meanwhile(|| table.wake(), || table.wait(None, now)));
        assert!(meanwhile(|| finish(&table, 1), || table.wait(None, now)));
        assert!(table.wait(None, now), "it is still there");
        table.stop();
        assert!(table.wait(None, now), "it is written");
        assert_eq!(table.take_batch(9, Tid(9)).len(), 1);
        assert!(!table.wait(None, now));
    }

    #[test]
    fn a_sleep_takes_its_time_or_ends_with_the_table() {
        let (table, begun) = (voted(0), Instant::now());
        table.sleep(SHORT);
        assert!(begun.elapsed() >= SHORT);
        meanwhile(|| table.stop(), || table.sleep(LONG));
        table.sleep(LONG);
    }
}
