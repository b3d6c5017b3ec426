//! Transactions that can be undone.

use zodium_types::{Oid, Tid};

use crate::{StorageError, Transaction};

/// A record to be undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoneRecord {
    /// The object.
    pub oid: Oid,
    /// The transaction that wrote the object's record before this one; `None` when this one was the
    /// first.
    pub previous: Option<Tid>,
}

/// A storage with a history whose transactions can be undone.
pub trait Undo: Send + Sync {
    /// The records of transaction `tid`, of each object the last one. Blocking.
    ///
    /// # Errors
    /// [`StorageError::NotUndoable`] when there is no such transaction, or it was packed or undone.
    fn records_to_undo(&self, tid: Tid) -> Result<Vec<UndoneRecord>, StorageError>;

    /// Shows the transactions that can be undone, newest first, as long as `accept` returns true.
    /// Blocking.
    fn undo_log(&self, accept: &mut dyn FnMut(&Transaction) -> bool) -> Result<(), StorageError>;
}
