//! Iterates over all transactions of a storage with their records.

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::log::LogReader;
use crate::{Client, ClientError};

/// A committed transaction with its records.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedTransaction {
    /// Its tid.
    pub tid: Tid,
    /// `p` if it was packed, else a space.
    pub status: char,
    /// The user that committed it; UTF-8 by convention.
    pub user: Vec<u8>,
    /// Its description; UTF-8 by convention.
    pub description: Vec<u8>,
    /// The extension: a dict.
    pub extension: Value<'static>,
    /// Its records, in the order of the file.
    pub records: Vec<CommittedRecord>,
}

/// A record of a committed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedRecord {
    /// The object.
    pub oid: Oid,
    /// The transaction.
    pub tid: Tid,
    /// The data; `None` if the record deletes the object. Neighbouring records may share a buffer
    /// of 256 KiB, so copy the data to keep few of many for long.
    pub data: Option<Bytes>,
    /// The earlier transaction that wrote the same data, if the record is a back pointer.
    pub data_tid: Option<Tid>,
}

/// Transactions in their order. Ends after an error.
pub struct Transactions {
    reader: Option<LogReader>,
}

impl Client {
    /// Iterates over the transactions from `start` to `stop`, both included, oldest first, with
    /// their records. Each transaction is in memory as a whole; [`Client::read_log`] gives single
    /// records.
    pub fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Transactions, ClientError> {
        self.read_log(start, stop).map(|reader| Transactions { reader: Some(reader) })
    }
}

impl Iterator for Transactions {
    type Item = Result<CommittedTransaction, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = whole_transaction(self.reader.as_mut()?).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.reader = None;
        }
        next
    }
}

fn whole_transaction(reader: &mut LogReader) -> Result<Option<CommittedTransaction>, ClientError> {
    let Some(head) = reader.next_transaction()? else { return Ok(None) };
    let mut records = Vec::new();
    while let Some(record) = reader.next_record()? {
        records.push(record);
    }
    Ok(Some(CommittedTransaction {
        tid: head.tid,
        status: head.status,
        user: head.user,
        description: head.description,
        extension: head.extension.into_dict()?,
        records,
    }))
}
