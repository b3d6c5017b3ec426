//! The transaction of a session, from begin to its end.

use std::sync::Arc;
use std::time::Instant;

use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Check, Transaction, VoteError, VoteStart, Voted};
use zodium_filestorage::{Access, StorageError};
use zodium_pickle::{Value, class_of_record, decode, encode};
use zodium_types::{Tid, TransactionMetadata, TransactionStatus};

use super::call::Arguments;
use super::exception::{Exception, conflict_to_resolve, oid_value, tid_value};
use super::session::{Context, Reply, ReplyTo, Session, SessionHandle};
use super::undo_log::EXTENSION_LIMITS;

/// A transaction that the client has begun.
pub(crate) struct OpenTransaction {
    /// What the client calls it; any value, compared by equality.
    pub(crate) id: Value<'static>,
    pub(crate) state: TransactionState,
    /// When it was begun.
    pub(crate) begun: Instant,
}

pub(crate) enum TransactionState {
    /// Stores are collected. After a vote that found conflicts the locks are held meanwhile.
    Open { transaction: Box<Transaction>, held: Option<TransactionNumber> },
    /// Begun with something that cannot be committed; said at vote, as the stock server does.
    Unfit(Exception),
    /// Waits for locks.
    Waiting { number: TransactionNumber, transaction: Box<Transaction>, reply_to: ReplyTo },
    /// What it undoes is being looked up; the job of that attempt has the transaction.
    Finding { attempt: u64 },
    /// Holds its locks and is being checked, perhaps by a job, which has the transaction.
    Checking { number: TransactionNumber },
    /// Can be finished.
    Voted { number: TransactionNumber, voted: Voted },
    /// Being written.
    Finishing { number: TransactionNumber, reply_to: ReplyTo },
}

impl Session {
    pub(crate) fn begin(&mut self, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let id = arguments.owned();
        let user = arguments.text_bytes()?;
        let description = arguments.text_bytes()?;
        let extension = arguments.value();
        let tid = arguments.value();
        let status = arguments.value();
        match &self.transaction {
            Some(open) if open.id == id => return Ok(Reply::Value(Value::None)),
            Some(_) => {
                return Err(Exception::transaction_error(
                    "Multiple simultaneous tpc_begin requests from one client.",
                ));
            }
            None => {}
        }
        let begun = new_transaction(user, description, extension, &tid, &status);
        let state = match begun {
            Ok(transaction) => {
                TransactionState::Open { transaction: Box::new(transaction), held: None }
            }
            Err(exception) => TransactionState::Unfit(exception),
        };
        if let Some(hub) = self.hub() {
            hub.statistics.active_transactions.add(1);
        }
        let begun = self.local.tally.arrived();
        self.transaction = Some(OpenTransaction { id, state, begun });
        Ok(Reply::Value(Value::None))
    }

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

    pub(crate) fn vote(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let id = arguments.owned();
        let open = self.own_transaction(&id)?;
        let already = |how| Err(Exception::transaction_error(format!("Already voting ({how})")));
        match &open.state {
            TransactionState::Waiting { .. }
            | TransactionState::Finding { .. }
            | TransactionState::Checking { .. } => return already("waiting"),
            TransactionState::Voted { .. } | TransactionState::Finishing { .. } => {
                return already("locked");
            }
            TransactionState::Open { .. } | TransactionState::Unfit(_) => {}
        }
        if self.upload.take().is_some() {
            self.make_unfit(Exception::transaction_error("a blob was not sent to its end"));
        }
        self.attempts += 1;
        let finding = TransactionState::Finding { attempt: self.attempts };
        let Some(open) = &mut self.transaction else { return Ok(Reply::Later) };
        match std::mem::replace(&mut open.state, finding) {
            TransactionState::Open { transaction, held: None } => {
                self.start_vote(context.handle, transaction, context.reply_to.clone())
            }
            TransactionState::Open { transaction, held: Some(number) } => {
                self.vote_again(context, number, transaction)
            }
            TransactionState::Unfit(exception) => {
                self.end_transaction();
                Err(exception)
            }
            other => {
                self.put_state(other);
                Ok(Reply::Later)
            }
        }
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
        if let Some(hub) = self.hub() {
            hub.statistics.aborts.add(1);
        }
        let may_have_blobs = self.may_have_blobs();
        self.drop_transaction();
        if may_have_blobs { self.settle_blobs(context) } else { Ok(Reply::Value(Value::None)) }
    }

    /// Gives up the transaction, if any: on abort, and when the client has gone.
    pub(crate) fn drop_transaction(&mut self) {
        self.upload = None;
        let Some(open) = self.transaction.take() else { return };
        let Some(hub) = self.hub().cloned() else { return };
        hub.statistics.active_transactions.subtract(1);
        let give_up = |number, voted| {
            hub.remove_vote(number);
            hub.storage.abort(number, voted);
        };
        match open.state {
            TransactionState::Waiting { number, .. } => give_up(number, None),
            TransactionState::Voted { number, voted } => give_up(number, Some(voted)),
            TransactionState::Open { held: Some(number), .. } => give_up(number, None),
            // The job that has it finds the number dead, or aborts what it has voted.
            TransactionState::Checking { number } => give_up(number, None),
            // Too late: it will be committed, with nobody to tell.
            TransactionState::Finishing { number, .. } => hub.remove_vote(number),
            TransactionState::Finding { .. }
            | TransactionState::Open { held: None, .. }
            | TransactionState::Unfit(_) => {}
        }
    }

    fn start_vote(
        &mut self,
        handle: &SessionHandle,
        mut transaction: Box<Transaction>,
        reply_to: ReplyTo,
    ) -> Result<Reply, Exception> {
        let Some(storage) = self.storage() else { return Ok(Reply::Later) };
        if !transaction.has_undos() {
            return self.request_locks(handle, transaction, reply_to);
        }
        let attempt = self.attempts;
        let job = move || {
            let found = storage.find_undone(&mut transaction);
            (transaction, found)
        };
        handle.spawn(self, job, move |handle, session, (transaction, found)| {
            if !session.is_finding(attempt) {
                return;
            }
            let reply = match found {
                Ok(()) => session.request_locks(handle, transaction, reply_to.clone()),
                Err(error) => Err(session.fail_vote(error)),
            };
            session.reply_late(&reply_to, reply);
        });
        Ok(Reply::Later)
    }

    /// A vote after the client has resolved conflicts.
    fn vote_again(
        &mut self,
        context: &Context<'_>,
        number: TransactionNumber,
        transaction: Box<Transaction>,
    ) -> Result<Reply, Exception> {
        let Some(storage) = self.storage() else { return Ok(Reply::Later) };
        let reply_to = context.reply_to.clone();
        match storage.vote_again(number, &transaction) {
            Ok(true) => self.check(context.handle, number, transaction, reply_to),
            Ok(false) => {
                self.forget_vote(number);
                self.start_vote(context.handle, transaction, reply_to)
            }
            Err(error) => {
                self.forget_vote(number);
                Err(self.fail_vote(error))
            }
        }
    }

    fn request_locks(
        &mut self,
        handle: &SessionHandle,
        transaction: Box<Transaction>,
        reply_to: ReplyTo,
    ) -> Result<Reply, Exception> {
        let Some(hub) = self.hub().cloned() else { return Ok(Reply::Later) };
        match hub.storage.begin_vote(&transaction, &hub.mailbox) {
            Ok((number, start)) => {
                hub.add_vote(number, self.number);
                match start {
                    VoteStart::Waiting => {
                        self.put_state(TransactionState::Waiting { number, transaction, reply_to });
                        Ok(Reply::Later)
                    }
                    VoteStart::Granted => self.check(handle, number, transaction, reply_to),
                }
            }
            Err(error) => Err(self.fail_vote(error)),
        }
    }

    /// The locks have come.
    pub(crate) fn granted(&mut self, handle: &SessionHandle, number: TransactionNumber) {
        let Some(open) = &mut self.transaction else { return };
        if !matches!(&open.state, TransactionState::Waiting { number: n, .. } if *n == number) {
            return;
        }
        let checking = TransactionState::Checking { number };
        let waiting = std::mem::replace(&mut open.state, checking);
        if let TransactionState::Waiting { transaction, reply_to, .. } = waiting {
            if let Some(hub) = self.hub() {
                hub.statistics.lock_waits.record(reply_to.asked.elapsed());
            }
            let reply = self.check(handle, number, transaction, reply_to.clone());
            self.reply_late(&reply_to, reply);
        }
    }

    /// Checks a transaction that has its locks, at once if everything is in memory.
    fn check(
        &mut self,
        handle: &SessionHandle,
        number: TransactionNumber,
        transaction: Box<Transaction>,
        reply_to: ReplyTo,
    ) -> Result<Reply, Exception> {
        let Some(storage) = self.storage() else { return Ok(Reply::Later) };
        self.put_state(TransactionState::Checking { number });
        let outcome = storage.check(number, &transaction, Access::Resident);
        if !matches!(outcome, Ok(Check::Cold)) {
            return self.checked(number, transaction, outcome).map(Reply::Value);
        }
        let checker = Arc::clone(&storage);
        let job = move || {
            let outcome = checker.check(number, &transaction, Access::Blocking);
            (transaction, outcome)
        };
        handle.spawn(self, job, move |_, session, (transaction, outcome)| {
            if session.is_checking(number) {
                let reply = session.checked(number, transaction, outcome).map(Reply::Value);
                session.reply_late(&reply_to, reply);
            } else if let Ok(Check::Voted(voted)) = outcome {
                // Given up meanwhile.
                storage.abort(number, Some(voted));
            }
        });
        Ok(Reply::Later)
    }

    /// The outcome of a vote.
    fn checked(
        &mut self,
        number: TransactionNumber,
        transaction: Box<Transaction>,
        outcome: Result<Check, VoteError>,
    ) -> Result<Value<'static>, Exception> {
        let conflicts = match outcome {
            Ok(Check::Voted(voted)) => {
                if let Some(hub) = self.hub() {
                    let resolved = voted.resolved() as u64;
                    hub.statistics.conflicts.add(resolved);
                    hub.statistics.conflicts_resolved.add(resolved);
                }
                let changed = Value::list(voted.changed().iter().map(|oid| oid_value(*oid)));
                self.put_state(TransactionState::Voted { number, voted });
                return Ok(changed);
            }
            Ok(Check::Conflicts(conflicts)) => conflicts,
            // A blocking check is never cold.
            Ok(Check::Cold) => Vec::new(),
            Err(error) => {
                self.forget_vote(number);
                return Err(self.fail_vote(error));
            }
        };
        if let Some(hub) = self.hub() {
            hub.statistics.conflicts.add(conflicts.len() as u64);
        }
        let hopeless = conflicts.iter().find(|found| !found.is_resolvable());
        if let Some(found) = hopeless {
            let class = class_of_record(&found.data);
            self.forget_vote(number);
            self.end_transaction();
            return Err(Exception::conflict(&found.conflict, class.map(|class| class.to_string())));
        }
        let to_resolve = conflicts
            .iter()
            .map(|found| conflict_to_resolve(&found.conflict, &found.data).into_owned());
        let to_resolve = Value::list(to_resolve);
        self.put_state(TransactionState::Open { transaction, held: Some(number) });
        Ok(to_resolve)
    }

    /// The transaction is durable, and all commits before it have been announced here.
    pub(crate) fn finished(&mut self, number: TransactionNumber, tid: Tid) {
        let Some(reply_to) = self.take_finishing(number) else { return };
        if let Some(hub) = self.hub() {
            hub.statistics.commits.add(1);
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

    /// Adds to the transaction whose number is the next argument.
    ///
    /// What cannot be added is said at the vote, and what comes after it is ignored, both as the
    /// stock server does: these calls have no reply.
    fn collect(
        &mut self,
        arguments: &mut Arguments<'_>,
        add: impl FnOnce(&mut Transaction) -> Result<(), Exception>,
    ) -> Result<Reply, Exception> {
        let id = arguments.owned();
        let open = self.own_transaction(&id)?;
        if let TransactionState::Open { transaction, .. } = &mut open.state
            && let Err(exception) = add(transaction)
        {
            self.make_unfit(exception);
        }
        Ok(Reply::Value(Value::None))
    }

    /// Puts the data of a transaction that has grown large aside. Nothing more is read from this
    /// client until that is done.
    pub(crate) fn spill(&mut self, handle: &SessionHandle) {
        let Some(storage) = self.storage() else { return };
        let Some(TransactionState::Open { transaction, .. }) = self.transaction_state() else {
            return;
        };
        let Some(spill) = transaction.spill() else { return };
        self.spilling = true;
        let job = move || storage.run_spill(spill);
        handle.spawn(self, job, |_, session, spilled| {
            session.spilling = false;
            // Still the same transaction: no request was read meanwhile.
            match (spilled, session.transaction_state()) {
                (Ok(spilled), Some(TransactionState::Open { transaction, .. })) => {
                    transaction.spilled(spilled);
                }
                (Err(error), Some(_)) => session.make_unfit(error.into()),
                (_, _) => {}
            }
        });
    }

    /// The open transaction cannot be committed, and what it held is free.
    pub(crate) fn make_unfit(&mut self, exception: Exception) {
        let Some(state) = self.transaction_state() else { return };
        let state = std::mem::replace(state, TransactionState::Unfit(exception));
        if let (TransactionState::Open { held: Some(number), .. }, Some(hub)) = (state, self.hub())
        {
            hub.remove_vote(number);
            hub.storage.abort(number, None);
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

    fn is_finding(&self, attempt: u64) -> bool {
        let state = self.transaction.as_ref().map(|open| &open.state);
        matches!(state, Some(TransactionState::Finding { attempt: a }) if *a == attempt)
    }

    fn is_checking(&self, number: TransactionNumber) -> bool {
        let state = self.transaction.as_ref().map(|open| &open.state);
        matches!(state, Some(TransactionState::Checking { number: n }) if *n == number)
    }

    fn put_state(&mut self, state: TransactionState) {
        if let Some(open) = &mut self.transaction {
            open.state = state;
        }
    }

    fn fail_vote(&mut self, error: VoteError) -> Exception {
        self.end_transaction();
        error.into()
    }

    fn end_transaction(&mut self) {
        if self.transaction.take().is_some()
            && let Some(hub) = self.hub()
        {
            hub.statistics.active_transactions.subtract(1);
        }
    }

    fn forget_vote(&self, number: TransactionNumber) {
        if let Some(hub) = self.hub() {
            hub.remove_vote(number);
        }
    }

    /// Sends the outcome of a call that had been answered with "later".
    fn reply_late(&self, to: &ReplyTo, reply: Result<Reply, Exception>) {
        match reply {
            Ok(Reply::Value(value)) => self.reply(to, &value),
            Ok(Reply::Later) => {}
            Err(exception) => self.reply_error(to, &exception),
        }
    }
}

fn new_transaction(
    user: Vec<u8>,
    description: Vec<u8>,
    extension: Value<'_>,
    tid: &Value<'_>,
    status: &Value<'_>,
) -> Result<Transaction, Exception> {
    let extension = extension_bytes(extension)?;
    let explicit_tid = match tid {
        Value::None => None,
        tid => Some(tid.as_tid().ok_or_else(|| Exception::value_error("8-byte array expected"))?),
    };
    let metadata = TransactionMetadata { user, description, extension };
    Transaction::new(metadata, explicit_tid, transaction_status(status)?).map_err(|error| {
        Exception::file_storage_error(match error.field {
            "user" => "user name too long",
            "description" => "description too long",
            _ => "too much extension data",
        })
    })
}

/// The pickle that Data.fs keeps of an extension. An empty one takes no bytes.
fn extension_bytes(extension: Value<'_>) -> Result<Vec<u8>, Exception> {
    match extension {
        Value::None => Ok(Vec::new()),
        Value::Bytes(pickled) if pickled.is_empty() => Ok(Vec::new()),
        // Already pickled; kept as it is, once it has shown to be what it should.
        Value::Bytes(pickled) => match decode(&pickled, &EXTENSION_LIMITS) {
            Ok((Value::Dict(_), _)) => Ok(pickled.into_owned()),
            _ => Err(Exception::value_error("the extension is no pickled dict")),
        },
        Value::Dict(entries) if entries.is_empty() => Ok(Vec::new()),
        value @ Value::Dict(_) => {
            let mut bytes = Vec::new();
            encode(&value, &mut bytes);
            Ok(bytes)
        }
        Value::List(pairs) | Value::Tuple(pairs) => extension_of_pairs(pairs),
        // A subclass of dict may pickle as a call of `dict`, the one global besides `Prefix` that
        // requests may hold.
        Value::Object(object) if object.class().is_some_and(|class| class.name() == "dict") => {
            let arguments = object.arguments.into_sequence().unwrap_or_default();
            let pairs = arguments.into_iter().next().and_then(Value::into_sequence);
            extension_of_pairs(pairs.unwrap_or_default())
        }
        other => {
            Err(Exception::type_error(format!("the extension is a dict, got {}", other.kind())))
        }
    }
}

/// What Python's `dict()` makes of a sequence.
fn extension_of_pairs(pairs: Vec<Value<'_>>) -> Result<Vec<u8>, Exception> {
    let mut entries = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let pair = pair.into_sequence().unwrap_or_default();
        let Ok([key, value]) = <[Value<'_>; 2]>::try_from(pair) else {
            return Err(Exception::type_error("the extension is a dict"));
        };
        entries.push((key, value));
    }
    extension_bytes(Value::Dict(entries))
}

fn transaction_status(status: &Value<'_>) -> Result<TransactionStatus, Exception> {
    let byte = match status {
        Value::Str(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes.as_ref(),
        _ => b"?",
    };
    match byte {
        b"" => Ok(TransactionStatus::Normal),
        [byte] => TransactionStatus::from_byte(*byte)
            .ok_or_else(|| Exception::value_error("a transaction's status is ' ', 'p' or 'u'")),
        _ => Err(Exception::value_error("a transaction's status is ' ', 'p' or 'u'")),
    }
}
