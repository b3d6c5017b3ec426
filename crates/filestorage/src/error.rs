//! What can go wrong with a storage on disk.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zodium_types::{MetadataTooLong, Tid};

/// Why an operation on a FileStorage failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The file holds something that no FileStorage writes.
    #[error(
        "{path}: damaged at position {position}: {what}. \
         Run ZODB's `fstest` on it, and `fsrecover` (or restore a backup) to get a sound copy",
        path = path.display()
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Byte position of the transaction or record that does not fit.
        position: u64,
        /// What was found there.
        what: String,
    },
    /// The file is something else.
    #[error("{path}: not a FileStorage (it does not begin with FS21 or FS30)",
        path = path.display())]
    NotFileStorage {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused an operation.
    #[error("{path}: {operation} failed: {source}", path = path.display())]
    Io {
        /// The file concerned.
        path: PathBuf,
        /// What was tried: `open`, `read`, `write`, `sync`...
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no room for the transaction; nothing was written.
    #[error("{path}: no space left for {bytes} more bytes; free some and try again",
        path = path.display())]
    Full {
        /// The file concerned.
        path: PathBuf,
        /// Bytes that did not fit.
        bytes: u64,
    },
    /// An earlier write or sync failed; nothing more is committed until the file is opened anew.
    #[error("{path}: an earlier write failed, commits are refused until the server is restarted",
        path = path.display())]
    Failed {
        /// The file concerned.
        path: PathBuf,
    },
    /// Another process has the file open for writing.
    #[error("{path}: locked by {owner}; stop that process or serve another file",
        path = path.display(),
        owner = owner.map_or("another process".to_owned(), |pid| format!("process {pid}")))]
    Locked {
        /// The data file (not its lock file).
        path: PathBuf,
        /// The process that holds the lock, if its lock file tells.
        owner: Option<u32>,
    },
    /// The storage was opened for reading only.
    #[error("{path}: opened read-only", path = path.display())]
    ReadOnly {
        /// The file concerned.
        path: PathBuf,
    },
    /// A metadata field is longer than the file can express.
    #[error(transparent)]
    Metadata(#[from] MetadataTooLong),
    /// No transaction of that tid can be undone.
    #[error("transaction {tid} cannot be undone: {reason}")]
    NotUndoable {
        /// The transaction that was to be undone.
        tid: Tid,
        /// Why.
        reason: &'static str,
    },
}

impl StorageError {
    pub(crate) fn corrupt(path: &Path, position: u64, what: impl Into<String>) -> StorageError {
        StorageError::Corrupt { path: path.to_owned(), position, what: what.into() }
    }

    pub(crate) fn io(path: &Path, operation: &'static str, source: io::Error) -> StorageError {
        StorageError::Io { path: path.to_owned(), operation, source }
    }
}
