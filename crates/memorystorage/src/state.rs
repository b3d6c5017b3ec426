//! What is committed: transactions by tid, and revisions by object.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use zodium_storage::{Load, Revision, Stamp, Transaction};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

/// A record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// `None` for a deletion.
    pub(crate) data: Option<Bytes>,
    /// The transaction whose record holds the data.
    pub(crate) data_tid: Tid,
    /// The transaction whose record this one was said to be the same as.
    pub(crate) same_as: Option<Tid>,
}

/// A committed transaction with its records, in the order of their arrival.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    pub(crate) tid: Tid,
    pub(crate) status: TransactionStatus,
    pub(crate) metadata: TransactionMetadata,
    pub(crate) records: Vec<(Oid, Record)>,
}

/// Everything that is committed.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) transactions: BTreeMap<Tid, Arc<Committed>>,
    pub(crate) objects: BTreeMap<Oid, BTreeMap<Tid, Record>>,
    /// How often it was packed.
    pub(crate) generation: u64,
}

impl Committed {
    /// The transaction without its records.
    pub(crate) fn transaction(&self) -> Transaction {
        let (tid, status, metadata) = (self.tid, self.status, self.metadata.clone());
        Transaction { tid, status, metadata, length: self.bytes() }
    }

    /// The data and the metadata, in bytes. Data that stand in another record count there.
    pub(crate) fn bytes(&self) -> u64 {
        let TransactionMetadata { user, description, extension } = &self.metadata;
        let records = self.records.iter().map(|(_, record)| own_bytes(self.tid, record));
        (user.len() + description.len() + extension.len()) as u64
            + records.map(|bytes| bytes + size_of::<Oid>() as u64).sum::<u64>()
    }
}

/// Bytes of data in a record itself.
pub(crate) fn own_bytes(tid: Tid, record: &Record) -> u64 {
    let own = record.data.as_ref().filter(|_| record.data_tid == tid);
    own.map_or(0, |data| data.len() as u64)
}

impl State {
    pub(crate) fn last_tid(&self) -> Tid {
        self.transactions.last_key_value().map_or(Tid::ZERO, |(tid, _)| *tid)
    }

    /// Adds a transaction. The records of one that was undone do not count.
    pub(crate) fn add(&mut self, committed: Committed) {
        if committed.status != TransactionStatus::Undone {
            for (oid, record) in &committed.records {
                self.objects.entry(*oid).or_default().insert(committed.tid, record.clone());
            }
        }
        self.transactions.insert(committed.tid, Arc::new(committed));
    }

    pub(crate) fn load_before(&self, oid: Oid, before: Tid) -> Load {
        let Some(revisions) = self.objects.get(&oid) else { return Load::Missing };
        let Some((serial, record)) = revisions.range(..before).next_back() else {
            return Load::NoRevision;
        };
        let Some(data) = record.data.clone() else { return Load::Missing };
        let end = revisions.range(serial.next()..).next().map(|(end, _)| *end);
        Load::Revision(Revision { data, serial: *serial, end, stamp: self.stamp(oid) })
    }

    /// What "current" is judged by: the number of packs, and the current serial.
    pub(crate) fn stamp(&self, oid: Oid) -> Stamp {
        Stamp(self.generation, self.current_serial(oid).unwrap_or(Tid::ZERO).0)
    }

    pub(crate) fn current_serial(&self, oid: Oid) -> Option<Tid> {
        self.objects.get(&oid)?.last_key_value().map(|(tid, _)| *tid)
    }

    pub(crate) fn record(&self, oid: Oid, serial: Tid) -> Option<&Record> {
        self.objects.get(&oid)?.get(&serial)
    }
}
