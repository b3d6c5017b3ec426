//! Committed transactions, their records, and places among them.

use std::ops::ControlFlow;

use bytes::Bytes;
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::StorageError;

/// A committed transaction without its records.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its tid.
    pub tid: Tid,
    /// Its status.
    pub status: TransactionStatus,
    /// User, description, extension.
    pub metadata: TransactionMetadata,
    /// Bytes that it takes in the storage; 0 if the storage does not know.
    pub length: u64,
}

/// A record as a cursor gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRecord {
    /// The object.
    pub oid: Oid,
    /// The transaction.
    pub tid: Tid,
    /// Its data, `None` for a deletion.
    pub data: Option<Bytes>,
    /// The transaction whose record this one points back to.
    pub data_tid: Option<Tid>,
}

/// One line of an object's history.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    /// Bytes of data in the record itself; 0 for a back pointer.
    pub size: u64,
    /// The transaction that wrote it.
    pub transaction: Transaction,
}

/// One step of a walk over all current objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStep {
    /// The object.
    pub oid: Oid,
    /// Its current serial.
    pub serial: Tid,
    /// Its data, `None` when deleted.
    pub data: Option<Bytes>,
    /// The next object in oid order.
    pub following: Option<Oid>,
}

/// What stands in a storage, in the order of tids: a transaction, then each of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogItem<'a> {
    /// A transaction begins.
    Transaction {
        /// Its tid.
        tid: Tid,
        /// Its status.
        status: TransactionStatus,
        /// The user that committed it.
        user: &'a [u8],
        /// The user's description of it.
        description: &'a [u8],
        /// A pickle of a dict, or nothing.
        extension: &'a [u8],
    },
    /// A record of that transaction.
    Record {
        /// The object.
        oid: Oid,
        /// Its data, `None` for a deletion.
        data: Option<&'a [u8]>,
        /// The transaction whose record this one points back to.
        data_tid: Option<Tid>,
    },
    /// The records of the transaction that come here are passed over.
    Skipped,
}

/// A place among the transactions of a storage as it was when the cursor was made. Later commits
/// do not disturb it, nor do packs, within limits that the storage names in its error.
pub trait TransactionCursor: Send {
    /// The next transaction; `None` at the end.
    fn step(&mut self) -> Result<Option<Transaction>, StorageError>;

    /// The records of the transaction that [`TransactionCursor::step`] gave last; `None` when it
    /// gave none.
    fn records(&self) -> Option<Box<dyn RecordCursor>>;

    /// Goes on from here, and shows each item until `visit` breaks; whether the end is reached.
    /// Without `with_records` no further record is shown. After an error the cursor is still
    /// before what cannot be read.
    fn read(
        &mut self,
        with_records: bool,
        visit: &mut dyn FnMut(LogItem<'_>) -> ControlFlow<()>,
    ) -> Result<bool, StorageError>;
}

/// A place among the records of one transaction.
pub trait RecordCursor: Send {
    /// The next record of the transaction; `None` after the last.
    fn step(&mut self) -> Result<Option<TransactionRecord>, StorageError>;
}
