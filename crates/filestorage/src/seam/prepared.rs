//! A transaction that was prepared: its records with the positions that they point back to, and
//! the space that it may count on.

use zodium_storage::{Access, NewBody, NewRecord, NewTransaction, StorageError};
use zodium_types::{Tid, TransactionMetadata, TransactionStatus};

use crate::append;
use crate::back_pointers::PointsBack;
use crate::{FileStorage, FileStorageError, Reservation};

pub(super) struct PreparedTransaction {
    status: TransactionStatus,
    metadata: TransactionMetadata,
    records: Vec<append::NewRecord>,
    pub(super) reservation: Reservation,
    /// Until it is written, a pack does not move records.
    _points_back: Option<PointsBack>,
}

impl PreparedTransaction {
    /// `None`: that may wait, and access is resident.
    pub(super) fn prepare(
        storage: &FileStorage,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Option<PreparedTransaction>, FileStorageError> {
        let NewTransaction { status, metadata, records } = transaction;
        let points_back = records.iter().any(|record| matches!(record.body, NewBody::SameAs(_)));
        if points_back && access == Access::Resident {
            return Ok(None);
        }
        let points_back = points_back.then(|| storage.back_pointers.enter());
        let records = records.into_iter().map(|record| storage.with_position(record));
        let records: Vec<_> = records.collect::<Result<_, _>>()?;
        let bytes = append::NewTransaction::bytes(&metadata, &records);
        let Some(reservation) = storage.reserve(bytes, access)? else { return Ok(None) };
        Ok(Some(PreparedTransaction {
            status,
            metadata,
            records,
            reservation,
            _points_back: points_back,
        }))
    }

    /// What is appended, the space for it, and what keeps packs away until then.
    pub(super) fn with_tid(
        self,
        tid: Tid,
    ) -> (append::NewTransaction, Reservation, Option<PointsBack>) {
        let PreparedTransaction { status, metadata, records, reservation, _points_back } = self;
        (append::NewTransaction { tid, status, metadata, records }, reservation, _points_back)
    }
}

impl FileStorage {
    fn with_position(&self, record: NewRecord) -> Result<append::NewRecord, FileStorageError> {
        let NewRecord { oid, body } = record;
        let body = match body {
            NewBody::Data(data) => append::NewBody::Data(data),
            NewBody::Spooled(data) => append::NewBody::Spooled(data),
            NewBody::SameAs(tid) => append::NewBody::SameAs(self.position_of(oid, tid)?),
            NewBody::Deleted => append::NewBody::Deleted,
        };
        Ok(append::NewRecord { oid, body })
    }
}

impl From<PreparedTransaction> for zodium_storage::Prepared {
    fn from(prepared: PreparedTransaction) -> zodium_storage::Prepared {
        zodium_storage::Prepared::new(prepared)
    }
}

/// What the storage was given back.
pub(super) fn inside(
    prepared: zodium_storage::Prepared,
) -> Result<PreparedTransaction, StorageError> {
    prepared.into_inner()
}
