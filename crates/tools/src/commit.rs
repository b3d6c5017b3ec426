//! Commits one transaction of a dump as a new one.

use std::task::Poll;

use bytes::Bytes;
use zodium_storage::{Access, Load, NewBody, NewRecord, NewTransaction, Read, StorageError, Write};
use zodium_types::{Oid, Tid};

use crate::ToolError;
use crate::dump::{DumpBody, DumpObject, DumpTransaction};
use crate::load::no_data;

/// Commits the objects of `transaction` to a storage of this process, with a tid that is not
/// earlier than `now`. Returns the tid.
///
/// # Errors
/// `Refused`, with nothing written, when an object has changed after transaction `at`, when the
/// data of a copy are not there, and for an object whose data the dump leaves out.
pub fn commit(
    storage: &dyn Write,
    transaction: DumpTransaction,
    at: Tid,
    now: Tid,
) -> Result<Tid, ToolError> {
    let DumpTransaction { metadata, objects, status, .. } = transaction;
    let records = objects.into_iter().map(|object| record(storage, object, at));
    let records = records.collect::<Result<Vec<_>, _>>()?;
    let new = NewTransaction { status, metadata, records };
    let Poll::Ready(prepared) = storage.prepare(new, Access::Blocking)? else {
        return Err(StorageError::Other("a blocking call did not wait".into()).into());
    };
    let tid = now.max(storage.last_tid().next());
    storage.commit(vec![(tid, prepared)])?;
    Ok(tid)
}

fn record(storage: &dyn Write, object: DumpObject, at: Tid) -> Result<NewRecord, ToolError> {
    let oid = object.oid;
    let serial = storage.current_serial(oid)?;
    if let Some(serial) = serial.filter(|serial| *serial > at) {
        return Err(ToolError::Refused(format!(
            "conflict: object {oid} was changed by transaction {serial}, after {at}"
        )));
    }
    let body = match object.body {
        DumpBody::Delete if storage.serial_of_living(oid)?.is_none() => {
            return Err(ToolError::Refused(format!("object {oid}: there is none to delete")));
        }
        DumpBody::Delete => NewBody::Deleted,
        DumpBody::Data(data) => NewBody::Data(data),
        DumpBody::CopyOf(earlier) => NewBody::Data(data_at(storage, oid, earlier)?),
        DumpBody::HashOnly => return Err(no_data(oid)),
    };
    Ok(NewRecord { oid, body })
}

/// The data that an object had after a transaction.
pub fn data_at(storage: &(impl Read + ?Sized), oid: Oid, tid: Tid) -> Result<Bytes, ToolError> {
    match storage.load_before(oid, tid.next(), Access::Blocking)? {
        Load::Revision(revision) => Ok(revision.data),
        Load::NoRevision | Load::Missing | Load::WouldBlock => Err(ToolError::Refused(format!(
            "object {oid}: it has no data to copy as of transaction {tid}"
        ))),
    }
}
