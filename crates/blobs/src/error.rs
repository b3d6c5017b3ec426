//! What can go wrong with blobs.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zodium_disk::{NoSpace, is_full, no_space_for};
use zodium_types::{Oid, Tid};

/// Why an operation on a blob directory failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BlobError {
    /// There is no blob of that object and transaction.
    #[error("No blob file at {path}", path = path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
        /// The object.
        oid: Oid,
        /// The transaction.
        tid: Tid,
    },
    /// A blob has another length than it was committed with. It is not served.
    #[error(
        "{path}: the blob of object {oid}, transaction {tid}, has {found} bytes, {recorded} were \
         committed. It is not served; restore this file from a backup of the blob directory",
        path = path.display()
    )]
    Length {
        /// Its file.
        path: PathBuf,
        /// The object.
        oid: Oid,
        /// The transaction.
        tid: Tid,
        /// Bytes that were committed.
        recorded: u64,
        /// Bytes that the file has.
        found: u64,
    },
    /// A blob is as long as it was committed, and holds other bytes. It is not served.
    #[error(
        "{path}: the blob of object {oid}, transaction {tid}, has other bytes than were committed \
         (CRC-32C {found:08x}, it was {recorded:08x}). It is not served; restore this file from a \
         backup of the blob directory", path = path.display()
    )]
    Sum {
        /// Its file.
        path: PathBuf,
        /// The object.
        oid: Oid,
        /// The transaction.
        tid: Tid,
        /// CRC-32C of what was committed.
        recorded: u32,
        /// CRC-32C of what the file has.
        found: u32,
    },
    /// A client that shares the blob directory named a file there that cannot be a new blob.
    #[error("{name:?} is no name of a new blob of object {oid}")]
    Name {
        /// The object.
        oid: Oid,
        /// What the client sent.
        name: String,
    },
    /// A client that shares the blob directory named a file that is not there.
    #[error(
        "{path}: there is no such file, which a client calls a new blob of object {oid}. Its \
         shared_blob_dir must be the server's blob directory", path = path.display()
    )]
    NotShared {
        /// The object.
        oid: Oid,
        /// Where the file should be.
        path: PathBuf,
    },
    /// The blob directory is laid out in a way that this server does not know.
    #[error("{path}: the layout {layout:?} is not that of a database's blobs (bushy or lawn); \
         name another blob directory", path = path.display())]
    Layout {
        /// The marker file.
        path: PathBuf,
        /// What it says.
        layout: String,
    },
    /// The directory is written for another data file.
    #[error(
        "{path}: this blob directory is in use by {} for another data file, which would lose \
         blobs that are being committed: stop that one first, or use a copy of the directory",
        owner.map_or("another process".to_owned(), |pid| format!("process {pid}")),
        path = path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
        /// The id of its process, if it is known.
        owner: Option<u32>,
    },
    /// The name of the directory leads elsewhere since it was opened, or nowhere.
    #[error(
        "{path}: the blob directory in use is away ({found}): blobs are not committed, and those \
         that are not found are not served. Mount it or move it back, which needs no restart; for \
         another one, or a device with another number, restart the server", path = path.display()
    )]
    Away {
        /// The directory.
        path: PathBuf,
        /// What is found in its place.
        found: String,
    },
    /// The directory was opened for reading only.
    #[error("{path}: opened read-only", path = path.display())]
    ReadOnly {
        /// The directory.
        path: PathBuf,
    },
    /// There is no room for the blob; nothing was written.
    #[error("{path}: {}", no_space_for(*bytes), path = path.display())]
    Full {
        /// The file concerned.
        path: PathBuf,
        /// Bytes that did not fit.
        bytes: u64,
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
}

impl BlobError {
    pub(crate) fn io(path: &Path, operation: &'static str, source: io::Error) -> BlobError {
        BlobError::Io { path: path.to_owned(), operation, source }
    }

    /// As [`BlobError::io`], for what takes room: a full disk is said to be full.
    pub(crate) fn writing(
        path: &Path,
        operation: &'static str,
        bytes: u64,
        source: io::Error,
    ) -> BlobError {
        match is_full(&source) {
            true => BlobError::Full { path: path.to_owned(), bytes },
            false => BlobError::io(path, operation, source),
        }
    }
}

impl NoSpace for BlobError {
    fn missing_bytes(&self) -> Option<u64> {
        match self {
            BlobError::Full { bytes, .. } => Some(*bytes),
            _ => None,
        }
    }
}
