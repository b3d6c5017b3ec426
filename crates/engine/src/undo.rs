//! The records that a transaction's undos write, and which party merges them with later changes.
//!
//! Key decision: an undo that neither the storage nor the resolver can merge goes to the client. It
//! looks as if the client had stored the older data over the revision to undo. A stock client
//! merges that with the current revision, stores the result, and votes again. The client is asked
//! only for classes known to have a merge. For others the vote fails with an undo error, not with
//! the error of a store that can be tried again.

use rustc_hash::{FxHashMap, FxHashSet};
use zodium_storage::{NewRecord, StorageError, Undo};
use zodium_types::Oid;

use crate::commit::{Conflict, ConflictKind};
use crate::transaction::{Transaction, WriteBody};
use crate::undoing::{UndoConflict, Undoing, Undone};
use crate::{FoundConflict, VoteError};

/// The outcome of a transaction's undos.
pub(crate) enum UndoOutcome {
    /// These records are written, each object once.
    Records(Vec<NewRecord>),
    /// The client must merge these conflicts first.
    ForClient(Vec<FoundConflict>),
}

/// Undoes what a transaction asks for.
pub(crate) struct Undos<'d> {
    /// The history.
    pub(crate) history: &'d dyn Undo,
    /// Classes whose undos go to the client that cannot be merged here.
    pub(crate) resolvable_classes: &'d [String],
}

impl Undos<'_> {
    /// The records that the undos write. The caller must hold the locks.
    ///
    /// # Errors
    /// When neither the server nor the client can undo some of the records.
    pub(crate) fn records(
        &self,
        transaction: &Transaction,
        undoing: &mut Undoing<'_>,
    ) -> Result<UndoOutcome, VoteError> {
        // A store of an undone object is the client's answer: its merge for the undo's conflict.
        let stored = stored_objects(transaction);
        let mut records: Vec<NewRecord> = Vec::new();
        // If several undos concern one object, only the result of the last one is written.
        let mut places = FxHashMap::default();
        let mut refused = FxHashSet::default();
        let all = self.undone_records(transaction)?;
        for undone in all.iter().filter(|undone| !stored.contains(&undone.record.oid)) {
            let oid = undone.record.oid;
            let Some(body) = undoing.undo(*undone)? else {
                refused.insert(oid);
                continue;
            };
            let place = *places.entry(oid).or_insert(records.len());
            match records.get_mut(place) {
                Some(earlier) => earlier.body = body,
                None => records.push(NewRecord { oid, body }),
            }
        }
        if refused.is_empty() {
            return Ok(UndoOutcome::Records(records));
        }
        self.undone_by_client(&all, &refused, undoing)
    }

    /// The current records that a transaction undoes. A pack may have made some unreachable since
    /// the transaction asked for its locks.
    fn undone_records(&self, transaction: &Transaction) -> Result<Vec<Undone>, StorageError> {
        let mut undone = Vec::new();
        for undo in &transaction.undos {
            let records = self.history.records_to_undo(undo.tid)?.into_iter();
            undone.extend(records.map(|record| Undone { tid: undo.tid, record }));
        }
        Ok(undone)
    }

    fn undone_by_client(
        &self,
        undone: &[Undone],
        refused: &FxHashSet<Oid>,
        undoing: &mut Undoing<'_>,
    ) -> Result<UndoOutcome, VoteError> {
        let mut records: Vec<Undone> = undone.to_vec();
        records.retain(|undone| refused.contains(&undone.record.oid));
        records.sort_by_key(|undone| undone.record.oid);
        let mut found = Vec::with_capacity(refused.len());
        let mut hopeless = Vec::new();
        for of_object in records.chunk_by(|one, other| one.record.oid == other.record.oid) {
            match self.conflict_for_client(of_object.to_vec(), undoing)? {
                Some(conflict) => found.push(conflict),
                None => hopeless.extend(of_object.first().map(|undone| undone.record.oid)),
            }
        }
        match hopeless.is_empty() {
            true => Ok(UndoOutcome::ForClient(found)),
            false => Err(VoteError::UndoConflict { oids: hopeless }),
        }
    }

    fn conflict_for_client(
        &self,
        records: Vec<Undone>,
        undoing: &mut Undoing<'_>,
    ) -> Result<Option<FoundConflict>, StorageError> {
        if self.resolvable_classes.is_empty() {
            return Ok(None);
        }
        let Some(conflict) = undoing.conflict(records)? else { return Ok(None) };
        let UndoConflict { oid, committed, undone, before, class } = conflict;
        let is_known = self.resolvable_classes.iter().any(|known| *known == class || known == "*");
        let conflict = Conflict { oid, committed, sent: undone, kind: ConflictKind::Undo };
        Ok(is_known.then_some(FoundConflict { conflict, data: before }))
    }
}

fn stored_objects(transaction: &Transaction) -> FxHashSet<Oid> {
    let stores = transaction.writes.iter();
    let stores = stores.filter(|write| matches!(write.body, WriteBody::Store(_)));
    stores.map(|write| write.oid).collect()
}
