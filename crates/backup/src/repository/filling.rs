//! Transactions that are gathered before they are stored as a chunk.

use zodium_types::Tid;

use super::blobs::Blob;
use super::chunk_store::ChunkStore;
use super::known::{Known, Span};
use super::point::Chunk;
use crate::BackupError;

/// Transactions, or parts of long ones.
#[derive(Clone, Default)]
pub(super) struct Filling {
    /// Their items.
    pub(super) content: Vec<u8>,
    first: Option<Tid>,
    last: Option<Tid>,
    transactions: u64,
    blobs: Vec<Blob>,
    /// Where the first transaction was cut, if this begins within it.
    after: Option<String>,
    /// Where the last transaction was cut, if this ends within it.
    cut: Option<String>,
}

impl Filling {
    /// Begins a transaction.
    pub(super) fn begin(&mut self, tid: Tid) {
        self.first.get_or_insert(tid);
        self.last = Some(tid);
        self.transactions += 1;
    }

    /// Appends items of the last transaction, and blobs of theirs.
    pub(super) fn push(&mut self, content: &[u8], blobs: &[Blob]) {
        self.content.extend_from_slice(content);
        self.blobs.extend_from_slice(blobs);
    }

    /// Gives what is there; what follows begins within the same transaction.
    pub(super) fn cut(&mut self, cut: String) -> Filling {
        let last = self.last;
        let rest = Filling { first: last, last, after: Some(cut.clone()), ..Filling::default() };
        self.cut = Some(cut);
        std::mem::replace(self, rest)
    }

    /// The last transaction.
    pub(super) fn last(&self) -> Option<Tid> {
        self.last
    }

    /// Transactions that begin in it.
    pub(super) fn transactions(&self) -> u64 {
        self.transactions
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
        let (after, cut) = (self.after.as_deref(), self.cut.as_deref());
        let (delta, stored) = match known.find(&hash) {
            Some(chunk) => (chunk.delta.clone(), 0),
            None => {
                let bases = known.around(&Span { first, after, last, cut });
                match store.put_delta(&self.content, &hash, &bases)? {
                    Some((delta, stored)) => (Some(delta), stored),
                    None => (None, store.put(&self.content)?.1),
                }
            }
        };
        let chunk = Chunk {
            hash,
            bytes: self.content.len() as u64,
            first: first.to_string(),
            last: last.to_string(),
            transactions: self.transactions,
            cut: self.cut.clone(),
            blobs: self.blobs.clone(),
            delta,
        };
        Ok(Some((chunk, stored)))
    }
}
