//! Errors of a storage on disk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use zodium_blobs::BlobError;
use zodium_disk::{NoSpace, is_full, no_space_for};
use zodium_pickle::PickleError;
use zodium_storage::StorageError;
use zodium_types::{MetadataTooLong, Oid, Tid};

use crate::OLD_LOGS_MAX;

/// How a data file differs from what the storage that has it open wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileChange {
    /// No file has the name any more.
    Removed,
    /// The name leads to another file.
    Replaced,
    /// The file is shorter or longer than the storage wrote it.
    Length {
        /// Bytes that the storage wrote.
        written: u64,
        /// Bytes in the file.
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

impl FileChange {
    /// What is lost, and what to do. A file without its name is open here as it was written; one
    /// that was changed in place is changed here too.
    fn remedy(&self) -> &'static str {
        match self {
            FileChange::Removed | FileChange::Replaced => {
                "The file with all acknowledged commits is still open here: before you stop this \
                 process, save it"
            }
            FileChange::Length { written, found } if found < written => {
                "Transactions behind the cut are lost from this file: keep a copy of it, run \
                 `zodium check`, and put a backup in its place"
            }
            FileChange::Length { .. } => {
                "What that program wrote over is lost from this file: keep a copy of it, run \
                 `zodium check`, and put a backup in its place if there is damage"
            }
        }
    }
}

fn holder(owner: Option<u32>) -> String {
    match owner {
        // Processes of two containers can have one number.
        Some(pid) if pid == std::process::id() => {
            format!("this process, or by process {pid} of another container")
        }
        Some(pid) => format!("process {pid}"),
        None => "another process".to_owned(),
    }
}

/// Explains why the lock file did not show the lock, when the data file itself is locked.
fn how_locked(path: &Path, lock: &Path) -> String {
    match lock == path {
        true => " under another name, or with its lock file removed".to_owned(),
        false => format!(" (lock file {})", lock.display()),
    }
}

fn lock_remedy(owner: Option<u32>) -> &'static str {
    match owner == Some(std::process::id()) {
        true => "name each file once, or stop the other container",
        false => "stop that process, or serve another file",
    }
}

/// Why an operation on a FileStorage failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FileStorageError {
    /// The file holds bytes that no FileStorage writes.
    #[error(
        "{path}: damaged at position {position}: {what}. \
         `zodium check` tells more, `zodium recover` (or a backup) gives a sound copy",
        path = path.display()
    )]
    Corrupt {
        /// The damaged file.
        path: PathBuf,
        /// Byte position of the wrong transaction or record.
        position: u64,
        /// Description of the damage.
        what: String,
    },
    /// The file is not a FileStorage.
    #[error("{path}: not a FileStorage (it does not begin with FS21 or FS30)",
        path = path.display())]
    NotFileStorage {
        /// The file.
        path: PathBuf,
    },
    /// The operating system refused an operation.
    #[error("{path}: {operation} failed: {source}", path = path.display())]
    Io {
        /// The affected file.
        path: PathBuf,
        /// The operation: `open`, `read`, `write`, `sync`...
        operation: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// There is no space for the transaction; nothing was written.
    #[error("{path}: {}", no_space_for(*bytes), path = path.display())]
    Full {
        /// The affected file.
        path: PathBuf,
        /// Bytes that did not fit.
        bytes: u64,
    },
    /// There is no space to copy the broken end of the file before it is cut off.
    #[error(
        "{path}: the disk is full, so the last {bytes} bytes of the file, which are no whole \
         transaction, cannot be kept in {kept} before they are cut off. The file is unchanged; \
         free {bytes} bytes and open it again",
        path = path.display(), kept = kept.display()
    )]
    NoRoomForEnd {
        /// The data file.
        path: PathBuf,
        /// Where the broken end begins.
        position: u64,
        /// Length of the broken end.
        bytes: u64,
        /// Path of the intended copy.
        kept: PathBuf,
    },
    /// The transaction would make the file larger than its quota; nothing was written.
    #[error(
        "{path}: {bytes} more bytes are over the quota of {quota_bytes}; pack, or raise the quota",
        path = path.display()
    )]
    Quota {
        /// The affected file.
        path: PathBuf,
        /// Bytes of the transaction.
        bytes: u64,
        /// Largest size of the file, in bytes.
        quota_bytes: u64,
    },
    /// An earlier write or sync failed. The storage commits nothing more until the file is
    /// reopened.
    #[error(
        "{path}: an earlier write failed, commits are refused until the server has reopened the \
         file or is restarted; its log and its monitor tell more",
        path = path.display()
    )]
    Failed {
        /// The affected file.
        path: PathBuf,
    },
    /// Another process, or another storage in this process, has the file open for writing.
    #[error("{path}: locked by {owner}{how}; {remedy}", path = path.display(),
        owner = holder(*owner), how = how_locked(path, lock), remedy = lock_remedy(*owner))]
    Locked {
        /// The data file.
        path: PathBuf,
        /// The locked file: a lock file, or the data file itself.
        lock: PathBuf,
        /// The process that holds the lock, if the lock file or the operating system names it.
        owner: Option<u32>,
    },
    /// A pack would replace the old file, and a server has that open for writing.
    #[error(
        "{path}: a pack would replace it, and it is locked by {owner} (lock file {path}.lock); \
         serve it under another name",
        path = path.display(), owner = holder(*owner)
    )]
    OldLocked {
        /// The old file, `Data.fs.old`.
        path: PathBuf,
        /// The process that holds the lock, if the lock file names it.
        owner: Option<u32>,
    },
    /// Another program has changed the file since this storage wrote it.
    #[error(
        "{path}: {change}. Nothing is committed until it is again as this process wrote it. Stop \
         the program that changed it. {remedy} (docs/operating.md, \"The file changed\")",
        path = path.display(), remedy = change.remedy()
    )]
    Changed {
        /// The data file.
        path: PathBuf,
        /// The difference.
        change: FileChange,
    },
    /// The storage was opened for reading only.
    #[error("{path}: opened read-only", path = path.display())]
    ReadOnly {
        /// The affected file.
        path: PathBuf,
    },
    /// A metadata field is longer than the format allows.
    #[error(transparent)]
    Metadata(#[from] MetadataTooLong),
    /// The transaction with that tid is missing or cannot be undone.
    #[error("transaction {tid} cannot be undone: {reason}")]
    NotUndoable {
        /// The transaction that the caller wanted to undo.
        tid: Tid,
        /// The reason.
        reason: &'static str,
    },
    /// The file was packed too often since an iterator was opened.
    #[error(
        "{path}: the file was packed more than {OLD_LOGS_MAX} times since this iterator was \
         started, and its file is kept no longer; start anew from the last transaction it gave",
        path = path.display()
    )]
    IteratorTooOld {
        /// The data file.
        path: PathBuf,
    },
    /// Another pack of the file is running.
    #[error("{path}: already packing", path = path.display())]
    AlreadyPacking {
        /// The data file.
        path: PathBuf,
    },
    /// The pack was cancelled; the file is unchanged.
    #[error("{path}: the pack was cancelled", path = path.display())]
    PackCancelled {
        /// The data file.
        path: PathBuf,
    },
    /// A transaction committed during a pack refers to an object that was garbage at the pack time,
    /// so the pack left the object out. The file is unchanged: pack again.
    #[error("object {oid}, which was garbage, came into use during the pack; pack again")]
    PackOvertaken {
        /// The object.
        oid: Oid,
    },
    /// A transaction that is later than the pack time stands before one that is not: a pack would
    /// drop its history too.
    #[error(
        "{path}: not packed, since transaction {tid}, which is later than the pack time, stands \
         before one that is not. `zodium recover` writes a file in which the tids ascend",
        path = path.display()
    )]
    PackDisordered {
        /// The data file.
        path: PathBuf,
        /// The transaction that is later.
        tid: Tid,
    },
    /// There are objects but no root object, so all of them would be garbage.
    #[error(
        "{path}: no root object (oid 0) at the pack time, so everything would be garbage; \
         only packing without garbage collection is possible",
        path = path.display()
    )]
    RootMissing {
        /// The data file.
        path: PathBuf,
    },
    /// The current record of the root object is damaged. A pack never drops that record.
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
    /// An error of a blob, or of the blob directory.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A large transaction could not be spooled, or its spool could not be read.
    #[error(transparent)]
    Spool(#[from] StorageError),
    /// Objects in use refer to missing objects, and the caller wanted the pack to stop in that
    /// case. The file is unchanged; the log lists the references.
    #[error(
        "{path}: not packed, {references} references lead to no object; the first: {first}. \
         Mend them, or pack without giving up on them", path = path.display()
    )]
    Dangling {
        /// The data file.
        path: PathBuf,
        /// Number of references.
        references: u64,
        /// The first such reference, as text.
        first: String,
    },
    /// A record whose references a pack cannot determine.
    #[error(
        "the references of object {oid} cannot be read: {source}. {advice}",
        advice = source.advice_to_pack()
    )]
    References {
        /// The object.
        oid: Oid,
        /// Why its pickles cannot be read.
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

    fn is_over_quota(&self) -> bool {
        match self {
            FileStorageError::Quota { .. } => true,
            FileStorageError::Spool(error) => error.is_over_quota(),
            _ => false,
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

    /// As [`FileStorageError::io`], for operations that take space: a full disk has its own error.
    pub(crate) fn writing(
        path: &Path,
        operation: &'static str,
        bytes: u64,
        source: io::Error,
    ) -> FileStorageError {
        match is_full(&source) {
            true => FileStorageError::Full { path: path.to_owned(), bytes },
            false => FileStorageError::io(path, operation, source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_is_said_to_be_whole_only_if_it_was_not_changed_in_place() {
        let said =
            |change| FileStorageError::Changed { path: "Data.fs".into(), change }.to_string();
        for (change, lost) in [
            (FileChange::Removed, None),
            (FileChange::Replaced, None),
            (FileChange::Length { written: 9, found: 8 }, Some("behind the cut are lost")),
            (FileChange::Length { written: 8, found: 9 }, Some("wrote over is lost")),
        ] {
            let text = said(change);
            assert_eq!(text.contains("all acknowledged commits is still open"), lost.is_none());
            assert!(text.contains(lost.unwrap_or("save it (docs/operating.md")), "{text}");
        }
    }

    #[test]
    fn a_lock_says_which_process_holds_it_and_what_to_stop() {
        let said = |lock: &str, owner| {
            let (path, lock) = ("Data.fs".into(), lock.into());
            FileStorageError::Locked { path, lock, owner }.to_string()
        };
        let (own, other) = (std::process::id(), std::process::id() + 1);
        assert_eq!(
            said("Data.fs.lock", Some(own)),
            format!(
                "Data.fs: locked by this process, or by process {own} of another container (lock \
                 file Data.fs.lock); name each file once, or stop the other container"
            )
        );
        assert_eq!(
            said("Data.fs.lock", Some(other)),
            format!(
                "Data.fs: locked by process {other} (lock file Data.fs.lock); stop that process, \
                 or serve another file"
            )
        );
        assert_eq!(
            said("Data.fs", None),
            "Data.fs: locked by another process under another name, or with its lock file \
             removed; stop that process, or serve another file"
        );
    }

    #[test]
    fn bytes_that_do_not_fit_are_told_whatever_they_are_of() {
        let path = || PathBuf::from("Data.fs");
        let full = FileStorageError::Full { path: path(), bytes: 7 };
        let quota = || FileStorageError::Quota { path: path(), bytes: 8, quota_bytes: 9 };
        let blob = FileStorageError::Blob(BlobError::Full { path: path(), bytes: 10 });
        let spool = FileStorageError::Spool(StorageError::from(quota()));
        let failed = FileStorageError::Failed { path: path() };
        let told = |error: &FileStorageError| (error.missing_bytes(), error.is_over_quota());
        assert_eq!(told(&full), (Some(7), false));
        assert_eq!(told(&quota()), (Some(8), true));
        assert_eq!(told(&blob), (Some(10), false));
        assert_eq!(told(&spool), (Some(8), true));
        assert_eq!(told(&failed), (None, false));
    }

    #[test]
    fn an_error_is_of_the_kind_that_its_caller_can_do_something_about() {
        let path = || PathBuf::from("Data.fs");
        let kind = |error: FileStorageError| {
            let text = error.to_string();
            let seen = StorageError::from(error);
            assert_eq!(seen.to_string(), text);
            format!("{seen:?}").split(['(', ' ']).next().unwrap_or_default().to_owned()
        };
        let blob = || BlobError::Full { path: path(), bytes: 10 };
        let source = || io::Error::from(io::ErrorKind::Other);
        let change = FileChange::Removed;
        for (error, expected) in [
            (FileStorageError::Blob(blob()), "Blob"),
            (FileStorageError::Spool(StorageError::Blob(blob())), "Blob"),
            (FileStorageError::Full { path: path(), bytes: 7 }, "Full"),
            (FileStorageError::Quota { path: path(), bytes: 8, quota_bytes: 9 }, "Quota"),
            (FileStorageError::corrupt(&path(), 4, "wrong"), "Corrupt"),
            (FileStorageError::Failed { path: path() }, "Failed"),
            (FileStorageError::Changed { path: path(), change }, "Changed"),
            (FileStorageError::ReadOnly { path: path() }, "ReadOnly"),
            (FileStorageError::AlreadyPacking { path: path() }, "AlreadyPacking"),
            (FileStorageError::PackCancelled { path: path() }, "PackCancelled"),
            (FileStorageError::io(&path(), "read", source()), "Io"),
            (FileStorageError::NotFileStorage { path: path() }, "Other"),
        ] {
            assert_eq!(kind(error), expected);
        }
    }
}
