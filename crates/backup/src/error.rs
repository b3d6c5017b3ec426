//! Why a backup or a restore failed.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zodium_storage::StorageError;

/// Why a backup or a restore failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// A file or folder cannot be read or written.
    #[error("{path}: cannot {what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error, which is no source: the text has it.
        error: io::Error,
    },
    /// The storage that is backed up, or restored to.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// An object store does not do what it is asked.
    #[error("{path}: cannot {what}: {error}")]
    Unavailable {
        /// What was tried.
        what: &'static str,
        /// The object.
        path: String,
        /// What the store answered.
        error: String,
    },
    /// Another writer has taken the repository over; this one must not write any more.
    #[error(
        "{path}: another archiver or backup has taken the repository over; this one has stopped"
    )]
    Fenced {
        /// The repository.
        path: String,
    },
    /// The folder that a writer has claimed is not at its path any more.
    #[error("{path}: the repository is gone: it was unmounted, moved away or replaced")]
    Gone {
        /// The repository.
        path: String,
    },
    /// The backup is damaged.
    #[error("{path}: damaged: {what}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The request cannot be fulfilled.
    #[error("{0}")]
    Refused(String),
}

impl BackupError {
    /// Whether the backup, or the storage, is damaged, rather than out of reach.
    pub fn is_damage(&self) -> bool {
        matches!(self, BackupError::Damaged { .. } | BackupError::Storage(StorageError::Corrupt(_)))
    }

    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
        let path = path.to_owned();
        move |error| BackupError::Io { what, path, error }
    }

    pub(crate) fn damaged(path: impl Into<PathBuf>, what: impl Into<String>) -> BackupError {
        BackupError::Damaged { path: path.into(), what: what.into() }
    }
}
