//! The writing trait of the seam: prepare at the vote, commit at the finish.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::Poll;

use zodium_blobs::BlobDirectory;
use zodium_storage::{
    Access, Committed, NewTransaction, Pack, Prepared, Spool, Storage, StorageError, Undo, Write,
    WriteState,
};
use zodium_types::{Distribution, Tid};

use crate::{FileStorage, PreparedTransaction};

impl Write for FileStorage {
    fn new_oids(&self, count: u64) -> Option<RangeInclusive<u64>> {
        self.oids.hand_out(count)
    }

    fn write_state(&self) -> WriteState {
        self.appender.write_state()
    }

    fn sync_durations(&self) -> Distribution {
        self.appender.sync_durations()
    }

    fn new_spool(&self) -> Result<Spool, StorageError> {
        Spool::new(self.file.disk.as_ref(), self.path(), Arc::clone(self.appender.space()))
    }

    fn prepare(
        &self,
        transaction: NewTransaction,
        access: Access,
    ) -> Result<Poll<Prepared>, StorageError> {
        let prepared = FileStorage::prepare(self, transaction, access)?;
        Ok(prepared.map_or(Poll::Pending, |prepared| Poll::Ready(Prepared::new(prepared))))
    }

    fn commit(&self, batch: Vec<(Tid, Prepared)>) -> Result<Vec<Committed>, StorageError> {
        let inside = |(tid, prepared): (Tid, Prepared)| Ok((tid, prepared.into_inner()?));
        let batch = batch.into_iter().map(inside).collect::<Result<_, StorageError>>()?;
        // Held from the first appended byte until the last transaction is published.
        let _appending = self.appender.lock();
        let appended = self.append(batch)?;
        let publish = |appended: crate::Appended| {
            let committed = Committed { tid: appended.tid(), oids: appended.oids() };
            self.publish(appended);
            committed
        };
        Ok(appended.into_iter().map(publish).collect())
    }

    fn abort(&self, prepared: Prepared) {
        if let Ok(prepared) = prepared.into_inner::<PreparedTransaction>() {
            self.release(prepared);
        }
    }

    fn reopen(&self) -> Result<(), StorageError> {
        // Keeps a pack, too, from replacing the file meanwhile.
        let _appending = self.appender.lock();
        Ok(FileStorage::reopen(self)?)
    }

    fn close(&self) -> Result<(), StorageError> {
        Ok(FileStorage::close(self)?)
    }
}

impl Storage for FileStorage {
    fn undo(&self) -> Option<&dyn Undo> {
        Some(self)
    }

    fn packing(&self) -> Option<&dyn Pack> {
        Some(self)
    }

    fn blobs(&self) -> Option<&BlobDirectory> {
        FileStorage::blobs(self)
    }
}
