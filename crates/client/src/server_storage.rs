//! A storage on a server, read like one of this process.
//!
//! Key decision: the seam's trait, so that a tool need not know where a storage is. What the
//! protocol cannot say is refused.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use zodium_pickle::{Value, encode};
use zodium_storage::{
    Access, Cause, HistoryEntry, Load, LogItem, ObjectStep, Read, RecordCursor, Revision, Stamp,
    StorageError, StoredRecord, Transaction, TransactionCursor,
};
use zodium_types::{Address, Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::reading::NO_OBJECT;
use crate::{Client, ClientError, CommittedRecord, Extension, LogReader, TransactionHead};

/// Loads that are requested with one write: enough to hide the way to a server.
const LOADS_AT_ONCE: usize = 64;

/// A storage on a server.
pub struct ServerStorage {
    client: Arc<Client>,
    name: String,
}

impl ServerStorage {
    /// Reads through `client`, which has one of these addresses.
    pub fn new(client: Arc<Client>, addresses: &[Address]) -> ServerStorage {
        let names: Vec<_> = addresses.iter().map(name_of).collect();
        ServerStorage { client, name: names.join(", ") }
    }

    fn info(&self, name: &str) -> u64 {
        self.client.info().entry(name).and_then(Value::as_u64).unwrap_or(0)
    }
}

/// What the seam calls the answer to a load.
fn as_load(answer: Result<Option<crate::Revision>, ClientError>) -> Result<Load, StorageError> {
    match answer {
        Ok(Some(found)) => Ok(Load::Revision(Revision {
            data: found.data,
            serial: found.serial,
            end: found.end,
            stamp: Stamp(0, 0),
        })),
        Ok(None) => Ok(Load::NoRevision),
        Err(ClientError::NoObject(_)) => Ok(Load::Missing),
        Err(error) => Err(failed(error)),
    }
}

/// As stock clients print an address.
fn name_of(address: &Address) -> String {
    match address {
        Address::Tcp { host, port } => format!("('{host}', {port})"),
        Address::Unix(path) => path.display().to_string(),
    }
}

impl Read for ServerStorage {
    fn name(&self) -> String {
        format!("{} (connected)", self.name)
    }

    fn is_read_only(&self) -> bool {
        self.client.is_read_only()
    }

    fn size(&self) -> u64 {
        self.info("size")
    }

    /// The protocol does not tell what kind of storage the server has.
    fn keeps_back_pointers(&self) -> bool {
        false
    }

    fn object_count(&self) -> u64 {
        self.info("length")
    }

    fn last_tid(&self) -> Tid {
        self.client.last_tid()
    }

    /// The protocol does not tell: the largest oid there can be.
    fn last_oid(&self) -> Oid {
        Oid(i64::MAX as u64)
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        if access == Access::NonBlocking {
            return Ok(Load::WouldBlock);
        }
        as_load(self.client.load_before(oid, before))
    }

    fn loads_at_once(&self) -> usize {
        LOADS_AT_ONCE
    }

    fn load_many_before(&self, asked: &[(Oid, Tid)]) -> Vec<Result<Load, StorageError>> {
        let same_before = asked.first().map(|(_, before)| *before);
        let same_before = same_before.filter(|same| asked.iter().all(|(_, it)| it == same));
        let oids: Vec<Oid> = asked.iter().map(|(oid, _)| *oid).collect();
        match same_before.map(|before| self.client.load_many(&oids, before)) {
            Some(Ok(loaded)) => loaded.into_iter().map(as_load).collect(),
            // Each tells its own error.
            Some(Err(_)) | None => {
                let load =
                    |&(oid, before): &(Oid, Tid)| as_load(self.client.load_before(oid, before));
                asked.iter().map(load).collect()
            }
        }
    }

    fn is_still_current(&self, _oid: Oid, _stamp: Stamp) -> bool {
        false
    }

    /// The protocol does not tell whether a record is a back pointer.
    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        match self.client.load_serial(oid, serial) {
            Ok(data) => Ok(Some(StoredRecord { data: Some(data.into()), data_tid: serial })),
            Err(ClientError::NoObject(_)) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        match self.load_before(oid, Tid::MAX, access)? {
            Load::WouldBlock => Ok(Poll::Pending),
            Load::Revision(revision) => Ok(Poll::Ready(Some(revision.serial))),
            Load::NoRevision | Load::Missing => Ok(Poll::Ready(None)),
        }
    }

    /// The protocol does not tell the status of a transaction, nor its length. Where a server
    /// refuses, for example because there are too many revisions, its log has them.
    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        if count == 0 {
            return Ok(());
        }
        let asked = i64::try_from(count).unwrap_or(i64::MAX);
        match self.client.call("history", &Value::tuple([oid.into(), asked.into()])) {
            Ok(Value::List(entries) | Value::Tuple(entries)) => {
                for entry in entries {
                    if !accept(history_entry(entry)?) {
                        break;
                    }
                }
                Ok(())
            }
            Ok(_) => Err(StorageError::Other("a history that is no list".into())),
            Err(error) if error.is_exception(NO_OBJECT) => Ok(()),
            Err(error @ ClientError::Raised(_)) if !is_damage(&error) => {
                Err(StorageError::Unsupported { what: error.to_string() })
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        match self.client.next_object(Some(from)) {
            Ok(found) => Ok(Some(ObjectStep {
                oid: found.oid,
                serial: found.serial,
                data: Some(found.data),
                following: found.following,
            })),
            // Servers of all kinds say so of an index without a further key.
            Err(error) if error.is_exception("builtins.ValueError") => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        let reader = self.client.read_log(start, stop).map_err(failed)?;
        Ok(Box::new(LogCursor { reader, is_within: false }))
    }

    fn recent(&self, _count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        let what = "a server does not tell its newest transactions; read its log from a tid";
        Err(StorageError::Unsupported { what: what.to_owned() })
    }
}

/// A place in the log of a server.
struct LogCursor {
    reader: LogReader,
    /// Whether the records of a transaction come next.
    is_within: bool,
}

impl TransactionCursor for LogCursor {
    fn step(&mut self) -> Result<Option<Transaction>, StorageError> {
        self.is_within = false;
        let Some(head) = self.reader.next_head().map_err(failed)? else { return Ok(None) };
        let (tid, status) = (head.tid, status_of(&head));
        let extension = pickled(head.extension)?.to_vec();
        let metadata =
            TransactionMetadata { user: head.user, description: head.description, extension };
        Ok(Some(Transaction { tid, status, metadata, length: 0 }))
    }

    /// None: [`TransactionCursor::read`] shows them.
    fn records(&self) -> Option<Box<dyn RecordCursor>> {
        None
    }

    fn read(
        &mut self,
        with_records: bool,
        visit: &mut dyn FnMut(LogItem<'_>) -> ControlFlow<()>,
    ) -> Result<bool, StorageError> {
        loop {
            if self.is_within && with_records {
                while let Some(record) = self.reader.next_record().map_err(failed)? {
                    let CommittedRecord { oid, data, data_tid, .. } = record;
                    let data = data.as_deref();
                    if visit(LogItem::Record { oid, data, data_tid }).is_break() {
                        return Ok(false);
                    }
                }
            }
            self.is_within = false;
            let next = self.reader.next_transaction().map_err(failed)?;
            let Some(head) = next else { return Ok(true) };
            self.is_within = true;
            let status = status_of(&head);
            let TransactionHead { tid, user, description, extension, .. } = head;
            let extension = &pickled(extension)?;
            let (user, description) = (&user, &description);
            let item = LogItem::Transaction { tid, status, user, description, extension };
            if visit(item).is_break() {
                return Ok(false);
            }
        }
    }
}

/// An entry of a history. What is in it besides is the extension of the transaction.
fn history_entry(entry: Value<'static>) -> Result<HistoryEntry, StorageError> {
    let wrong = || StorageError::Other("an entry of a history without a tid".into());
    let tid = entry.entry("tid").and_then(Value::as_tid).ok_or_else(wrong)?;
    let size = entry.entry("size").and_then(Value::as_u64).unwrap_or(0);
    let text = |name| match entry.entry(name) {
        Some(Value::Bytes(text)) => text.to_vec(),
        Some(Value::Str(text)) => text.as_bytes().to_vec(),
        _ => Vec::new(),
    };
    let (user, description) = (text("user_name"), text("description"));
    let Value::Dict(mut others) = entry else { return Err(wrong()) };
    let own = ["tid", "size", "time", "user_name", "description", "version"];
    others.retain(|(name, _)| !name.as_str().is_some_and(|name| own.contains(&name)));
    let extension = pickled(Extension::Dict(Value::Dict(others)))?.to_vec();
    let metadata = TransactionMetadata { user, description, extension };
    let status = TransactionStatus::default();
    Ok(HistoryEntry { size, transaction: Transaction { tid, status, metadata, length: 0 } })
}

fn status_of(head: &TransactionHead) -> TransactionStatus {
    let byte = u8::try_from(head.status).unwrap_or(b' ');
    TransactionStatus::from_byte(byte).unwrap_or_default()
}

/// The extension as a pickle. A dict from a server that sends no pickle is pickled anew, with its
/// keys sorted; an empty one is no pickle, as in a file.
fn pickled(extension: Extension) -> Result<Bytes, StorageError> {
    match extension {
        Extension::Pickle(pickle) => Ok(pickle),
        Extension::Dict(Value::Dict(entries)) if entries.is_empty() => Ok(Bytes::new()),
        Extension::Dict(Value::Dict(mut entries)) => {
            entries.sort_by(|(one, _), (two, _)| one.as_str().cmp(&two.as_str()));
            let mut pickle = BytesMut::new();
            encode(&Value::Dict(entries), &mut pickle);
            Ok(pickle.freeze())
        }
        Extension::Dict(_) => {
            Err(StorageError::Other("a transaction whose extension is no dict".into()))
        }
    }
}

/// The exception for damaged records, which has its name in two modules.
const CORRUPTED: [&str; 2] = [
    "ZODB.FileStorage.format.CorruptedDataError",
    "ZODB.FileStorage.FileStorage.CorruptedDataError",
];

fn is_damage(error: &ClientError) -> bool {
    CORRUPTED.iter().any(|name| error.is_exception(name))
}

fn failed(error: ClientError) -> StorageError {
    let is_damage = is_damage(&error);
    let cause: Cause = Box::<dyn Error + Send + Sync>::from(error);
    if is_damage { StorageError::Corrupt(cause) } else { StorageError::Io(cause) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_history_has_its_metadata_and_the_rest_is_the_extension() {
        let entry = |user: Value<'static>| {
            let (tid, size) = (Value::from(Tid(7)), 100.into());
            let own = [("tid", tid), ("size", size), ("time", 1.5.into()), ("user_name", user)];
            let others = [("description", b"why".into()), ("note", 1.into())];
            history_entry(Value::dict(own.into_iter().chain(others)))
        };
        for user in [Value::from(b"joe"), "joe".into()] {
            let HistoryEntry { size, transaction } = entry(user).unwrap();
            assert_eq!((size, transaction.tid), (100, Tid(7)));
            let TransactionMetadata { user, description, extension } = transaction.metadata;
            assert_eq!((&user[..], &description[..]), (&b"joe"[..], &b"why"[..]));
            let extension = Extension::Pickle(extension.into()).into_dict().unwrap();
            assert_eq!(extension, Value::dict([("note", 1.into())]));
        }
        assert_eq!(entry(Value::None).unwrap().transaction.metadata.user, b"");
        assert!(history_entry(Value::dict([("size", 1.into())])).is_err());
    }
}
