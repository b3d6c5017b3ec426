//! All transactions of a storage in their order, each with all that it wrote.

use bytes::Bytes;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::log::LogReader;
use crate::{Client, ClientError};

/// A committed transaction with all that it wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedTransaction {
    /// Its tid.
    pub tid: Tid,
    /// `p` if it was packed, else a space.
    pub status: char,
    /// Who committed it; UTF-8 by convention.
    pub user: Vec<u8>,
    /// What for; UTF-8 by convention.
    pub description: Vec<u8>,
    /// A dict.
    pub extension: Value<'static>,
    /// What it wrote, in the order of the file.
    pub records: Vec<CommittedRecord>,
}

/// What a transaction wrote for an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedRecord {
    /// The object.
    pub oid: Oid,
    /// The transaction.
    pub tid: Tid,
    /// Its data; `None`: the object is gone from then on. They may share a buffer of 256 KiB with
    /// their neighbours: who keeps few of many for long copies them.
    pub data: Option<Bytes>,
    /// The earlier transaction that wrote the same data, which the record only points to.
    pub data_tid: Option<Tid>,
}

/// Transactions in their order. After an error there are no more.
pub struct Transactions {
    reader: Option<LogReader>,
}

impl Client {
    /// All transactions from `start` to `stop`, both included, oldest first, with their records.
    /// Each is in memory as a whole; [`Client::read_log`] gives record after record.
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
