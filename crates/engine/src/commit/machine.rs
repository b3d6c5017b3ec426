//! The states of all transactions between their first vote and their end.
//!
//! Key decision: every call is one short step. It either happens wholly, or returns an error and
//! changes nothing. It returns the transactions that it granted, so that the caller can notify
//! their sessions after it has left the mutex.
//!
//! Invariants:
//! - locks are held from the grant until the transaction is published, refused or aborted; so the
//!   result of a conflict check still holds when the transaction is published;
//! - tids strictly increase in the order in which transactions are taken, and transactions are
//!   published in that order;
//! - a transaction with an explicit tid holds the clock alone, so no tid is given between the
//!   comparison in [`CommitMachine::voted`] and its own.

mod client_time;
mod reservations;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use rustc_hash::FxHashMap;
use thiserror::Error;
use zodium_types::Tid;

use super::lock_set::{LockKey, LockMode, LockSet};
use super::lock_table::{LockAnswer, LockTable, LockWait};
use super::number::TransactionNumber;

/// The state of a transaction between its first vote and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitState {
    /// Waits for its locks.
    Waiting,
    /// Holds its locks; the caller compares serials and reserves space.
    Checking,
    /// Holds its locks while its client resolves conflicts, to vote again.
    Resolving,
    /// Its client has given it up after conflicts. Keeps its locks for a short time, for the next
    /// transaction of the client.
    Reserved,
    /// Passed its vote: the server promises that it can be finished. Holds its locks.
    Voted,
    /// Its client asked for finish; waits for the log writer. Cannot be aborted any more.
    Ready,
    /// Has its tid and is being written. Cannot be aborted any more.
    Writing,
    /// Its client asked for finish; the storage decides about it. Cannot be aborted any more.
    Passed,
}

/// Why a call was refused; it changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The transaction is in a state that does not allow the call.
    #[error("transaction {} cannot {call} while it is {state:?}", number.0)]
    WrongState {
        /// The transaction.
        number: TransactionNumber,
        /// Its state, unchanged.
        state: CommitState,
        /// The call.
        call: &'static str,
    },
    /// The transaction has not voted, or is over.
    #[error("transaction {} cannot {call}: it has not voted, or is over", number.0)]
    UnknownTransaction {
        /// The transaction.
        number: TransactionNumber,
        /// The call.
        call: &'static str,
    },
    /// A write failed earlier: nothing can be committed until the storage is reopened.
    #[error(
        "an earlier write failed, commits are refused until the server has reopened the file or is \
         restarted; its log and its monitor tell more"
    )]
    StorageFailed,
    /// The storage was closed: it writes only the finishes asked for before.
    #[error("the storage is closed; nothing can be committed")]
    StorageClosed,
    /// A transaction brought a tid that is not later than the last one given.
    #[error("transaction id {tid} is not later than the last one, {last}")]
    TidNotNewer {
        /// The tid it brought.
        tid: Tid,
        /// The last tid given.
        last: Tid,
    },
    /// No tids are left: a clock or a restored transaction was millennia ahead.
    #[error("transaction id {tid} is too close to the largest possible one; check the clock")]
    TidTooLarge {
        /// The tid that it brought, or the last one given.
        tid: Tid,
    },
    /// Transactions were published out of the order in which they were taken.
    #[error("transaction {} is not the next one to publish", number.0)]
    OutOfOrder {
        /// The first one out of order.
        number: TransactionNumber,
    },
}

/// The outcome of an abort.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum AbortOutcome {
    /// The transaction is over and its locks are free.
    Aborted {
        /// The transactions that this grants, in order of arrival; now `Checking`.
        granted: Vec<TransactionNumber>,
    },
    /// Its client asked for finish before: it will be published, or fail, despite the abort.
    TooLate,
    /// It has not voted (or was refused since), or is over: it holds no locks.
    Unknown,
}

/// The transactions affected by a failed write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct WriteFailure<P> {
    /// All transactions whose finish was asked for, in that order, with their payloads. They are
    /// over; whether the first of them are on disk is unknown.
    pub ended: Vec<(TransactionNumber, P)>,
    /// The transactions that this grants, in order of arrival. Their votes will be refused.
    pub granted: Vec<TransactionNumber>,
}

/// Metrics for the status page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitStatus {
    /// Number of transactions that wait for locks.
    pub waiting: usize,
    /// Number of transactions that hold locks, from `Checking` to `Writing`.
    pub locking: usize,
    /// Number of voted transactions whose finish was not asked for.
    pub voted: usize,
    /// Number of transactions that wait for the log writer.
    pub ready: usize,
    /// Number of transactions that are being written.
    pub writing: usize,
    /// When the oldest lock still held was granted (monotonic).
    /// [`Database::commit_status`](crate::Database::commit_status) leaves out those of transactions
    /// that are announced already.
    pub oldest_grant: Option<Duration>,
    /// The last tid given; its transaction may still be on its way to the disk.
    pub last_given: Tid,
    /// The last tid published.
    pub last_published: Tid,
    /// Whether a write failed, so that nothing can be committed until the storage is reopened.
    pub failed: bool,
}

/// All voting and finishing transactions of one storage.
///
/// Every `now` is the monotonic time of the caller's clock. It may be earlier than that of an
/// earlier call, because callers read their clock before they enter the mutex.
///
/// The number of an aborted transaction is never reused. Otherwise a check that still runs for the
/// old transaction could vote for the new one.
///
/// Each transaction carries a payload `P`, which the machine keeps and never inspects. So there is
/// one table of transactions, and no data of a transaction outlives it.
#[derive(Debug)]
pub struct CommitMachine<P> {
    locks: LockTable,
    transactions: FxHashMap<TransactionNumber, Transaction<P>>,
    /// Transactions that hold locks, ordered by grant time.
    grants: BTreeSet<(Duration, TransactionNumber)>,
    /// Transactions that are `Reserved`, ordered by the end of that time.
    reserved: BTreeSet<(Duration, TransactionNumber)>,
    /// Number of transactions that are `Voted`.
    voted: usize,
    /// In the order of their finishes.
    ready: VecDeque<TransactionNumber>,
    /// In the order of their tids.
    writing: VecDeque<(TransactionNumber, Tid)>,
    last_given: Tid,
    last_published: Tid,
    failed: bool,
}

#[derive(Debug)]
struct Transaction<P> {
    payload: P,
    state: CommitState,
    /// The tid that the transaction brings.
    explicit_tid: Option<Tid>,
    /// When the transaction got its locks; meaningless while it waits.
    granted_at: Duration,
    /// As `granted_at`, later by the time of its checks.
    client_since: Duration,
    /// When its last check began.
    checking_since: Duration,
    /// The end of its reservation, while it is `Reserved`.
    reserved_until: Option<Duration>,
}

/// Largest tid that a clock or a restored transaction may bring (year 5907). Beyond it no
/// transaction may vote. The 2^32 tids left outnumber the transactions that can be voted already,
/// so the next tid always exists.
const TID_LIMIT: Tid = Tid(Tid::MAX.0 - (1 << 32));

impl<P> CommitMachine<P> {
    /// A machine for a storage whose last transaction is `last_tid`.
    pub fn new(last_tid: Tid) -> CommitMachine<P> {
        CommitMachine {
            locks: LockTable::new(),
            transactions: FxHashMap::default(),
            grants: BTreeSet::new(),
            reserved: BTreeSet::new(),
            voted: 0,
            ready: VecDeque::new(),
            writing: VecDeque::new(),
            last_given: last_tid,
            last_published: last_tid,
            failed: false,
        }
    }

    /// Requests `locks` (the machine adds the clock). If granted, the transaction is `Checking`.
    /// Otherwise it is `Waiting` until a later call returns its number among those granted.
    ///
    /// `explicit_tid` is the tid that the transaction brings; [`voted`](Self::voted) compares it.
    ///
    /// # Errors
    /// `StorageFailed`; `WrongState` when it is voting or has voted.
    pub fn vote(
        &mut self,
        number: TransactionNumber,
        mut locks: LockSet,
        explicit_tid: Option<Tid>,
        payload: P,
        now: Duration,
    ) -> Result<LockAnswer, CommitError> {
        let clock = if explicit_tid.is_some() { LockMode::Exclusive } else { LockMode::Shared };
        locks.add(LockKey::Clock, clock);
        self.check_working()?;
        if let Some(state) = self.state(number) {
            return Err(CommitError::WrongState { number, state, call: "vote" });
        }
        let state = CommitState::Waiting;
        let transaction = Transaction {
            payload,
            state,
            explicit_tid,
            granted_at: now,
            client_since: now,
            checking_since: now,
            reserved_until: None,
        };
        self.transactions.insert(number, transaction);
        let answer = self.locks.request(number, locks);
        if answer == LockAnswer::Granted {
            self.grant(number, now);
        }
        Ok(answer)
    }

    /// Frees the locks after the check found a conflict or no space. The transaction is open and
    /// may vote again. Returns the transactions that this grants.
    ///
    /// # Errors
    /// `WrongState` unless it is `Checking`, `UnknownTransaction`.
    pub fn refuse(
        &mut self,
        number: TransactionNumber,
        now: Duration,
    ) -> Result<Vec<TransactionNumber>, CommitError> {
        self.expect_state(number, CommitState::Checking, "refuse")?;
        Ok(self.end([number], now))
    }

    /// Keeps the locks after the check found conflicts that the client may resolve. The revisions
    /// to merge with cannot change, so the next vote succeeds however contended the objects are. (A
    /// stock client gives up after nine votes.)
    ///
    /// # Errors
    /// `WrongState` unless it is `Checking`, `UnknownTransaction`.
    pub fn resolve(&mut self, number: TransactionNumber, now: Duration) -> Result<(), CommitError> {
        let transaction = self.expect_state(number, CommitState::Checking, "resolve")?;
        transaction.end_check(CommitState::Resolving, now);
        Ok(())
    }

    /// Continues after the client has resolved its conflicts. If the locks held cover `locks`, the
    /// transaction is `Checking` again. Otherwise nothing happens, since a waiter must hold no
    /// locks: abort it, and vote under another number.
    ///
    /// # Errors
    /// `WrongState` unless it is `Resolving`, `UnknownTransaction`.
    pub fn vote_again(
        &mut self,
        number: TransactionNumber,
        locks: &LockSet,
        now: Duration,
    ) -> Result<bool, CommitError> {
        let covered = self.locks.covers(number, locks);
        let transaction = self.expect_state(number, CommitState::Resolving, "vote again")?;
        if covered {
            transaction.begin_check(now);
        }
        Ok(covered)
    }

    /// Notes that the check passed and space is reserved: `Checking` becomes `Voted`.
    ///
    /// An explicit tid is compared here, not earlier: only from the grant on can no other tid be
    /// given. After an error the transaction is still `Checking`: `refuse` or `abort` it.
    ///
    /// # Errors
    /// `StorageFailed`, `TidNotNewer`, `TidTooLarge`, `WrongState`, `UnknownTransaction`.
    pub fn voted(&mut self, number: TransactionNumber, now: Duration) -> Result<(), CommitError> {
        self.check_working()?;
        let (last_given, call) = (self.last_given, "be voted");
        let transaction = self.expect_state(number, CommitState::Checking, call)?;
        check_tid(transaction.explicit_tid, last_given)?;
        transaction.end_check(CommitState::Voted, now);
        self.voted += 1;
        Ok(())
    }

    /// Hands a voted transaction to the log writer, after those finished before.
    ///
    /// # Errors
    /// `StorageFailed`; `WrongState` unless it is `Voted`; `UnknownTransaction`.
    pub fn finish(&mut self, number: TransactionNumber) -> Result<(), CommitError> {
        self.check_working()?;
        self.expect_state(number, CommitState::Voted, "finish")?.state = CommitState::Ready;
        self.voted -= 1;
        self.ready.push_back(number);
        Ok(())
    }

    /// Takes up to `transactions_max` ready transactions in the order of their finishes. Gives each
    /// its tid: its explicit one, or the later of `clock_tid` and the successor of the last tid.
    ///
    /// A batch may be taken while earlier batches are still being written.
    #[must_use = "what is taken has to be written"]
    pub fn next_batch(
        &mut self,
        transactions_max: usize,
        clock_tid: Tid,
    ) -> Vec<(TransactionNumber, Tid)> {
        let count = transactions_max.min(self.ready.len());
        let mut batch = Vec::with_capacity(count);
        for number in self.ready.drain(..count) {
            let Some(transaction) = self.transactions.get_mut(&number) else { continue };
            let tid = transaction
                .explicit_tid
                .unwrap_or_else(|| clock_tid.min(TID_LIMIT).max(self.last_given.next()));
            assert!(tid > self.last_given, "{tid} given after {}", self.last_given);
            self.last_given = tid;
            transaction.state = CommitState::Writing;
            batch.push((number, tid));
        }
        self.writing.extend(&batch);
        batch
    }

    /// Ends transactions that are durable and visible to every load, and frees their locks. Returns
    /// the transactions that this grants.
    ///
    /// # Errors
    /// `OutOfOrder` unless `numbers` are the first of those being written, in order.
    pub fn published(
        &mut self,
        numbers: &[TransactionNumber],
        now: Duration,
    ) -> Result<Vec<TransactionNumber>, CommitError> {
        let mut last = self.last_published;
        for (index, &number) in numbers.iter().enumerate() {
            match self.writing.get(index) {
                Some(&(next, tid)) if next == number => last = tid,
                _ => return Err(CommitError::OutOfOrder { number }),
            }
        }
        self.last_published = last;
        self.writing.drain(..numbers.len());
        Ok(self.end(numbers.iter().copied(), now))
    }

    /// Hands a voted transaction to a storage that gives tids itself, until it is
    /// [`settled`](Self::settled).
    ///
    /// # Errors
    /// `WrongState` unless it is `Voted`; `UnknownTransaction`.
    pub fn pass_on(&mut self, number: TransactionNumber) -> Result<(), CommitError> {
        self.expect_state(number, CommitState::Voted, "finish")?.state = CommitState::Passed;
        self.voted -= 1;
        Ok(())
    }

    /// Ends a transaction that was [passed on](Self::pass_on): it has this tid, or is not
    /// committed. Returns its payload, and the transactions that this grants.
    pub fn settled(
        &mut self,
        number: TransactionNumber,
        tid: Option<Tid>,
        now: Duration,
    ) -> (Option<P>, Vec<TransactionNumber>) {
        let tid = tid.unwrap_or(Tid::ZERO);
        self.last_given = self.last_given.max(tid);
        self.last_published = self.last_published.max(tid);
        (self.forget(number), self.free([number], now))
    }

    /// Ends a transaction taken by [`next_batch`](Self::next_batch) of which nothing was or will be
    /// written. Its tid stays unused. Returns its payload, and the transactions that this grants.
    pub fn withdraw(
        &mut self,
        number: TransactionNumber,
        now: Duration,
    ) -> (Option<P>, Vec<TransactionNumber>) {
        self.writing.retain(|(writing, _)| *writing != number);
        (self.forget(number), self.free([number], now))
    }

    /// Notes that a write or sync failed. All transactions that were finished and not published are
    /// over. Votes and finishes are refused until the storage is [reopened](Self::reopened). Voted
    /// and checking transactions keep their locks until they are aborted.
    ///
    /// Durable transactions must have been [`published`](Self::published) before.
    pub fn write_failed(&mut self, now: Duration) -> WriteFailure<P> {
        self.failed = true;
        let writing = self.writing.drain(..).map(|(number, _)| number);
        let numbers: Vec<_> = writing.chain(self.ready.drain(..)).collect();
        let ended = |&number| Some((number, self.forget(number)?));
        let ended = numbers.iter().filter_map(ended).collect();
        WriteFailure { ended, granted: self.free(numbers, now) }
    }

    /// Allows writes again, after the remains of the failed write were cut. Transactions that voted
    /// before the failure can still be finished: nothing they saw has changed.
    pub fn reopened(&mut self) {
        assert!(self.writing.is_empty(), "nothing is being written");
        self.failed = false;
    }

    /// Aborts at the client's request, its disconnect, or a timeout. Possible until finish.
    pub fn abort(&mut self, number: TransactionNumber, now: Duration) -> AbortOutcome {
        match self.state(number) {
            None => AbortOutcome::Unknown,
            Some(CommitState::Ready | CommitState::Writing | CommitState::Passed) => {
                AbortOutcome::TooLate
            }
            Some(_) => AbortOutcome::Aborted { granted: self.end([number], now) },
        }
    }

    /// The state of a transaction; `None` when it has not voted (or was refused since), or is
    /// over.
    pub fn state(&self, number: TransactionNumber) -> Option<CommitState> {
        self.transactions.get(&number).map(|transaction| transaction.state)
    }

    /// The payload of a transaction; `None` as for [`state`](Self::state).
    pub fn payload(&self, number: TransactionNumber) -> Option<&P> {
        self.transactions.get(&number).map(|transaction| &transaction.payload)
    }

    /// The payload of a transaction, mutable; `None` as for [`state`](Self::state).
    pub fn payload_mut(&mut self, number: TransactionNumber) -> Option<&mut P> {
        self.transactions.get_mut(&number).map(|transaction| &mut transaction.payload)
    }

    /// The current metrics.
    pub fn status(&self) -> CommitStatus {
        CommitStatus {
            waiting: self.locks.waiting(),
            locking: self.grants.len(),
            voted: self.voted,
            ready: self.ready.len(),
            writing: self.writing.len(),
            oldest_grant: self.grants.first().map(|&(granted_at, _)| granted_at),
            last_given: self.last_given,
            last_published: self.last_published,
            failed: self.failed,
        }
    }

    /// When the oldest locks of a transaction that is not being written were granted (monotonic).
    pub fn oldest_unwritten_grant(&self) -> Option<Duration> {
        let is_written = |number| self.writing.iter().any(|(written, _)| *written == number);
        let oldest = self.grants.iter().find(|(_, number)| !is_written(*number));
        oldest.map(|&(granted_at, _)| granted_at)
    }

    /// Number of transactions that wait for the log writer.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// The lock waits of the earliest `count_max` waiters.
    pub fn lock_waits(&self, count_max: usize) -> Vec<LockWait> {
        self.locks.waits(count_max)
    }

    /// Whether no transaction is known and nothing is locked.
    pub fn is_idle(&self) -> bool {
        self.transactions.is_empty()
            && self.locks.is_empty()
            && self.grants.is_empty()
            && self.reserved.is_empty()
            && self.ready.is_empty()
            && self.writing.is_empty()
    }

    /// Compares states, locks, grants and queues with each other. For tests: walks over all of
    /// them.
    ///
    /// # Errors
    /// Describes the first inconsistency.
    pub fn check_consistency(&self) -> Result<(), String> {
        self.locks.check_consistency()?;
        if self.locks.len() != self.transactions.len() {
            return Err(format!(
                "{} have locks, not {}",
                self.locks.len(),
                self.transactions.len()
            ));
        }
        let count = |state| self.transactions.values().filter(|t| t.state == state).count();
        let queued = (self.ready.len(), self.writing.len());
        if queued != (count(CommitState::Ready), count(CommitState::Writing)) {
            return Err(format!("{queued:?} ready and writing do not fit the states"));
        }
        if self.reserved.len() != count(CommitState::Reserved) {
            return Err(format!("{} reserved do not fit the states", self.reserved.len()));
        }
        if self.voted != count(CommitState::Voted) {
            return Err(format!("{} voted counted do not fit the states", self.voted));
        }
        for (&number, transaction) in &self.transactions {
            let waits = transaction.state == CommitState::Waiting;
            let answer = if waits { LockAnswer::Waiting } else { LockAnswer::Granted };
            if self.locks.answer(number) != Some(answer) {
                return Err(format!("{number:?} is {:?} without fitting locks", transaction.state));
            }
            let until = transaction.reserved_until;
            if until.is_some() != (transaction.state == CommitState::Reserved)
                || until.is_some_and(|until| !self.reserved.contains(&(until, number)))
            {
                return Err(format!("{number:?} has a wrong reservation"));
            }
            if self.grants.contains(&(transaction.granted_at, number)) == waits {
                return Err(format!("{number:?} has a wrong time of grant"));
            }
        }
        if self.grants.len() > self.transactions.len() {
            return Err(format!("{} grants are too many", self.grants.len()));
        }
        Ok(())
    }

    fn grant(&mut self, number: TransactionNumber, now: Duration) {
        let Some(transaction) = self.transactions.get_mut(&number) else { return };
        transaction.note_grant(now);
        self.grants.insert((now, number));
    }

    /// Forgets transactions, frees their locks, and moves those granted to their next state.
    fn end(
        &mut self,
        numbers: impl IntoIterator<Item = TransactionNumber> + Clone,
        now: Duration,
    ) -> Vec<TransactionNumber> {
        for number in numbers.clone() {
            drop(self.forget(number));
        }
        self.free(numbers, now)
    }

    /// Returns the payload of a transaction whose locks are freed next.
    fn forget(&mut self, number: TransactionNumber) -> Option<P> {
        let Transaction { payload, state, granted_at, reserved_until, .. } =
            self.transactions.remove(&number)?;
        self.grants.remove(&(granted_at, number));
        if let Some(until) = reserved_until {
            self.reserved.remove(&(until, number));
        }
        self.voted -= usize::from(state == CommitState::Voted);
        Some(payload)
    }

    /// Frees the locks of forgotten transactions, and moves those granted to their next state.
    fn free(
        &mut self,
        numbers: impl IntoIterator<Item = TransactionNumber>,
        now: Duration,
    ) -> Vec<TransactionNumber> {
        let granted = self.locks.release_all(numbers);
        for &number in &granted {
            self.grant(number, now);
        }
        granted
    }

    fn check_working(&self) -> Result<(), CommitError> {
        if self.failed { Err(CommitError::StorageFailed) } else { Ok(()) }
    }

    fn expect_state(
        &mut self,
        number: TransactionNumber,
        expected: CommitState,
        call: &'static str,
    ) -> Result<&mut Transaction<P>, CommitError> {
        match self.transactions.get_mut(&number) {
            None => Err(CommitError::UnknownTransaction { number, call }),
            Some(transaction) if transaction.state == expected => Ok(transaction),
            Some(Transaction { state, .. }) => {
                Err(CommitError::WrongState { number, state: *state, call })
            }
        }
    }
}

/// Whether a transaction with this explicit tid, or none, may be voted after `last`.
fn check_tid(explicit_tid: Option<Tid>, last: Tid) -> Result<(), CommitError> {
    match explicit_tid {
        Some(tid) if tid <= last => Err(CommitError::TidNotNewer { tid, last }),
        Some(tid) if tid > TID_LIMIT => Err(CommitError::TidTooLarge { tid }),
        None if last > TID_LIMIT => Err(CommitError::TidTooLarge { tid: last }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockAnswer::{Granted, Waiting};
    use zodium_types::Oid;

    pub(super) const NOW: Duration = Duration::from_secs(100);

    pub(super) fn number(n: u64) -> TransactionNumber {
        TransactionNumber(n)
    }

    pub(super) fn writes(oids: &[u64]) -> LockSet {
        oids.iter().map(|&oid| (LockKey::Object(Oid(oid)), LockMode::Exclusive)).collect()
    }

    pub(super) fn vote(machine: &mut CommitMachine<()>, n: u64, oids: &[u64]) -> LockAnswer {
        machine.vote(number(n), writes(oids), None, (), NOW).unwrap()
    }

    fn vote_and_finish(machine: &mut CommitMachine<()>, n: u64, oids: &[u64]) {
        assert_eq!(vote(machine, n, oids), Granted);
        machine.voted(number(n), NOW).unwrap();
        machine.finish(number(n)).unwrap();
    }

    pub(super) fn numbers(found: Vec<TransactionNumber>) -> Vec<u64> {
        found.into_iter().map(|number| number.0).collect()
    }

    #[test]
    fn who_resolves_keeps_its_locks_and_needs_no_more_for_the_next_vote() {
        let mut machine = CommitMachine::<()>::new(Tid(10));
        assert_eq!(vote(&mut machine, 1, &[1, 2]), Granted);
        machine.resolve(number(1), NOW).unwrap();
        assert_eq!(vote(&mut machine, 2, &[1]), Waiting);
        assert_eq!(machine.vote_again(number(1), &writes(&[3]), NOW), Ok(false));
        assert_eq!(machine.state(number(1)), Some(CommitState::Resolving));
        assert_eq!(machine.expired(NOW + NOW, Duration::from_secs(1)), [number(1)]);
        assert_eq!(machine.vote_again(number(1), &writes(&[1, 2]), NOW), Ok(true));
        machine.voted(number(1), NOW).unwrap();
        assert!(machine.resolve(number(1), NOW).is_err());
        let granted = vec![number(2)];
        assert_eq!(machine.abort(number(1), NOW), AbortOutcome::Aborted { granted });
    }

    #[test]
    fn a_transaction_goes_through_all_states_and_frees_its_locks_when_published() {
        let mut machine = CommitMachine::<()>::new(Tid(10));
        assert_eq!(vote(&mut machine, 1, &[1]), Granted);
        assert_eq!(vote(&mut machine, 2, &[1]), Waiting);
        machine.voted(number(1), NOW).unwrap();
        machine.finish(number(1)).unwrap();
        assert_eq!(machine.next_batch(9, Tid(500)), [(number(1), Tid(500))]);
        assert_eq!(machine.state(number(2)), Some(CommitState::Waiting));
        assert_eq!(machine.status().last_published, Tid(10));
        assert_eq!(numbers(machine.published(&[number(1)], NOW).unwrap()), [2]);
        assert_eq!(machine.state(number(2)), Some(CommitState::Checking));
        assert_eq!(machine.status().last_published, Tid(500));
        assert_eq!(machine.abort(number(2), NOW), AbortOutcome::Aborted { granted: vec![] });
        assert!(machine.is_idle());
    }

    /// The other tests rely on this.
    #[test]
    fn a_machine_with_anything_left_is_not_idle_and_not_consistent() {
        let leftovers: [fn(&mut CommitMachine<()>); 5] = [
            |machine| assert_eq!(machine.locks.request(number(1), writes(&[1])), Granted),
            |machine| assert!(machine.grants.insert((NOW, number(1)))),
            |machine| assert!(machine.reserved.insert((NOW, number(1)))),
            |machine| machine.ready.push_back(number(1)),
            |machine| machine.writing.push_back((number(1), Tid(11))),
        ];
        for (case, leave) in leftovers.into_iter().enumerate() {
            let mut machine = CommitMachine::<()>::new(Tid(10));
            assert!(machine.is_idle() && machine.check_consistency().is_ok());
            leave(&mut machine);
            assert!(!machine.is_idle() && machine.check_consistency().is_err(), "case {case}");
        }
        let mut machine = CommitMachine::<()>::new(Tid(10));
        assert_eq!(vote(&mut machine, 1, &[1]), Granted);
        machine.resolve(number(1), NOW).unwrap();
        machine.reserve(number(1), NOW).unwrap();
        assert!(!machine.is_idle() && machine.check_consistency().is_ok());
        // A reservation with another end than the one that is waited for.
        let transaction = machine.transactions.get_mut(&number(1)).unwrap();
        transaction.reserved_until = Some(NOW + NOW);
        assert!(machine.check_consistency().is_err());
    }

    #[test]
    fn passed_on_transactions_keep_their_locks_until_they_are_settled_in_any_order() {
        let mut machine = CommitMachine::<()>::new(Tid(10));
        for n in 1..=2 {
            assert_eq!(vote(&mut machine, n, &[n]), Granted);
            machine.voted(number(n), NOW).unwrap();
            machine.pass_on(number(n)).unwrap();
        }
        assert_eq!(vote(&mut machine, 3, &[1, 2]), Waiting);
        assert_eq!(machine.abort(number(1), NOW), AbortOutcome::TooLate);
        assert!(machine.pass_on(number(1)).is_err());
        assert_eq!(machine.settled(number(2), Some(Tid(30)), NOW), (Some(()), vec![]));
        let granted = vec![number(3)];
        assert_eq!(machine.settled(number(1), None, NOW), (Some(()), granted));
        machine.check_consistency().unwrap();
        let status = machine.status();
        assert_eq!((status.last_published, status.voted), (Tid(30), 0));
        machine.voted(number(3), NOW).unwrap();
        assert_eq!(machine.expired(NOW + NOW, Duration::from_secs(1)), [number(3)]);
    }

    #[test]
    fn tids_increase_even_when_the_clock_goes_back() {
        let mut machine = CommitMachine::<()>::new(Tid(100));
        for n in 1..=4 {
            vote_and_finish(&mut machine, n, &[n]);
        }
        let first = machine.next_batch(2, Tid(50));
        assert_eq!(first, [(number(1), Tid(101)), (number(2), Tid(102))]);
        assert_eq!(machine.next_batch(1, Tid(300)), [(number(3), Tid(300))]);
        assert_eq!(machine.next_batch(9, Tid(200)), [(number(4), Tid(301))]);
        assert_eq!(machine.next_batch(9, Tid(999)), []);
    }

    #[test]
    fn a_refused_transaction_may_vote_again() {
        let mut machine = CommitMachine::<()>::new(Tid(0));
        assert_eq!(vote(&mut machine, 1, &[1]), Granted);
        assert_eq!(vote(&mut machine, 2, &[1]), Waiting);
        assert_eq!(numbers(machine.refuse(number(1), NOW).unwrap()), [2]);
        assert_eq!(machine.state(number(1)), None);
        assert_eq!(machine.abort(number(1), NOW), AbortOutcome::Unknown);
        assert_eq!(vote(&mut machine, 1, &[1]), Waiting);
        assert_eq!(numbers(machine.refuse(number(2), NOW).unwrap()), [1]);
    }

    #[test]
    fn an_own_tid_is_compared_after_the_grant_and_cannot_be_overtaken() {
        let mut machine = CommitMachine::<()>::new(Tid(0));
        vote_and_finish(&mut machine, 1, &[1]);
        // Later than the last tid now, but no longer at its own vote.
        let restored = |machine: &mut CommitMachine<()>, tid| {
            machine.vote(number(2), writes(&[2]), Some(tid), (), NOW).unwrap()
        };
        assert_eq!(restored(&mut machine, Tid(5)), Waiting);
        assert_eq!(machine.next_batch(9, Tid(7)), [(number(1), Tid(7))]);
        assert_eq!(numbers(machine.published(&[number(1)], NOW).unwrap()), [2]);
        let refusal = CommitError::TidNotNewer { tid: Tid(5), last: Tid(7) };
        assert_eq!(machine.voted(number(2), NOW), Err(refusal));
        assert_eq!(machine.state(number(2)), Some(CommitState::Checking));
        assert_eq!(machine.refuse(number(2), NOW).unwrap(), []);

        assert_eq!(restored(&mut machine, Tid(8)), Granted);
        machine.voted(number(2), NOW).unwrap();
        assert_eq!(vote(&mut machine, 3, &[3]), Waiting);
        machine.finish(number(2)).unwrap();
        assert_eq!(machine.next_batch(9, Tid(99)), [(number(2), Tid(8))]);
        assert_eq!(numbers(machine.published(&[number(2)], NOW).unwrap()), [3]);
    }

    #[test]
    fn tids_never_reach_the_end_of_their_range() {
        let mut machine = CommitMachine::<()>::new(Tid(0));
        vote_and_finish(&mut machine, 1, &[1]);
        assert_eq!(machine.next_batch(1, Tid(u64::MAX)), [(number(1), TID_LIMIT)]);
        let _ = machine.published(&[number(1)], NOW).unwrap();

        let answer = machine.vote(number(2), writes(&[2]), Some(Tid::MAX), (), NOW).unwrap();
        assert_eq!(answer, Granted);
        assert_eq!(machine.voted(number(2), NOW), Err(CommitError::TidTooLarge { tid: Tid::MAX }));
        let _ = machine.abort(number(2), NOW);

        vote_and_finish(&mut machine, 3, &[1]);
        assert_eq!(machine.next_batch(1, Tid::MAX), [(number(3), TID_LIMIT.next())]);
        let _ = machine.published(&[number(3)], NOW).unwrap();
        assert_eq!(vote(&mut machine, 4, &[1]), Granted);
        let refusal = CommitError::TidTooLarge { tid: TID_LIMIT.next() };
        assert_eq!(machine.voted(number(4), NOW), Err(refusal));
    }

    #[test]
    fn an_abort_after_finish_is_too_late() {
        let mut machine = CommitMachine::<()>::new(Tid(0));
        vote_and_finish(&mut machine, 1, &[1]);
        assert_eq!(machine.abort(number(1), NOW), AbortOutcome::TooLate);
        assert_eq!(machine.next_batch(1, Tid(1)), [(number(1), Tid(1))]);
        assert_eq!(machine.abort(number(1), NOW), AbortOutcome::TooLate);
        assert_eq!(machine.published(&[number(1)], NOW).unwrap(), []);
        assert_eq!(machine.abort(number(1), NOW), AbortOutcome::Unknown);
    }

    #[test]
    fn calls_in_the_wrong_state_name_it_and_change_nothing() {
        let mut machine = CommitMachine::<()>::new(Tid(0));
        let unknown = CommitError::UnknownTransaction { number: number(1), call: "finish" };
        assert_eq!(machine.finish(number(1)), Err(unknown));
        assert_eq!(vote(&mut machine, 1, &[1]), Granted);
        let again = machine.vote(number(1), writes(&[2]), None, (), NOW).unwrap_err();
        assert_eq!(again.to_string(), "transaction 1 cannot vote while it is Checking");
        let early = machine.finish(number(1)).unwrap_err();
        assert_eq!(early.to_string(), "transaction 1 cannot finish while it is Checking");
        machine.voted(number(1), NOW).unwrap();
        let state = CommitState::Voted;
        let late = CommitError::WrongState { number: number(1), state, call: "refuse" };
        assert_eq!(machine.refuse(number(1), NOW), Err(late));
        assert_eq!(machine.state(number(1)), Some(state));
        machine.check_consistency().unwrap();
    }

    #[test]
    fn publishing_out_of_order_is_refused_and_changes_nothing() {
        let mut machine = CommitMachine::<()>::new(Tid(0));
        for n in 1..=3 {
            vote_and_finish(&mut machine, n, &[n]);
        }
        assert_eq!(machine.next_batch(3, Tid(1)).len(), 3);
        let skipped = CommitError::OutOfOrder { number: number(3) };
        assert_eq!(machine.published(&[1, 3].map(number), NOW), Err(skipped));
        assert_eq!(machine.status().writing, 3);
        assert_eq!(machine.published(&[1, 2].map(number), NOW), Ok(vec![]));
        assert_eq!(machine.status().last_published, Tid(2));
        let surplus = CommitError::OutOfOrder { number: number(4) };
        assert_eq!(machine.published(&[3, 4].map(number), NOW), Err(surplus));
        assert_eq!(machine.published(&[3].map(number), NOW), Ok(vec![]));
        assert!(machine.is_idle());
    }

    #[test]
    fn the_timeout_counts_from_the_vote_and_stops_at_finish() {
        let mut machine = CommitMachine::<()>::new(Tid(0));
        let at = Duration::from_secs;
        let ask = |machine: &mut CommitMachine<()>, n, oid, now| {
            machine.vote(number(n), writes(&[oid]), None, (), at(now)).unwrap()
        };
        assert_eq!(ask(&mut machine, 1, 1, 0), Granted);
        assert_eq!(ask(&mut machine, 2, 1, 1), Waiting);
        assert_eq!(ask(&mut machine, 3, 3, 2), Granted);
        assert_eq!(ask(&mut machine, 4, 4, 3), Granted);
        for (n, now) in [(1, 0), (3, 2), (4, 3)] {
            machine.voted(number(n), at(now)).unwrap();
        }
        machine.finish(number(4)).unwrap();
        assert_eq!(numbers(machine.expired(at(10), at(10))), [0; 0]);
        assert_eq!(numbers(machine.expired(at(11), at(10))), [1]);
        assert_eq!(numbers(machine.expired(at(99), at(10))), [1, 3]);
        assert_eq!(machine.status().oldest_grant, Some(at(0)));
        let outcome = machine.abort(number(1), at(99));
        assert_eq!(outcome, AbortOutcome::Aborted { granted: vec![number(2)] });
        assert_eq!(numbers(machine.expired(at(99), at(10))), [3]);
        assert_eq!(machine.status().oldest_grant, Some(at(2)));
        assert_eq!((machine.status().waiting, machine.status().locking), (0, 3));
    }

    #[test]
    fn a_failed_write_ends_what_asked_for_finish_and_refuses_the_rest() {
        let mut machine = CommitMachine::<()>::new(Tid(0));
        for n in 1..=3 {
            vote_and_finish(&mut machine, n, &[n]);
        }
        assert_eq!(machine.next_batch(1, Tid(1)).len(), 1);
        assert_eq!(vote(&mut machine, 4, &[4]), Granted);
        machine.voted(number(4), NOW).unwrap();
        assert_eq!(vote(&mut machine, 5, &[2]), Waiting);

        let failure = machine.write_failed(NOW);
        let ended = failure.ended.into_iter().map(|(number, ())| number).collect();
        assert_eq!(numbers(ended), [1, 2, 3]);
        assert_eq!(numbers(failure.granted), [5]);
        assert_eq!(machine.finish(number(4)), Err(CommitError::StorageFailed));
        assert_eq!(machine.voted(number(5), NOW), Err(CommitError::StorageFailed));
        let refused = machine.vote(number(6), writes(&[6]), None, (), NOW);
        assert_eq!(refused, Err(CommitError::StorageFailed));
        assert_eq!(machine.next_batch(9, Tid(9)), []);
        for n in [4, 5] {
            assert_eq!(machine.abort(number(n), NOW), AbortOutcome::Aborted { granted: vec![] });
        }
        assert!(machine.is_idle());
        assert!(machine.status().failed);
        assert_eq!(machine.status().last_published, Tid(0));
    }
}
