//! What can go wrong with a database, and what to do about it.

use std::path::PathBuf;

use thiserror::Error as ThisError;
use zodium_disk::{NoSpace, no_space_for};
use zodium_pickle::PickleError;
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

use crate::driver::Error;

/// Why a call on a database failed.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum SqlError {
    /// There is no such file, and it is not to be created.
    #[error("{path}: no such database; check the path", path = path.display())]
    Missing {
        /// The database.
        path: PathBuf,
    },
    /// The file is something else.
    #[error(
        "{path}: not an SQLite database, or its first page is overwritten; check the path, or \
         restore a backup",
        path = path.display()
    )]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// A database of another application.
    #[error(
        "{path}: a database without NEO's tables, which belongs to another application; check \
         its path or address",
        path = path.display()
    )]
    ForeignDatabase {
        /// The database.
        path: PathBuf,
    },
    /// Another process serves it.
    #[error(
        "{path}: in use by another process (a NEO storage node or a Zodium server); stop that one \
         first",
        path = path.display()
    )]
    InUse {
        /// The database.
        path: PathBuf,
    },
    /// The log beside it belongs to a server that has an earlier file of that name open.
    #[error(
        "{path}: the log beside it, {log}, is in use by another process, which has an earlier file \
         under that name open, and would share the log with this one; stop that process first, \
         in order (SIGTERM): it moves its log away",
        path = path.display(),
        log = log.display()
    )]
    LogInUse {
        /// The database.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// It belongs to another cluster.
    #[error(
        "{path}: belongs to the cluster {found:?}, not to {wanted:?}; correct the name of the \
         cluster, or the database",
        path = path.display()
    )]
    OtherCluster {
        /// The database.
        path: PathBuf,
        /// The name of its cluster.
        found: String,
        /// The name that was given.
        wanted: String,
    },
    /// A later version of NEO has written it.
    #[error(
        "{path}: has NEO's schema version {version}, this program knows versions up to {known}; \
         use a later Zodium",
        path = path.display()
    )]
    TooNew {
        /// The database.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The latest known version.
        known: u32,
    },
    /// An older version of NEO has written it, and it cannot be migrated as it is.
    #[error(
        "{path}: cannot be migrated from NEO's schema version {version}: {reason}",
        path = path.display()
    )]
    NotMigrated {
        /// The database.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// The database is a part of a NEO cluster, or in a state that only a cluster can end.
    #[error("{path}: cannot be served alone: {reason}", path = path.display())]
    NotWhole {
        /// The database.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The file, or its folder, refuses writes.
    #[error(
        "{path}: cannot {operation}: the file or its folder is read-only; change its permissions, \
         or serve it read-only after an orderly stop",
        path = path.display()
    )]
    NotWritable {
        /// The database.
        path: PathBuf,
        /// What failed.
        operation: &'static str,
    },
    /// The server of the database takes no writes.
    #[error(
        "{path}: cannot {operation}: the server is read-only; is it a replica, or is an operator \
         at work there? It must take writes (SET GLOBAL read_only = 0), or the database be served \
         read-only",
        path = path.display()
    )]
    ServerReadOnly {
        /// The database.
        path: PathBuf,
        /// What failed.
        operation: &'static str,
    },
    /// It was opened for reading only.
    #[error("{path}: opened read-only", path = path.display())]
    ReadOnly {
        /// The database.
        path: PathBuf,
    },
    /// Another process holds SQLite's write lock.
    #[error(
        "{path}: cannot {operation}: another process has the database locked (an sqlite3 shell \
         with an open transaction?); end it and try again",
        path = path.display()
    )]
    Busy {
        /// The database.
        path: PathBuf,
        /// What failed.
        operation: &'static str,
    },
    /// No space is left.
    #[error("{path}: {}", no_space_for(*bytes), path = path.display())]
    Full {
        /// The database.
        path: PathBuf,
        /// Bytes that did not fit.
        bytes: u64,
    },
    /// The transaction would exceed the quota.
    #[error(
        "{path}: the quota of {quota} bytes leaves no room for {bytes} more bytes; pack the \
         database, or raise the quota",
        path = path.display()
    )]
    Quota {
        /// The database.
        path: PathBuf,
        /// Bytes of the transaction.
        bytes: u64,
        /// The quota.
        quota: u64,
    },
    /// SQLite, or a column with an unexpected value, says that the database is damaged.
    #[error(
        "{path}: damaged: cannot {operation}: {source}; see `sqlite3 FILE \"PRAGMA \
         integrity_check\"`, or CHECK TABLE of a server, and restore a backup. If the file was put \
         here from a backup, FILE-wal and FILE-shm may be those of the file before: remove them, \
         and put it here again",
        path = path.display()
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What failed.
        operation: &'static str,
        /// Why.
        source: Error,
    },
    /// The data of one record are damaged.
    #[error(
        "{path}: damaged: the data of object {oid} in transaction {tid} {what}; restore the \
         object from a backup, other objects can be read",
        path = path.display()
    )]
    DamagedData {
        /// The database.
        path: PathBuf,
        /// The object.
        oid: Oid,
        /// The transaction that wrote the record.
        tid: Tid,
        /// What is wrong.
        what: &'static str,
    },
    /// An earlier commit failed.
    #[error(
        "{path}: an earlier commit failed, so no more are accepted until the database is \
         reopened; see the log for the reason",
        path = path.display()
    )]
    Failed {
        /// The database.
        path: PathBuf,
    },
    /// A number that the signed integers of SQLite cannot hold.
    #[error("{path}: {what} is larger than 2^63 - 1, which NEO cannot keep", path = path.display())]
    OutOfRange {
        /// The database.
        path: PathBuf,
        /// What is too large.
        what: String,
    },
    /// A record that is larger than a row can be.
    #[error(
        "{path}: object {oid} has {bytes} bytes, a row holds at most {bytes_max}; split the object",
        path = path.display()
    )]
    TooLarge {
        /// The database.
        path: PathBuf,
        /// The object.
        oid: Oid,
        /// Its bytes.
        bytes: u64,
        /// The most that fits.
        bytes_max: u64,
    },
    /// A transaction that the tables on a server cannot hold.
    #[error(
        "{path}: the tables on a MariaDB server cannot hold the transaction: {what}; make it \
         smaller",
        path = path.display()
    )]
    TooLong {
        /// The database.
        path: PathBuf,
        /// What is too long.
        what: String,
    },
    /// Two different data have the same SHA-1, in a database that keeps equal data once.
    #[error(
        "{path}: object {oid} has the SHA-1 of different data, and the database keeps equal data \
         once; change the object",
        path = path.display()
    )]
    Collision {
        /// The database.
        path: PathBuf,
        /// The object.
        oid: Oid,
    },
    /// A transaction cannot be undone.
    #[error("transaction {tid} cannot be undone: {reason}")]
    NotUndoable {
        /// The transaction.
        tid: Tid,
        /// Why.
        reason: &'static str,
    },
    /// What a cursor sees is kept no longer.
    #[error(
        "{path}: packed too often since this iterator was started, or its log has grown too much; \
         start anew from the last transaction it gave",
        path = path.display()
    )]
    CursorEnded {
        /// The database.
        path: PathBuf,
    },
    /// The pack was cancelled.
    #[error("{path}: the pack was cancelled", path = path.display())]
    PackCancelled {
        /// The database.
        path: PathBuf,
    },
    /// Without a root object everything would be garbage.
    #[error(
        "{path}: no root object (oid 0) at the pack time, so everything would be garbage; only \
         packing without garbage collection is possible",
        path = path.display()
    )]
    RootMissing {
        /// The database.
        path: PathBuf,
    },
    /// Objects refer to others that are not there, and the caller wanted the pack to stop then.
    #[error(
        "{path}: not packed, {references} references lead to no object, one of them to {first}; \
         mend them, or pack without giving up on them",
        path = path.display()
    )]
    Dangling {
        /// The database.
        path: PathBuf,
        /// Number of references.
        references: u64,
        /// One of the objects that are not there.
        first: Oid,
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
    /// A large transaction could not be read back.
    #[error(transparent)]
    Spool(#[from] StorageError),
    /// The operating system refused something.
    #[error("{path}: cannot {operation}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What failed.
        operation: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// The path does not lead to the open file any more.
    #[error(
        "{path}: the file was removed, renamed or replaced while it is open. Nothing is committed \
         until it is back in its place. The file with all acknowledged commits is still open \
         here: before you stop this process, save it (docs/operating.md, \"The file changed\")",
        path = path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The log of the database has moved or gone since it was opened.
    #[error(
        "{path}: the log of the database was removed, renamed or replaced while it is open. \
         Nothing is committed until it is back in its place. All acknowledged commits are still \
         open here: an orderly stop (SIGTERM) of this process moves them into the database, a kill \
         loses them",
        path = path.display()
    )]
    LogChanged {
        /// The log.
        path: PathBuf,
    },
    /// The file has lost its name while it was open, and its log was renamed at the end.
    #[error(
        "{path}: the file was removed, renamed or replaced while it was open. Its log is now \
         {log}, so that a backup that is put in its place opens as it is. The last commits may be \
         in the log alone. Before the file is opened under its new name, rename the log to that \
         name with -wal at the end. If the file is gone, but a copy of it, made byte by byte (cp), \
         has its place, rename the log to the name of the copy with -wal at the end, before the \
         copy is opened. Delete the log only if a backup is used in the place of both \
         (docs/operating.md, \"The file changed\")",
        path = path.display(),
        log = log.display()
    )]
    LogSetAside {
        /// The database.
        path: PathBuf,
        /// Where the log is now.
        log: PathBuf,
    },
    /// The file has lost its name while it was open, and its log could not be renamed.
    #[error(
        "{path}: the file was removed, renamed or replaced while it was open, and its log {log} \
         cannot be renamed: {source}. Move the log away, and the file with -shm at its end: \
         SQLite would apply them to the file that is there when the database is opened",
        path = path.display(),
        log = log.display()
    )]
    LogLeft {
        /// The database.
        path: PathBuf,
        /// The log.
        log: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A process that came later writes to it now.
    #[error(
        "{path}: another process has taken the database over, and this one must not write any \
         more: end it, as it shows old data; have one process for a database",
        path = path.display()
    )]
    TakenOver {
        /// The database.
        path: PathBuf,
    },
    /// SQLite, or the server, refused something.
    #[error("{path}: cannot {operation}: {reason}", path = path.display())]
    Refused {
        /// The database.
        path: PathBuf,
        /// What failed.
        operation: &'static str,
        /// Why.
        reason: Error,
    },
}

impl SqlError {
    /// Whether another try may succeed: another process has the database, or its server cannot be
    /// reached.
    pub fn may_pass(&self) -> bool {
        match self {
            SqlError::InUse { .. } | SqlError::LogInUse { .. } | SqlError::Busy { .. } => true,
            SqlError::Refused { reason, .. } => reason.may_pass(),
            _ => false,
        }
    }
}

impl NoSpace for SqlError {
    fn missing_bytes(&self) -> Option<u64> {
        match self {
            SqlError::Full { bytes, .. } | SqlError::Quota { bytes, .. } => Some(*bytes),
            SqlError::Spool(error) => error.missing_bytes(),
            _ => None,
        }
    }

    fn is_over_quota(&self) -> bool {
        match self {
            SqlError::Quota { .. } => true,
            SqlError::Spool(error) => error.is_over_quota(),
            _ => false,
        }
    }
}

impl From<SqlError> for StorageError {
    fn from(error: SqlError) -> StorageError {
        match error {
            SqlError::Spool(error) => error,
            SqlError::NotUndoable { tid, reason } => StorageError::NotUndoable { tid, reason },
            SqlError::Full { bytes, .. } => StorageError::Full { bytes, cause: error.into() },
            SqlError::Quota { bytes, .. } => StorageError::Quota { bytes, cause: error.into() },
            SqlError::Damaged { .. } | SqlError::DamagedData { .. } => {
                StorageError::Corrupt(error.into())
            }
            SqlError::NotADatabase { .. } => StorageError::Corrupt(error.into()),
            SqlError::Failed { .. } => StorageError::Failed(error.into()),
            // Nothing that this process does mends that.
            SqlError::TakenOver { .. }
            | SqlError::Changed { .. }
            | SqlError::LogChanged { .. }
            | SqlError::LogSetAside { .. }
            | SqlError::LogLeft { .. } => StorageError::Changed(error.into()),
            SqlError::ReadOnly { .. }
            | SqlError::NotWritable { .. }
            | SqlError::ServerReadOnly { .. } => StorageError::ReadOnly(error.into()),
            SqlError::PackCancelled { .. } => StorageError::PackCancelled(error.into()),
            SqlError::Busy { .. } | SqlError::Io { .. } | SqlError::Refused { .. } => {
                StorageError::Io(error.into())
            }
            SqlError::OutOfRange { .. } | SqlError::TooLarge { .. } | SqlError::TooLong { .. } => {
                StorageError::Unsupported { what: error.to_string() }
            }
            _ => StorageError::Other(error.into()),
        }
    }
}
