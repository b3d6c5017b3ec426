//! Transactions that can be undone.

use zodium_storage::{StorageError, Transaction, Undo, UndoneRecord};
use zodium_types::{Tid, TransactionStatus};

use crate::MemoryStorage;

impl Undo for MemoryStorage {
    fn records_to_undo(&self, tid: Tid) -> Result<Vec<UndoneRecord>, StorageError> {
        let state = self.state.read();
        let refused = |reason| Err(StorageError::NotUndoable { tid, reason });
        let Some(committed) = state.transactions.get(&tid) else {
            return refused("there is no such transaction");
        };
        match committed.status {
            TransactionStatus::Packed => return refused("it was packed"),
            TransactionStatus::Undone => return refused("it was undone"),
            TransactionStatus::Normal => {}
        }
        let mut records: Vec<UndoneRecord> = Vec::new();
        for (oid, _) in &committed.records {
            let revisions = state.objects.get(oid);
            let before = revisions.and_then(|revisions| revisions.range(..tid).next_back());
            let record = UndoneRecord { oid: *oid, previous: before.map(|(tid, _)| *tid) };
            // Of several records of one object only the last one counts.
            records.retain(|earlier| earlier.oid != *oid);
            records.push(record);
        }
        Ok(records)
    }

    fn undo_log(&self, accept: &mut dyn FnMut(&Transaction) -> bool) -> Result<(), StorageError> {
        let transactions: Vec<_> = self.state.read().transactions.values().cloned().collect();
        for committed in transactions.iter().rev() {
            match committed.status {
                TransactionStatus::Normal if accept(&committed.transaction()) => {}
                TransactionStatus::Undone => {}
                TransactionStatus::Normal | TransactionStatus::Packed => break,
            }
        }
        Ok(())
    }
}
