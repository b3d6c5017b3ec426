//! Errors as ZEO clients expect them: the name of a Python exception and its arguments.

use zodium_blobs::BlobError;
use zodium_engine::commit::{CommitError, Conflict, ConflictKind};
use zodium_engine::{FoundConflict, VoteError};
use zodium_pickle::{Value, class_of_record};
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

/// An exception for a client, which creates the Python exception of that name.
#[derive(Clone, Debug, PartialEq)]
pub struct Exception {
    /// Module and class.
    pub name: &'static str,
    /// The arguments as a tuple, or the attributes as a dict if the client expects that.
    pub payload: Value<'static>,
}

impl Exception {
    /// Creates an exception with a text as its only argument.
    pub(crate) fn new(name: &'static str, text: impl Into<String>) -> Exception {
        Exception { name, payload: Value::tuple([text_value(text)]) }
    }

    pub(crate) fn type_error(text: impl Into<String>) -> Exception {
        Exception::new("builtins.TypeError", text)
    }

    pub(crate) fn value_error(text: impl Into<String>) -> Exception {
        Exception::new("builtins.ValueError", text)
    }

    pub(crate) fn read_only() -> Exception {
        Exception { name: "ZODB.POSException.ReadOnlyError", payload: Value::tuple([]) }
    }

    pub(crate) fn missing_key(oid: Oid) -> Exception {
        let oid = Value::Bytes(oid.to_bytes().to_vec().into());
        Exception { name: "ZODB.POSException.POSKeyError", payload: Value::tuple([oid]) }
    }

    pub(crate) fn wrong_transaction(current: Value<'static>, asked: Value<'static>) -> Exception {
        Exception {
            name: "ZODB.POSException.StorageTransactionError",
            payload: Value::tuple([current, asked]),
        }
    }

    /// The error of a call that does not fit the state of its transaction.
    pub fn transaction_error(text: impl Into<String>) -> Exception {
        Exception::new("ZODB.POSException.StorageTransactionError", text)
    }

    pub(crate) fn file_storage_error(text: impl Into<String>) -> Exception {
        Exception::new("ZODB.FileStorage.FileStorage.FileStorageError", text)
    }

    /// The error of a transaction that cannot be undone.
    pub fn undo(reason: impl Into<String>) -> Exception {
        Exception {
            name: "ZODB.POSException.UndoError",
            payload: Value::dict([("_reason", text_value(reason)), ("_oid", Value::None)]),
        }
    }

    /// The exception for a transaction for which there is no memory.
    pub(crate) fn memory_full(limit_bytes: u64, transaction_bytes: usize) -> Exception {
        let text = format!(
            "the memory limit of {limit_bytes} bytes (memory-limit) is reached, and this \
             transaction needs {transaction_bytes} bytes of memory: try again later, commit in \
             smaller transactions, or raise the limit"
        );
        Exception::new("ZODB.POSException.StorageSystemError", text)
    }

    /// As [`Exception::conflict`], with the class of the data.
    pub fn hopeless(found: &FoundConflict) -> Exception {
        let class = class_of_record(&found.data).map(|class| class.to_string());
        Exception::conflict(&found.conflict, class)
    }

    /// The exception for a conflict that the client cannot resolve. `class_name` is
    /// `module.Class`, if known.
    pub fn conflict(conflict: &Conflict, class_name: Option<String>) -> Exception {
        let (name, message) = match conflict.kind {
            ConflictKind::Missing => return Exception::missing_key(conflict.oid),
            ConflictKind::Read => {
                ("ZODB.POSException.ReadConflictError", "database read conflict error")
            }
            ConflictKind::Store | ConflictKind::Undo | ConflictKind::Delete => {
                ("ZODB.POSException.ConflictError", "database conflict error")
            }
        };
        let payload = Value::dict([
            ("message", text_value(message)),
            ("oid", oid_value(conflict.oid)),
            ("class_name", class_name.map_or(Value::None, text_value)),
            ("serials", serials_value(conflict)),
        ]);
        Exception { name, payload }
    }
}

/// One entry in a vote's list of conflicts for the client to resolve.
pub(crate) fn conflict_to_resolve(found: FoundConflict) -> Value<'static> {
    let FoundConflict { conflict, data } = found;
    Value::dict([
        ("oid", oid_value(conflict.oid)),
        ("serials", serials_value(&conflict)),
        // Without a copy, if they were read from a spool.
        ("data", Vec::from(data).into()),
    ])
}

pub(crate) fn oid_value(oid: Oid) -> Value<'static> {
    Value::Bytes(oid.to_bytes().to_vec().into())
}

pub(crate) fn tid_value(tid: Tid) -> Value<'static> {
    Value::Bytes(tid.to_bytes().to_vec().into())
}

pub(crate) fn text_value(text: impl Into<String>) -> Value<'static> {
    Value::Str(text.into().into())
}

fn serials_value(conflict: &Conflict) -> Value<'static> {
    Value::tuple([tid_value(conflict.committed), tid_value(conflict.sent)])
}

impl From<StorageError> for Exception {
    fn from(error: StorageError) -> Exception {
        Exception::from(&error)
    }
}

impl From<&StorageError> for Exception {
    fn from(error: &StorageError) -> Exception {
        match error {
            StorageError::ReadOnly { .. } => Exception::read_only(),
            StorageError::NotUndoable { .. } => Exception::undo(error.to_string()),
            StorageError::AlreadyPacking { .. } => Exception::file_storage_error("Already packing"),
            StorageError::Blob(error) => error.into(),
            StorageError::Unsupported { .. } => {
                Exception::new("ZODB.POSException.Unsupported", error.to_string())
            }
            StorageError::Quota { .. } => Exception::new(
                "ZODB.FileStorage.FileStorage.FileStorageQuotaError",
                format!("The storage quota has been exceeded. ({error})"),
            ),
            StorageError::Corrupt { .. } => {
                Exception::new("ZODB.FileStorage.FileStorage.CorruptedDataError", error.to_string())
            }
            _ => Exception::new("ZODB.POSException.StorageSystemError", error.to_string()),
        }
    }
}

impl From<BlobError> for Exception {
    fn from(error: BlobError) -> Exception {
        Exception::from(&error)
    }
}

impl From<&BlobError> for Exception {
    fn from(error: &BlobError) -> Exception {
        match error {
            // To an application a damaged blob is one that is not there.
            BlobError::Missing { oid, tid, .. }
            | BlobError::Length { oid, tid, .. }
            | BlobError::Sum { oid, tid, .. } => Exception {
                name: "ZODB.POSException.POSKeyError",
                payload: Value::tuple([
                    text_value(error.to_string()),
                    oid_value(*oid),
                    tid_value(*tid),
                ]),
            },
            BlobError::Name { .. } | BlobError::NotShared { .. } => {
                Exception::value_error(error.to_string())
            }
            BlobError::ReadOnly { .. } => Exception::read_only(),
            _ => Exception::new("ZODB.POSException.StorageSystemError", error.to_string()),
        }
    }
}

impl From<CommitError> for Exception {
    fn from(error: CommitError) -> Exception {
        match error {
            CommitError::StorageFailed => {
                Exception::new("ZODB.POSException.StorageSystemError", error.to_string())
            }
            _ => Exception::transaction_error(error.to_string()),
        }
    }
}

impl From<VoteError> for Exception {
    fn from(error: VoteError) -> Exception {
        match error {
            VoteError::Commit(error) => error.into(),
            VoteError::Storage(error) => error.into(),
            VoteError::ManyConflicts { one } => Exception::hopeless(&one),
            VoteError::UndoConflict { oids } => undo_conflict(&oids),
            VoteError::EmptyData { .. } => Exception::value_error(error.to_string()),
            _ => Exception::transaction_error(error.to_string()),
        }
    }
}

fn undo_conflict(oids: &[Oid]) -> Exception {
    const REASON: &str = "Some data were modified by a later transaction";
    let entry = |oid: &Oid| Value::tuple([oid_value(*oid), text_value(REASON)]);
    Exception {
        name: "ZODB.POSException.MultipleUndoErrors",
        payload: Value::dict([("_errs", Value::list(oids.iter().map(entry)))]),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn what_a_storage_refuses_is_the_exception_that_zodb_has_for_it() {
        let cause = || io::Error::other("the cause");
        let vote = |error: VoteError| Exception::from(error).name;
        let storage = |error: StorageError| vote(error.into());
        let undo = StorageError::NotUndoable { tid: Tid(1), reason: "a reason" };
        assert_eq!(storage(undo), "ZODB.POSException.UndoError");
        let read_only = StorageError::ReadOnly(cause().into());
        assert_eq!(storage(read_only), "ZODB.POSException.ReadOnlyError");
        let packing = StorageError::AlreadyPacking(cause().into());
        assert_eq!(storage(packing), "ZODB.FileStorage.FileStorage.FileStorageError");
        let quota = StorageError::Quota { bytes: 1, cause: cause().into() };
        assert_eq!(storage(quota), "ZODB.FileStorage.FileStorage.FileStorageQuotaError");
        let corrupt = StorageError::Corrupt(cause().into());
        assert_eq!(storage(corrupt), "ZODB.FileStorage.FileStorage.CorruptedDataError");
        let failed = StorageError::Io(cause().into());
        assert_eq!(storage(failed), "ZODB.POSException.StorageSystemError");
        assert_eq!(vote(VoteError::EmptyData { oid: Oid(1) }), "builtins.ValueError");
        let failed = CommitError::StorageFailed;
        assert_eq!(vote(failed.into()), "ZODB.POSException.StorageSystemError");
        let (oid, committed, sent) = (Oid(1), Tid(2), Tid(1));
        let conflict = Conflict { oid, committed, sent, kind: ConflictKind::Store };
        let one = FoundConflict { conflict, data: bytes::Bytes::new() };
        assert_eq!(vote(VoteError::ManyConflicts { one }), "ZODB.POSException.ConflictError");
    }

    #[test]
    fn what_a_blob_directory_refuses_is_the_exception_that_zodb_has_for_it() {
        let (oid, path, name) = (Oid(1), || "blobs".into(), "../name".to_owned());
        for (error, expected) in [
            (BlobError::Name { oid, name }, "builtins.ValueError"),
            (BlobError::NotShared { oid, path: path() }, "builtins.ValueError"),
            (BlobError::ReadOnly { path: path() }, "ZODB.POSException.ReadOnlyError"),
        ] {
            assert_eq!(Exception::from(&error).name, expected, "{error}");
        }
    }
}
