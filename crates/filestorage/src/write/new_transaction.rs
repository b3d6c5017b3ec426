//! A transaction on its way into the log.

use bytes::Bytes;
use zodium_storage::SpooledData;
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::format::{POINTER_BYTES, TRANSACTION_HEADER_BYTES, TransactionHeader, record_bytes};

/// A transaction ready to be written; only its position in the file is undecided.
#[derive(Debug)]
pub struct NewTransaction {
    /// Its tid, later than all before it.
    pub tid: Tid,
    /// Normal, or the status of the transaction that this one copies.
    pub status: TransactionStatus,
    /// User, description, extension.
    pub metadata: TransactionMetadata,
    /// The records in the order of their arrival.
    pub records: Vec<NewRecord>,
}

/// One record of a [`NewTransaction`].
#[derive(Debug)]
pub struct NewRecord {
    /// The object.
    pub oid: Oid,
    /// What the transaction does with the object.
    pub body: NewBody,
}

/// Content of a new record.
#[derive(Clone, Debug)]
pub enum NewBody {
    /// New data, at least one byte.
    Data(Bytes),
    /// New data in a spool.
    Spooled(SpooledData),
    /// The same data as the record at this position of the file.
    SameAs(u64),
    /// The object is deleted.
    Deleted,
}

impl NewTransaction {
    /// Bytes that the transaction takes in the file.
    pub fn bytes(metadata: &TransactionMetadata, records: &[NewRecord]) -> u64 {
        let records: u64 = records.iter().map(|record| record_bytes(record.data_length())).sum();
        header(Tid::ZERO, TransactionStatus::Normal, metadata, records).length + POINTER_BYTES
    }
}

impl NewRecord {
    pub(super) fn data_length(&self) -> u64 {
        match &self.body {
            NewBody::Data(data) => data.len() as u64,
            NewBody::Spooled(data) => data.length(),
            NewBody::SameAs(_) | NewBody::Deleted => 0,
        }
    }
}

/// Bytes that transactions take in the file.
pub(super) fn total_bytes(transactions: &[NewTransaction]) -> u64 {
    transactions.iter().map(|new| NewTransaction::bytes(&new.metadata, &new.records)).sum()
}

/// Header of a transaction whose metadata was checked to fit.
pub(super) fn header(
    tid: Tid,
    status: TransactionStatus,
    metadata: &TransactionMetadata,
    record_bytes: u64,
) -> TransactionHeader {
    // `TransactionMetadata::check`, at begin, keeps these lengths within 16 bits.
    let length = |field: &[u8]| u16::try_from(field.len()).unwrap_or(u16::MAX);
    let mut header = TransactionHeader {
        tid,
        length: TRANSACTION_HEADER_BYTES as u64 + record_bytes,
        status: status.to_byte(),
        user_length: length(&metadata.user),
        description_length: length(&metadata.description),
        extension_length: length(&metadata.extension),
    };
    header.length += header.metadata_bytes();
    header
}
