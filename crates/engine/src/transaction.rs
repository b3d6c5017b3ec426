//! A transaction before its vote: the client's writes, reads and undos, in the order received.
//!
//! Nothing here is shared: the session that owns the transaction fills it without a lock.

use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use zodium_blobs::{StagedBlobs, TemporaryBlob};
use zodium_storage::{Access, NewBody, Prepared, StorageError};
use zodium_types::{
    Held, Memory, MetadataTooLong, Oid, Tid, TransactionMetadata, TransactionStatus,
};

use crate::commit::{LockKey, LockMode, LockSet, ObjectRead, ObjectWrite, WriteKind};
use crate::companion::Claim;
use crate::conflict_room::ConflictRoom;
use crate::spill::{Data, Kept};

/// A transaction that a client builds.
#[derive(Debug, Default)]
pub struct Transaction {
    pub(crate) metadata: TransactionMetadata,
    pub(crate) status: TransactionStatus,
    /// The tid that a copied transaction brings; `None`: the server assigns one.
    pub(crate) explicit_tid: Option<Tid>,
    pub(crate) writes: Vec<Write>,
    pub(crate) reads: Vec<ObjectRead>,
    pub(crate) undos: Vec<Undo>,
    pub(crate) kept: Kept,
    /// Where the data of its conflicts are counted.
    memory: Option<Arc<Memory>>,
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
    /// Data of a copied record (`None`: a deletion), and a transaction that may have the same data.
    Restore {
        data: Option<Data>,
        source: Option<Tid>,
    },
}

/// An undo of one earlier transaction.
#[derive(Debug)]
pub(crate) struct Undo {
    pub(crate) tid: Tid,
    /// Found by [`crate::Database::find_undone`], before the locks are requested.
    pub(crate) oids: Option<Vec<Oid>>,
}

/// The data that a transaction has last stored for each object.
pub(crate) struct Stores<'t>(FxHashMap<Oid, &'t Data>);

impl Stores<'_> {
    /// The length of the data of an object; 0 if it was not stored.
    pub(crate) fn length(&self, oid: Oid) -> usize {
        self.0.get(&oid).map_or(0, |data| data.length())
    }

    /// Those of an object; `None` when they are in a spool and access is non-blocking. Empty for an
    /// object that was not stored.
    pub(crate) fn data(&self, oid: Oid, access: Access) -> Result<Option<Bytes>, StorageError> {
        self.0.get(&oid).map_or(Ok(Some(Bytes::new())), |data| data.bytes(access))
    }
}

impl Transaction {
    /// An empty transaction. `explicit_tid` and `status` are for copied transactions.
    pub fn new(
        metadata: TransactionMetadata,
        explicit_tid: Option<Tid>,
        status: TransactionStatus,
    ) -> Result<Transaction, MetadataTooLong> {
        metadata.check()?;
        Ok(Transaction { metadata, explicit_tid, status, ..Transaction::default() })
    }

    /// Has the data of its conflicts counted, and limited. Without this there is no limit.
    pub fn count_conflicts(&mut self, memory: &Arc<Memory>) {
        self.memory = Some(Arc::clone(memory));
    }

    pub(crate) fn conflict_room(&self) -> ConflictRoom<'_> {
        ConflictRoom::new(self.memory.as_ref())
    }

    /// Stores new data over revision `serial` ([`Tid::ZERO`] for a new object).
    pub fn store(&mut self, oid: Oid, serial: Tid, data: Bytes) {
        let data = self.kept.hold(data);
        self.write(oid, serial, WriteBody::Store(data), None);
    }

    /// As [`Transaction::store`], with the blob that belongs to the data. An earlier store of the
    /// same data (clients send both) counts as the same record.
    pub fn store_blob(&mut self, oid: Oid, serial: Tid, data: Bytes, blob: TemporaryBlob) {
        let data = self.kept.hold(data);
        self.write(oid, serial, WriteBody::Store(data), Some(blob));
    }

    /// Deletes an object whose revision `serial` is current.
    pub fn delete(&mut self, oid: Oid, serial: Tid) {
        self.write(oid, serial, WriteBody::Delete, None);
    }

    /// Writes a copied record, unchecked. `source` names a transaction that may have the same data.
    pub fn restore(&mut self, oid: Oid, serial: Tid, data: Option<Bytes>, source: Option<Tid>) {
        let data = data.map(|data| self.kept.hold(data));
        self.write(oid, serial, WriteBody::Restore { data, source }, None);
    }

    /// Requires revision `serial` to be still current at the commit.
    pub fn read_current(&mut self, oid: Oid, serial: Tid) {
        self.reads.push(ObjectRead { oid, serial });
    }

    /// Undoes the changes of transaction `tid`.
    pub fn undo(&mut self, tid: Tid) {
        self.undos.push(Undo { tid, oids: None });
    }

    /// Whether it has undos, so that [`crate::Database::find_undone`] must be called before its
    /// vote.
    pub fn has_undos(&self) -> bool {
        !self.undos.is_empty()
    }

    fn write(&mut self, oid: Oid, serial: Tid, body: WriteBody, blob: Option<TemporaryBlob>) {
        self.writes.push(Write { oid, serial, body, blob });
    }

    /// The data last stored for each object, for conflicts: there may be as many as objects.
    pub(crate) fn stores(&self) -> Stores<'_> {
        let stores = self.writes.iter().filter_map(|write| match &write.body {
            WriteBody::Store(data) => Some((write.oid, data)),
            _ => None,
        });
        Stores(stores.collect())
    }

    /// Its size in memory, in bytes: its data, and the entries for its objects.
    pub fn memory_bytes(&self) -> usize {
        self.kept.memory_bytes() + self.entries_bytes()
    }

    /// The part of [`Transaction::memory_bytes`] that cannot be spilled, because it is not data.
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

    /// The objects of the records that the transaction undoes.
    pub(crate) fn undone_oids(&self) -> impl Iterator<Item = Oid> {
        self.undos.iter().flat_map(|undo| undo.oids.iter().flatten()).copied()
    }

    pub(crate) fn locks(&self) -> LockSet {
        let written = self.writes.iter().map(|write| write.oid).chain(self.undone_oids());
        let exclusive = written.map(|oid| (LockKey::Object(oid), LockMode::Exclusive));
        let shared = self.reads.iter().map(|read| (LockKey::Object(read.oid), LockMode::Shared));
        exclusive.chain(shared).collect()
    }

    /// Whether records may be the same as older ones, which must then be read.
    pub(crate) fn writes_back_pointers(&self) -> bool {
        self.has_undos() || self.is_copy()
    }

    /// Whether it is probably a copy of another database's transaction: it restores records.
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

    /// The writes that are committed. If an object was stored again with another serial, only the
    /// last serial counts: the client has resolved a conflict. Stores with the same serial are all
    /// kept, as FileStorage does. If an object has blobs, only the write with the last blob counts:
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

/// A transaction that passed its vote. It must be finished, or given back with
/// [`crate::Database::abort`].
#[derive(Debug)]
pub struct Voted {
    pub(crate) prepared: Prepared,
    pub(crate) blobs: Option<Box<StagedBlobs>>,
    /// Objects whose stored data differ from what the client sent (undone or resolved ones).
    pub(crate) changed: Vec<Oid>,
    /// Number of conflicts that the server resolved.
    pub(crate) resolved: usize,
    /// What the companion has claimed for it.
    pub(crate) claim: Option<Claim>,
    /// The memory of data that the server has merged.
    pub(crate) _merged: Option<Held>,
}

impl WriteBody {
    /// The data of the write, in memory or in a spool.
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
    /// Objects whose data the client does not have: they were undone, or the server resolved their
    /// conflicts.
    pub fn changed(&self) -> &[Oid] {
        &self.changed
    }

    /// Number of conflicts that the server resolved.
    pub fn resolved(&self) -> usize {
        self.resolved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_metadata_entries_and_data() {
        let metadata = TransactionMetadata {
            user: b"me".to_vec(),
            description: b"what".to_vec(),
            extension: b"a pickle".to_vec(),
        };
        let status = TransactionStatus::Normal;
        let mut transaction = Transaction::new(metadata, None, status).unwrap();
        let (mut data, mut entries) = (0, 2 + 4 + 8);
        let sizes = |transaction: &Transaction| {
            let all = transaction.memory_bytes();
            (all - transaction.entries_bytes(), transaction.entries_bytes())
        };
        assert_eq!(sizes(&transaction), (data, entries));
        for length in [10, 20, 30] {
            transaction.store(Oid(1), Tid::ZERO, vec![0; length].into());
            (data, entries) = (data + length, entries + size_of::<Write>());
            assert_eq!(sizes(&transaction), (data, entries));
        }
        transaction.restore(Oid(2), Tid(1), Some(vec![0; 40].into()), None);
        transaction.restore(Oid(3), Tid(1), None, None);
        transaction.delete(Oid(4), Tid(1));
        (data, entries) = (data + 40, entries + 3 * size_of::<Write>());
        assert_eq!(sizes(&transaction), (data, entries));
        (0..4).for_each(|oid| transaction.read_current(Oid(oid), Tid(1)));
        (0..5).for_each(|tid| transaction.undo(Tid(tid)));
        entries += 4 * size_of::<ObjectRead>() + 5 * size_of::<Undo>();
        assert_eq!(sizes(&transaction), (data, entries));
    }
}
