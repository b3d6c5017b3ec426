//! Writing a storage: a transaction is prepared at its vote, and committed at its finish.

use std::any::Any;
use std::fmt;
use std::ops::RangeInclusive;
use std::task::Poll;
use std::time::Duration;

use zodium_blobs::BlobDirectory;
use zodium_types::{Distribution, Oid, Tid};

use crate::{Access, Follow, NewTransaction, Pack, Read, Shared, Spool, StorageError, Undo};

/// Whether a storage takes commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteState {
    /// It does.
    Writable,
    /// It was opened for reading only.
    ReadOnly,
    /// There was no space for the last transaction that asked for some. (Clients may stop asking
    /// because of this answer: whether it still holds is not known after a while.)
    Full {
        /// How long ago that was.
        ago: Duration,
    },
    /// A write failed; nothing is committed until the storage was reopened.
    Failed,
    /// Another program has changed what is stored; nothing is committed until it is the same
    /// again.
    Changed,
}

/// A transaction that a storage has prepared. Only the storage that gave it knows what is inside.
/// It must be given to [`Write::commit`] or [`Write::abort`].
pub struct Prepared(Box<dyn Any + Send>);

impl Prepared {
    /// For the storage that prepares it.
    pub fn new<T: Any + Send>(inside: T) -> Prepared {
        Prepared(Box::new(inside))
    }

    /// What [`Prepared::new`] was given.
    ///
    /// # Errors
    /// [`StorageError::Other`] when another kind of storage has prepared it.
    pub fn into_inner<T: Any + Send>(self) -> Result<T, StorageError> {
        match self.0.downcast() {
            Ok(inside) => Ok(*inside),
            Err(_) => Err(StorageError::Other("prepared by another kind of storage".into())),
        }
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prepared")
    }
}

/// A transaction that is durable, and visible to every read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its tid.
    pub tid: Tid,
    /// The objects that have a new revision, each once, in the order of their records.
    pub oids: Vec<Oid>,
}

/// The write side of a storage.
pub trait Write: Read {
    /// Hands out `count` oids never used before, ascending; `None` when no more are left.
    fn new_oids(&self, count: u64) -> Option<RangeInclusive<u64>>;

    /// Whether it takes commits.
    fn write_state(&self) -> WriteState;

    /// How long it took to sync each batch of commits.
    fn sync_durations(&self) -> Distribution;

    /// An empty spool, for a transaction that is too large for memory. Blocking.
    fn new_spool(&self) -> Result<Spool, StorageError>;

    /// Makes sure that the transaction can be committed: after this only a lost device can stop
    /// it. [`Poll::Pending`] when that may wait for a device, and access is non-blocking.
    ///
    /// The caller holds the objects of the transaction: until it is committed or aborted, no
    /// other transaction that writes one of them is prepared.
    ///
    /// # Errors
    /// `Full`, `Quota`, `ReadOnly`, `Failed`, `Changed`; `NotUndoable` when a record is
    /// [`SameAs`](crate::NewBody::SameAs) one that a pack has dropped, and `Corrupt` when that one
    /// is damaged.
    fn prepare(
        &self,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Poll<Prepared>, StorageError>;

    /// Commits a batch: when this returns, all of its transactions are durable and visible, in
    /// this order, which is that of their tids. No two of them write the same object. Blocking; by
    /// one thread at a time.
    ///
    /// # Errors
    /// None of them counts then, and every later call fails until the storage was
    /// [reopened](Write::reopen).
    fn commit(&self, batch: Vec<(Tid, Prepared)>) -> Result<Vec<Committed>, StorageError>;

    /// Gives up a transaction that was prepared.
    fn abort(&self, prepared: Prepared);

    /// Takes commits again after a failure, with all acknowledged transactions and nothing else.
    /// Blocking.
    fn reopen(&self) -> Result<(), StorageError>;

    /// Ends the use of the storage in order. It can still be read. Blocking.
    fn close(&self) -> Result<(), StorageError>;
}

/// A kind of storage, with what it offers besides.
pub trait Storage: Write {
    /// Undo, if it has a history.
    fn undo(&self) -> Option<&dyn Undo> {
        None
    }

    /// Packing, if anything can be freed.
    fn packing(&self) -> Option<&dyn Pack> {
        None
    }

    /// The commits of others, if others may write to it. Only where it was opened for reading, or
    /// is [shared](Storage::shared).
    fn following(&self) -> Option<&dyn Follow> {
        None
    }

    /// Commits, if it decides about them itself.
    fn shared(&self) -> Option<&dyn Shared> {
        None
    }

    /// Its blobs, if it has any.
    fn blobs(&self) -> Option<&BlobDirectory> {
        None
    }
}
