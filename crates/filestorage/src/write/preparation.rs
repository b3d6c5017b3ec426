//! Prepares a transaction: finds the records that it points back to, and reserves its space.

use zodium_storage::{Access, NewBody, NewRecord, NewTransaction};

use super::appender::Appender;
use super::prepared::PreparedTransaction;
use super::sizes::transaction_bytes;
use crate::FileStorageError;
use crate::read::Reader;

impl Appender {
    /// Prepares a transaction. `None`: that may wait, but access is non-blocking.
    pub(crate) fn prepare(
        &self,
        reader: &Reader,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Option<PreparedTransaction>, FileStorageError> {
        let records = &transaction.records;
        let points_back = records.iter().any(|record| matches!(record.body, NewBody::SameAs(_)));
        if points_back && access == Access::NonBlocking {
            return Ok(None);
        }
        let points_back = points_back.then(|| self.back_pointers.enter());
        let back_position = |record: &NewRecord| match record.body {
            NewBody::SameAs(tid) => Some(reader.position_of(record.oid, tid)),
            NewBody::Data(_) | NewBody::Spooled(_) | NewBody::Deleted => None,
        };
        let positions = records.iter().filter_map(back_position).collect::<Result<_, _>>()?;
        let bytes = transaction_bytes(&transaction);
        let Some(reservation) = self.reserve(reader, bytes, access)? else { return Ok(None) };
        Ok(Some(PreparedTransaction::new(transaction, positions, reservation, points_back)))
    }
}
