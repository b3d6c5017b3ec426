//! What can go wrong with a storage on disk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zodium_blobs::BlobError;
use zodium_disk::NoSpace;
use zodium_pickle::PickleError;
use zodium_storage::StorageError;
use zodium_types::{MetadataTooLong, Oid, Tid};

use crate::OLD_LOGS_MAX;

/// How a data file is not what the storage that has it open has made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileChange {
    /// Nothing has the name any more.
    Removed,
    /// The name leads to another file.
    Replaced,
    /// It is shorter or longer than what was written.
    Length {
        /// Bytes that the storage has written.
        written: u64,
        /// Bytes that the file has.
        found: u64,
    },
}

impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileChange::Removed => f.write_str("the file was removed or renamed while it is open"),
            FileChange::Replaced => f.write_str("another file was put in its place"),
            FileChange::Length { written, found } if found < written => {
                write!(f, "another program cut the file to {found} bytes, it had {written}")
            }
            FileChange::Length { written, found } => {
                write!(f, "another program wrote to the file: {found} bytes, it had {written}")
            }
        }
    }
}

fn holder(owner: Option<u32>) -> String {
    match owner {
        Some(pid) if pid == std::process::id() => "this process".to_owned(),
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

/// Why the lock file of the path did not tell, where the data file itself is locked.
fn how_locked(path: &Path, lock: &Path) -> String {
    match lock == path {
        true => " under another name, or with its lock file removed".to_owned(),
        false => format!(" (lock file {})", lock.display()),
    }
}

fn lock_remedy(owner: Option<u32>) -> &'static str {
    match owner == Some(std::process::id()) {
        true => "name each file once",
        false => "stop that process, or serve another file",
    }
}

/// Why an operation on a FileStorage failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileStorageError {
    /// The file holds something that no FileStorage writes.
    #[error(
        "{path}: damaged at position {position}: {what}. \
         `zodium check` tells more, `zodium recover` (or a backup) gives a sound copy",
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
    /// There is no room to keep the broken end of the file before it is cut off.
    #[error(
        "{path}: the disk is full, so the last {bytes} bytes of the file, which are no whole \
         transaction, cannot be kept in {kept} before they are cut off. The file is unchanged; \
         free {bytes} bytes and open it again",
        path = path.display(), kept = kept.display()
    )]
    NoRoomForEnd {
        /// The data file.
        path: PathBuf,
        /// Where those bytes begin.
        position: u64,
        /// How many they are.
        bytes: u64,
        /// Where they were to be kept.
        kept: PathBuf,
    },
    /// The transaction would make the file larger than its quota; nothing was written.
    #[error(
        "{path}: {bytes} more bytes are over the quota of {quota_bytes}; pack, or raise the quota",
        path = path.display()
    )]
    Quota {
        /// The file concerned.
        path: PathBuf,
        /// Bytes of the transaction.
        bytes: u64,
        /// Largest size of the file, in bytes.
        quota_bytes: u64,
    },
    /// An earlier write or sync failed; nothing more is committed until the file was reopened.
    #[error(
        "{path}: an earlier write failed, commits are refused until the server has reopened the \
         file or is restarted; its log and its monitor tell more",
        path = path.display()
    )]
    Failed {
        /// The file concerned.
        path: PathBuf,
    },
    /// Another process, or another storage of this one, has the file open for writing.
    #[error("{path}: locked by {owner}{how}; {remedy}", path = path.display(),
        owner = holder(*owner), how = how_locked(path, lock), remedy = lock_remedy(*owner))]
    Locked {
        /// The data file.
        path: PathBuf,
        /// What is locked: a lock file, or the data file itself.
        lock: PathBuf,
        /// The process that holds the lock, as far as the lock file or the system tells.
        owner: Option<u32>,
    },
    /// The file is not what this storage has made of it: another program has changed it.
    #[error(
        "{path}: {change}. Nothing is committed until it is again as this process wrote it. Stop \
         the program that changed it. The file with all acknowledged commits is still open here: \
         before you stop this process, save it (docs/operating.md, \"The file changed\")",
        path = path.display()
    )]
    Changed {
        /// The data file.
        path: PathBuf,
        /// What is different.
        change: FileChange,
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
    /// The file was packed too often since an iterator was started.
    #[error(
        "{path}: the file was packed more than {OLD_LOGS_MAX} times since this iterator was \
         started, and its file is kept no longer; start anew from the last transaction it gave",
        path = path.display()
    )]
    IteratorTooOld {
        /// The data file.
        path: PathBuf,
    },
    /// Another pack of the file is under way.
    #[error("{path}: already packing", path = path.display())]
    AlreadyPacking {
        /// The data file.
        path: PathBuf,
    },
    /// The pack was given up as asked; the file is as it was.
    #[error("{path}: the pack was cancelled", path = path.display())]
    PackCancelled {
        /// The data file.
        path: PathBuf,
    },
    /// A transaction committed during a pack refers to an object that was garbage at the pack
    /// time, and so was left out. The file is as it was: pack again.
    #[error("object {oid}, which was garbage, came into use during the pack; pack again")]
    PackOvertaken {
        /// The object.
        oid: Oid,
    },
    /// There are objects but no root, so that all of them would be garbage.
    #[error(
        "{path}: no root object (oid 0) at the pack time, so everything would be garbage; \
         only packing without garbage collection is possible",
        path = path.display()
    )]
    RootMissing {
        /// The data file.
        path: PathBuf,
    },
    /// The current record of the root is damaged, which a pack does not leave out.
    #[error(
        "{path}: damaged at position {position}: the record of the root object (oid 0), without \
         which an application begins with an empty database; nothing was packed. Store the root \
         again (docs/operating.md, \"Damage\"), or use `zodium recover` or a backup",
        path = path.display()
    )]
    RootDamaged {
        /// The data file.
        path: PathBuf,
        /// Where the record begins.
        position: u64,
    },
    /// A blob, or the blob directory.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A large transaction could not be put aside, or not be read back.
    #[error(transparent)]
    Spool(#[from] StorageError),
    /// Objects in use refer to objects that are not there, and the pack was to be given up then.
    /// The file is as it was; the log names the references.
    #[error(
        "{path}: not packed, {references} references lead to no object; the first: {first}. \
         Mend them, or pack without giving up on them", path = path.display()
    )]
    Dangling {
        /// The data file.
        path: PathBuf,
        /// How many there are.
        references: u64,
        /// Which object refers to which, in words.
        first: String,
    },
    /// A record whose references a pack cannot find out.
    #[error(
        "the references of object {oid} cannot be read: {source}. \
         Mend the object, or pack without garbage collection"
    )]
    References {
        /// The object.
        oid: Oid,
        /// What is wrong with its pickles.
        source: PickleError,
    },
}

impl NoSpace for FileStorageError {
    fn missing_bytes(&self) -> Option<u64> {
        match self {
            FileStorageError::Full { bytes, .. } | FileStorageError::Quota { bytes, .. } => {
                Some(*bytes)
            }
            FileStorageError::Blob(error) => error.missing_bytes(),
            FileStorageError::Spool(error) => error.missing_bytes(),
            _ => None,
        }
    }
}

impl From<FileStorageError> for StorageError {
    fn from(error: FileStorageError) -> StorageError {
        match error {
            FileStorageError::Blob(error) => StorageError::Blob(error),
            FileStorageError::Spool(error) => error,
            FileStorageError::NotUndoable { tid, reason } => {
                StorageError::NotUndoable { tid, reason }
            }
            FileStorageError::Full { bytes, .. } => {
                StorageError::Full { bytes, cause: error.into() }
            }
            FileStorageError::Quota { bytes, .. } => {
                StorageError::Quota { bytes, cause: error.into() }
            }
            FileStorageError::Corrupt { .. } | FileStorageError::RootDamaged { .. } => {
                StorageError::Corrupt(error.into())
            }
            FileStorageError::Failed { .. } => StorageError::Failed(error.into()),
            FileStorageError::Changed { .. } => StorageError::Changed(error.into()),
            FileStorageError::ReadOnly { .. } => StorageError::ReadOnly(error.into()),
            FileStorageError::AlreadyPacking { .. } => StorageError::AlreadyPacking(error.into()),
            FileStorageError::PackCancelled { .. } => StorageError::PackCancelled(error.into()),
            FileStorageError::Io { .. } => StorageError::Io(error.into()),
            _ => StorageError::Other(error.into()),
        }
    }
}

impl FileStorageError {
    pub(crate) fn corrupt(path: &Path, position: u64, what: impl Into<String>) -> FileStorageError {
        FileStorageError::Corrupt { path: path.to_owned(), position, what: what.into() }
    }

    pub(crate) fn io(path: &Path, operation: &'static str, source: io::Error) -> FileStorageError {
        FileStorageError::Io { path: path.to_owned(), operation, source }
    }
    /// As [`FileStorageError::io`], for what takes room: a full disk is said to be full.
    pub(crate) fn writing(
        path: &Path,
        operation: &'static str,
        bytes: u64,
        source: io::Error,
    ) -> FileStorageError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                FileStorageError::Full { path: path.to_owned(), bytes }
            }
            _ => FileStorageError::io(path, operation, source),
        }
    }
}
