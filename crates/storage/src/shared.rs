//! Storages that other programs write to as well, and that decide about commits themselves.
//!
//! Key decision: such a storage gives tids and finds conflicts, since only it knows what others
//! commit. Its own commits and those of others are one sequence, in the order of tids.

use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::{Committed, Follow, NewBody, Prepared, StorageError};

/// Is called with the outcome of a finish.
pub type Finished = Box<dyn FnOnce(Result<Committed, StorageError>) + Send>;

/// A write of a transaction, with the revision that the writer saw.
#[derive(Clone, Debug)]
pub struct SharedWrite {
    /// The object.
    pub oid: Oid,
    /// The revision that must be current; [`Tid::ZERO`] for a new object.
    pub serial: Tid,
    /// What becomes of it.
    pub body: NewBody,
}

/// An object that another transaction has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedConflict {
    /// The object.
    pub oid: Oid,
    /// The revision that is current.
    pub committed: Tid,
}

/// A storage that decides which transactions conflict, and in which order they are committed.
///
/// Such a storage is not asked to [prepare](crate::Write::prepare) or
/// [commit](crate::Write::commit).
pub trait Shared: Follow {
    /// Begins a transaction. Blocking.
    ///
    /// # Errors
    /// `ReadOnly`, and `Io` when the storage cannot be reached in time.
    fn begin(
        &self,
        metadata: &TransactionMetadata,
    ) -> Result<Box<dyn SharedTransaction>, StorageError>;

    /// Begins a transaction that brings its tid. Blocking.
    ///
    /// # Errors
    /// As [`Shared::begin`]; when the tid is not newer than all others, or another transaction is
    /// open; `Unsupported` where tids are always given.
    fn begin_copy(
        &self,
        metadata: &TransactionMetadata,
        tid: Tid,
    ) -> Result<Box<dyn SharedTransaction>, StorageError> {
        let _ = (metadata, tid);
        let what = "the storage gives tids itself, and does not take copied transactions";
        Err(StorageError::Unsupported { what: what.to_owned() })
    }

    /// Commits a prepared transaction. Does not wait: `done` is called with the outcome, in the
    /// order of tids among all calls of [`Follower::committed`](crate::Follower::committed). Reads
    /// see the transaction by then.
    ///
    /// The outcome may take long, when the connection is lost after the request was sent.
    fn finish(&self, prepared: Prepared, done: Finished);
}

/// A transaction before its vote. It is aborted when it is dropped.
pub trait SharedTransaction: Send {
    /// Stores objects, and checks that others that were only read are still current. Gives the
    /// objects for which neither is so: they can be stored again with the serial that is current.
    /// Blocking: it may wait for transactions of other programs.
    ///
    /// # Errors
    /// The transaction cannot be committed then.
    fn store(
        &mut self,
        writes: &[SharedWrite],
        reads: &[(Oid, Tid)],
    ) -> Result<Vec<SharedConflict>, StorageError>;

    /// Votes the transaction: what was stored is durable then, and only a lost device can stop
    /// the commit. Blocking.
    ///
    /// # Errors
    /// The transaction is aborted then.
    fn vote(self: Box<Self>) -> Result<Prepared, StorageError>;
}
