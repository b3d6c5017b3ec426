//! Bytes that new transactions and their records take in the file.

use zodium_storage::{NewBody, NewRecord, NewTransaction};
use zodium_types::{Tid, TransactionMetadata, TransactionStatus};

use crate::format::{POINTER_BYTES, TRANSACTION_HEADER_BYTES, TransactionHeader, record_bytes};

/// Bytes that a transaction takes in the file.
pub(super) fn transaction_bytes(new: &NewTransaction) -> u64 {
    header(Tid::ZERO, new.status, &new.metadata, records_bytes(&new.records)).length + POINTER_BYTES
}

/// Bytes that records take in the file.
pub(super) fn records_bytes(records: &[NewRecord]) -> u64 {
    records.iter().map(|record| record_bytes(data_length(record))).sum()
}

/// Bytes of data in the record itself.
pub(super) fn data_length(record: &NewRecord) -> u64 {
    match &record.body {
        NewBody::Data(data) => data.len() as u64,
        NewBody::Spooled(data) => data.length(),
        NewBody::SameAs(_) | NewBody::Deleted => 0,
    }
}

/// Header of a transaction whose metadata was checked to fit.
pub(super) fn header(
    tid: Tid,
    status: TransactionStatus,
    metadata: &TransactionMetadata,
    records_bytes: u64,
) -> TransactionHeader {
    // `TransactionMetadata::check`, at begin, keeps these lengths within 16 bits.
    let length = |field: &[u8]| u16::try_from(field.len()).unwrap_or(u16::MAX);
    let mut header = TransactionHeader {
        tid,
        length: TRANSACTION_HEADER_BYTES as u64 + records_bytes,
        status: status.to_byte(),
        user_length: length(&metadata.user),
        description_length: length(&metadata.description),
        extension_length: length(&metadata.extension),
    };
    header.length += header.metadata_bytes();
    header
}
