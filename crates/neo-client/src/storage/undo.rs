//! Transactions that can be undone.

use zodium_storage::{Read, StorageError, Transaction, Undo, UndoneRecord};
use zodium_types::{Tid, TransactionStatus};

use super::NeoStorage;
use super::cursor::transaction;
use super::tids::Tids;
use crate::reads::Loaded;

impl Undo for NeoStorage {
    fn records_to_undo(&self, tid: Tid) -> Result<Vec<UndoneRecord>, StorageError> {
        let refused = |reason| Err(StorageError::NotUndoable { tid, reason });
        let reads = self.reads();
        let found = if tid > self.last_tid() { None } else { reads.transaction(tid)? };
        let Some(found) = found else { return refused("there is no such transaction") };
        if found.is_packed {
            return refused("it was packed");
        }
        let mut records = Vec::with_capacity(found.oids.len());
        for oid in found.oids {
            let Loaded::Found(_) = reads.load(oid, Some(tid), None)? else {
                return refused("it was packed");
            };
            let previous = match reads.load(oid, None, Some(tid))? {
                Loaded::Found(record) => Some(record.serial),
                Loaded::NotThen | Loaded::Never => None,
            };
            records.push(UndoneRecord { oid, previous });
        }
        Ok(records)
    }

    fn undo_log(&self, accept: &mut dyn FnMut(&Transaction) -> bool) -> Result<(), StorageError> {
        let reads = self.reads();
        let mut tids = Tids::new(&reads, (Tid::ZERO, self.last_tid()), true)?;
        while let Some(tid) = tids.peek(&reads)? {
            tids.take(tid);
            let Some(found) = reads.transaction(tid)? else { continue };
            let found = transaction(tid, found);
            if found.status != TransactionStatus::Normal || !accept(&found) {
                break;
            }
        }
        Ok(())
    }
}
