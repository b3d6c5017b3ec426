//! The transaction that is being read, and its distribution to chunks.

use std::collections::VecDeque;

use zodium_types::{Oid, Tid};

use super::blobs::Blob;
use super::cutter;
use super::filling::Filling;

/// Names the cut between a transaction's own item and its first record.
const HEADER: &str = "header";

/// A transaction.
#[derive(Default)]
pub(super) struct Transaction {
    tid: Option<Tid>,
    /// Its items.
    pub(super) content: Vec<u8>,
    records: Vec<Record>,
    blobs: Vec<Blob>,
}

/// A record of it.
struct Record {
    oid: Oid,
    /// Bytes and blobs of the transaction before it.
    start: usize,
    blobs: usize,
}

impl Transaction {
    /// Begins a transaction.
    pub(super) fn begin(&mut self, tid: Tid) {
        self.tid = Some(tid);
    }

    /// Begins a record, whose blob and item follow.
    pub(super) fn begin_record(&mut self, oid: Oid) {
        let (start, blobs) = (self.content.len(), self.blobs.len());
        self.records.push(Record { oid, start, blobs });
    }

    /// Adds the blob of a record.
    pub(super) fn add_blob(&mut self, blob: Blob) {
        self.blobs.push(blob);
    }

    /// Its tid; `None` if none was begun.
    pub(super) fn tid(&self) -> Option<Tid> {
        self.tid
    }

    pub(super) fn clear(&mut self) {
        self.tid = None;
        self.content.clear();
        self.records.clear();
        self.blobs.clear();
    }

    /// Appends all of it.
    pub(super) fn append_to(&self, filling: &mut Filling) {
        let Some(tid) = self.tid else { return };
        filling.begin(tid);
        filling.push(&self.content, &self.blobs);
    }

    /// Appends it to the chunk that is being filled; chunks that end go to `full`.
    pub(super) fn distribute(&self, open: &mut Filling, full: &mut VecDeque<Filling>) {
        let Some(tid) = self.tid else { return };
        open.begin(tid);
        let (mut bytes_done, mut blobs_done) = (0, 0);
        for (place, record) in self.records.iter().enumerate() {
            let next = self.records.get(place + 1);
            let end = next.map_or(self.content.len(), |next| next.start);
            let blobs_end = next.map_or(self.blobs.len(), |next| next.blobs);
            let bytes = end - record.start;
            if cutter::is_large(bytes) {
                open.push(
                    &self.content[bytes_done..record.start],
                    &self.blobs[blobs_done..record.blobs],
                );
                (bytes_done, blobs_done) = (record.start, record.blobs);
                if !open.content.is_empty() {
                    full.push_back(open.cut(self.cut_before(place)));
                }
            }
            let chunk_bytes = open.content.len() + end - bytes_done;
            let is_end =
                cutter::ends_with_record((tid, record.oid), (record.start, bytes), chunk_bytes);
            if is_end && next.is_some() {
                open.push(&self.content[bytes_done..end], &self.blobs[blobs_done..blobs_end]);
                (bytes_done, blobs_done) = (end, blobs_end);
                full.push_back(open.cut(record.oid.to_string()));
            }
        }
        open.push(&self.content[bytes_done..], &self.blobs[blobs_done..]);
        if cutter::ends_with_transaction(tid, self.content.len(), open.content.len()) {
            full.push_back(std::mem::take(open));
        }
    }

    /// Names the cut before a record.
    fn cut_before(&self, place: usize) -> String {
        let before = place.checked_sub(1).and_then(|before| self.records.get(before));
        before.map_or_else(|| HEADER.to_owned(), |before| before.oid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths of the chunks of one transaction, behind a chunk that has `open` bytes already.
    fn lengths(open: usize, records: &[usize]) -> Vec<usize> {
        let mut transaction = Transaction::default();
        transaction.begin(Tid(1 << 40));
        transaction.content.extend_from_slice(&[0; 50]);
        for (oid, bytes) in records.iter().enumerate() {
            transaction.begin_record(Oid(oid as u64));
            transaction.content.resize(transaction.content.len() + bytes, 0);
        }
        let (mut filling, mut full) = (Filling::default(), VecDeque::new());
        filling.content.resize(open, 0);
        transaction.distribute(&mut filling, &mut full);
        full.iter().chain([&filling]).map(|filling| filling.content.len()).collect()
    }

    #[test]
    fn large_records_are_chunks_of_their_own() {
        let large = 5 << 20;
        assert_eq!(lengths(0, &[large]), [50, large, 0]);
        assert_eq!(lengths(7, &[10, large, large, 20]), [67, large, large, 20, 0]);
    }

    #[test]
    fn long_transactions_are_cut_and_short_ones_are_not() {
        assert_eq!(lengths(100, &[1000; 100])[0], 100_150);
        let long = lengths(0, &[1000; 20_000]);
        assert_eq!(long.iter().sum::<usize>(), 50 + 20_000_000);
        assert!((50..110).contains(&long.len()), "{}", long.len());
        // What a pack leaves is cut in the same places: all but a few chunks lose one record each.
        let left = lengths(0, &[1000; 19_999]);
        assert!(left.len().abs_diff(long.len()) <= 1);
    }
}
