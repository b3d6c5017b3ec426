//! The vote of a session's transaction: undone records, locks, the check, and its outcome.
//!
//! Work that may wait for the disk runs as a job. When it is done, the transaction may have been
//! aborted, which its state shows.

use std::sync::Arc;

use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Check, Transaction, VoteError, VoteStart};
use zodium_pickle::{Value, class_of_record};
use zodium_storage::Access;

use super::call::Arguments;
use super::exception::{Exception, conflict_to_resolve, oid_value};
use super::session::{Context, Reply, ReplyTo, Session, SessionHandle};
use super::transaction::TransactionState;

impl Session {
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
            TransactionState::Open { .. } | TransactionState::Doomed(_) => {}
        }
        if self.upload.take().is_some() {
            self.doom(Exception::transaction_error("a blob was not sent to its end"));
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
            TransactionState::Doomed(exception) => {
                self.end_transaction();
                Err(exception)
            }
            other => {
                self.put_state(other);
                Ok(Reply::Later)
            }
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

    /// Votes again after the client has resolved conflicts.
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
        let Some(subscriber) = self.subscriber().cloned() else { return Ok(Reply::Later) };
        match subscriber.storage.begin_vote(&transaction, &subscriber.mailbox) {
            Ok((number, start)) => {
                subscriber.add_vote(number, self.number);
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

    /// Continues a vote whose locks were granted.
    pub(crate) fn granted(&mut self, handle: &SessionHandle, number: TransactionNumber) {
        let Some(open) = &mut self.transaction else { return };
        if !matches!(&open.state, TransactionState::Waiting { number: n, .. } if *n == number) {
            return;
        }
        let checking = TransactionState::Checking { number };
        let waiting = std::mem::replace(&mut open.state, checking);
        if let TransactionState::Waiting { transaction, reply_to, .. } = waiting {
            if let Some(subscriber) = self.subscriber() {
                subscriber.statistics.lock_waits.record(reply_to.asked.elapsed());
            }
            let reply = self.check(handle, number, transaction, reply_to.clone());
            self.reply_late(&reply_to, reply);
        }
    }

    /// Checks a transaction that has its locks, at once if all serials are in memory.
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
                // The transaction was aborted meanwhile.
                storage.abort(number, Some(voted));
            }
        });
        Ok(Reply::Later)
    }

    /// Handles the outcome of a check.
    fn checked(
        &mut self,
        number: TransactionNumber,
        transaction: Box<Transaction>,
        outcome: Result<Check, VoteError>,
    ) -> Result<Value<'static>, Exception> {
        let conflicts = match outcome {
            Ok(Check::Voted(voted)) => {
                if let Some(subscriber) = self.subscriber() {
                    let resolved = voted.resolved() as u64;
                    subscriber.statistics.conflicts.add(resolved);
                    subscriber.statistics.conflicts_resolved.add(resolved);
                }
                let changed = Value::list(voted.changed().iter().map(|oid| oid_value(*oid)));
                self.put_state(TransactionState::Voted { number, voted });
                return Ok(changed);
            }
            Ok(Check::Conflicts(conflicts)) => conflicts,
            // A blocking check never returns `Cold`.
            Ok(Check::Cold) => Vec::new(),
            Err(error) => {
                self.forget_vote(number);
                return Err(self.fail_vote(error));
            }
        };
        if let Some(subscriber) = self.subscriber() {
            subscriber.statistics.conflicts.add(conflicts.len() as u64);
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

    fn is_finding(&self, attempt: u64) -> bool {
        let state = self.transaction.as_ref().map(|open| &open.state);
        matches!(state, Some(TransactionState::Finding { attempt: a }) if *a == attempt)
    }

    fn is_checking(&self, number: TransactionNumber) -> bool {
        let state = self.transaction.as_ref().map(|open| &open.state);
        matches!(state, Some(TransactionState::Checking { number: n }) if *n == number)
    }

    fn fail_vote(&mut self, error: VoteError) -> Exception {
        self.end_transaction();
        error.into()
    }

    /// Sends the reply to a call that was answered with [`Reply::Later`].
    fn reply_late(&self, to: &ReplyTo, reply: Result<Reply, Exception>) {
        match reply {
            Ok(Reply::Value(value)) => self.reply(to, &value),
            Ok(Reply::Later) => {}
            Err(exception) => self.reply_error(to, &exception),
        }
    }
}
