//! Reads a storage of this process, without a server.

use std::sync::Arc;

use zodium_pickle::Value;
use zodium_storage::{Access, Load, Read, TransactionCursor};
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
}

impl StoredTransactions {
    /// Those from `start` to `stop`, both included.
    pub(crate) fn new(
        storage: &Arc<dyn Read>,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<StoredTransactions, ClientError> {
        let cursor = storage.iterate(start, stop).map_err(ClientError::options)?;
        Ok(StoredTransactions { cursor: Some(cursor) })
    }
}

impl Iterator for StoredTransactions {
    type Item = Result<CommittedTransaction, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = next_of(self.cursor.as_deref_mut()?).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.cursor = None;
        }
        next
    }
}

fn next_of(
    cursor: &mut dyn TransactionCursor,
) -> Result<Option<CommittedTransaction>, ClientError> {
    let Some(transaction) = cursor.step().map_err(ClientError::options)? else { return Ok(None) };
    let mut records = Vec::new();
    if let Some(mut steps) = cursor.records() {
        while let Some(record) = steps.step().map_err(ClientError::options)? {
            let (oid, tid, data, data_tid) = (record.oid, record.tid, record.data, record.data_tid);
            records.push(CommittedRecord { oid, tid, data, data_tid });
        }
    }
    let metadata = transaction.metadata;
    Ok(Some(CommittedTransaction {
        tid: transaction.tid,
        status: char::from(transaction.status.to_byte()),
        user: metadata.user,
        description: metadata.description,
        extension: extension(&metadata.extension)?,
        records,
    }))
}

/// Decodes the extension: a pickled dict, or nothing for an empty one.
fn extension(pickle: &[u8]) -> Result<Value<'static>, ClientError> {
    if pickle.is_empty() {
        return Ok(Value::Dict(Vec::new()));
    }
    let decoded = zodium_pickle::decode(pickle, &REPLY_LIMITS);
    decoded.map(|(value, _)| value.into_owned()).map_err(ClientError::options)
}
