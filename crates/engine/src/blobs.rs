//! The blobs of a transaction: put in place at its vote, named at its finish.

use std::collections::BTreeMap;

use zodium_filestorage::{NewBlob, NewBody, NewRecord, StagedBlobs, StorageError};

use crate::{Storage, Transaction};

impl Storage {
    /// Puts the blobs of a transaction into the folders of their objects: what its client sent,
    /// and for records that an undo points back with, what belongs to the older record. Blocking.
    pub(crate) fn stage_blobs(
        &self,
        transaction: &Transaction,
        records: &[NewRecord],
    ) -> Result<Option<StagedBlobs>, StorageError> {
        let Some(directory) = self.file.blobs() else { return Ok(None) };
        let sent = transaction.effective_writes();
        let sent = sent.filter_map(|write| Some((write.oid, NewBlob::Sent(write.blob.as_ref()?))));
        let mut blobs: BTreeMap<_, _> = sent.collect();
        if transaction.has_undos() {
            let undone: rustc_hash::FxHashSet<_> = transaction.undone_oids().collect();
            for record in records.iter().filter(|record| undone.contains(&record.oid)) {
                let NewBody::SameAs(position) = record.body else { continue };
                if let Some(tid) = self.file.blob_behind(record.oid, position)? {
                    blobs.insert(record.oid, NewBlob::SameAs(tid));
                }
            }
        }
        if blobs.is_empty() {
            return Ok(None);
        }
        directory.stage(&blobs.into_iter().collect::<Vec<_>>()).map(Some)
    }
}
