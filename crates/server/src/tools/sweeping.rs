//! What `zodium gc` commits to each kind of storage.

use std::task::Poll;

use bytes::Bytes;
use jiff::Timestamp;
use zodium_client::{Client, ClientError, Transaction, TransactionOptions};
use zodium_pickle::Value;
use zodium_storage::{
    Access, Load, NewBody, NewRecord, NewTransaction, Shared, SharedWrite, Storage, StorageError,
};
use zodium_tools::ToolError;
use zodium_tools::gc::{Change, Sweep};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use super::shared::commit_to_shared;

const DESCRIPTION: &[u8] = b"garbage collection";

/// A storage of this process, which nothing else writes to.
pub(super) struct LocalSweep<'s> {
    storage: &'s dyn Storage,
}

impl<'s> LocalSweep<'s> {
    pub(super) fn new(storage: &'s dyn Storage) -> LocalSweep<'s> {
        LocalSweep { storage }
    }
}

impl Sweep for LocalSweep<'_> {
    fn refresh(&self) -> Result<(), ToolError> {
        Ok(())
    }

    fn commit(&self, changes: Vec<Change>) -> Result<bool, ToolError> {
        let mut records = Vec::with_capacity(changes.len());
        for change in changes {
            let SharedWrite { oid, serial, body } = write_of(change);
            if self.storage.current_serial(oid)? != Some(serial) {
                return Ok(false);
            }
            records.push(NewRecord { oid, body });
        }
        let new =
            NewTransaction { status: TransactionStatus::Normal, metadata: metadata(), records };
        let Poll::Ready(prepared) = self.storage.prepare(new, Access::Blocking)? else {
            return Err(StorageError::Other("a blocking call did not wait".into()).into());
        };
        let nanos = u64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(0);
        let tid = Tid::from_unix_nanos(nanos).max(self.storage.last_tid().next());
        self.storage.commit(vec![(tid, prepared)])?;
        Ok(true)
    }

    fn data_before(&self, oid: Oid, tid: Tid) -> Result<Bytes, ToolError> {
        data_before(self.storage, oid, tid)
    }
}

/// A storage that decides about commits itself.
pub(super) struct SharedSweep<'s> {
    storage: &'s dyn Storage,
    shared: &'s dyn Shared,
}

impl<'s> SharedSweep<'s> {
    pub(super) fn new(storage: &'s dyn Storage, shared: &'s dyn Shared) -> SharedSweep<'s> {
        SharedSweep { storage, shared }
    }
}

impl Sweep for SharedSweep<'_> {
    fn refresh(&self) -> Result<(), ToolError> {
        Ok(())
    }

    fn commit(&self, changes: Vec<Change>) -> Result<bool, ToolError> {
        let writes: Vec<_> = changes.into_iter().map(write_of).collect();
        Ok(commit_to_shared(self.shared, &metadata(), &writes)?.is_ok())
    }

    fn data_before(&self, oid: Oid, tid: Tid) -> Result<Bytes, ToolError> {
        data_before(self.storage, oid, tid)
    }
}

/// A storage on a server.
pub(super) struct ServerSweep<'c> {
    client: &'c Client,
}

impl<'c> ServerSweep<'c> {
    pub(super) fn new(client: &'c Client) -> ServerSweep<'c> {
        ServerSweep { client }
    }

    fn store(transaction: &mut Transaction, change: Change) -> Result<(), ClientError> {
        match change {
            Change::Delete(oid, serial) => transaction.delete(oid, serial),
            Change::BringBack(oid, serial, data) => transaction.store(oid, serial, data),
        }
    }
}

impl Sweep for ServerSweep<'_> {
    fn refresh(&self) -> Result<(), ToolError> {
        // The answer comes after the invalidations of all that was committed before it.
        self.client.sync().map_err(failed)
    }

    fn commit(&self, changes: Vec<Change>) -> Result<bool, ToolError> {
        let options = TransactionOptions {
            user: Vec::new(),
            description: DESCRIPTION.to_vec(),
            extension: Value::Dict(Vec::new()),
            tid: None,
            status: ' ',
        };
        let mut transaction = self.client.begin(&options).map_err(failed)?;
        for change in changes {
            ServerSweep::store(&mut transaction, change).map_err(failed)?;
        }
        match transaction.vote() {
            Ok(voted) if voted.conflicts.is_empty() => {}
            Ok(_) => return abort(transaction),
            Err(error) if is_conflict(&error) => return abort(transaction),
            Err(error) => return Err(failed(error)),
        }
        transaction.finish(|_| ()).map_err(failed)?;
        Ok(true)
    }

    fn data_before(&self, oid: Oid, tid: Tid) -> Result<Bytes, ToolError> {
        let found = self.client.load_before(oid, tid).map_err(failed)?;
        found.map(|found| found.data).ok_or_else(|| nothing_before(oid, tid))
    }
}

fn abort(transaction: Transaction) -> Result<bool, ToolError> {
    transaction.abort().map_err(failed)?;
    Ok(false)
}

/// Whether another transaction has changed or deleted one of the objects.
fn is_conflict(error: &ClientError) -> bool {
    ["ConflictError", "ReadConflictError", "POSKeyError"]
        .iter()
        .any(|name| error.is_exception(&format!("ZODB.POSException.{name}")))
}

fn metadata() -> TransactionMetadata {
    let description = DESCRIPTION.to_vec();
    TransactionMetadata { description, ..TransactionMetadata::default() }
}

fn write_of(change: Change) -> SharedWrite {
    match change {
        Change::Delete(oid, serial) => SharedWrite { oid, serial, body: NewBody::Deleted },
        Change::BringBack(oid, serial, data) => {
            SharedWrite { oid, serial, body: NewBody::Data(data) }
        }
    }
}

fn data_before(storage: &dyn Storage, oid: Oid, tid: Tid) -> Result<Bytes, ToolError> {
    match storage.load_before(oid, tid, Access::Blocking)? {
        Load::Revision(revision) => Ok(revision.data),
        Load::NoRevision | Load::Missing | Load::WouldBlock => Err(nothing_before(oid, tid)),
    }
}

fn nothing_before(oid: Oid, tid: Tid) -> ToolError {
    ToolError::Refused(format!(
        "object {oid} is in use again, and its data before transaction {tid} are gone"
    ))
}

fn failed(error: ClientError) -> ToolError {
    StorageError::Io(Box::new(error)).into()
}
