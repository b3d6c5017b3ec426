//! Errors of the client: which node, what failed, and what to do next.

use std::sync::Arc;

use thiserror::Error;
use zodium_neo::{ErrorCode, OBJECT_BYTES_MAX, Partition, TooLong};
use zodium_storage::StorageError;
use zodium_tls::TlsError;
use zodium_transport::Interrupted;
use zodium_types::{Oid, Tid};

/// Why a call on a cluster failed. Clones share their texts.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum NeoError {
    /// The URL does not name a cluster.
    #[error("{url}: {what}; write neo://CLUSTER@HOST:PORT, with more masters after commas")]
    Url {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        what: String,
    },
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(Arc<TlsError>),
    /// The system refused a thread.
    #[error("cannot start a thread: {reason}")]
    Thread {
        /// The system's error.
        reason: Arc<str>,
    },
    /// A node cannot be reached, or the connection ended before the answer.
    #[error("{peer}: {reason}")]
    Lost {
        /// The node.
        peer: Arc<str>,
        /// The error.
        reason: Arc<str>,
    },
    /// A node answered with an error.
    #[error("{peer} answered {code:?}: {message}")]
    Refused {
        /// The node.
        peer: Arc<str>,
        /// The code of the error.
        code: ErrorCode,
        /// Its text.
        message: Arc<str>,
    },
    /// A node answered with another message than the request asks for.
    #[error("{peer} answered with {message}, which does not fit the request")]
    Unexpected {
        /// The node.
        peer: Arc<str>,
        /// The name of the message.
        message: &'static str,
    },
    /// No primary master was found in time.
    #[error(
        "the NEO cluster {cluster:?} has no primary master that accepts clients, within \
         {seconds} s: {reason}"
    )]
    NoPrimary {
        /// The name of the cluster.
        cluster: Arc<str>,
        /// How long the call has waited.
        seconds: u64,
        /// The error of the last attempt.
        reason: Arc<str>,
    },
    /// No storage serves a partition.
    #[error("no storage of the NEO cluster serves partition {partition}: {reason}")]
    NoCell {
        /// The partition.
        partition: Partition,
        /// The last error.
        reason: Arc<str>,
    },
    /// The data of a record are damaged at each storage that has them.
    #[error("object {oid}, revision {serial}, from {peer}: the data {what}")]
    Damaged {
        /// The object.
        oid: Oid,
        /// The revision.
        serial: Tid,
        /// The storage.
        peer: Arc<str>,
        /// What is wrong with them.
        what: &'static str,
    },
    /// An object that no client would decompress.
    #[error("object {oid} has {bytes} bytes, at most {OBJECT_BYTES_MAX} can be read; split it")]
    TooLarge {
        /// The object.
        oid: Oid,
        /// Its bytes.
        bytes: usize,
    },
    /// A message that no node would accept.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The primary master was lost during a transaction.
    #[error(
        "the connection to the primary master was lost during the transaction, which is aborted; \
         try again"
    )]
    MasterLost,
    /// Some objects are not locked by any storage that still runs.
    #[error("partition {partition}: the storages that locked its objects are lost; try again")]
    NotLocked {
        /// The partition.
        partition: Partition,
    },
    /// A finish was sent, and the cluster has not committed the transaction.
    #[error("the cluster has not committed the transaction {ttid}: its primary master was lost")]
    NotCommitted {
        /// The temporary tid.
        ttid: Tid,
    },
    /// A finish was answered with a tid that is not later than those before.
    #[error(
        "the transaction is committed as {tid}, which the primary master gave out of its order; \
         open the cluster anew, and report it"
    )]
    OutOfOrder {
        /// The tid.
        tid: Tid,
    },
    /// The cluster lacks a transaction that clients have seen.
    #[error(
        "the NEO cluster has lost transaction {seen}, its last one is {now}: it was truncated. \
         Open it anew (restart a gateway to it), and have clients drop their caches"
    )]
    Truncated {
        /// The last transaction that was there.
        seen: Tid,
        /// The last transaction now.
        now: Tid,
    },
    /// The client was opened for reading only.
    #[error("the NEO cluster was opened for reading only")]
    ReadOnly,
    /// The caller has stopped waiting.
    #[error("interrupted while waiting for the NEO cluster")]
    Interrupted,
    /// The client was closed.
    #[error("the client of the NEO cluster was closed")]
    Closed,
    /// A transaction that cannot be written to a cluster this way.
    #[error("{what}")]
    Unsupported {
        /// What is not offered, in a sentence.
        what: &'static str,
    },
}

impl NeoError {
    pub(crate) fn lost(peer: &Arc<str>, reason: impl ToString) -> NeoError {
        NeoError::Lost { peer: Arc::clone(peer), reason: reason.to_string().into() }
    }

    /// The code, if a node answered with an error.
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        match self {
            NeoError::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether another storage may answer the same request.
    pub(crate) fn is_of_node(&self) -> bool {
        matches!(self, NeoError::Lost { .. } | NeoError::Damaged { .. })
            || matches!(self.code(), Some(ErrorCode::NonReadableCell | ErrorCode::NotReady))
    }
}

impl From<NeoError> for StorageError {
    fn from(error: NeoError) -> StorageError {
        match error {
            NeoError::Damaged { .. } => StorageError::Corrupt(error.into()),
            NeoError::ReadOnly => StorageError::ReadOnly(error.into()),
            NeoError::Refused { code: ErrorCode::ReadOnlyAccess, .. } => {
                StorageError::ReadOnly(error.into())
            }
            NeoError::Interrupted => StorageError::Interrupted,
            NeoError::Truncated { .. } => StorageError::Failed(error.into()),
            NeoError::Unsupported { what } => StorageError::Unsupported { what: what.to_owned() },
            NeoError::TooLarge { .. } => StorageError::Unsupported { what: error.to_string() },
            NeoError::Url { .. } | NeoError::TooLong(_) => StorageError::Other(error.into()),
            _ => StorageError::Io(error.into()),
        }
    }
}

impl From<Interrupted> for NeoError {
    fn from(_: Interrupted) -> NeoError {
        NeoError::Interrupted
    }
}
