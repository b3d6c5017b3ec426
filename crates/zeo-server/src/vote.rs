//! The vote of a session's transaction and what follows it: the check, the finish or the abort.
//!
//! Work that may wait for the disk runs as a job. When it is done, the transaction may have been
//! aborted, which its slot shows.

use std::rc::Rc;
use std::sync::Arc;

use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Check, FoundConflicts, Transaction, VoteError, VoteStart};
use zodium_pickle::Value;
use zodium_storage::{Access, StorageError};
use zodium_types::Tid;

use crate::blob_upload::BlobUploads;
use crate::blobs::blobs_of;
use crate::call::Arguments;
use crate::exception::{Exception, conflict_to_resolve, oid_value, tid_value};
use crate::info::send_info;
use crate::peer::Peer;
use crate::replies::{Reply, ReplyTo};
use crate::transaction::{SharedSlot, VoteAttempt};
use crate::voting::Vote;

/// Commits the transactions of a session.
pub(crate) struct Votes {
    peer: Rc<Peer>,
    slot: SharedSlot,
    uploads: Rc<BlobUploads>,
}

impl Votes {
    pub(crate) fn new(peer: Rc<Peer>, slot: SharedSlot, uploads: Rc<BlobUploads>) -> Rc<Votes> {
        Rc::new(Votes { peer, slot, uploads })
    }

    pub(crate) fn vote(
        self: &Rc<Self>,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let id = arguments.owned();
        let attempted = self.slot.borrow_mut().begin_vote(&id, || self.uploads.abandon())?;
        let VoteAttempt { attempt, transaction, vote } = attempted;
        let resumed = match vote {
            None => self.slot.borrow_mut().resume(&transaction),
            Some(vote) => return self.vote_again(attempt, vote, transaction, to.clone()),
        };
        match resumed {
            None => self.start(attempt, transaction, to.clone()),
            Some(vote) => self.check(attempt, vote, transaction, to.clone()),
        }
    }

    fn start(
        self: &Rc<Self>,
        attempt: u64,
        mut transaction: Box<Transaction>,
        reply_to: ReplyTo,
    ) -> Result<Reply, Exception> {
        if !transaction.has_undos() {
            return self.request_locks(attempt, transaction, reply_to);
        }
        let (votes, storage) = (Rc::clone(self), Arc::clone(self.peer.storage()));
        let job = move || {
            let found = storage.find_undone(&mut transaction);
            (transaction, found)
        };
        self.peer.jobs.spawn(job, move |(transaction, found)| {
            if !votes.slot.borrow().is_voting(attempt) {
                return;
            }
            let reply = match found {
                Ok(()) => votes.request_locks(attempt, transaction, reply_to.clone()),
                Err(error) => Err(votes.fail(error)),
            };
            votes.peer.replies.reply_late(&reply_to, reply);
        });
        Ok(Reply::Later)
    }

    /// Votes again after the client has resolved conflicts.
    fn vote_again(
        self: &Rc<Self>,
        attempt: u64,
        vote: Vote,
        transaction: Box<Transaction>,
        reply_to: ReplyTo,
    ) -> Result<Reply, Exception> {
        match self.peer.storage().vote_again(vote.number(), &transaction) {
            Ok(true) => self.check(attempt, vote, transaction, reply_to),
            Ok(false) => {
                drop(vote);
                self.start(attempt, transaction, reply_to)
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    fn request_locks(
        self: &Rc<Self>,
        attempt: u64,
        transaction: Box<Transaction>,
        reply_to: ReplyTo,
    ) -> Result<Reply, Exception> {
        match self.peer.storage().begin_vote(&transaction, &self.peer.subscriber.mailbox) {
            Ok((number, start)) => {
                let vote = self.peer.add_vote(number);
                match start {
                    VoteStart::Waiting => {
                        self.slot.borrow_mut().wait(vote, transaction, reply_to);
                        Ok(Reply::Later)
                    }
                    VoteStart::Granted => self.check(attempt, vote, transaction, reply_to),
                }
            }
            Err(error) => Err(self.fail(error)),
        }
    }

    /// Continues a vote whose locks were granted.
    pub(crate) fn granted(self: &Rc<Self>, number: TransactionNumber) {
        let granted = self.slot.borrow_mut().granted(number);
        let Some((VoteAttempt { attempt, transaction, vote: Some(vote) }, reply_to)) = granted
        else {
            return;
        };
        self.peer.statistics().lock_waits.record(reply_to.asked.elapsed());
        let reply = self.check(attempt, vote, transaction, reply_to.clone());
        self.peer.replies.reply_late(&reply_to, reply);
    }

    /// Checks a transaction that has its locks, at once if all serials are in memory.
    fn check(
        self: &Rc<Self>,
        attempt: u64,
        vote: Vote,
        transaction: Box<Transaction>,
        reply_to: ReplyTo,
    ) -> Result<Reply, Exception> {
        let (storage, number) = (Arc::clone(self.peer.storage()), vote.number());
        let outcome = storage.check(number, &transaction, Access::NonBlocking);
        if !matches!(outcome, Ok(Check::WouldBlock)) {
            return self.checked(vote, transaction, outcome).map(Reply::Value);
        }
        self.slot.borrow_mut().check_later(attempt, vote);
        let (votes, checker) = (Rc::clone(self), Arc::clone(&storage));
        let job = move || {
            let outcome = checker.check(number, &transaction, Access::Blocking);
            (transaction, outcome)
        };
        self.peer.jobs.spawn(job, move |(transaction, outcome)| {
            let vote = votes.slot.borrow_mut().take_vote(attempt);
            if let Some(vote) = vote {
                let reply = votes.checked(vote, transaction, outcome).map(Reply::Value);
                votes.peer.replies.reply_late(&reply_to, reply);
            } else if let Ok(Check::Voted(voted)) = outcome {
                // The transaction was aborted meanwhile.
                storage.abort(number, Some(voted));
            }
        });
        Ok(Reply::Later)
    }

    /// Handles the outcome of a check.
    fn checked(
        &self,
        vote: Vote,
        transaction: Box<Transaction>,
        outcome: Result<Check, VoteError>,
    ) -> Result<Value<'static>, Exception> {
        let statistics = self.peer.statistics();
        let conflicts = match outcome {
            Ok(Check::Voted(voted)) => {
                let resolved = voted.resolved() as u64;
                statistics.conflicts.add(resolved);
                statistics.conflicts_resolved.add(resolved);
                let changed = Value::list(voted.changed().iter().map(|oid| oid_value(*oid)));
                self.slot.borrow_mut().voted(vote, voted);
                return Ok(changed);
            }
            Ok(Check::Conflicts(conflicts)) => conflicts,
            // A blocking check never returns `WouldBlock`.
            Ok(Check::WouldBlock) => FoundConflicts::default(),
            Err(error) => return Err(self.fail(error)),
        };
        statistics.conflicts.add(conflicts.len() as u64);
        let hopeless = conflicts.iter().find(|found| !found.is_resolvable());
        if let Some(found) = hopeless {
            self.slot.borrow_mut().end();
            return Err(Exception::hopeless(found));
        }
        let to_resolve = Value::list(conflicts.into_vec().into_iter().map(conflict_to_resolve));
        self.slot.borrow_mut().resolve(vote, transaction);
        Ok(to_resolve)
    }

    fn fail(&self, error: VoteError) -> Exception {
        self.slot.borrow_mut().end();
        error.into()
    }

    pub(crate) fn finish(
        &self,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let begun = self.slot.borrow_mut().begin_finish(&arguments.owned(), to)?;
        let Some((number, voted)) = begun else { return Ok(Reply::Value(Value::None)) };
        if let Err(error) = self.peer.storage().finish(number, voted) {
            self.slot.borrow_mut().end();
            return Err(error.into());
        }
        Ok(Reply::Later)
    }

    /// Answers a finish: the transaction is durable, and all earlier commits were broadcast here.
    pub(crate) fn finished(&self, number: TransactionNumber, tid: Tid) {
        let Some(reply_to) = self.slot.borrow_mut().end_finish(number) else { return };
        self.peer.statistics().commits.add(1);
        send_info(&self.peer);
        self.peer.replies.reply(&reply_to, &tid_value(tid));
    }

    pub(crate) fn finish_failed(&self, number: TransactionNumber, error: &StorageError) {
        let reply_to = self.slot.borrow_mut().end_finish(number);
        if let Some(reply_to) = reply_to {
            self.peer.replies.reply_error(&reply_to, &Exception::from(error));
        }
    }

    pub(crate) fn abort(
        &self,
        to: &ReplyTo,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        if self.slot.borrow_mut().check_id(&arguments.owned()).is_err() {
            return Ok(Reply::Value(Value::None));
        }
        let was_receiving = self.uploads.abandon();
        let may_have_blobs = self.peer.storage().blobs().is_some()
            && self.slot.borrow().may_have_blobs(was_receiving);
        self.slot.borrow_mut().abort_to_retry();
        if !may_have_blobs {
            return Ok(Reply::Value(Value::None));
        }
        // Answered after its files are removed.
        Ok(self.peer.ask(to, |storage| {
            blobs_of(storage)?.settle();
            Ok(Value::None)
        }))
    }

    /// Aborts the transaction, if any, and frees all locks: the connection has ended.
    pub(crate) fn close(&self) {
        self.uploads.abandon();
        self.slot.borrow_mut().abort();
        self.end_reservation();
    }

    /// Aborts a transaction whose vote took too long; false if there is nothing to abort any more.
    pub(crate) fn expire(&self, number: TransactionNumber) -> bool {
        self.slot.borrow_mut().expire(number)
    }

    /// Frees locks that are kept for the client's next attempt.
    pub(crate) fn end_reservation(&self) {
        self.slot.borrow_mut().end_reservation();
    }

    /// Whether a finish is in progress, which is answered before the server stops.
    pub(crate) fn is_finishing(&self) -> bool {
        self.slot.borrow().is_finishing()
    }
}
