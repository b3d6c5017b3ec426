//! Records that point back to others: what undos and copies of transactions write.
use std::collections::HashMap;

use bytes::Bytes;
use zodium_filestorage::{FileStorage, FileStorageError};
use zodium_storage::{Access, NewBody, UndoneRecord};
use zodium_types::{Oid, Tid};

/// The revisions that the undos of one transaction have brought back so far.
pub(crate) type Undoing = HashMap<Oid, Option<Tid>>;

/// What undoes a record of transaction `tid`; `None` when its data are not the current ones.
pub(crate) fn undo_record(
    storage: &FileStorage,
    tid: Tid,
    record: UndoneRecord,
    undoing: &mut Undoing,
) -> Result<Option<NewBody>, FileStorageError> {
    let UndoneRecord { oid, previous } = record;
    let packed = || FileStorageError::NotUndoable { tid, reason: "it was packed" };
    let data = |serial: Option<Tid>| -> Result<Option<Bytes>, FileStorageError> {
        match serial {
            Some(serial) => Ok(storage.reader().record(oid, serial)?.ok_or_else(packed)?.data),
            None => Ok(None),
        }
    };
    let current = match undoing.get(&oid) {
        Some(current) => *current,
        None => storage.reader().current_serial(oid, Access::Blocking)?.flatten(),
    };
    if current != Some(tid) && data(current)? != data(Some(tid))? {
        return Ok(None);
    }
    data(previous)?;
    undoing.insert(oid, previous);
    Ok(Some(previous.map_or(NewBody::Deleted, NewBody::SameAs)))
}

/// What a copy of a record writes whose source is said to be the transaction `source`.
pub(crate) fn copied_body(
    storage: &FileStorage,
    oid: Oid,
    data: Option<Bytes>,
    source: Option<Tid>,
) -> Result<NewBody, FileStorageError> {
    let Some(data) = data else { return Ok(NewBody::Deleted) };
    let Some(source) = source else { return Ok(NewBody::Data(data)) };
    match storage.reader().record(oid, source)? {
        Some(record) if record.data.as_ref() == Some(&data) => Ok(NewBody::SameAs(source)),
        _ => Ok(NewBody::Data(data)),
    }
}
