//! The reading traits of the seam.

use std::ops::ControlFlow;
use std::task::Poll;

use bytes::Bytes;
use zodium_storage::{
    Access, HistoryEntry, LOOKED_UP_TOGETHER, Load, ObjectStep, Read, ResidentRevision,
    ResidentRevisions, Stamp, StorageError, StoredRecord, TransactionCursor,
};
use zodium_types::{Oid, Tid};

use super::cursor::LogCursor;
use crate::{CachedRevisions, FileStorage};

impl Read for FileStorage {
    fn name(&self) -> String {
        self.path().display().to_string()
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn size(&self) -> u64 {
        FileStorage::size(self)
    }

    fn object_count(&self) -> u64 {
        FileStorage::object_count(self)
    }

    fn last_tid(&self) -> Tid {
        FileStorage::last_tid(self)
    }

    fn last_oid(&self) -> Oid {
        FileStorage::last_oid(self)
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        Ok(FileStorage::load_before(self, oid, before, access)?)
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        FileStorage::is_still_current(self, oid, stamp)
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        Ok(FileStorage::record(self, oid, serial)?)
    }

    fn load_serial(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, StorageError> {
        Ok(FileStorage::load_serial(self, oid, serial)?)
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        let serial = FileStorage::current_serial(self, oid, access)?;
        Ok(serial.map_or(Poll::Pending, Poll::Ready))
    }

    fn history(&self, oid: Oid, count: usize) -> Result<Vec<HistoryEntry>, StorageError> {
        let entries = FileStorage::history(self, oid, count)?.into_iter();
        let entry = |entry: crate::HistoryEntry| HistoryEntry {
            size: entry.size,
            transaction: entry.transaction.into(),
        };
        Ok(entries.map(entry).collect())
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        Ok(FileStorage::next_object(self, from)?)
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        Ok(Box::new(LogCursor::new(FileStorage::iterate(self, start, stop)?)))
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        Ok(FileStorage::recent(self, count)?)
    }

    fn read_resident(&self, look_up: &mut dyn FnMut(&dyn ResidentRevisions)) {
        look_up(&self.cached_revisions());
    }
}

impl ResidentRevisions for CachedRevisions {
    fn look_up(
        &self,
        oids: &[Oid],
        visit: &mut dyn FnMut(usize, Option<ResidentRevision<'_>>) -> ControlFlow<()>,
    ) {
        let found = CachedRevisions::look_up(self, oids.iter().copied());
        for number in 0..oids.len().min(LOOKED_UP_TOGETHER) {
            let flow = match found.current(number) {
                Some(revision) => visit(
                    number,
                    Some(ResidentRevision {
                        data: revision.data(),
                        serial: revision.serial(),
                        share: &|| revision.shared_data(),
                    }),
                ),
                None => visit(number, None),
            };
            if flow.is_break() {
                return;
            }
        }
    }
}
