//! The steps of a vote: locks, conflict check, space.

use std::sync::Arc;
use std::task::Poll;

use zodium_storage::{Access, NewBody, NewRecord, NewTransaction, StorageError};
use zodium_types::{Oid, Tid};

use crate::blobs::{blobs_behind, stage_blobs};
use crate::commit::{Conflict, ConflictKind, LockAnswer, TransactionNumber, check};
use crate::conflict_room::ConflictRoom;
use crate::id_bounds::check_ids;
use crate::resolve::{ConflictResolution, Resolved};
use crate::spill::Data;
use crate::transaction::{Transaction, Voted, WriteBody};
use crate::undo::{UndoOutcome, Undos};
use crate::undoing::Undoing;
use crate::{Database, FoundConflict, FoundConflicts, Mailbox, VoteError};

/// The answer to [`Database::begin_vote`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VoteStart {
    /// The transaction holds its locks: call [`Database::check`].
    Granted,
    /// Other transactions hold the locks: [`crate::Notice::Granted`] will come.
    Waiting,
}

/// The answer to [`Database::check`].
#[derive(Debug)]
pub enum Check {
    /// The transaction can be finished.
    Voted(Voted),
    /// The transaction conflicts with committed revisions, and the server did not resolve all
    /// conflicts. If all those left are of stores, the locks stay: the client can resolve against
    /// revisions that cannot change. Call [`Database::vote_again`] then, or abort. Otherwise the
    /// locks are free, and the transaction is over.
    Conflicts(FoundConflicts),
    /// The revisions are not in memory: ask again with [`Access::Blocking`] off the worker.
    WouldBlock,
}

impl Database {
    /// Looks up the records that a transaction undoes. Blocking. Must precede the vote of a
    /// transaction that [has undos](Transaction::has_undos), since these records need locks.
    pub fn find_undone(&self, transaction: &mut Transaction) -> Result<(), VoteError> {
        for undo in &mut transaction.undos {
            let records = self.undo_side()?.records_to_undo(undo.tid)?;
            undo.oids = Some(records.iter().map(|record| record.oid).collect());
        }
        Ok(())
    }

    /// Requests the locks of all objects of a transaction at once.
    ///
    /// The number is valid for this vote only: a later vote gets another. Notices about the
    /// transaction, from its wait for locks to its finish, are posted to `mailbox`.
    pub fn begin_vote(
        &self,
        transaction: &Transaction,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Result<(TransactionNumber, VoteStart), VoteError> {
        check_ids(transaction, self.store.last_oid(), self.clock.as_ref())?;
        let number = self.next_number();
        let (locks, now) = (transaction.locks(), self.clock.monotonic());
        let owner = Arc::clone(mailbox);
        let start = match self.commits.vote(number, locks, transaction.explicit_tid, owner, now)? {
            LockAnswer::Granted => VoteStart::Granted,
            LockAnswer::Waiting => VoteStart::Waiting,
        };
        Ok((number, start))
    }

    /// Compares a transaction that holds its locks with the committed revisions, and reserves its
    /// space. After an error its locks are free.
    pub fn check(
        &self,
        number: TransactionNumber,
        transaction: &Transaction,
        access: Access,
    ) -> Result<Check, VoteError> {
        let outcome = match self.store.shared() {
            Some(shared) => self.check_shared(shared, number, transaction, access),
            None => self.check_locked(number, transaction, access),
        };
        let outcome = match outcome {
            Ok(Check::Voted(voted)) => return self.claim(number, transaction, voted),
            outcome => outcome,
        };
        match &outcome {
            Ok(Check::Voted(_) | Check::WouldBlock) => {}
            Ok(Check::Conflicts(found)) if found.iter().all(FoundConflict::is_resolvable) => {
                let kept = self.commits.machine().resolve(number, self.clock.monotonic());
                // The transaction may have been aborted meanwhile.
                kept?;
            }
            Ok(Check::Conflicts(_)) | Err(_) => self.free(number),
        }
        outcome
    }

    /// Continues after the client has resolved its conflicts. True: the locks held suffice, and
    /// [`Database::check`] can follow. False: more locks are needed, and those held have been
    /// freed; start a new vote with [`Database::begin_vote`].
    pub fn vote_again(
        &self,
        number: TransactionNumber,
        transaction: &Transaction,
    ) -> Result<bool, VoteError> {
        let (locks, now) = (transaction.locks(), self.clock.monotonic());
        let again = self.commits.machine().vote_again(number, &locks, now)?;
        if !again {
            self.abort(number, None);
        }
        Ok(again)
    }

    /// Ends a transaction that met conflicts which its client did not resolve. Its locks are kept
    /// for a short time, for the client's next attempt: see [`Database::resume_vote`]. Without a
    /// reservation, all clients that waited for an object would fail when it is written, try again
    /// at once, and mostly fail again.
    ///
    /// False: a transaction that brings its own tid gets no reservation. Abort it.
    pub fn reserve(&self, number: TransactionNumber) -> bool {
        self.commits.reserve(number, self.clock.monotonic()).is_ok()
    }

    /// Begins the vote of a client's next transaction with its reserved locks, under their number.
    /// True: they suffice, and [`Database::check`] can follow. False: the reservation is over, and
    /// its locks are free; start a new vote with [`Database::begin_vote`].
    pub fn resume_vote(&self, number: TransactionNumber, transaction: &Transaction) -> bool {
        let now = self.clock.monotonic();
        // What an undo writes is not known yet.
        let is_plain = transaction.explicit_tid.is_none() && !transaction.has_undos();
        let resumed = is_plain
            && self.commits.machine().resume(number, &transaction.locks(), now) == Ok(true);
        if !resumed {
            self.abort(number, None);
        }
        resumed
    }

    /// Aborts a transaction that was not finished. After a finish this does nothing: the
    /// transaction is committed, or fails, all the same.
    pub fn abort(&self, number: TransactionNumber, voted: Option<Voted>) {
        if let Some(voted) = voted {
            self.store.abort(voted.prepared);
        }
        self.commits.abort(number, self.clock.monotonic()).post();
    }

    fn check_locked(
        &self,
        number: TransactionNumber,
        transaction: &Transaction,
        access: Access,
    ) -> Result<Check, VoteError> {
        // Back pointers need reads of old records, and blobs are synced: never on a worker.
        if access == Access::NonBlocking
            && (transaction.writes_back_pointers() || transaction.has_blobs())
        {
            return Ok(Check::WouldBlock);
        }
        let mut room = transaction.conflict_room();
        let resolved = match self.resolve_conflicts(transaction, &mut room, access)? {
            Ok(resolved) => resolved,
            Err(left) => {
                let report = |found| Check::Conflicts(FoundConflicts::new(found, room));
                return Ok(left.map_or(Check::WouldBlock, report));
            }
        };
        let mut records = self.new_records(transaction, &resolved)?;
        let mut undoing = Undoing::new(self.reader(), self.config.resolver.clone(), room);
        let undone = match self.undo_records(transaction, &mut undoing)? {
            UndoOutcome::Records(undone) => undone,
            UndoOutcome::ForClient(found) => {
                let found = FoundConflicts::new(found, undoing.into_room());
                return Ok(Check::Conflicts(found));
            }
        };
        let behind = blobs_behind(self.store.as_ref(), transaction, &undone)?;
        let changed = undone.iter().map(|record| record.oid);
        let changed = changed.chain(resolved.data.keys().copied()).collect();
        records.extend(undone);
        let (status, metadata) = (transaction.status, transaction.metadata.clone());
        let new = NewTransaction { status, metadata, records };
        let Poll::Ready(prepared) = self.store.prepare(new, access)? else {
            return Ok(Check::WouldBlock);
        };
        let staged = stage_blobs(self.store.as_ref(), transaction, behind).map_err(VoteError::from);
        let staged = staged.and_then(|blobs| {
            self.commits.machine().voted(number, self.clock.monotonic())?;
            Ok(blobs)
        });
        let blobs = match staged {
            Ok(blobs) => blobs,
            Err(error) => {
                self.store.abort(prepared);
                return Err(error);
            }
        };
        Ok(Check::Voted(Voted {
            prepared,
            blobs: blobs.map(Box::new),
            changed,
            resolved: resolved.data.len() + undoing.resolved(),
            claim: None,
            _merged: undoing.into_room().into_held(),
        }))
    }

    /// Resolves the conflicts of the writes and reads. Otherwise those left for the client; `None`
    /// when revisions or data are not in memory and access is non-blocking.
    fn resolve_conflicts(
        &self,
        transaction: &Transaction,
        room: &mut ConflictRoom<'_>,
        access: Access,
    ) -> Result<Result<Resolved, Option<Vec<FoundConflict>>>, VoteError> {
        let Some(current) = self.current_serials(transaction, access)? else {
            return Ok(Err(None));
        };
        let writes = transaction.object_writes();
        let conflicts =
            check(&writes, &transaction.reads, |oid| current.get(&oid).copied().flatten());
        let Err(mut conflicts) = conflicts else { return Ok(Ok(Resolved::default())) };
        let unresolvable = conflicts.split_off(leading_stores(&conflicts));
        let resolver = self.config.resolver.as_deref();
        let resolution = ConflictResolution { store: self.reader(), resolver };
        let Some(tried) = resolution.resolve(transaction, conflicts, room, access)? else {
            return Ok(Err(None));
        };
        let (resolved, mut left) = tried;
        if left.is_empty() {
            left = unresolvable;
        }
        if left.is_empty() {
            return Ok(Ok(resolved));
        }
        found_conflicts(transaction, left, room, access).map(Err)
    }

    /// Asks the companion about a transaction that has passed its vote. Copies of transactions
    /// claim nothing: what took effect with the original does not take effect again.
    fn claim(
        &self,
        number: TransactionNumber,
        transaction: &Transaction,
        mut voted: Voted,
    ) -> Result<Check, VoteError> {
        let extension = &transaction.metadata.extension;
        if let Some(companion) = self.subscribers.companion()
            && !extension.is_empty()
            && !transaction.is_copy()
        {
            match companion.voted(number, extension) {
                Ok(claim) => voted.claim = claim,
                Err(reason) => {
                    self.abort(number, Some(voted));
                    return Err(VoteError::Companion { reason });
                }
            }
        }
        Ok(Check::Voted(voted))
    }

    /// The current serials of all objects that a check needs; `None` when one is cold.
    fn current_serials(
        &self,
        transaction: &Transaction,
        access: Access,
    ) -> Result<Option<rustc_hash::FxHashMap<Oid, Option<Tid>>>, StorageError> {
        let stored = transaction.writes.iter();
        let stored = stored.filter(|write| !matches!(write.body, WriteBody::Restore { .. }));
        let oids = stored.map(|write| write.oid).chain(transaction.reads.iter().map(|r| r.oid));
        let mut current = rustc_hash::FxHashMap::default();
        for oid in oids {
            let Poll::Ready(serial) = self.store.poll_serial(oid, access)? else {
                return Ok(None);
            };
            current.insert(oid, serial);
        }
        Ok(Some(current))
    }

    pub(crate) fn new_records(
        &self,
        transaction: &Transaction,
        resolved: &Resolved,
    ) -> Result<Vec<NewRecord>, VoteError> {
        let mut records = Vec::with_capacity(transaction.writes.len());
        for write in transaction.effective_writes() {
            let body = match &write.body {
                WriteBody::Store(data) | WriteBody::Restore { data: Some(data), .. }
                    if data.is_empty() =>
                {
                    return Err(VoteError::EmptyData { oid: write.oid });
                }
                WriteBody::Store(data) => match resolved.data.get(&write.oid) {
                    Some(resolved) => NewBody::Data(resolved.clone()),
                    None => NewBody::from(data),
                },
                WriteBody::Delete => NewBody::Deleted,
                WriteBody::Restore { data, source } => {
                    self.copied_body(write.oid, data.as_ref(), *source)?
                }
            };
            records.push(NewRecord { oid: write.oid, body });
        }
        Ok(records)
    }

    /// The body of a copied record: a back pointer if the source has the same data, otherwise the
    /// data themselves.
    fn copied_body(
        &self,
        oid: Oid,
        data: Option<&Data>,
        source: Option<Tid>,
    ) -> Result<NewBody, StorageError> {
        let Some(data) = data else { return Ok(NewBody::Deleted) };
        if source.is_none() {
            return Ok(NewBody::from(data));
        }
        let bytes = data.bytes(Access::Blocking)?.unwrap_or_default();
        let held = source.map(|tid| self.store.load_serial(oid, tid)).transpose()?.flatten();
        Ok(match (held, source) {
            (Some(held), Some(source)) if held == bytes => NewBody::SameAs(source),
            _ => NewBody::from(data),
        })
    }

    pub(crate) fn undo_records(
        &self,
        transaction: &Transaction,
        undoing: &mut Undoing<'_>,
    ) -> Result<UndoOutcome, VoteError> {
        if !transaction.has_undos() {
            return Ok(UndoOutcome::Records(Vec::new()));
        }
        let resolvable_classes = &self.config.resolvable_classes;
        Undos { history: self.undo_side()?, resolvable_classes }.records(transaction, undoing)
    }

    /// Frees the locks of a transaction whose check failed.
    fn free(&self, number: TransactionNumber) {
        self.commits.refuse(number, self.clock.monotonic()).post();
    }
}

/// Number of store conflicts before the first conflict that cannot be resolved.
///
/// They are resolved first, by the server or the client. As with the stock server, a transaction
/// with both kinds fails with the store conflict, if that cannot be resolved. Otherwise the next
/// vote finds the other conflicts again.
pub(crate) fn leading_stores(conflicts: &[Conflict]) -> usize {
    let is_store = |conflict: &&Conflict| conflict.kind == ConflictKind::Store;
    conflicts.iter().take_while(is_store).count()
}

/// Conflicts with the data of their stores; `None` when these are in a spool and access is
/// non-blocking.
///
/// # Errors
/// Also when there is no room for the data of all of them.
pub(crate) fn found_conflicts(
    transaction: &Transaction,
    conflicts: Vec<Conflict>,
    room: &mut ConflictRoom<'_>,
    access: Access,
) -> Result<Option<Vec<FoundConflict>>, VoteError> {
    let stores = transaction.stores();
    let mut found = Vec::with_capacity(conflicts.len());
    for conflict in conflicts {
        let has_room = room.take(stores.length(conflict.oid));
        let Some(data) = stores.data(conflict.oid, access)? else { return Ok(None) };
        let one = FoundConflict { conflict, data };
        if !has_room {
            return Err(VoteError::ManyConflicts { one });
        }
        found.push(one);
    }
    Ok(Some(found))
}
