//! The errors of a vote.

use std::time::Duration;

use thiserror::Error;
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

use crate::FoundConflict;
use crate::commit::CommitError;

/// Why a vote failed; the transaction is over.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VoteError {
    /// The commit machine refused the vote.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The storage refused the transaction: full, failed, read-only, damaged.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Later transactions changed objects that were to be undone.
    #[error("{} objects were modified by later transactions and cannot be undone", oids.len())]
    UndoConflict {
        /// The objects.
        oids: Vec<Oid>,
    },
    /// There is no memory for the data of all conflicts, which the client or the server would have
    /// to resolve.
    #[error(
        "object {} was changed by another transaction, and there are too many such conflicts to \
         resolve them; commit in smaller transactions", one.conflict.oid
    )]
    ManyConflicts {
        /// One of them.
        one: FoundConflict,
    },
    /// The transaction's id is too far ahead: all later ids would have to be later still.
    #[error(
        "transaction id {tid} is {} s ahead of the server's clock, {} s are accepted; check both \
         clocks", ahead.as_secs(), ahead_max.as_secs()
    )]
    TidAhead {
        /// The id that the transaction brought.
        tid: Tid,
        /// How far it is ahead of the server's clock.
        ahead: Duration,
        /// The limit; larger for copied transactions.
        ahead_max: Duration,
    },
    /// An oid is so large that too few larger ones would be left for new objects.
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
    /// The server beside this one, whose data were to change with the transaction, refused it.
    #[error("{reason}")]
    Companion {
        /// Why.
        reason: String,
    },
    /// The data are empty: in the file, such a record could not be told from a back pointer.
    #[error("the data stored for object {oid} are empty")]
    EmptyData {
        /// The object.
        oid: Oid,
    },
}
