//! Transactions that can be undone.

use zodium_storage::{Read, StorageError, Transaction, Undo, UndoneRecord};
use zodium_types::{Tid, TransactionStatus};

use super::SqlStorage;
use super::reading::{self, Packs};
use super::tids::Tids;
use crate::{SqlError, revisions};

impl SqlStorage {
    fn undone_records(&self, tid: Tid) -> Result<Vec<UndoneRecord>, SqlError> {
        let partitions = self.database.partitions();
        let refused = |reason| Err(SqlError::NotUndoable { tid, reason });
        if tid > self.last_tid() {
            return refused("there is no such transaction");
        }
        let view = self.views.open(&self.database)?;
        let row = view.read("read a transaction", |connection| {
            reading::transaction(connection, partitions, tid)
        })?;
        let packs = Packs::of(&view)?;
        let Some(row) = row else { return refused("there is no such transaction") };
        if packs.reach(&row) {
            return refused("it was packed");
        }
        let mut records = Vec::with_capacity(row.oids.len());
        for oid in row.oids {
            let partition = partitions.of_oid(oid);
            let (found, previous) = view.read("read a record", |connection| {
                let found = revisions::data_id(connection, partition, oid, tid)?;
                Ok((found, revisions::previous_serial(connection, partition, oid, tid)?))
            })?;
            if found.is_none() {
                return refused("it was packed");
            }
            records.push(UndoneRecord { oid, previous });
        }
        Ok(records)
    }
}

impl Undo for SqlStorage {
    fn records_to_undo(&self, tid: Tid) -> Result<Vec<UndoneRecord>, StorageError> {
        Ok(self.undone_records(tid)?)
    }

    fn undo_log(&self, accept: &mut dyn FnMut(&Transaction) -> bool) -> Result<(), StorageError> {
        let partitions = self.database.partitions();
        let view = self.views.open(&self.database)?;
        let packs = Packs::of(&view)?;
        let mut tids = Tids::new(partitions, (Tid::ZERO, self.last_tid()), true);
        while let Some(tid) = tids.peek(&view)? {
            tids.take(tid);
            let row = view.read("read a transaction", |connection| {
                reading::transaction(connection, partitions, tid)
            })?;
            let Some(row) = row else { continue };
            if packs.status(&row) != TransactionStatus::Normal || !accept(&packs.transaction(row)) {
                break;
            }
        }
        Ok(())
    }
}
