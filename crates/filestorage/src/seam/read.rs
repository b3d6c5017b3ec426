//! The reading traits of the seam.

use std::task::Poll;

use bytes::Bytes;
use zodium_disk::Missed;
use zodium_storage::{
    Access, HistoryEntry, Load, ObjectStep, Read, ResidentRevisions, Stamp, StorageError,
    StoredRecord, TransactionCursor,
};
use zodium_types::{Oid, Tid};

use crate::{FileStorage, Magic};

impl Read for FileStorage {
    fn name(&self) -> String {
        self.path().display().to_string()
    }

    fn is_read_only(&self) -> bool {
        self.file.read_only
    }

    fn is_of_python_2(&self) -> bool {
        self.magic() == Magic::Fs21
    }

    fn size(&self) -> u64 {
        FileStorage::size(self)
    }

    fn object_count(&self) -> u64 {
        self.reader.object_count()
    }

    fn last_tid(&self) -> Tid {
        FileStorage::last_tid(self)
    }

    fn last_oid(&self) -> Oid {
        self.oids.last()
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        Ok(self.reader.load_before(oid, before, access)?)
    }

    fn load_resident(&self, oid: Oid, before: Tid, missed: &Missed) -> Result<Load, StorageError> {
        Ok(self.reader.load_resident(oid, before, missed)?)
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        self.reader.is_still_current(oid, stamp)
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        Ok(self.reader.record(oid, serial)?)
    }

    fn load_serial(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, StorageError> {
        Ok(self.reader.load_serial(oid, serial)?)
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        let serial = self.reader.current_serial(oid, access)?;
        Ok(serial.map_or(Poll::Pending, Poll::Ready))
    }

    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        Ok(self.reader.each_revision(oid, count, accept)?)
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        Ok(self.reader.next_object(from)?)
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        Ok(Box::new(self.reader.iterate(start, stop)?))
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        Ok(self.reader.recent(count)?)
    }

    fn read_resident(&self, look_up: &mut dyn FnMut(&dyn ResidentRevisions)) {
        look_up(&self.reader.cached_revisions());
    }
}
