//! What can go wrong with a storage, by what the caller can do about it.

use std::error::Error;

use thiserror::Error;
use zodium_blobs::BlobError;
use zodium_disk::NoSpace;
use zodium_types::Tid;

/// The storage's own error: what failed, where, and what to do next.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why a call on a storage failed. The text is that of the cause.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StorageError {
    /// What is stored there is damaged. Other objects can still be read.
    #[error(transparent)]
    Corrupt(Cause),
    /// There is no room for the transaction; nothing was written.
    #[error("{cause}")]
    Full {
        /// Bytes that did not fit.
        bytes: u64,
        /// Where.
        #[source]
        cause: Cause,
    },
    /// The transaction would exceed the storage's quota; nothing was written.
    #[error("{cause}")]
    Quota {
        /// Bytes of the transaction.
        bytes: u64,
        /// Which quota.
        #[source]
        cause: Cause,
    },
    /// An earlier write failed. Nothing is committed until the storage was reopened.
    #[error(transparent)]
    Failed(Cause),
    /// Another program has changed what is stored. Nothing is committed until it is the same again.
    #[error(transparent)]
    Changed(Cause),
    /// The storage was opened for reading only.
    #[error(transparent)]
    ReadOnly(Cause),
    /// No transaction of that tid can be undone.
    #[error("transaction {tid} cannot be undone: {reason}")]
    NotUndoable {
        /// The transaction that was to be undone.
        tid: Tid,
        /// Why.
        reason: &'static str,
    },
    /// Another pack is under way.
    #[error(transparent)]
    AlreadyPacking(Cause),
    /// The pack was given up as requested; the storage is as it was.
    #[error(transparent)]
    PackCancelled(Cause),
    /// A blob is not there, or cannot be stored.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// This kind of storage, or this configuration of it, does not offer that.
    #[error("{what}")]
    Unsupported {
        /// What it does not offer, in a sentence.
        what: String,
    },
    /// The operating system, a database or a network refused an operation.
    #[error(transparent)]
    Io(Cause),
    /// The caller has stopped waiting.
    #[error("interrupted while waiting for the storage")]
    Interrupted,
    /// Anything else. A retry does not help.
    #[error(transparent)]
    Other(Cause),
}

impl NoSpace for StorageError {
    fn missing_bytes(&self) -> Option<u64> {
        match self {
            StorageError::Full { bytes, .. } | StorageError::Quota { bytes, .. } => Some(*bytes),
            StorageError::Blob(error) => error.missing_bytes(),
            _ => None,
        }
    }

    fn is_over_quota(&self) -> bool {
        matches!(self, StorageError::Quota { .. })
    }
}
