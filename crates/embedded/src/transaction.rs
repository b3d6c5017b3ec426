//! Commits: stores are collected, the vote compares and sends them, and the finish commits them.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use zodium_client::{
    ClientError, Outcome, StoreConflict, TransactionOptions, Unfinished, Voted as Answer,
};
use zodium_engine::commit::TransactionNumber;
use zodium_engine::{Check, FoundConflict, Transaction, VoteError, VoteStart, Voted};
use zodium_storage::{Access, StorageError};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};
use zodium_zeo_server::{Exception, extension_bytes, tid_of_undo_id};

use crate::client::{EmbeddedClient, Shared};
use crate::events::Own;
use crate::failure::{of_exception, of_storage, of_vote};

/// Data of a transaction that are kept in memory. Further ones are put into a file.
const MEMORY_BYTES_MAX: usize = 64 << 20;

/// An open transaction. Dropping it unfinished aborts it.
pub struct EmbeddedTransaction {
    shared: Arc<Shared>,
    transaction: Transaction,
    phase: Phase,
}

/// How far a transaction is.
enum Phase {
    Open,
    /// It has its locks, and the caller resolves its conflicts.
    Resolving(TransactionNumber),
    Voted(TransactionNumber, Voted),
    Over,
}

impl EmbeddedClient {
    /// Begins a transaction. Many can be open at a time.
    ///
    /// # Errors
    /// When the storage is read-only, or the metadata are too long.
    pub fn begin(&self, options: &TransactionOptions) -> Result<EmbeddedTransaction, ClientError> {
        self.shared.check_open()?;
        if self.is_read_only() {
            return Err(ClientError::ReadOnly);
        }
        let TransactionOptions { user, description, extension, tid, status } = options.clone();
        let extension = extension_bytes(extension).map_err(of_exception)?;
        let metadata = TransactionMetadata { user, description, extension };
        let status = u8::try_from(status).ok().and_then(TransactionStatus::from_byte);
        let transaction = Transaction::new(metadata, tid, status.unwrap_or_default());
        let transaction = transaction.map_err(|error| {
            of_storage(&StorageError::Other(format!("the {} is too long", error.field).into()))
        })?;
        let shared = Arc::clone(&self.shared);
        Ok(EmbeddedTransaction { shared, transaction, phase: Phase::Open })
    }
}

impl EmbeddedTransaction {
    /// Stores a new revision of an object. `serial` is that of the loaded revision, or
    /// [`Tid::ZERO`] for a new object. Conflicts are reported at the vote.
    ///
    /// # Errors
    /// When the disk has no room for a large transaction.
    pub fn store(&mut self, oid: Oid, serial: Tid, data: Bytes) -> Result<(), ClientError> {
        self.transaction.store(oid, serial, data);
        let Some(spill) = self.transaction.spill(MEMORY_BYTES_MAX) else { return Ok(()) };
        let spilled = self.shared.database.run_spill(spill);
        self.transaction.spilled(spilled.map_err(|error| of_storage(&error))?);
        Ok(())
    }

    /// Deletes an object.
    pub fn delete(&mut self, oid: Oid, serial: Tid) {
        self.transaction.delete(oid, serial);
    }

    /// Makes the vote fail if this is no longer the object's current revision.
    pub fn check_current(&mut self, oid: Oid, serial: Tid) {
        self.transaction.read_current(oid, serial);
    }

    /// Copies a record with its serial, unchecked; data of `None` delete the object. `source` is a
    /// transaction that may have the same data.
    pub fn restore(&mut self, oid: Oid, serial: Tid, data: Option<Bytes>, source: Option<Tid>) {
        self.transaction.restore(oid, serial, data, source);
    }

    /// Undoes a transaction; `undo_id` is its id in the answer to `undoLog`.
    ///
    /// # Errors
    /// When that is no such id.
    pub fn undo(&mut self, undo_id: &[u8]) -> Result<(), ClientError> {
        let invalid = || of_exception(Exception::undo("Invalid undo transaction id"));
        self.transaction.undo(tid_of_undo_id(undo_id).ok_or_else(invalid)?);
        Ok(())
    }

    /// Whether the transaction can be committed. After an error it is over. Conflicts are for the
    /// caller to resolve: it stores each object again upon the committed serial and votes again, or
    /// it aborts. Blocking.
    ///
    /// # Errors
    /// When it conflicts with others in a way that cannot be resolved, and when the storage refuses
    /// it.
    pub fn vote(&mut self) -> Result<Answer, ClientError> {
        let number = self.locked()?;
        match self.shared.database.check(number, &self.transaction, Access::Blocking) {
            Ok(Check::Voted(voted)) => {
                let changed = voted.changed().to_vec();
                self.phase = Phase::Voted(number, voted);
                Ok(Answer { changed, conflicts: Vec::new() })
            }
            Ok(Check::Conflicts(found)) => {
                if let Some(hopeless) = found.iter().find(|found| !found.is_resolvable()) {
                    self.shared.events.forget(number);
                    return Err(refusal(hopeless));
                }
                self.phase = Phase::Resolving(number);
                let conflicts = found.into_vec().into_iter().map(conflict).collect();
                Ok(Answer { changed: Vec::new(), conflicts })
            }
            // A blocking check never returns `WouldBlock`.
            Ok(Check::WouldBlock) => Err(ClientError::Interrupted),
            Err(error) => {
                self.shared.events.forget(number);
                Err(of_vote(error))
            }
        }
    }

    /// Takes the locks of this process.
    fn locked(&mut self) -> Result<TransactionNumber, ClientError> {
        let database = Arc::clone(&self.shared.database);
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Resolving(number) => {
                if database.vote_again(number, &self.transaction).map_err(of_vote)? {
                    return Ok(number);
                }
                self.shared.events.forget(number);
            }
            Phase::Open => {}
            Phase::Voted(number, voted) => database.abort(number, Some(voted)),
            Phase::Over => return Err(over()),
        }
        if self.transaction.has_undos() {
            database.find_undone(&mut self.transaction).map_err(of_vote)?;
        }
        let begun = database.begin_vote(&self.transaction, &self.shared.mailbox);
        let (number, start) = begun.map_err(of_vote)?;
        if start == VoteStart::Waiting {
            let own = self.shared.events.own(number);
            let shared = &self.shared;
            if let Err(error) = own.wait_granted(|| shared.check_interrupt()) {
                database.abort(number, None);
                shared.events.forget(number);
                return Err(error);
            }
        }
        Ok(number)
    }

    /// Commits. `then` is called with the tid, before any later transaction is told of and before
    /// [`EmbeddedClient::last_tid`] includes it. If it fails, the watcher is told with the next
    /// commit that everything may have changed. Blocking.
    ///
    /// # Errors
    /// Any other one than [`ClientError::OutcomeUnknown`] means that nothing was committed.
    pub fn finish(
        mut self,
        then: impl FnOnce(Tid) -> Result<(), ClientError> + Send + 'static,
    ) -> Result<Tid, ClientError> {
        let (number, voted) = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Voted(number, voted) => (number, voted),
            other => {
                self.phase = other;
                return Err(of_vote(VoteError::Storage(StorageError::Other(
                    "the transaction was not voted".into(),
                ))));
            }
        };
        let own = self.shared.events.own(number);
        own.expect(Box::new(then));
        if let Err(error) = self.shared.database.finish(number, voted) {
            self.shared.events.forget(number);
            return Err(of_vote(error.into()));
        }
        let waited = own.wait_end(patience(&self.shared));
        let reason = match waited {
            // A client that is closed does not hear of the end any more.
            Ok(Err(ClientError::Closed)) => {
                return Err(unknown(&self.shared, own, &ClientError::Closed));
            }
            Ok(end) => return end,
            Err(reason) => reason,
        };
        // It may have ended just now.
        match own.leave() {
            Some(end) => end,
            None => Err(unknown(&self.shared, own, &reason)),
        }
    }

    /// Aborts the transaction.
    pub fn abort(mut self) {
        self.give_up();
    }

    fn give_up(&mut self) {
        let (number, voted) = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Open | Phase::Over => return,
            Phase::Resolving(number) => (number, None),
            Phase::Voted(number, voted) => (number, Some(voted)),
        };
        self.shared.database.abort(number, voted);
        self.shared.events.forget(number);
    }
}

impl Drop for EmbeddedTransaction {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// How long a finish is waited for: as long as the storage can be reached, and some time more.
fn patience(shared: &Shared) -> impl Fn() -> Result<(), ClientError> {
    let lost_since = std::cell::Cell::new(None);
    move || {
        shared.check_interrupt()?;
        if shared.is_connected() {
            lost_since.set(None);
            return Ok(());
        }
        let since = lost_since.get().unwrap_or_else(Instant::now);
        lost_since.set(Some(since));
        match since.elapsed() < shared.wait {
            true => Ok(()),
            false => Err(ClientError::Disconnected("the storage was lost meanwhile".into())),
        }
    }
}

/// The error of a finish that is not waited for any more.
fn unknown(shared: &Arc<Shared>, own: Arc<Own>, reason: &ClientError) -> ClientError {
    let shared = Arc::clone(shared);
    let ask = move || -> Result<Outcome, ClientError> { own.outcome(|| shared.check_interrupt()) };
    ClientError::OutcomeUnknown {
        reason: reason.to_string().into(),
        transaction: Arc::new(Unfinished::elsewhere(ask)),
    }
}

/// The error of a conflict that the caller cannot resolve.
fn refusal(found: &FoundConflict) -> ClientError {
    of_exception(Exception::hopeless(found))
}

fn conflict(found: FoundConflict) -> StoreConflict {
    let FoundConflict { conflict, data } = found;
    let (oid, committed, stored_upon) = (conflict.oid, conflict.committed, conflict.sent);
    StoreConflict { oid, committed, stored_upon, data }
}

fn over() -> ClientError {
    of_exception(Exception::transaction_error("the transaction is over"))
}
