//! Transactions that are gathered before they are stored as a chunk.

use zodium_types::Tid;

use super::blobs::Blob;
use super::chunk_store::ChunkStore;
use super::known::Known;
use super::point::Chunk;
use crate::BackupError;

/// Whole transactions, or the one that is being read.
#[derive(Default)]
pub(super) struct Filling {
    /// Their items.
    pub(super) content: Vec<u8>,
    first: Option<Tid>,
    last: Option<Tid>,
    transactions: u64,
    pub(super) blobs: Vec<Blob>,
}

impl Filling {
    /// Begins a transaction.
    pub(super) fn begin(&mut self, tid: Tid) {
        self.first.get_or_insert(tid);
        self.last = Some(tid);
        self.transactions += 1;
    }

    /// The last transaction.
    pub(super) fn last(&self) -> Option<Tid> {
        self.last
    }

    /// Appends what another one has.
    pub(super) fn append(&mut self, other: &Filling) {
        self.content.extend_from_slice(&other.content);
        self.first = self.first.or(other.first);
        self.last = other.last.or(self.last);
        self.transactions += other.transactions;
        self.blobs.extend_from_slice(&other.blobs);
    }

    pub(super) fn clear(&mut self) {
        self.content.clear();
        self.blobs.clear();
        (self.first, self.last, self.transactions) = (None, None, 0);
    }

    /// Stores it as a chunk, with the bytes that were written; `None` if it is empty. What `known`
    /// has, or nearly has, is not stored again.
    pub(super) fn store(
        &self,
        store: &ChunkStore<'_>,
        known: &Known,
    ) -> Result<Option<(Chunk, u64)>, BackupError> {
        let (Some(first), Some(last)) = (self.first, self.last) else { return Ok(None) };
        let hash = store.name_of(&self.content);
        let (delta, stored) = match known.find(&hash) {
            Some(chunk) => (chunk.delta.clone(), 0),
            None => match store.put_delta(&self.content, &hash, &known.around(first, last))? {
                Some((delta, stored)) => (Some(delta), stored),
                None => (None, store.put(&self.content)?.1),
            },
        };
        let chunk = Chunk {
            hash,
            bytes: self.content.len() as u64,
            first: first.to_string(),
            last: last.to_string(),
            transactions: self.transactions,
            blobs: self.blobs.clone(),
            delta,
        };
        Ok(Some((chunk, stored)))
    }
}
