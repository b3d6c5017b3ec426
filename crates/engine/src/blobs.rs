//! The blobs of a transaction: staged at its vote, given their final names at its finish.

use std::collections::BTreeMap;

use zodium_blobs::{BlobDirectory, NewBlob, StagedBlobs, is_blob_record};
use zodium_storage::{NewBody, NewRecord, Storage, StorageError};
use zodium_types::{Oid, Tid};

use crate::Transaction;

/// Blobs of records that point back to others: each object, and the transaction of its blob.
pub(crate) type BlobsBehind = Vec<(Oid, Tid)>;

/// The older blobs that belong to the records of a transaction's undos. Blocking.
pub(crate) fn blobs_behind(
    store: &dyn Storage,
    transaction: &Transaction,
    undone: &[NewRecord],
) -> Result<BlobsBehind, StorageError> {
    let mut behind = Vec::new();
    let Some(directory) = store.blobs().filter(|_| transaction.has_undos()) else {
        return Ok(behind);
    };
    for record in undone {
        let NewBody::SameAs(serial) = record.body else { continue };
        if let Some(tid) = blob_of(store, directory, record.oid, serial)? {
            behind.push((record.oid, tid));
        }
    }
    Ok(behind)
}

/// The transaction whose blob belongs to the record written at `serial`; `None` when the record
/// is not a blob's.
fn blob_of(
    store: &dyn Storage,
    directory: &BlobDirectory,
    oid: Oid,
    serial: Tid,
) -> Result<Option<Tid>, StorageError> {
    let Some(record) = store.record(oid, serial)? else { return Ok(None) };
    if !record.data.is_some_and(|data| is_blob_record(&data)) {
        return Ok(None);
    }
    // Each record has its own blob, but the program that wrote this file may not have made one.
    Ok(Some(if directory.has(oid, serial)? { serial } else { record.data_tid }))
}

/// Puts the blobs of a transaction into the folders of their objects. These are the blobs that
/// its client sent, and the older blobs of records that an undo points back to. Blocking.
pub(crate) fn stage_blobs(
    store: &dyn Storage,
    transaction: &Transaction,
    behind: BlobsBehind,
) -> Result<Option<StagedBlobs>, StorageError> {
    let Some(directory) = store.blobs() else { return Ok(None) };
    let sent = transaction.effective_writes();
    let sent = sent.filter_map(|write| Some((write.oid, NewBlob::Sent(write.blob.as_ref()?))));
    let mut blobs: BTreeMap<_, _> = sent.collect();
    blobs.extend(behind.into_iter().map(|(oid, tid)| (oid, NewBlob::SameAs(tid))));
    if blobs.is_empty() {
        return Ok(None);
    }
    let blobs: Vec<_> = blobs.into_iter().collect();
    Ok(Some(directory.stage(store.last_tid(), &blobs)?))
}
