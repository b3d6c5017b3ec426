//! A transaction before its vote: what the client sent, in the order it came.
//!
//! Nothing here is shared: the session that owns the transaction fills it without a lock.

use bytes::Bytes;
use rustc_hash::FxHashMap;
use zodium_blobs::{StagedBlobs, TemporaryBlob};
use zodium_storage::{Access, NewBody, Prepared, StorageError, UndoneRecord};
use zodium_types::{MetadataTooLong, Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::commit::{LockKey, LockMode, LockSet, ObjectRead, ObjectWrite, WriteKind};
use crate::spill::{Data, Kept};

/// What a client wants committed.
#[derive(Debug, Default)]
pub struct Transaction {
    pub(crate) metadata: TransactionMetadata,
    pub(crate) status: TransactionStatus,
    /// The tid that a copied transaction brings; `None` lets the server give one.
    pub(crate) explicit_tid: Option<Tid>,
    pub(crate) writes: Vec<Write>,
    pub(crate) reads: Vec<ObjectRead>,
    pub(crate) undos: Vec<Undo>,
    pub(crate) kept: Kept,
}

#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) oid: Oid,
    pub(crate) serial: Tid,
    pub(crate) body: WriteBody,
    /// The blob that belongs to the record.
    pub(crate) blob: Option<TemporaryBlob>,
}

#[derive(Clone, Debug)]
pub(crate) enum WriteBody {
    Store(Data),
    Delete,
    /// Data of a copied record (`None`: a deletion), and the transaction that may hold the same.
    Restore {
        data: Option<Data>,
        source: Option<Tid>,
    },
}

/// An undo of one earlier transaction.
#[derive(Debug)]
pub(crate) struct Undo {
    pub(crate) tid: Tid,
    /// Found by [`crate::Storage::find_undone`], before the locks can be asked for.
    pub(crate) records: Option<Vec<UndoneRecord>>,
}

impl Transaction {
    /// An empty transaction. `explicit_tid` and `status` are for copies of transactions.
    pub fn new(
        metadata: TransactionMetadata,
        explicit_tid: Option<Tid>,
        status: TransactionStatus,
    ) -> Result<Transaction, MetadataTooLong> {
        metadata.check()?;
        Ok(Transaction { metadata, explicit_tid, status, ..Transaction::default() })
    }

    /// Stores new data over revision `serial` ([`Tid::ZERO`] for a new object).
    pub fn store(&mut self, oid: Oid, serial: Tid, data: Bytes) {
        let data = self.kept.hold(data);
        self.write(oid, serial, WriteBody::Store(data), None);
    }

    /// As [`Transaction::store`], with the blob that belongs to the data. A store of the same
    /// data that came before it (clients send both) is the same record.
    pub fn store_blob(&mut self, oid: Oid, serial: Tid, data: Bytes, blob: TemporaryBlob) {
        let data = self.kept.hold(data);
        self.write(oid, serial, WriteBody::Store(data), Some(blob));
    }

    /// Deletes an object whose revision `serial` is current.
    pub fn delete(&mut self, oid: Oid, serial: Tid) {
        self.write(oid, serial, WriteBody::Delete, None);
    }

    /// Writes a copied record, unchecked. `source` hints at a transaction with the same data.
    pub fn restore(&mut self, oid: Oid, serial: Tid, data: Option<Bytes>, source: Option<Tid>) {
        let data = data.map(|data| self.kept.hold(data));
        self.write(oid, serial, WriteBody::Restore { data, source }, None);
    }

    /// As [`Transaction::restore`], with the blob that belongs to the data.
    pub fn restore_blob(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Bytes,
        source: Option<Tid>,
        blob: TemporaryBlob,
    ) {
        let data = Some(self.kept.hold(data));
        self.write(oid, serial, WriteBody::Restore { data, source }, Some(blob));
    }

    /// Demands that revision `serial` is still current at the commit.
    pub fn read_current(&mut self, oid: Oid, serial: Tid) {
        self.reads.push(ObjectRead { oid, serial });
    }

    /// Undoes what transaction `tid` did.
    pub fn undo(&mut self, tid: Tid) {
        self.undos.push(Undo { tid, records: None });
    }

    /// Whether it undoes anything, so that [`crate::Storage::find_undone`] must come before its
    /// vote.
    pub fn has_undos(&self) -> bool {
        !self.undos.is_empty()
    }

    fn write(&mut self, oid: Oid, serial: Tid, body: WriteBody, blob: Option<TemporaryBlob>) {
        self.writes.push(Write { oid, serial, body, blob });
    }

    /// The data last stored for an object, for a conflict answer; `None` when they have to be
    /// read and access is resident only. Empty for an object that was not stored.
    pub(crate) fn stored_data(
        &self,
        oid: Oid,
        access: Access,
    ) -> Result<Option<Bytes>, StorageError> {
        let stored = self.writes.iter().rev().find_map(|write| match &write.body {
            WriteBody::Store(data) if write.oid == oid => Some(data),
            _ => None,
        });
        stored.map_or(Ok(Some(Bytes::new())), |data| data.bytes(access))
    }

    /// What it takes in memory, in bytes: data, and what is known of each of its objects.
    pub fn memory_bytes(&self) -> usize {
        self.kept.memory_bytes() + self.entries_bytes()
    }

    /// The part of [`Transaction::memory_bytes`] that cannot be put aside, for it is not data.
    pub fn entries_bytes(&self) -> usize {
        let TransactionMetadata { user, description, extension } = &self.metadata;
        user.len()
            + description.len()
            + extension.len()
            + size_of::<Write>() * self.writes.len()
            + size_of::<ObjectRead>() * self.reads.len()
            + size_of::<Undo>() * self.undos.len()
    }

    /// Whether its client sent blobs.
    pub fn has_blobs(&self) -> bool {
        self.writes.iter().any(|write| write.blob.is_some())
    }

    /// The objects of the records that it undoes.
    pub(crate) fn undone_oids(&self) -> impl Iterator<Item = Oid> {
        let records = self.undos.iter().flat_map(|undo| undo.records.iter().flatten());
        records.map(|record| record.oid)
    }

    pub(crate) fn locks(&self) -> LockSet {
        let written = self.writes.iter().map(|write| write.oid).chain(self.undone_oids());
        let exclusive = written.map(|oid| (LockKey::Object(oid), LockMode::Exclusive));
        let shared = self.reads.iter().map(|read| (LockKey::Object(read.oid), LockMode::Shared));
        exclusive.chain(shared).collect()
    }

    /// Whether records may be the same as older ones, which then have to be read.
    pub(crate) fn writes_back_pointers(&self) -> bool {
        self.has_undos() || self.is_copy()
    }

    /// Whether it is a copy of another database's transaction, as far as it shows: it restores.
    pub(crate) fn is_copy(&self) -> bool {
        self.writes.iter().any(|write| matches!(write.body, WriteBody::Restore { .. }))
    }

    pub(crate) fn object_writes(&self) -> Vec<ObjectWrite> {
        let check = |write: &Write| ObjectWrite {
            oid: write.oid,
            serial: write.serial,
            kind: match write.body {
                WriteBody::Store(_) => WriteKind::Store,
                WriteBody::Delete => WriteKind::Delete,
                WriteBody::Restore { .. } => WriteKind::Restore,
            },
        };
        self.writes.iter().map(check).collect()
    }

    /// The writes that count. A store that was repeated with another serial was wrong the first
    /// time (its conflict has been resolved by the client); repeated with the same serial both
    /// are kept, as FileStorage does. Of an object with a blob only the last blob's counts:
    /// clients send its data once without and once with the blob.
    pub(crate) fn effective_writes(&self) -> impl Iterator<Item = &Write> {
        let mut last = FxHashMap::default();
        for (place, write) in self.writes.iter().enumerate() {
            let entry = last.entry(write.oid).or_insert((write.serial, None));
            if entry.0 != write.serial {
                *entry = (write.serial, None);
            }
            if write.blob.is_some() {
                entry.1 = Some(place);
            }
        }
        self.writes.iter().enumerate().filter_map(move |(place, write)| {
            let counts = match last.get(&write.oid) {
                Some((_, Some(with_blob))) => place == *with_blob,
                Some((serial, None)) => {
                    matches!(write.body, WriteBody::Restore { .. }) || write.serial == *serial
                }
                None => false,
            };
            counts.then_some(write)
        })
    }
}

/// A transaction that passed its vote: it can be finished, or else must be given back with
/// [`crate::Storage::abort`].
#[derive(Debug)]
pub struct Voted {
    pub(crate) prepared: Prepared,
    pub(crate) blobs: Option<Box<StagedBlobs>>,
    /// Objects whose stored data are not what the client sent (undone or resolved ones).
    pub(crate) changed: Vec<Oid>,
    /// How many conflicts were resolved here.
    pub(crate) resolved: usize,
}

impl WriteBody {
    /// The bodies of a transaction's data, wherever they are kept.
    pub(crate) fn data_mut(&mut self) -> Option<&mut Data> {
        match self {
            WriteBody::Store(data) => Some(data),
            WriteBody::Restore { data, .. } => data.as_mut(),
            WriteBody::Delete => None,
        }
    }
}

impl From<&Data> for NewBody {
    fn from(data: &Data) -> NewBody {
        match data {
            Data::Memory(bytes) => NewBody::Data(bytes.clone()),
            Data::Spooled(spooled) => NewBody::Spooled(spooled.clone()),
        }
    }
}

impl Voted {
    /// Objects whose data the client does not have: they were undone, or their conflicts
    /// resolved here.
    pub fn changed(&self) -> &[Oid] {
        &self.changed
    }

    /// How many conflicts were resolved here.
    pub fn resolved(&self) -> usize {
        self.resolved
    }
}
