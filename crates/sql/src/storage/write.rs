//! The writing trait of the seam: prepare at the vote, commit at the finish.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Instant;

use zodium_disk::RealDisk;
use zodium_storage::{
    Access, Committed, NewTransaction, Pack, Prepared, Read, Spool, Storage, StorageError, Undo,
    Write, WriteState,
};
use zodium_types::{Distribution, Tid};

use super::SqlStorage;
use super::opening::last_tid;
use super::prepared::{Added, PreparedTransaction};
use crate::{SqlError, Writer};

impl SqlStorage {
    fn check_writable(&self) -> Result<(), SqlError> {
        let path = || self.database.path().to_owned();
        if self.database.is_read_only() {
            return Err(SqlError::ReadOnly { path: path() });
        }
        if self.is_failed.load(Ordering::Acquire) {
            return Err(SqlError::Failed { path: path() });
        }
        Ok(())
    }

    /// Refuses to write behind transactions of another process. No lock told of it: another network
    /// namespace has its own, and a restore takes none.
    fn check_alone(&self, writer: &Writer<'_>) -> Result<(), SqlError> {
        let (database, connection) = (&self.database, writer.connection);
        let failed = database.place.cannot("look for the last transaction");
        let Some(version) = connection.data_version().map_err(&failed)? else { return Ok(()) };
        if version == self.data_version.load(Ordering::Relaxed) {
            return Ok(());
        }
        let last = last_tid(connection, database.partitions()).map_err(&failed)?;
        if last.0 != self.last_tid.load(Ordering::Acquire) {
            return Err(SqlError::TakenOver { path: database.path().to_owned() });
        }
        self.data_version.store(version, Ordering::Relaxed);
        Ok(())
    }

    fn write_batch(&self, batch: &[(Tid, PreparedTransaction)]) -> Result<Vec<Added>, SqlError> {
        let bytes = batch.iter().map(|(_, transaction)| transaction.bytes).sum();
        let started = Instant::now();
        let added = self.database.write(bytes, |writer| {
            self.check_alone(writer)?;
            batch.iter().map(|(tid, transaction)| transaction.write(self, writer, *tid)).collect()
        })?;
        self.syncs.record(started.elapsed());
        self.views.limit_log(&self.database);
        self.room.note_granted();
        self.space.note_granted(self.database.path(), bytes, false);
        Ok(added)
    }

    /// Notes a commit that reads see by now.
    fn note_commit(&self, added: Added) -> Committed {
        let Added { committed, objects, bytes } = added;
        for oid in &committed.oids {
            self.last_oid.fetch_max(oid.0, Ordering::Relaxed);
        }
        self.objects.fetch_add(objects, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.freshness.note_commit(&committed.oids);
        self.last_tid.store(committed.tid.0, Ordering::Release);
        committed
    }
}

impl Write for SqlStorage {
    fn new_oids(&self, count: u64) -> Option<RangeInclusive<u64>> {
        let next = |last: u64| last.checked_add(count).filter(|last| i64::try_from(*last).is_ok());
        let last = self.last_oid.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(last + 1..=last + count)
    }

    fn write_state(&self) -> WriteState {
        match self.check_writable() {
            Err(SqlError::ReadOnly { .. }) => WriteState::ReadOnly,
            Err(_) => WriteState::Failed,
            Ok(()) if let Some(ago) = self.room.refused_ago() => WriteState::Full { ago },
            Ok(()) => WriteState::Writable,
        }
    }

    fn sync_durations(&self) -> Distribution {
        self.syncs.distribution()
    }

    fn new_spool(&self) -> Result<Spool, StorageError> {
        Spool::new(&RealDisk, &self.database.place.spool(), Arc::clone(&self.space))
    }

    fn prepare(
        &self,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Poll<Prepared>, StorageError> {
        self.check_writable()?;
        let prepared = PreparedTransaction::prepare(self, transaction, access);
        let prepared = self.space.noting(prepared)?;
        Ok(prepared.map_or(Poll::Pending, |prepared| Poll::Ready(Prepared::new(prepared))))
    }

    fn commit(&self, batch: Vec<(Tid, Prepared)>) -> Result<Vec<Committed>, StorageError> {
        let inside = |(tid, prepared): (Tid, Prepared)| Ok((tid, prepared.into_inner()?));
        let batch: Vec<(Tid, PreparedTransaction)> =
            batch.into_iter().map(inside).collect::<Result<_, StorageError>>()?;
        self.check_writable()?;
        match self.write_batch(&batch) {
            Ok(added) => Ok(added.into_iter().map(|added| self.note_commit(added)).collect()),
            Err(error) => {
                self.is_failed.store(true, Ordering::Release);
                if matches!(error, SqlError::Full { .. }) {
                    self.room.note_refusal();
                }
                self.space.note_error(&error);
                Err(error.into())
            }
        }
    }

    fn abort(&self, prepared: Prepared) {
        drop(prepared);
    }

    fn reopen(&self) -> Result<(), StorageError> {
        let last = Tid(self.last_tid.load(Ordering::Acquire));
        self.database.write(0, |writer| {
            self.check_alone(writer)?;
            // A server may have carried out the COMMIT whose answer was lost. Its transactions were
            // reported as failed. In a file, others can only be those of another process.
            if self.database.place.server().is_some() {
                writer.truncate(last)?;
            }
            // SQLite has rolled the failed transaction back. Its pages may be at the end of the
            // log; the next transaction is written over them, and is synced.
            writer.write_anything()
        })?;
        self.is_failed.store(false, Ordering::Release);
        Ok(())
    }

    fn close(&self) -> Result<(), StorageError> {
        if !self.is_read_only() {
            self.database.close()?;
        }
        Ok(())
    }
}

impl Storage for SqlStorage {
    fn undo(&self) -> Option<&dyn Undo> {
        Some(self)
    }

    fn packing(&self) -> Option<&dyn Pack> {
        Some(self)
    }
}
