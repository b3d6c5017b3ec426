//! Commits on servers.

use std::sync::Arc;

use anyhow::Result;
use zodium_client::{Client, ClientError, StoreConflict, Transaction, TransactionOptions, Voted};
use zodium_pickle::{Limits, Value, decode_extension};
use zodium_storage::{LogItem, StorageError};
use zodium_tools::ToolError;
use zodium_tools::dump::{DumpBody, DumpTransaction};
use zodium_tools::load::{Restore, no_data};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

/// The class of conflicts that a client cannot resolve.
const CONFLICT_ERROR: &str = "ZODB.POSException.ConflictError";

/// Restores transactions into a storage on a server.
pub(super) struct ServerRestore {
    client: Arc<Client>,
    last_tid: Tid,
    /// The transaction whose records come now.
    open: Option<(Tid, Transaction)>,
}

impl ServerRestore {
    /// Writes behind the last transaction of the storage.
    pub(super) fn new(client: Arc<Client>) -> ServerRestore {
        let last_tid = client.last_tid();
        ServerRestore { client, last_tid, open: None }
    }

    fn restore(
        &mut self,
        oid: Oid,
        data: Option<&[u8]>,
        earlier: Option<Tid>,
    ) -> Result<(), ToolError> {
        match &mut self.open {
            Some((tid, open)) => open.restore(oid, *tid, data, earlier).map_err(failed),
            None => Err(ToolError::Refused("a record without its transaction".to_owned())),
        }
    }

    fn finish_open(&mut self) -> Result<(), ToolError> {
        if let Some((_, open)) = self.open.take() {
            self.last_tid = finish(open)?;
        }
        Ok(())
    }
}

impl Restore for ServerRestore {
    fn apply(&mut self, item: LogItem<'_>) -> Result<(), ToolError> {
        match item {
            LogItem::Transaction { tid, status, user, description, extension } => {
                self.finish_open()?;
                if tid <= self.last_tid {
                    let last = self.last_tid;
                    return Err(ToolError::Refused(format!(
                        "transaction {tid} is not newer than the last one of the server's \
                         storage, {last}; does another program write there?"
                    )));
                }
                let options = options(status, (user, description, extension), Some(tid))?;
                self.open = Some((tid, self.client.begin(&options).map_err(failed)?));
                Ok(())
            }
            LogItem::Record { oid, data, data_tid } => self.restore(oid, data, data_tid),
            LogItem::Skipped => Ok(()),
        }
    }

    fn apply_copy(&mut self, oid: Oid, earlier: Tid) -> Result<(), ToolError> {
        let data = load_at(&self.client, oid, earlier)?;
        self.restore(oid, Some(&data), Some(earlier))
    }

    fn durable_tid(&self) -> Tid {
        self.last_tid
    }

    fn forget_unfinished(&mut self) {
        // Dropping it aborts it.
        self.open = None;
    }

    fn finish(mut self: Box<Self>) -> Result<Tid, ToolError> {
        self.finish_open()?;
        Ok(self.last_tid)
    }
}

/// Commits a transaction that is based on transaction `at`.
pub(super) fn commit_to_server(
    client: &Client,
    transaction: &DumpTransaction,
    at: Tid,
) -> Result<Tid, ToolError> {
    let TransactionMetadata { user, description, extension } = &transaction.metadata;
    let options = options(transaction.status, (user, description, extension), None)?;
    let mut open = client.begin(&options).map_err(failed)?;
    for object in &transaction.objects {
        let oid = object.oid;
        let base = Base::of(client, oid, at)?;
        match &object.body {
            DumpBody::Delete if !base.lives => {
                return Err(ToolError::Refused(format!("object {oid}: there is none to delete")));
            }
            DumpBody::Delete => open.delete(oid, base.serial),
            DumpBody::Data(data) => open.store(oid, base.serial, data.clone()),
            DumpBody::CopyOf(earlier) => {
                open.store(oid, base.serial, load_at(client, oid, *earlier)?.into())
            }
            DumpBody::HashOnly => return Err(no_data(oid)),
        }
        .map_err(failed)?;
    }
    // A server merges the changes of two transactions where it can, as those of a BTree.
    if let Some(oid) = vote(&mut open)?.changed.first() {
        let what = format!("conflict: object {oid} was changed after {at}");
        return Err(ToolError::Refused(what));
    }
    open.finish(|_| ()).map_err(failed)
}

/// What a new revision of an object is stored upon.
struct Base {
    serial: Tid,
    /// Whether it is an object, and no deletion.
    lives: bool,
}

impl Base {
    /// The base as of transaction `at`.
    fn of(client: &Client, oid: Oid, at: Tid) -> Result<Base, ToolError> {
        match client.load_before(oid, at.next()) {
            Ok(Some(found)) => return Ok(Base { serial: found.serial, lives: true }),
            Ok(None) | Err(ClientError::NoObject(_)) => {}
            Err(error) => return Err(failed(error)),
        }
        // A deletion has a serial too, which only the history of the object tells.
        let serial = match client.call("history", &Value::tuple([oid.into(), Value::Int(1)])) {
            Ok(newest) => {
                newest.as_sequence().and_then(|newest| newest.first()?.entry("tid")?.as_tid())
            }
            Err(ClientError::Raised(_)) => None,
            Err(error) => return Err(failed(error)),
        };
        match serial {
            Some(serial) if serial > at => Err(ToolError::Refused(format!(
                "conflict: object {oid} was changed by transaction {serial}, after {at}"
            ))),
            serial => Ok(Base { serial: serial.unwrap_or(Tid::ZERO), lives: false }),
        }
    }
}

fn finish(mut open: Transaction) -> Result<Tid, ToolError> {
    vote(&mut open)?;
    open.finish(|_| ()).map_err(failed)
}

fn vote(open: &mut Transaction) -> Result<Voted, ToolError> {
    let voted = open.vote().map_err(|error| match raised_conflict(&error) {
        Some((oid, committed)) => conflict(oid, committed),
        None => failed(error),
    })?;
    match voted.conflicts.first() {
        Some(StoreConflict { oid, committed, .. }) => Err(conflict(*oid, *committed)),
        None => Ok(voted),
    }
}

fn conflict(oid: Oid, committed: Tid) -> ToolError {
    ToolError::Refused(format!("conflict: object {oid} was changed by transaction {committed}"))
}

/// The object and its current serial, if a vote has raised a conflict. A server does so where there
/// is nothing to resolve, as for a deletion.
fn raised_conflict(error: &ClientError) -> Option<(Oid, Tid)> {
    let ClientError::Raised(exception) = error else { return None };
    if exception.name != CONFLICT_ERROR {
        return None;
    }
    let serials = exception.payload.entry("serials")?;
    let committed = serials.as_sequence()?.first()?.as_tid()?;
    Some((exception.payload.entry("oid")?.as_oid()?, committed))
}

fn options(
    status: TransactionStatus,
    (user, description, extension): (&[u8], &[u8], &[u8]),
    tid: Option<Tid>,
) -> Result<TransactionOptions, ToolError> {
    let extension = plain_extension(extension).map_err(|why| {
        let whose = tid.map_or(String::new(), |tid| format!("transaction {tid}: "));
        ToolError::Refused(format!(
            "{whose}its extension is no plain data, and servers refuse others: {why}; copy to a \
             file, and serve that"
        ))
    })?;
    let (user, description) = (user.to_vec(), description.to_vec());
    let status = char::from(status.to_byte());
    Ok(TransactionOptions { user, description, extension, tid, status })
}

/// An extension as servers take it.
fn plain_extension(pickle: &[u8]) -> Result<Value<'static>, String> {
    if pickle.is_empty() {
        return Ok(Value::Dict(Vec::new()));
    }
    match decode_extension(pickle, &Limits::OBJECTS) {
        Ok(value) if value.is_plain() => Ok(value.into_owned()),
        Ok(_) => Err("it holds an instance".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn load_at(client: &Client, oid: Oid, tid: Tid) -> Result<Vec<u8>, ToolError> {
    let found = client.load_before(oid, tid.next()).map_err(failed)?;
    found.map(|found| found.data.to_vec()).ok_or_else(|| {
        ToolError::Refused(format!("object {oid}: there are no data of transaction {tid} to copy"))
    })
}

fn failed(error: ClientError) -> ToolError {
    StorageError::Io(Box::new(error)).into()
}
