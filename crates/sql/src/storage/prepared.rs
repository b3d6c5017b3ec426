//! A prepared transaction: its data compressed, and the rows that it points back to held.
//!
//! It is in memory, or in its spool. What a client of ZEO votes needs not survive a crash, since
//! nothing but the client's own finish commits it.

use rustc_hash::FxHashMap;
use zodium_storage::{Access, Committed, NewBody, NewTransaction, SpooledData};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use super::SqlStorage;
use super::room::Reserved;
use crate::data::check_length;
use crate::held::{Held, Hold};
use crate::writer::check_range;
use crate::{SqlError, StoredData, VotedRecord, Writer, revisions};

/// More bytes are not compressed on a worker.
const INLINE_BYTES_MAX: usize = 16 << 10;
/// What a record takes besides its data, roughly: rows of `obj` and `data`, and three indices.
const RECORD_BYTES: u64 = 150;
/// What a transaction takes besides its metadata.
const TRANSACTION_BYTES: u64 = 50;
/// From so many objects on, a column of MariaDB (`trans.oids`) does not hold their oids.
const SERVER_OIDS_MAX: usize = 1 << 21;

pub(super) struct PreparedTransaction {
    status: TransactionStatus,
    metadata: TransactionMetadata,
    /// Each object once.
    records: Vec<(Oid, Body)>,
    pub(super) bytes: u64,
    _reserved: Reserved,
}

enum Body {
    Data(StoredData),
    /// Compressed when it is written: it does not fit into memory beside others.
    Spooled(SpooledData),
    /// The record that this one is the same as, and its data; `None` for a deletion.
    Same(Tid, Option<Hold>),
    Deleted,
}

/// What a commit has added.
pub(super) struct Added {
    pub(super) committed: Committed,
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

impl PreparedTransaction {
    /// Prepares a transaction. `None`: that may wait, but access is non-blocking.
    ///
    /// Refuses what a row cannot hold. At the commit that would fail all of its batch.
    pub(super) fn prepare(
        storage: &SqlStorage,
        new: NewTransaction,
        access: Access,
    ) -> Result<Option<PreparedTransaction>, SqlError> {
        if access == Access::NonBlocking && !is_quick(&new) {
            return Ok(None);
        }
        let NewTransaction { status, metadata, records } = new;
        let (mut places, mut kept) = (FxHashMap::default(), Vec::with_capacity(records.len()));
        let oids = records.len() as u64 * size_of::<Oid>() as u64;
        let mut bytes = TRANSACTION_BYTES + oids + metadata_bytes(&metadata);
        for record in records {
            // Of several records of an object the last one counts, in the place of the first one.
            let place = *places.entry(record.oid).or_insert(kept.len());
            let body = storage.prepared_body(record.oid, record.body)?;
            bytes += RECORD_BYTES + body.bytes();
            match kept.get_mut(place) {
                Some((_, earlier)) => *earlier = body,
                None => kept.push((record.oid, body)),
            }
        }
        storage.check_transaction(kept.len(), &metadata)?;
        let place = &storage.database.place;
        let _reserved = storage.room.reserve(place, storage.bytes(), bytes)?;
        Ok(Some(PreparedTransaction { status, metadata, records: kept, bytes, _reserved }))
    }

    /// Writes the transaction.
    pub(super) fn write(
        &self,
        storage: &SqlStorage,
        writer: &mut Writer<'_>,
        tid: Tid,
    ) -> Result<Added, SqlError> {
        let oids = || self.records.iter().map(|(oid, _)| *oid);
        let is_packed = self.status != TransactionStatus::Normal;
        writer.insert_transaction((tid, tid), oids(), &self.metadata, is_packed)?;
        // NEO knows no transactions whose records do not count: such a one is kept like one whose
        // records are all packed away.
        let counts = self.status != TransactionStatus::Undone;
        let mut objects = 0;
        for (oid, body) in self.records.iter().filter(|_| counts) {
            let (data_id, value_tid) = body.write(storage, writer, *oid)?;
            let record = VotedRecord { oid: *oid, data_id, value_tid };
            objects += u64::from(writer.insert_record(tid, record)?);
        }
        let oids = oids().filter(|_| counts).collect();
        Ok(Added { committed: Committed { tid, oids }, objects, bytes: self.bytes })
    }
}

impl Body {
    fn bytes(&self) -> u64 {
        match self {
            Body::Data(data) => data.value.len() as u64,
            Body::Spooled(data) => data.length(),
            Body::Same(..) | Body::Deleted => 0,
        }
    }

    /// Writes the data; their row, and the record that this one is the same as.
    fn write(
        &self,
        storage: &SqlStorage,
        writer: &mut Writer<'_>,
        oid: Oid,
    ) -> Result<(Option<i64>, Option<Tid>), SqlError> {
        match self {
            Body::Data(data) => Ok((Some(writer.store(oid, data)?), None)),
            Body::Spooled(data) => {
                let data = storage.stored(&data.read()?);
                Ok((Some(writer.store(oid, &data)?), None))
            }
            Body::Same(tid, hold) => {
                Ok((hold.as_ref().map(Hold::id), writer.last_same(oid, *tid)?))
            }
            Body::Deleted => Ok((None, None)),
        }
    }
}

impl SqlStorage {
    fn bytes(&self) -> u64 {
        self.bytes.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn stored(&self, data: &[u8]) -> StoredData {
        match self.compress {
            true => StoredData::compress(data),
            false => StoredData::plain(data),
        }
    }

    fn prepared_body(&self, oid: Oid, body: NewBody) -> Result<Body, SqlError> {
        let place = &self.database.place;
        check_range(place, "an oid", oid.0)?;
        Ok(match body {
            NewBody::Data(data) => {
                check_length(place, oid, data.len() as u64)?;
                Body::Data(self.stored(&data))
            }
            NewBody::Spooled(data) => {
                check_length(place, oid, data.length())?;
                Body::Spooled(data)
            }
            NewBody::Deleted => Body::Deleted,
            NewBody::SameAs(tid) => Body::Same(tid, self.hold_data(oid, tid)?),
        })
    }

    /// Refuses what a row of `trans` cannot hold on a server.
    fn check_transaction(
        &self,
        objects: usize,
        metadata: &TransactionMetadata,
    ) -> Result<(), SqlError> {
        let place = &self.database.place;
        if place.server().is_none() {
            return Ok(());
        }
        let refused = |what| Err(SqlError::TooLong { path: place.path().to_owned(), what });
        if objects >= SERVER_OIDS_MAX {
            return refused(format!("the transaction has {objects} objects, 2^21 or more"));
        }
        metadata.check().or_else(|error| refused(error.to_string()))
    }

    /// Keeps the data of a record until the transaction is committed, whatever is packed.
    fn hold_data(&self, oid: Oid, tid: Tid) -> Result<Option<Hold>, SqlError> {
        let partition = self.database.partitions().of_oid(oid);
        Held::hold(&self.database.held, (oid, tid), || {
            let found = self.database.pool.with("look for a record", |connection| {
                revisions::data_id(connection, partition, oid, tid)
            })?;
            found.ok_or(SqlError::NotUndoable { tid, reason: "it was packed" })
        })
    }
}

/// Whether a worker can prepare it.
fn is_quick(new: &NewTransaction) -> bool {
    let mut bytes = 0;
    new.records.iter().all(|record| match &record.body {
        NewBody::Data(data) => {
            bytes += data.len();
            bytes <= INLINE_BYTES_MAX
        }
        NewBody::Deleted => true,
        NewBody::Spooled(_) | NewBody::SameAs(_) => false,
    })
}

fn metadata_bytes(metadata: &TransactionMetadata) -> u64 {
    let TransactionMetadata { user, description, extension } = metadata;
    (user.len() + description.len() + extension.len()) as u64
}
