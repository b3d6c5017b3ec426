//! Objects of a transaction in progress: stores, checks, locks, undo.

use zodium_types::{Oid, Tid};

use crate::values::Checksum;
use crate::wire::{Map, record};

record! {
    /// Stores an object in a transaction, and locks it. C to S.
    ///
    /// A deletion has no data, [`Checksum::ZERO`] and no `data_serial`.
    pub struct AskStoreObject<'a> {
        /// The object.
        oid: Oid,
        /// The serial that the client read; [`Tid::ZERO`] for a new object.
        serial: Tid,
        /// How the data are compressed: 0 not, 1 with zlib.
        compression: u8,
        /// The SHA-1 of the data as they are here.
        checksum: Checksum,
        /// The data, compressed.
        data: &'a [u8],
        /// Of an undo: the transaction that has the same data.
        data_serial: Option<Tid>,
        /// The transaction.
        ttid: Option<Tid>,
    }

    /// The outcome of a store.
    pub struct AnswerStoreObject {
        /// `None`: stored and locked. [`Tid::ZERO`]: stored without a lock, by a replicating cell.
        /// Others: nothing is stored, and the object is of this transaction now.
        conflict: Option<Tid>,
    }

    /// Checks that an object is still of a serial, and locks it. C to S.
    pub struct AskCheckCurrentSerial {
        /// The transaction.
        ttid: Tid,
        /// The object.
        oid: Oid,
        /// The serial that the client read.
        serial: Tid,
    }

    /// The outcome of a check.
    pub struct AnswerCheckCurrentSerial {
        /// As in [`AnswerStoreObject`].
        conflict: Option<Tid>,
    }

    /// An older transaction waits for the lock of this one. S to C.
    pub struct NotifyDeadlock {
        /// The transaction with the lock.
        ttid: Tid,
        /// The locked object.
        oid: Oid,
    }

    /// Gives the lock of an object back, and asks for it again. C to S.
    pub struct AskRelockObject {
        /// The transaction.
        ttid: Tid,
        /// The object.
        oid: Oid,
    }

    /// The object is locked again.
    pub struct AnswerRelockObject<'a> {
        /// A commit that the client must resolve before it stores again.
        conflict: Option<RelockConflict<'a>>,
    }

    /// A commit while a transaction had given its lock back.
    pub struct RelockConflict<'a> {
        /// The serial that the client had read.
        serial: Tid,
        /// The transaction that the object is of now.
        conflict: Tid,
        /// What the client had stored; `None` for a deletion or a check.
        stored: Option<StoredData<'a>>,
    }

    /// Data that a client had stored.
    pub struct StoredData<'a> {
        /// How the data are compressed: 0 not, 1 with zlib.
        compression: u8,
        /// The SHA-1 of the data as they are here.
        checksum: Checksum,
        /// The data, compressed.
        data: &'a [u8],
    }

    /// Asks what an undo has to store. C to S.
    pub struct AskObjectUndoSerial {
        /// The transaction that undoes.
        ttid: Tid,
        /// Transactions from this one on are not visible to it.
        end_tid: Tid,
        /// The transaction to undo.
        undone_tid: Tid,
        /// The objects.
        oids: Vec<Oid>,
    }

    /// What an undo has to store.
    pub struct AnswerObjectUndoSerial {
        /// By object.
        serials: Map<Oid, UndoSerial>,
    }

    /// The serials of an object before and after an undo.
    #[derive(Copy, Eq)]
    pub struct UndoSerial {
        /// The last serial that the undoing transaction sees.
        current_serial: Tid,
        /// The serial that has the data from before the undone transaction; `None` if the object
        /// did not exist.
        undo_serial: Option<Tid>,
        /// Whether the data of `current_serial` are those that the undone transaction wrote.
        is_current: bool,
    }
}
