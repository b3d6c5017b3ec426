//! Commits to storages that decide about commits themselves.

use std::sync::mpsc::channel;

use zodium_storage::{Access, Load, NewBody, Shared, SharedConflict, SharedWrite};
use zodium_storage::{Storage, StorageError};
use zodium_tools::ToolError;
use zodium_tools::commit::data_at;
use zodium_tools::dump::{DumpBody, DumpObject, DumpTransaction};
use zodium_tools::load::no_data;
use zodium_types::{Tid, TransactionMetadata};

/// Commits writes as one transaction: its tid, or a conflict, with which nothing is committed.
pub(super) fn commit_to_shared(
    shared: &dyn Shared,
    metadata: &TransactionMetadata,
    writes: &[SharedWrite],
) -> Result<Result<Tid, SharedConflict>, ToolError> {
    let mut transaction = shared.begin(metadata)?;
    if let Some(conflict) = transaction.store(writes, &[])?.first() {
        return Ok(Err(*conflict));
    }
    let prepared = transaction.vote()?;
    let (sender, outcome) = channel();
    shared.finish(prepared, Box::new(move |done| drop(sender.send(done))));
    let lost = |_| StorageError::Other("the outcome of a commit is not known".into());
    Ok(Ok(outcome.recv().map_err(lost)??.tid))
}

/// Commits a transaction of a dump that is based on transaction `at`.
pub(super) fn commit_dump_to_shared(
    storage: &dyn Storage,
    shared: &dyn Shared,
    transaction: DumpTransaction,
    at: Tid,
) -> Result<Tid, ToolError> {
    let DumpTransaction { metadata, objects, .. } = transaction;
    let writes = objects.into_iter().map(|object| write(storage, object, at));
    let writes = writes.collect::<Result<Vec<_>, _>>()?;
    commit_to_shared(shared, &metadata, &writes)?.map_err(|conflict| {
        let SharedConflict { oid, committed } = conflict;
        ToolError::Refused(format!(
            "conflict: object {oid} was changed by transaction {committed}, after {at}"
        ))
    })
}

fn write(storage: &dyn Storage, object: DumpObject, at: Tid) -> Result<SharedWrite, ToolError> {
    let oid = object.oid;
    let serial = match storage.load_before(oid, at.next(), Access::Blocking)? {
        Load::Revision(revision) => revision.serial,
        Load::NoRevision | Load::Missing | Load::WouldBlock => Tid::ZERO,
    };
    let body = match object.body {
        DumpBody::Delete => NewBody::Deleted,
        DumpBody::Data(data) => NewBody::Data(data),
        DumpBody::CopyOf(earlier) => NewBody::Data(data_at(storage, oid, earlier)?),
        DumpBody::HashOnly => return Err(no_data(oid)),
    };
    Ok(SharedWrite { oid, serial, body })
}
