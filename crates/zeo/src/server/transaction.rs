//! The transaction of a session, from begin to its end.

use std::sync::Arc;
use std::time::Instant;

use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Spilled, Transaction, Voted};
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_types::{Held, Tid};

use super::call::Arguments;
use super::exception::{Exception, tid_value};
use super::session::{Context, Reply, ReplyTo, Session, SessionHandle};

/// Data of a transaction in memory from which on they are written to a spool file. The limit falls
/// to the second value while memory is short.
const DATA_BYTES_MAX: usize = 16 << 20;
const DATA_BYTES_LOW: usize = 64 << 10;

/// Most bytes of entries with which a transaction goes on while memory is full: a few hundred
/// objects. Entries cannot be spooled, and the limit leaves room for the small transactions of
/// other clients.
const ENTRIES_BYTES_LOW: usize = 64 << 10;

/// A transaction that the client has begun.
pub(crate) struct OpenTransaction {
    /// The client's id of it: any value, compared by equality.
    pub(crate) id: Value<'static>,
    pub(crate) state: TransactionState,
    /// When it was begun.
    pub(crate) begun: Instant,
    /// Its memory, until its end.
    pub(crate) held: Held,
}

pub(crate) enum TransactionState {
    /// Collects stores. After a vote that found conflicts it still holds its locks.
    Open { transaction: Box<Transaction>, held: Option<TransactionNumber> },
    /// Cannot be committed; the vote raises the exception, as in the stock server.
    Doomed(Exception),
    /// Waits for locks.
    Waiting { number: TransactionNumber, transaction: Box<Transaction>, reply_to: ReplyTo },
    /// A job looks up the records to undo, and has the transaction.
    Finding { attempt: u64 },
    /// Holds its locks and is being checked, possibly by a job, which then has the transaction.
    Checking { number: TransactionNumber },
    /// Has been voted, and can be finished.
    Voted { number: TransactionNumber, voted: Voted },
    /// Is being written.
    Finishing { number: TransactionNumber, reply_to: ReplyTo },
}

impl OpenTransaction {
    /// Notes that its data were written to a spool file.
    fn spilled(&mut self, spilled: Spilled) {
        if let TransactionState::Open { transaction, .. } = &mut self.state {
            transaction.spilled(spilled);
            self.held.set(transaction.memory_bytes());
        }
    }
}

impl Session {
    pub(crate) fn store(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid(), arguments.serial());
        let data = arguments.data(context.frame);
        let reply = self.collect(arguments, |transaction| {
            transaction.store(oid?, serial?, data?);
            Ok(())
        });
        self.spill(context.handle);
        reply
    }

    pub(crate) fn delete(&mut self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid(), arguments.serial());
        self.collect(arguments, |transaction| {
            transaction.delete(oid?, serial?);
            Ok(())
        })
    }

    pub(crate) fn check_current(
        &mut self,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid(), arguments.serial());
        self.collect(arguments, |transaction| {
            transaction.read_current(oid?, serial?);
            Ok(())
        })
    }

    pub(crate) fn restore(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let (oid, serial) = (arguments.oid(), arguments.tid());
        let data = arguments.optional_data(context.frame);
        let source = arguments.optional_tid();
        let reply = self.collect(arguments, |transaction| {
            transaction.restore(oid?, serial?, data?, source?);
            Ok(())
        });
        self.spill(context.handle);
        reply
    }

    pub(crate) fn undo(&mut self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let id = arguments.text_bytes();
        self.collect(arguments, |transaction| {
            let tid = super::undo_log::tid_of_undo_id(&id?);
            transaction.undo(tid.ok_or_else(|| Exception::undo("Invalid undo transaction id"))?);
            Ok(())
        })
    }

    pub(crate) fn finish(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let id = arguments.owned();
        let Ok(open) = self.own_transaction(&id) else { return Ok(Reply::Value(Value::None)) };
        let (number, reply_to) = match &open.state {
            TransactionState::Voted { number, .. } => (*number, context.reply_to.clone()),
            _ => {
                return Err(Exception::new("builtins.AssertionError", "finished called wo lock"));
            }
        };
        let state = TransactionState::Finishing { number, reply_to };
        let TransactionState::Voted { voted, .. } = std::mem::replace(&mut open.state, state)
        else {
            return Ok(Reply::Later);
        };
        let Some(storage) = self.storage() else { return Ok(Reply::Later) };
        if let Err(error) = storage.finish(number, voted) {
            self.forget_vote(number);
            self.end_transaction();
            return Err(error.into());
        }
        Ok(Reply::Later)
    }

    pub(crate) fn abort(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let id = arguments.owned();
        if self.own_transaction(&id).is_err() {
            return Ok(Reply::Value(Value::None));
        }
        if let Some(subscriber) = self.subscriber() {
            subscriber.statistics.aborts.add(1);
        }
        let may_have_blobs = self.may_have_blobs();
        self.drop_transaction();
        if may_have_blobs { self.settle_blobs(context) } else { Ok(Reply::Value(Value::None)) }
    }

    /// Aborts the transaction, if any: on request, and when the connection has ended.
    pub(crate) fn drop_transaction(&mut self) {
        self.upload = None;
        let Some(open) = self.transaction.take() else { return };
        let Some(subscriber) = self.subscriber().cloned() else { return };
        subscriber.statistics.active_transactions.subtract(1);
        let give_up = |number, voted| {
            subscriber.remove_vote(number);
            subscriber.storage.abort(number, voted);
        };
        match open.state {
            TransactionState::Waiting { number, .. } => give_up(number, None),
            TransactionState::Voted { number, voted } => give_up(number, Some(voted)),
            TransactionState::Open { held: Some(number), .. } => give_up(number, None),
            // Its job finds the number dead, or aborts the voted transaction.
            TransactionState::Checking { number } => give_up(number, None),
            // Too late to abort: it will be committed, without a session to notify.
            TransactionState::Finishing { number, .. } => subscriber.remove_vote(number),
            TransactionState::Finding { .. }
            | TransactionState::Open { held: None, .. }
            | TransactionState::Doomed(_) => {}
        }
    }

    /// Answers a finish: the transaction is durable, and all earlier commits were broadcast here.
    pub(crate) fn finished(&mut self, number: TransactionNumber, tid: Tid) {
        let Some(reply_to) = self.take_finishing(number) else { return };
        if let Some(subscriber) = self.subscriber() {
            subscriber.statistics.commits.add(1);
        }
        self.send_info();
        self.reply(&reply_to, &tid_value(tid));
    }

    pub(crate) fn finish_failed(&mut self, number: TransactionNumber, error: &Arc<StorageError>) {
        if let Some(reply_to) = self.take_finishing(number) {
            self.reply_error(&reply_to, &Exception::from(error.as_ref()));
        }
    }

    fn take_finishing(&mut self, number: TransactionNumber) -> Option<ReplyTo> {
        match &self.transaction.as_ref()?.state {
            TransactionState::Finishing { number: finishing, reply_to } if *finishing == number => {
                let reply_to = reply_to.clone();
                self.end_transaction();
                Some(reply_to)
            }
            _ => None,
        }
    }

    /// Adds to the transaction whose id is the next argument.
    ///
    /// These calls have no reply. So an error is reported by the vote, and later additions are
    /// ignored, both as in the stock server.
    fn collect(
        &mut self,
        arguments: &mut Arguments<'_>,
        add: impl FnOnce(&mut Transaction) -> Result<(), Exception>,
    ) -> Result<Reply, Exception> {
        let id = arguments.owned();
        let open = self.own_transaction(&id)?;
        if let TransactionState::Open { transaction, .. } = &mut open.state {
            match add(transaction) {
                Ok(()) => self.hold_transaction(),
                Err(exception) => self.doom(exception),
            }
        }
        Ok(Reply::Value(Value::None))
    }

    /// Counts the memory of the open transaction, which is doomed if there is not enough.
    pub(crate) fn hold_transaction(&mut self) {
        let Some(open) = &mut self.transaction else { return };
        let TransactionState::Open { transaction, .. } = &open.state else { return };
        open.held.set(transaction.memory_bytes());
        let entries_bytes = transaction.entries_bytes();
        let memory = self.link.memory();
        if entries_bytes > ENTRIES_BYTES_LOW && memory.is_full() {
            let exception = Exception::memory_full(memory.limit_bytes(), entries_bytes);
            self.doom(exception);
        }
    }

    /// Writes the data of a large transaction to a spool file. No requests of this client are read
    /// until that is done.
    pub(crate) fn spill(&mut self, handle: &SessionHandle) {
        let Some(storage) = self.storage() else { return };
        let memory = Arc::clone(self.link.memory());
        let Some(TransactionState::Open { transaction, .. }) = self.transaction_state() else {
            return;
        };
        let data_bytes_max = memory.share(DATA_BYTES_LOW, DATA_BYTES_MAX);
        let Some(spill) = transaction.spill(data_bytes_max) else { return };
        self.spilling = true;
        let job = move || storage.run_spill(spill);
        handle.spawn(self, job, |_, session, spilled| {
            session.spilling = false;
            // It is still the same transaction, since no request was read meanwhile.
            match (spilled, &mut session.transaction) {
                (Ok(spilled), Some(open)) => open.spilled(spilled),
                (Err(error), Some(_)) => session.doom(error.into()),
                (_, None) => {}
            }
        });
    }

    /// Dooms the open transaction, and releases its locks and memory.
    pub(crate) fn doom(&mut self, exception: Exception) {
        let Some(open) = &mut self.transaction else { return };
        let state = std::mem::replace(&mut open.state, TransactionState::Doomed(exception));
        open.held.set(0);
        if let (TransactionState::Open { held: Some(number), .. }, Some(subscriber)) =
            (state, self.subscriber())
        {
            subscriber.remove_vote(number);
            subscriber.storage.abort(number, None);
        }
    }

    pub(crate) fn transaction_state(&mut self) -> Option<&mut TransactionState> {
        self.transaction.as_mut().map(|open| &mut open.state)
    }

    pub(crate) fn own_transaction(
        &mut self,
        id: &Value<'static>,
    ) -> Result<&mut OpenTransaction, Exception> {
        let Some(open) = &mut self.transaction else {
            return Err(Exception::wrong_transaction(Value::None, id.clone()));
        };
        if open.id != *id {
            return Err(Exception::wrong_transaction(open.id.clone(), id.clone()));
        }
        Ok(open)
    }

    pub(super) fn put_state(&mut self, state: TransactionState) {
        if let Some(open) = &mut self.transaction {
            open.state = state;
        }
    }

    pub(super) fn end_transaction(&mut self) {
        if self.transaction.take().is_some()
            && let Some(subscriber) = self.subscriber()
        {
            subscriber.statistics.active_transactions.subtract(1);
        }
    }

    pub(super) fn forget_vote(&self, number: TransactionNumber) {
        if let Some(subscriber) = self.subscriber() {
            subscriber.remove_vote(number);
        }
    }
}
