//! Commits to a storage that other programs write to as well, and that decides about them.
//!
//! Key decision: the locks of this server stay. They put its own clients in an order before they
//! meet those of others, so that two of them never wait for each other in the storage. The storage
//! finds conflicts, and gives tids; it tells of all commits in one sequence, and those of this
//! server are told to its clients in it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use zodium_storage::{
    Access, Committed, NewBody, Shared, SharedConflict, SharedTransaction, SharedWrite,
    StorageError,
};
use zodium_types::{Oid, Tid};

use crate::commit::{CommitError, Conflict, ConflictKind, TransactionNumber, WriteKind};
use crate::conflict_room::ConflictRoom;
use crate::notice::{Commit, Commits, Notice};
use crate::resolve::{ConflictResolution, Resolved};
use crate::transaction::{Transaction, Voted, WriteBody};
use crate::undo::UndoOutcome;
use crate::undoing::Undoing;
use crate::vote::{found_conflicts, leading_stores};
use crate::{Check, Database, FoundConflict, FoundConflicts, VoteError};

/// A transaction gives up after so many times that others changed what it had resolved.
const ROUNDS_MAX: usize = 10;

/// How an object of a transaction is used.
#[derive(Clone, Copy)]
struct Used {
    /// The revision that the client saw.
    sent: Tid,
    kind: ConflictKind,
}

impl Database {
    /// As the check of other storages: has the storage store a transaction, and vote it.
    pub(crate) fn check_shared(
        &self,
        shared: &dyn Shared,
        number: TransactionNumber,
        transaction: &Transaction,
        access: Access,
    ) -> Result<Check, VoteError> {
        if access == Access::NonBlocking {
            return Ok(Check::WouldBlock);
        }
        if let Some(what) = not_offered(transaction) {
            let what = format!("{}: {what}", self.store.name());
            return Err(StorageError::Unsupported { what }.into());
        }
        let mut undoing =
            Undoing::new(self.reader(), self.config.resolver.clone(), transaction.conflict_room());
        let undone = match self.undone_writes(transaction, &mut undoing)? {
            Ok(undone) => undone,
            Err(for_client) => {
                let found = FoundConflicts::new(for_client, undoing.into_room());
                return Ok(Check::Conflicts(found));
            }
        };
        let undone_resolved = undoing.resolved();
        let mut room = undoing.into_room();
        let mut changed: Vec<Oid> = undone.iter().map(|write| write.oid).collect();
        let mut used = used_objects(transaction);
        let undo = |write: &SharedWrite| Used { sent: write.serial, kind: ConflictKind::Undo };
        used.extend(undone.iter().map(|write| (write.oid, undo(write))));
        let mut writes = self.shared_writes(transaction)?;
        writes.extend(undone);
        let mut reads = reads_beside(transaction, &writes);
        let mut open = match transaction.explicit_tid {
            Some(tid) => shared.begin_copy(&transaction.metadata, tid)?,
            None => shared.begin(&transaction.metadata)?,
        };
        let mut resolved = Resolved::default();
        for _ in 0..ROUNDS_MAX {
            let conflicts = open.store(&writes, &reads)?;
            if conflicts.is_empty() {
                changed.extend(resolved.data.keys());
                let resolved = resolved.data.len() + undone_resolved;
                return self.vote_shared(number, open, changed, resolved);
            }
            let found = conflicts.iter().filter_map(|one| conflict(one, &used)).collect();
            match self.resolve_shared(transaction, found, &mut room)? {
                Ok(merged) => {
                    writes = merged_writes(&merged, &conflicts);
                    resolved.data.extend(merged.data);
                    reads.clear();
                }
                Err(left) => return Ok(Check::Conflicts(FoundConflicts::new(left, room))),
            }
        }
        let what = "other clients of the storage changed the same objects again and again";
        Err(StorageError::Io(what.into()).into())
    }

    fn vote_shared(
        &self,
        number: TransactionNumber,
        open: Box<dyn SharedTransaction>,
        changed: Vec<Oid>,
        resolved: usize,
    ) -> Result<Check, VoteError> {
        let prepared = open.vote()?;
        // It may have been aborted meanwhile.
        if let Err(error) = self.commits.machine().voted(number, self.clock.monotonic()) {
            self.store.abort(prepared);
            return Err(error.into());
        }
        Ok(Check::Voted(Voted {
            prepared,
            blobs: None,
            changed,
            resolved,
            claim: None,
            _merged: None,
        }))
    }

    /// Resolves conflicts; otherwise those for the client. The storage's locks are given up
    /// then: a client may take its time.
    fn resolve_shared(
        &self,
        transaction: &Transaction,
        mut conflicts: Vec<Conflict>,
        room: &mut ConflictRoom<'_>,
    ) -> Result<Result<Resolved, Vec<FoundConflict>>, VoteError> {
        // As in the check of other storages: stores come first.
        conflicts.sort_by_key(|conflict| (conflict.kind != ConflictKind::Store, conflict.oid));
        let unresolvable = conflicts.split_off(leading_stores(&conflicts));
        let resolver = self.config.resolver.as_deref();
        let resolution = ConflictResolution { store: self.reader(), resolver };
        let tried = resolution.resolve(transaction, conflicts, room, Access::Blocking)?;
        let (resolved, mut left) = tried.unwrap_or_default();
        if left.is_empty() {
            left = unresolvable;
        }
        if left.is_empty() {
            return Ok(Ok(resolved));
        }
        if left.iter().any(|conflict| conflict.kind == ConflictKind::Undo) {
            let oids = left.iter().map(|conflict| conflict.oid).collect();
            return Err(VoteError::UndoConflict { oids });
        }
        let found = found_conflicts(transaction, left, room, Access::Blocking)?;
        Ok(Err(found.unwrap_or_default()))
    }

    /// The writes of the client.
    fn shared_writes(&self, transaction: &Transaction) -> Result<Vec<SharedWrite>, VoteError> {
        let mut serials: FxHashMap<Oid, Tid> = FxHashMap::default();
        for write in &transaction.writes {
            let serial = match write.body {
                // A copied record is not checked: it comes with its own serial.
                WriteBody::Restore { .. } => {
                    self.store.current_serial(write.oid)?.unwrap_or(Tid::ZERO)
                }
                WriteBody::Store(_) | WriteBody::Delete => write.serial,
            };
            serials.insert(write.oid, serial);
        }
        let records = self.new_records(transaction, &Resolved::default())?;
        // Of several records of an object only the last one is kept.
        let mut places = FxHashMap::default();
        let mut writes: Vec<SharedWrite> = Vec::with_capacity(records.len());
        for record in records {
            let serial = serials.get(&record.oid).copied().unwrap_or(Tid::ZERO);
            let write = SharedWrite { oid: record.oid, serial, body: record.body };
            match places.get(&write.oid).and_then(|place: &usize| writes.get_mut(*place)) {
                Some(earlier) => *earlier = write,
                None => {
                    places.insert(write.oid, writes.len());
                    writes.push(write);
                }
            }
        }
        Ok(writes)
    }

    /// The writes of the undos, over the revisions that they were computed from; otherwise the
    /// conflicts for the client.
    fn undone_writes(
        &self,
        transaction: &Transaction,
        undoing: &mut Undoing<'_>,
    ) -> Result<Result<Vec<SharedWrite>, Vec<FoundConflict>>, VoteError> {
        let mut serials = FxHashMap::default();
        for oid in transaction.undone_oids() {
            serials.insert(oid, self.store.current_serial(oid)?.unwrap_or(Tid::ZERO));
        }
        Ok(match self.undo_records(transaction, undoing)? {
            UndoOutcome::Records(records) => {
                let write = |record: zodium_storage::NewRecord| SharedWrite {
                    serial: serials.get(&record.oid).copied().unwrap_or(Tid::ZERO),
                    oid: record.oid,
                    body: record.body,
                };
                Ok(records.into_iter().map(write).collect())
            }
            UndoOutcome::ForClient(found) => Err(found),
        })
    }

    /// Has the storage commit a voted transaction.
    pub(crate) fn pass_on(
        &self,
        shared: &dyn Shared,
        number: TransactionNumber,
        voted: Voted,
    ) -> Result<(), CommitError> {
        let passed = match self.commits.is_stopping() {
            true => Err(CommitError::StorageClosed),
            false => self.commits.machine().pass_on(number),
        };
        if let Err(error) = passed {
            self.abort(number, Some(voted));
            return Err(error);
        }
        let (this, claim) = (self.this.clone(), voted.claim);
        let done = Box::new(move |outcome| {
            if let Some(database) = this.upgrade() {
                database.settle(number, outcome);
            }
            drop(claim);
        });
        shared.finish(voted.prepared, done);
        Ok(())
    }

    /// Takes the outcome of a finish. In the order of tids, with the commits of others.
    fn settle(&self, number: TransactionNumber, outcome: Result<Committed, StorageError>) {
        let tid = match &outcome {
            Ok(Committed { tid, oids }) => {
                let (tid, oids) = (*tid, oids.clone());
                let commits: Commits = [Arc::new(Commit { tid, oids, number })].into();
                self.subscribers.announce(&commits);
                Some(tid)
            }
            Err(_) => None,
        };
        let (owner, granted) = self.commits.settled(number, tid, self.clock.monotonic());
        if let (Err(error), Some(owner)) = (outcome, owner) {
            let file = self.store.name();
            tracing::error!(%file, %error, "a transaction that was being finished failed");
            owner.post(Notice::Failed(number, Arc::new(error)));
        }
        granted.post();
    }
}

/// What such a storage cannot do, if the transaction asks for it.
fn not_offered(transaction: &Transaction) -> Option<&'static str> {
    transaction.has_blobs().then_some("this kind of storage has no blobs")
}

/// How each object is used, for the conflicts that are found.
fn used_objects(transaction: &Transaction) -> FxHashMap<Oid, Used> {
    let reads = transaction.reads.iter();
    let mut used: FxHashMap<Oid, Used> = reads
        .map(|read| (read.oid, Used { sent: read.serial, kind: ConflictKind::Read }))
        .collect();
    for write in transaction.object_writes() {
        let kind = match write.kind {
            WriteKind::Delete => ConflictKind::Delete,
            WriteKind::Store | WriteKind::Restore => ConflictKind::Store,
        };
        used.insert(write.oid, Used { sent: write.serial, kind });
    }
    used
}

/// The reads to check beside the writes: a write checks the revision that its client saw.
fn reads_beside(transaction: &Transaction, writes: &[SharedWrite]) -> Vec<(Oid, Tid)> {
    let written: FxHashMap<Oid, Tid> =
        writes.iter().map(|write| (write.oid, write.serial)).collect();
    let reads = transaction.reads.iter().map(|read| (read.oid, read.serial));
    reads.filter(|(oid, serial)| written.get(oid) != Some(serial)).collect()
}

fn conflict(found: &SharedConflict, used: &FxHashMap<Oid, Used>) -> Option<Conflict> {
    let SharedConflict { oid, committed } = *found;
    let Used { sent, kind } = *used.get(&oid)?;
    Some(Conflict { oid, committed, sent, kind })
}

/// The writes of what was resolved, over the revisions that are current.
fn merged_writes(resolved: &Resolved, conflicts: &[SharedConflict]) -> Vec<SharedWrite> {
    let write = |conflict: &SharedConflict| {
        let SharedConflict { oid, committed } = *conflict;
        let body = NewBody::Data(resolved.data.get(&oid)?.clone());
        Some(SharedWrite { oid, serial: committed, body })
    };
    conflicts.iter().filter_map(write).collect()
}
