//! Reads a storage of this process, without a server.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_storage::{Access, Load, LogItem, Read, TransactionCursor};
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::REPLY_LIMITS;

use crate::{ClientError, CommittedRecord, CommittedTransaction, Revision};

/// Loads as [`crate::Client::load_before`] does.
pub(crate) fn load_before(
    storage: &dyn Read,
    oid: Oid,
    before: Tid,
) -> Result<Option<Revision>, ClientError> {
    match storage.load_before(oid, before, Access::Blocking).map_err(ClientError::options)? {
        Load::Revision(found) => {
            let (data, serial, end) = (found.data, found.serial, found.end);
            Ok(Some(Revision { data, serial, end }))
        }
        Load::NoRevision => Ok(None),
        // Blocking reads never return `WouldBlock`.
        Load::Missing | Load::WouldBlock => Err(ClientError::NoObject(oid)),
    }
}

/// The transactions of a storage, oldest first. Ends after an error.
pub(crate) struct StoredTransactions {
    cursor: Option<Box<dyn TransactionCursor>>,
    /// The next transaction, whose records have not been read.
    begun: Option<CommittedTransaction>,
}

impl StoredTransactions {
    /// Those from `start` to `stop`, both included.
    pub(crate) fn new(
        storage: &Arc<dyn Read>,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<StoredTransactions, ClientError> {
        let cursor = storage.iterate(start, stop).map_err(ClientError::options)?;
        Ok(StoredTransactions { cursor: Some(cursor), begun: None })
    }
}

impl Iterator for StoredTransactions {
    type Item = Result<CommittedTransaction, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = next_of(self.cursor.as_deref_mut()?, &mut self.begun).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.cursor = None;
        }
        next
    }
}

/// Reads up to the beginning of the transaction after the next one. Storages on servers show their
/// records in no other way.
fn next_of(
    cursor: &mut dyn TransactionCursor,
    begun: &mut Option<CommittedTransaction>,
) -> Result<Option<CommittedTransaction>, ClientError> {
    let (mut current, mut failure) = (begun.take(), None);
    let read = cursor.read(true, &mut |item| match (item, &mut current) {
        (
            LogItem::Record { oid, data, data_tid },
            Some(CommittedTransaction { tid, records, .. }),
        ) => {
            let data = data.map(Bytes::copy_from_slice);
            records.push(CommittedRecord { oid, tid: *tid, data, data_tid });
            ControlFlow::Continue(())
        }
        (LogItem::Transaction { tid, status, user, description, extension: pickle }, current) => {
            let transaction = extension(pickle).map(|extension| CommittedTransaction {
                tid,
                status: char::from(status.to_byte()),
                user: user.to_vec(),
                description: description.to_vec(),
                extension,
                records: Vec::new(),
            });
            match transaction {
                Ok(first) if current.is_none() => *current = Some(first),
                Ok(following) => {
                    *begun = Some(following);
                    return ControlFlow::Break(());
                }
                Err(error) => {
                    failure = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        }
        (LogItem::Record { .. } | LogItem::Skipped, _) => ControlFlow::Continue(()),
    });
    read.map_err(ClientError::options)?;
    failure.map_or(Ok(current), Err)
}

/// Decodes the extension: a pickled dict, or nothing for an empty one.
fn extension(pickle: &[u8]) -> Result<Value<'static>, ClientError> {
    if pickle.is_empty() {
        return Ok(Value::Dict(Vec::new()));
    }
    let decoded = zodium_pickle::decode(pickle, &REPLY_LIMITS);
    decoded.map(|(value, _)| value.into_owned()).map_err(ClientError::options)
}
