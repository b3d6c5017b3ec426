//! A prepared transaction: its records with the positions of their back pointers, and its reserved
//! space.

use zodium_storage::{Access, NewBody, NewRecord, NewTransaction};
use zodium_types::{Tid, TransactionMetadata, TransactionStatus};

use crate::write::{self, PointsBack};
use crate::{FileStorage, FileStorageError, Reservation};

pub(super) struct PreparedTransaction {
    status: TransactionStatus,
    metadata: TransactionMetadata,
    records: Vec<write::NewRecord>,
    pub(super) reservation: Reservation,
    /// Keeps a pack from moving records until the transaction is written.
    _points_back: Option<PointsBack>,
}

impl PreparedTransaction {
    /// Prepares a transaction. `None`: that may wait, but access is non-blocking.
    pub(super) fn prepare(
        storage: &FileStorage,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Option<PreparedTransaction>, FileStorageError> {
        let NewTransaction { status, metadata, records } = transaction;
        let points_back = records.iter().any(|record| matches!(record.body, NewBody::SameAs(_)));
        if points_back && access == Access::NonBlocking {
            return Ok(None);
        }
        let points_back = points_back.then(|| storage.appender.back_pointers.enter());
        let records = records.into_iter().map(|record| storage.with_position(record));
        let records: Vec<_> = records.collect::<Result<_, _>>()?;
        let bytes = write::NewTransaction::bytes(&metadata, &records);
        let Some(reservation) = storage.reserve(bytes, access)? else { return Ok(None) };
        Ok(Some(PreparedTransaction {
            status,
            metadata,
            records,
            reservation,
            _points_back: points_back,
        }))
    }

    /// The transaction to append, its reserved space, and the guard that keeps packs away.
    pub(super) fn with_tid(
        self,
        tid: Tid,
    ) -> (write::NewTransaction, Reservation, Option<PointsBack>) {
        let PreparedTransaction { status, metadata, records, reservation, _points_back } = self;
        (write::NewTransaction { tid, status, metadata, records }, reservation, _points_back)
    }
}

impl FileStorage {
    fn with_position(&self, record: NewRecord) -> Result<write::NewRecord, FileStorageError> {
        let NewRecord { oid, body } = record;
        let body = match body {
            NewBody::Data(data) => write::NewBody::Data(data),
            NewBody::Spooled(data) => write::NewBody::Spooled(data),
            NewBody::SameAs(tid) => write::NewBody::SameAs(self.reader.position_of(oid, tid)?),
            NewBody::Deleted => write::NewBody::Deleted,
        };
        Ok(write::NewRecord { oid, body })
    }
}
