//! The errors of a vote.

use std::time::Duration;

use thiserror::Error;
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

use crate::commit::CommitError;

/// Why a vote failed; the transaction is over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VoteError {
    /// The state machine refused it.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The storage refused it: full, failed, read-only, damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Later transactions changed what was to be undone.
    #[error("{} objects were modified by later transactions and cannot be undone", oids.len())]
    UndoConflict {
        /// The objects.
        oids: Vec<Oid>,
    },
    /// A transaction brought an id of the far future: all later ones would have to be later still.
    #[error(
        "transaction id {tid} is {} s ahead of the server's clock, {} s are accepted; check both \
         clocks", ahead.as_secs(), ahead_max.as_secs()
    )]
    TidAhead {
        /// The id.
        tid: Tid,
        /// By so much it is ahead.
        ahead: Duration,
        /// So much is accepted, more of a copied transaction.
        ahead_max: Duration,
    },
    /// An object has an oid that would leave too few larger ones for new objects.
    #[error(
        "object {oid}: the oid of a new object may be {limit} at most; take one that the server \
         gives (new_oids)"
    )]
    OidTooLarge {
        /// The object.
        oid: Oid,
        /// The largest oid that is accepted.
        limit: Oid,
    },
    /// A record without a byte cannot be told from a back pointer in the file.
    #[error("the data stored for object {oid} are empty")]
    EmptyData {
        /// The object.
        oid: Oid,
    },
}
