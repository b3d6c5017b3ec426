//! The undo trait of the seam.

use zodium_storage::{StorageError, Transaction, Undo, UndoneRecord};
use zodium_types::Tid;

use crate::FileStorage;

impl Undo for FileStorage {
    fn records_to_undo(&self, tid: Tid) -> Result<Vec<UndoneRecord>, StorageError> {
        Ok(self.reader.records_to_undo(tid)?)
    }

    fn undo_log(&self, accept: &mut dyn FnMut(&Transaction) -> bool) -> Result<(), StorageError> {
        Ok(self.reader.undo_log(accept)?)
    }
}
