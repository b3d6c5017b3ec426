//! What a FileStorage has to answer, worked out from a plain list of transactions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

/// All transactions, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) transactions: Vec<ModelTransaction>,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelTransaction {
    pub(crate) tid: Tid,
    pub(crate) status: TransactionStatus,
    pub(crate) metadata: TransactionMetadata,
    pub(crate) records: Vec<ModelRecord>,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelRecord {
    pub(crate) oid: Oid,
    /// `None`: deleted.
    pub(crate) data: Option<Bytes>,
    /// The transaction of the record that this one points back to instead of holding data.
    pub(crate) points_to: Option<Tid>,
}

/// What one transaction made of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Revision {
    pub(crate) tid: Tid,
    pub(crate) data: Option<Bytes>,
    /// Bytes of data in the record itself.
    pub(crate) size: u64,
}

impl ModelRecord {
    fn size(&self) -> u64 {
        match self.points_to {
            None => self.data.as_ref().map_or(0, |data| data.len() as u64),
            Some(_) => 0,
        }
    }

    /// Bytes in the file.
    fn bytes(&self) -> u64 {
        42 + if self.size() == 0 { 8 } else { self.size() }
    }
}

impl ModelTransaction {
    /// Bytes in the file, without the final copy of the length.
    pub(crate) fn length(&self) -> u64 {
        let TransactionMetadata { user, description, extension } = &self.metadata;
        let metadata = user.len() + description.len() + extension.len();
        let records: u64 = self.records.iter().map(ModelRecord::bytes).sum();
        23 + metadata as u64 + records
    }

    /// The objects written, each once, in the order of their first records.
    pub(crate) fn oids(&self) -> Vec<Oid> {
        let mut seen = BTreeSet::new();
        let oids = self.records.iter().map(|record| record.oid);
        oids.filter(|oid| seen.insert(*oid)).collect()
    }

    pub(crate) fn counts(&self) -> bool {
        self.status != TransactionStatus::Undone
    }
}

impl Model {
    /// The revisions of an object, oldest first. Of several records in one transaction the last
    /// one counts; transactions that were undone the ancient way do not.
    pub(crate) fn revisions(&self, oid: Oid) -> Vec<Revision> {
        let counting = self.transactions.iter().filter(|transaction| transaction.counts());
        counting
            .filter_map(|transaction| {
                let record = transaction.records.iter().rev().find(|record| record.oid == oid)?;
                let (data, size) = (record.data.clone(), record.size());
                Some(Revision { tid: transaction.tid, data, size })
            })
            .collect()
    }

    /// All objects with their revisions.
    pub(crate) fn objects(&self) -> BTreeMap<Oid, Vec<Revision>> {
        let counting = self.transactions.iter().filter(|transaction| transaction.counts());
        let oids: BTreeSet<Oid> = counting.flat_map(ModelTransaction::oids).collect();
        oids.into_iter().map(|oid| (oid, self.revisions(oid))).collect()
    }

    pub(crate) fn last_tid(&self) -> Tid {
        self.transactions.last().map_or(Tid::ZERO, |transaction| transaction.tid)
    }

    /// Length of the file.
    pub(crate) fn size(&self) -> u64 {
        4 + self.transactions.iter().map(|transaction| transaction.length() + 8).sum::<u64>()
    }

    /// Position of each transaction in the file, and of the end.
    pub(crate) fn positions(&self) -> Vec<u64> {
        let mut position = 4;
        let mut positions = vec![position];
        for transaction in &self.transactions {
            position += transaction.length() + 8;
            positions.push(position);
        }
        positions
    }

    /// Position of each data record that counts, in the order of the file.
    pub(crate) fn record_positions(&self) -> Vec<(Oid, u64)> {
        let mut positions = Vec::new();
        for (transaction, start) in self.transactions.iter().zip(self.positions()) {
            let records: u64 = transaction.records.iter().map(ModelRecord::bytes).sum();
            let mut position = start + transaction.length() - records;
            for record in &transaction.records {
                if transaction.counts() {
                    positions.push((record.oid, position));
                }
                position += record.bytes();
            }
        }
        positions
    }

    /// Transactions that can be undone, newest first.
    pub(crate) fn undoable(&self) -> impl Iterator<Item = &ModelTransaction> {
        let newest_first = self.transactions.iter().rev();
        let unpacked = newest_first.take_while(|t| t.status != TransactionStatus::Packed);
        unpacked.filter(|t| t.status == TransactionStatus::Normal)
    }

    /// The state after the first `count` transactions.
    pub(crate) fn first(&self, count: usize) -> Model {
        Model { transactions: self.transactions[..count].to_vec() }
    }
}
