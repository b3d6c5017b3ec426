//! The transaction of a session, from begin to its end.
//!
//! Key decision: this is a state machine without I/O. Stores, blobs, the vote and the finish change
//! its state; each of them starts its jobs and sends its replies by itself.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Database, Spill, Spilled, Transaction, Voted};
use zodium_net::LogLimiter;
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_types::{Held, Memory};

use crate::exception::Exception;
use crate::replies::ReplyTo;
use crate::reports::TransactionReport;
use crate::retry::Retry;
use crate::statistics::Statistics;
use crate::voting::Vote;

/// Data of a transaction in memory from which on they are written to a spool file. The limit falls
/// to the second value while memory is short.
const DATA_BYTES_MAX: usize = 16 << 20;
const DATA_BYTES_LOW: usize = 64 << 10;

/// Most bytes of entries with which a transaction goes on while memory is full: a few hundred
/// objects. Entries cannot be spooled, and the limit leaves room for the small transactions of
/// other clients.
const ENTRIES_BYTES_LOW: usize = 64 << 10;

/// Limits the messages about refusals: the memory limit is that of the whole server.
static REFUSAL_LOG: LazyLock<LogLimiter> = LazyLock::new(LogLimiter::default);

/// The place for a session's transaction, of which there is at most one.
pub(crate) struct TransactionSlot {
    storage: Arc<Database>,
    statistics: Arc<Statistics>,
    memory: Arc<Memory>,
    open: Option<OpenTransaction>,
    retry: Retry,
    /// Votes begun or continued so far; distinguishes their jobs.
    attempts: u64,
}

/// The parts of a session share its slot. None keeps it borrowed while it calls another part.
pub(crate) type SharedSlot = Rc<RefCell<TransactionSlot>>;

/// A transaction that the client has begun.
struct OpenTransaction {
    /// The client's id of it: any value, compared by equality.
    id: Value<'static>,
    state: State,
    /// When it was begun.
    begun: Instant,
    /// Its memory, until its end.
    held: Held,
}

enum State {
    /// Collects stores. After a vote that found conflicts it still holds its locks.
    Open { transaction: Box<Transaction>, held: Option<Vote> },
    /// Cannot be committed; the vote raises the exception, as in the stock server.
    Doomed(Exception),
    /// Waits for locks.
    Waiting { vote: Vote, transaction: Box<Transaction>, reply_to: ReplyTo },
    /// Is being voted on: the caller or a job has the transaction. Without a vote its undone
    /// records are looked up; with one it holds its locks, and is being checked.
    Voting { attempt: u64, vote: Option<Vote> },
    /// Has been voted, and can be finished.
    Voted { vote: Vote, voted: Voted },
    /// Is being written.
    Finishing { vote: Vote, reply_to: ReplyTo },
}

/// A transaction taken from its slot to be voted on.
pub(crate) struct VoteAttempt {
    /// Distinguishes this attempt from earlier ones, whose jobs may still be in progress.
    pub(crate) attempt: u64,
    pub(crate) transaction: Box<Transaction>,
    /// The vote whose locks it holds: one that found conflicts, or one that waited.
    pub(crate) vote: Option<Vote>,
}

/// Whether a session collects stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// There is no transaction.
    Absent,
    Collecting,
    /// The transaction is doomed, or has come to its vote.
    Closed,
}

impl TransactionSlot {
    /// Creates an empty slot.
    pub(crate) fn new(
        storage: Arc<Database>,
        statistics: Arc<Statistics>,
        memory: Arc<Memory>,
    ) -> TransactionSlot {
        let retry = Retry::default();
        TransactionSlot { storage, statistics, memory, open: None, retry, attempts: 0 }
    }

    /// Begins a transaction. One that `make` refuses is doomed, since the client learns of it by
    /// the vote.
    pub(crate) fn begin(
        &mut self,
        id: Value<'static>,
        begun: Instant,
        make: impl FnOnce() -> Result<Transaction, Exception>,
    ) -> Result<(), Exception> {
        match &self.open {
            Some(open) if open.id == id => return Ok(()),
            Some(_) => {
                return Err(Exception::transaction_error(
                    "Multiple simultaneous tpc_begin requests from one client.",
                ));
            }
            None => {}
        }
        let state = match make() {
            Ok(mut transaction) => {
                transaction.count_conflicts(&self.memory);
                State::Open { transaction: Box::new(transaction), held: None }
            }
            Err(exception) => State::Doomed(exception),
        };
        self.statistics.active_transactions.add(1);
        let held = self.memory.holder();
        self.open = Some(OpenTransaction { id, state, begun, held });
        self.hold();
        Ok(())
    }

    /// Adds to the transaction of this id.
    ///
    /// These calls have no reply. So an error of `add` is reported by the vote, and later additions
    /// are ignored, both as in the stock server.
    pub(crate) fn collect(
        &mut self,
        id: &Value<'static>,
        add: impl FnOnce(&mut Transaction) -> Result<(), Exception>,
    ) -> Result<(), Exception> {
        self.own(id)?;
        if let Some(transaction) = self.collecting() {
            match add(transaction) {
                Ok(()) => self.hold(),
                Err(exception) => self.doom(exception),
            }
        }
        Ok(())
    }

    /// Checks that the transaction has this id.
    pub(crate) fn check_id(&mut self, id: &Value<'static>) -> Result<(), Exception> {
        self.own(id).map(drop)
    }

    fn own(&mut self, id: &Value<'static>) -> Result<&mut OpenTransaction, Exception> {
        let Some(open) = &mut self.open else {
            return Err(Exception::wrong_transaction(Value::None, id.clone()));
        };
        if open.id != *id {
            return Err(Exception::wrong_transaction(open.id.clone(), id.clone()));
        }
        Ok(open)
    }

    /// The transaction, while it collects stores.
    pub(crate) fn collecting(&mut self) -> Option<&mut Transaction> {
        match &mut self.open.as_mut()?.state {
            State::Open { transaction, .. } => Some(transaction),
            _ => None,
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.state() {
            None => Phase::Absent,
            Some(State::Open { .. }) => Phase::Collecting,
            Some(_) => Phase::Closed,
        }
    }

    fn state(&self) -> Option<&State> {
        self.open.as_ref().map(|open| &open.state)
    }

    fn put(&mut self, state: State) {
        if let Some(open) = &mut self.open {
            open.state = state;
        }
    }

    /// Counts the memory of the open transaction, which is doomed if there is not enough.
    pub(crate) fn hold(&mut self) {
        let Some(open) = &mut self.open else { return };
        let State::Open { transaction, .. } = &open.state else { return };
        open.held.set(transaction.memory_bytes());
        let entries_bytes = transaction.entries_bytes();
        if entries_bytes > ENTRIES_BYTES_LOW && self.memory.is_full() {
            self.log_refusal(entries_bytes);
            self.doom(Exception::memory_full(self.memory.limit_bytes(), entries_bytes));
        }
    }

    fn log_refusal(&self, bytes: usize) {
        if let Some(times) = REFUSAL_LOG.admit() {
            let storage = self.storage.reader().name();
            let (held_bytes, limit_bytes) = (self.memory.held_bytes(), self.memory.limit_bytes());
            tracing::warn!(
                storage,
                bytes,
                held_bytes,
                limit_bytes,
                times,
                "a transaction is refused, since the memory limit is reached: commit in smaller \
                 transactions, or raise --memory-limit; zodium_memory_held_bytes shows its use"
            );
        }
    }

    /// The data of a large transaction, to be written to a spool file; `None` if it is not large.
    pub(crate) fn spill(&mut self) -> Option<Spill> {
        let data_bytes_max = self.memory.share(DATA_BYTES_LOW, DATA_BYTES_MAX);
        self.collecting()?.spill(data_bytes_max)
    }

    /// Notes that data were written to a spool file. It is still the same transaction, since no
    /// request was read meanwhile.
    pub(crate) fn spilled(&mut self, spilled: Result<Spilled, StorageError>) {
        match spilled {
            Ok(spilled) => {
                let Some(open) = &mut self.open else { return };
                if let State::Open { transaction, .. } = &mut open.state {
                    transaction.spilled(spilled);
                    open.held.set(transaction.memory_bytes());
                }
            }
            Err(error) => self.doom(error.into()),
        }
    }

    /// Dooms the open transaction, and releases its locks and memory.
    pub(crate) fn doom(&mut self, exception: Exception) {
        let Some(open) = &mut self.open else { return };
        let state = std::mem::replace(&mut open.state, State::Doomed(exception));
        open.held.set(0);
        if let State::Open { held: Some(vote), .. } = state {
            self.give_up(&vote, None);
        }
    }

    /// Takes the transaction to be voted on. `abandon_blob` gives up a blob that was not sent to
    /// its end, if there is one.
    pub(crate) fn begin_vote(
        &mut self,
        id: &Value<'static>,
        abandon_blob: impl FnOnce() -> bool,
    ) -> Result<VoteAttempt, Exception> {
        let already = |how| Err(Exception::transaction_error(format!("Already voting ({how})")));
        match self.own(id)?.state {
            State::Waiting { .. } | State::Voting { .. } => return already("waiting"),
            State::Voted { .. } | State::Finishing { .. } => return already("locked"),
            State::Open { .. } | State::Doomed(_) => {}
        }
        if abandon_blob() {
            self.doom(Exception::transaction_error("a blob was not sent to its end"));
        }
        match self.start_attempt() {
            Some((attempt, State::Open { transaction, held })) => {
                Ok(VoteAttempt { attempt, transaction, vote: held })
            }
            Some((_, State::Doomed(exception))) => {
                self.end();
                Err(exception)
            }
            _ => already("waiting"),
        }
    }

    /// Makes the state [`State::Voting`], and gives the one before.
    fn start_attempt(&mut self) -> Option<(u64, State)> {
        let open = self.open.as_mut()?;
        self.attempts += 1;
        let attempt = self.attempts;
        let voting = State::Voting { attempt, vote: None };
        Some((attempt, std::mem::replace(&mut open.state, voting)))
    }

    /// Whether this attempt goes on. The transaction may have been aborted meanwhile.
    pub(crate) fn is_voting(&self, attempt: u64) -> bool {
        matches!(self.state(), Some(State::Voting { attempt: current, .. }) if *current == attempt)
    }

    /// Puts the transaction back until its locks are granted.
    pub(crate) fn wait(&mut self, vote: Vote, transaction: Box<Transaction>, reply_to: ReplyTo) {
        self.put(State::Waiting { vote, transaction, reply_to });
    }

    /// Takes the transaction whose locks were granted, and the request to answer.
    pub(crate) fn granted(&mut self, number: TransactionNumber) -> Option<(VoteAttempt, ReplyTo)> {
        match self.state()? {
            State::Waiting { vote, .. } if vote.number() == number => {}
            _ => return None,
        }
        match self.start_attempt()? {
            (attempt, State::Waiting { vote, transaction, reply_to }) => {
                Some((VoteAttempt { attempt, transaction, vote: Some(vote) }, reply_to))
            }
            _ => None,
        }
    }

    /// Keeps the vote while a job checks the transaction.
    pub(crate) fn check_later(&mut self, attempt: u64, vote: Vote) {
        self.put(State::Voting { attempt, vote: Some(vote) });
    }

    /// Takes the vote back from a job; `None` if the transaction was aborted meanwhile.
    pub(crate) fn take_vote(&mut self, attempt: u64) -> Option<Vote> {
        match &mut self.open.as_mut()?.state {
            State::Voting { attempt: current, vote } if *current == attempt => vote.take(),
            _ => None,
        }
    }

    /// Notes that the vote has passed.
    pub(crate) fn voted(&mut self, vote: Vote, voted: Voted) {
        self.retry.note_voted();
        self.put(State::Voted { vote, voted });
    }

    /// Puts the transaction back, with its locks, for the client to resolve its conflicts.
    pub(crate) fn resolve(&mut self, vote: Vote, transaction: Box<Transaction>) {
        self.put(State::Open { transaction, held: Some(vote) });
    }

    /// Takes what was voted, to be finished; `None` if it is another transaction.
    pub(crate) fn begin_finish(
        &mut self,
        id: &Value<'static>,
        to: &ReplyTo,
    ) -> Result<Option<(TransactionNumber, Voted)>, Exception> {
        if self.own(id).is_err() {
            return Ok(None);
        }
        let Some((_, state)) = self.start_attempt() else { return Ok(None) };
        match state {
            State::Voted { vote, voted } => {
                let number = vote.number();
                self.put(State::Finishing { vote, reply_to: to.clone() });
                Ok(Some((number, voted)))
            }
            other => {
                self.put(other);
                Err(Exception::new("builtins.AssertionError", "finished called wo lock"))
            }
        }
    }

    /// Ends the transaction that was being written, and gives the request to answer.
    pub(crate) fn end_finish(&mut self, number: TransactionNumber) -> Option<ReplyTo> {
        match self.state()? {
            State::Finishing { vote, reply_to } if vote.number() == number => {
                let reply_to = reply_to.clone();
                self.end();
                Some(reply_to)
            }
            _ => None,
        }
    }

    /// Whether a finish is in progress, which is answered before the server stops.
    pub(crate) fn is_finishing(&self) -> bool {
        matches!(self.state(), Some(State::Finishing { .. }))
    }

    /// Ends the transaction, of which the commit machine knows nothing any more.
    pub(crate) fn end(&mut self) {
        if self.open.take().is_some() {
            self.statistics.active_transactions.subtract(1);
        }
    }

    /// Aborts the transaction, if any: on request, and when the connection has ended.
    pub(crate) fn abort(&mut self) {
        let Some(open) = self.open.take() else { return };
        self.statistics.active_transactions.subtract(1);
        if !matches!(open.state, State::Finishing { .. }) {
            self.statistics.aborts.add(1);
        }
        match open.state {
            State::Waiting { vote, .. } => self.give_up(&vote, None),
            State::Voted { vote, voted } => self.give_up(&vote, Some(voted)),
            State::Open { held: Some(vote), .. } => self.give_up(&vote, None),
            // Its job finds the number dead, or aborts the voted transaction.
            State::Voting { vote: Some(vote), .. } => self.give_up(&vote, None),
            // Too late to abort: it will be committed, without a session to notify.
            State::Finishing { .. } => {}
            State::Voting { vote: None, .. }
            | State::Open { held: None, .. }
            | State::Doomed(_) => {}
        }
    }

    /// Aborts the transaction of a vote that took too long. False if its client has ended it
    /// meanwhile, or has asked for its finish.
    pub(crate) fn expire(&mut self, number: TransactionNumber) -> bool {
        let is_held = self.state().is_some_and(|state| {
            state.number() == Some(number) && !matches!(state, State::Finishing { .. })
        });
        if is_held {
            self.abort();
        }
        is_held
    }

    /// Aborts the transaction on request. After conflicts its locks are kept for a while: the
    /// client probably tries again.
    pub(crate) fn abort_to_retry(&mut self) {
        let open = self.open.as_mut();
        let held = open.and_then(|OpenTransaction { state, .. }| match state {
            State::Open { held, .. } => held.take(),
            _ => None,
        });
        self.abort();
        let Some(vote) = held else { return };
        if self.retry.is_worthwhile() && self.storage.reserve(vote.number()) {
            self.retry.reserve(vote);
        } else {
            self.give_up(&vote, None);
        }
    }

    /// Begins the vote of a transaction with the locks that were kept for it; `None` if there are
    /// none, or others are needed.
    pub(crate) fn resume(&mut self, transaction: &Transaction) -> Option<Vote> {
        let vote = self.retry.take()?;
        if !self.storage.resume_vote(vote.number(), transaction) {
            self.retry.note_vain();
            return None;
        }
        self.retry.note_resumed();
        Some(vote)
    }

    /// Frees locks that are kept for the next attempt, if there are any.
    pub(crate) fn end_reservation(&mut self) {
        if let Some(vote) = self.retry.take() {
            self.give_up(&vote, None);
        }
    }

    fn give_up(&self, vote: &Vote, voted: Option<Voted>) {
        self.storage.abort(vote.number(), voted);
    }

    /// Whether an abort may have to remove files of blobs. `was_receiving`: a blob was being
    /// received.
    pub(crate) fn may_have_blobs(&self, was_receiving: bool) -> bool {
        match self.state() {
            Some(State::Open { transaction, .. } | State::Waiting { transaction, .. }) => {
                transaction.has_blobs() || was_receiving
            }
            Some(State::Voted { .. }) => true,
            _ => false,
        }
    }

    /// Whether there is a transaction.
    pub(crate) fn is_used(&self) -> bool {
        self.open.is_some()
    }

    /// A description of the transaction, for the monitor.
    pub(crate) fn report(&self) -> Option<TransactionReport> {
        let open = self.open.as_ref()?;
        let (number, state, begun) = (open.state.number(), open.state.name(), open.begun);
        Some(TransactionReport { number, state, begun })
    }
}

impl State {
    fn number(&self) -> Option<TransactionNumber> {
        match self {
            State::Open { held: vote, .. } | State::Voting { vote, .. } => {
                vote.as_ref().map(Vote::number)
            }
            State::Doomed(_) => None,
            State::Waiting { vote, .. }
            | State::Voted { vote, .. }
            | State::Finishing { vote, .. } => Some(vote.number()),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            State::Open { held: None, .. } => "open",
            State::Open { held: Some(_), .. } => "resolving",
            State::Doomed(_) => "refused",
            State::Waiting { .. } => "waiting",
            State::Voting { vote: None, .. } => "undoing",
            State::Voting { vote: Some(_), .. } => "checking",
            State::Voted { .. } => "voted",
            State::Finishing { .. } => "finishing",
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use zodium_engine::Check;
    use zodium_storage::Access;
    use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

    use super::*;
    use crate::call::Method;
    use crate::testing::{commit, holds_locks, lock, storage, store, storing, transaction};
    use crate::voting::VotingSessions;

    fn slot(storage: &Arc<Database>) -> TransactionSlot {
        let memory = Memory::new(u64::MAX);
        TransactionSlot::new(Arc::clone(storage), Arc::default(), memory)
    }

    fn begin(slot: &mut TransactionSlot, id: i64) -> Result<(), Exception> {
        slot.begin(id.into(), Instant::now(), || Ok(transaction()))
    }

    fn store_one(slot: &mut TransactionSlot, id: i64) -> Result<(), Exception> {
        slot.collect(&id.into(), |transaction| {
            store(transaction, Oid(1));
            Ok(())
        })
    }

    /// A slot whose transaction has the lock of an object.
    fn locked(storage: &Arc<Database>, voting: &VotingSessions) -> (TransactionSlot, VoteAttempt) {
        let mut slot = slot(storage);
        begin(&mut slot, 1).unwrap();
        store_one(&mut slot, 1).unwrap();
        let mut attempted = slot.begin_vote(&1.into(), || false).unwrap();
        let number = lock(storage, &attempted.transaction);
        attempted.vote = Some(voting.add(number, 1));
        (slot, attempted)
    }

    #[test]
    fn a_transaction_that_cannot_be_made_is_refused_by_its_vote() {
        let mut slot = slot(&storage());
        let refused = || Exception::value_error("refused");
        slot.begin(1.into(), Instant::now(), || Err(refused())).unwrap();
        slot.collect(&1.into(), |_| unreachable!("it collects nothing")).unwrap();
        assert_eq!(slot.phase(), Phase::Closed);
        assert_eq!(slot.begin_vote(&1.into(), || false).err(), Some(refused()));
        assert_eq!(slot.phase(), Phase::Absent);
    }

    #[test]
    fn calls_for_another_transaction_are_refused() {
        let mut slot = slot(&storage());
        assert!(slot.check_id(&1.into()).is_err());
        begin(&mut slot, 1).unwrap();
        assert!(begin(&mut slot, 1).is_ok(), "the same one again");
        assert!(begin(&mut slot, 2).is_err());
        assert!(store_one(&mut slot, 2).is_err());
        assert!(slot.begin_vote(&2.into(), || true).is_err());
        assert_eq!(slot.phase(), Phase::Collecting);
    }

    #[test]
    fn a_doomed_transaction_gives_up_its_locks_and_its_vote() {
        let (storage, voting) = (storage(), VotingSessions::default());
        let (mut slot, attempted) = locked(&storage, &voting);
        let VoteAttempt { transaction, vote: Some(vote), .. } = attempted else { unreachable!() };
        let number = vote.number();
        slot.resolve(vote, transaction);
        assert!(holds_locks(&storage));
        slot.doom(Exception::value_error("refused"));
        assert!(!holds_locks(&storage));
        assert_eq!(voting.session(number), None);
    }

    #[test]
    fn a_transaction_that_is_aborted_during_its_check_has_no_locks() {
        let (storage, voting) = (storage(), VotingSessions::default());
        let (mut slot, attempted) = locked(&storage, &voting);
        let VoteAttempt { attempt, vote: Some(vote), .. } = attempted else { unreachable!() };
        slot.check_later(attempt, vote);
        assert!(slot.is_voting(attempt));
        slot.abort();
        assert!(!holds_locks(&storage));
        assert!(slot.take_vote(attempt).is_none());
        // The vote of another transaction of the session is no attempt of the first one.
        begin(&mut slot, 2).unwrap();
        let attempted = slot.begin_vote(&2.into(), || false).unwrap();
        let number = lock(&storage, &attempted.transaction);
        slot.check_later(attempted.attempt, voting.add(number, 1));
        assert!(!slot.is_voting(attempt));
        assert!(slot.take_vote(attempt).is_none());
        assert!(slot.take_vote(attempted.attempt).is_some());
    }

    #[test]
    fn a_vote_that_took_too_long_has_no_locks_unless_its_finish_was_asked_for() {
        let (storage, voting) = (storage(), VotingSessions::default());
        let (mut slot, attempted) = locked(&storage, &voting);
        let VoteAttempt { transaction, vote: Some(vote), .. } = attempted else { unreachable!() };
        let number = vote.number();
        let checked = storage.check(number, &transaction, Access::Blocking);
        let Ok(Check::Voted(voted)) = checked else { panic!("{checked:?}") };
        slot.voted(vote, voted);
        assert!(!slot.expire(TransactionNumber(number.0 + 1)), "another vote of the session");
        assert!(slot.is_used() && holds_locks(&storage));
        assert!(slot.expire(number));
        assert!(!slot.is_used() && !holds_locks(&storage));
        assert!(!slot.expire(number), "it is over");

        let (mut slot, attempted) = locked(&storage, &voting);
        let VoteAttempt { transaction, vote: Some(vote), .. } = attempted else { unreachable!() };
        let number = vote.number();
        let checked = storage.check(number, &transaction, Access::Blocking);
        let Ok(Check::Voted(voted)) = checked else { panic!("{checked:?}") };
        slot.voted(vote, voted);
        let to = ReplyTo { id: None, method: Method::Finish, asked: Instant::now() };
        let begun = slot.begin_finish(&1.into(), &to).unwrap();
        assert!(begun.is_some() && !slot.expire(number) && slot.is_finishing());
        assert!(slot.end_finish(TransactionNumber(number.0 + 1)).is_none(), "another vote");
        assert!(slot.is_finishing() && slot.end_finish(number).is_some() && !slot.is_used());
    }

    #[test]
    fn a_vote_that_waits_is_granted_its_own_locks_and_no_others() {
        let (storage, voting) = (storage(), VotingSessions::default());
        let (mut slot, attempted) = locked(&storage, &voting);
        let VoteAttempt { transaction, vote: Some(vote), .. } = attempted else { unreachable!() };
        let number = vote.number();
        let to = ReplyTo { id: None, method: Method::Vote, asked: Instant::now() };
        slot.wait(vote, transaction, to);
        assert!(slot.granted(TransactionNumber(number.0 + 1)).is_none());
        let granted = slot.granted(number).and_then(|(attempt, _)| attempt.vote);
        assert_eq!(granted.map(|vote| vote.number()), Some(number));
        assert!(slot.granted(number).is_none(), "it waits no more");
    }

    #[test]
    fn a_vote_is_refused_if_a_blob_was_not_sent_to_its_end() {
        let mut slot = slot(&storage());
        begin(&mut slot, 1).unwrap();
        let refused = slot.begin_vote(&1.into(), || true).err().unwrap();
        assert_eq!(refused.name, "ZODB.POSException.StorageTransactionError");
        assert_eq!(slot.phase(), Phase::Absent);
    }

    /// A client votes with an old revision, and gives up.
    fn give_up_after_a_conflict(
        slot: &mut TransactionSlot,
        attempted: VoteAttempt,
    ) -> TransactionNumber {
        let VoteAttempt { transaction, vote: Some(vote), .. } = attempted else { unreachable!() };
        let number = vote.number();
        let checked = slot.storage.check(number, &transaction, Access::Blocking);
        assert!(matches!(checked, Ok(Check::Conflicts(_))), "{checked:?}");
        slot.resolve(vote, transaction);
        slot.abort_to_retry();
        assert!(!slot.is_used());
        number
    }

    #[test]
    fn locks_that_are_kept_after_a_conflict_serve_the_next_vote() {
        let (storage, voting) = (storage(), VotingSessions::default());
        commit(&storage, Oid(1));
        let (mut slot, attempted) = locked(&storage, &voting);
        let number = give_up_after_a_conflict(&mut slot, attempted);
        assert!(holds_locks(&storage));
        let resumed = slot.resume(&storing(Oid(1)));
        assert_eq!(resumed.map(|vote| vote.number()), Some(number));
        assert!(slot.resume(&storing(Oid(1))).is_none(), "they serve one vote");
    }

    #[test]
    fn locks_that_are_kept_after_a_conflict_are_free_when_the_client_has_gone() {
        let (storage, voting) = (storage(), VotingSessions::default());
        commit(&storage, Oid(1));
        let (mut slot, attempted) = locked(&storage, &voting);
        give_up_after_a_conflict(&mut slot, attempted);
        assert!(holds_locks(&storage));
        slot.end_reservation();
        assert!(!holds_locks(&storage));
    }

    #[test]
    fn no_locks_are_kept_for_a_client_that_has_just_come_back_with_other_objects() {
        let (storage, voting) = (storage(), VotingSessions::default());
        commit(&storage, Oid(1));
        let (mut slot, attempted) = locked(&storage, &voting);
        give_up_after_a_conflict(&mut slot, attempted);
        assert!(slot.resume(&storing(Oid(2))).is_none());
        assert!(!holds_locks(&storage));
        begin(&mut slot, 2).unwrap();
        store_one(&mut slot, 2).unwrap();
        let mut attempted = slot.begin_vote(&2.into(), || false).unwrap();
        attempted.vote = Some(voting.add(lock(&storage, &attempted.transaction), 1));
        give_up_after_a_conflict(&mut slot, attempted);
        assert!(!holds_locks(&storage));
    }

    #[test]
    fn the_data_of_conflicts_count_towards_the_memory_limit() {
        let (storage, voting) = (storage(), VotingSessions::default());
        commit(&storage, Oid(1));
        let (slot, attempted) = locked(&storage, &voting);
        let VoteAttempt { transaction, vote: Some(vote), .. } = attempted else { unreachable!() };
        let before = slot.memory.held_bytes();
        let checked = storage.check(vote.number(), &transaction, Access::Blocking);
        assert!(matches!(checked, Ok(Check::Conflicts(_))), "{checked:?}");
        assert!(slot.memory.held_bytes() > before);
    }

    #[test]
    fn only_the_data_of_a_large_transaction_leave_memory() {
        let mut slot = slot(&storage());
        begin(&mut slot, 1).unwrap();
        let mut add = |oid, length| {
            let data = Bytes::from(vec![0; length]);
            let store = |transaction: &mut Transaction| {
                transaction.store(Oid(oid), Tid::ZERO, data);
                Ok(())
            };
            slot.collect(&1.into(), store).unwrap();
            slot.spill().is_some()
        };
        assert!(!add(1, 16 << 20));
        assert!(add(2, 1));
    }

    #[test]
    fn a_transaction_of_many_objects_is_refused_while_memory_is_full() {
        let storage = storage();
        for (objects, other_bytes, is_refused) in
            [(10_000, 1 << 20, true), (10_000, 0, false), (10, 1 << 20, false)]
        {
            let memory = Memory::new(1 << 20);
            let mut others = memory.holder();
            let mut slot =
                TransactionSlot::new(Arc::clone(&storage), Arc::default(), Arc::clone(&memory));
            // One byte: the limit lies between two of its sizes.
            let metadata = TransactionMetadata { user: vec![b'u'], ..Default::default() };
            let make = || Ok(Transaction::new(metadata, None, TransactionStatus::Normal).unwrap());
            slot.begin(1.into(), Instant::now(), make).unwrap();
            others.set(other_bytes);
            for oid in 0..objects {
                let check = |transaction: &mut Transaction| {
                    transaction.read_current(Oid(oid), Tid::ZERO);
                    Ok(())
                };
                slot.collect(&1.into(), check).unwrap();
            }
            let held = memory.held_bytes() - other_bytes as u64;
            // One that is refused holds nothing, and a few objects are not counted.
            assert_eq!(held > 0, objects > 10 && !is_refused, "{held} bytes");
            assert_eq!(slot.phase() == Phase::Closed, is_refused);
        }
    }

    #[test]
    fn only_a_transaction_that_was_voted_is_finished() {
        let storage = storage();
        let mut slot = slot(&storage);
        let to = ReplyTo { id: None, method: Method::Finish, asked: Instant::now() };
        assert!(slot.begin_finish(&1.into(), &to).unwrap().is_none(), "there is none");
        begin(&mut slot, 1).unwrap();
        assert!(slot.begin_finish(&1.into(), &to).is_err());
        assert_eq!(slot.phase(), Phase::Collecting);
        assert!(!slot.is_finishing());
    }
}
