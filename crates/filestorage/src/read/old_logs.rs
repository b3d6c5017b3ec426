//! Old generations of the log that iterators still read after packs.
//!
//! An iterator sees the file as it was when the iterator was made. So it keeps an old file open,
//! which takes space on the device until then. It needs only the bytes; the pack frees index and
//! cache. The number of old files is limited: a client that forgets its iterators, or takes days
//! over one, must not fill the device.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;

use super::log_bytes::LogBytes;
use crate::FileStorageError;

/// Old files kept open for iterators, not counting the current file. One more pack ends the
/// iterators of the oldest.
pub const OLD_LOGS_MAX: usize = 2;

/// A generation of the log as iterators hold it, until [`OldLogs::add`] frees its bytes.
pub(crate) struct PinnedLog {
    path: PathBuf,
    bytes: ArcSwapOption<LogBytes>,
}

impl PinnedLog {
    pub(crate) fn new(bytes: &Arc<LogBytes>) -> PinnedLog {
        let (path, bytes) = (bytes.path.clone(), Some(Arc::clone(bytes)));
        PinnedLog { path, bytes: ArcSwapOption::new(bytes) }
    }

    /// The bytes, for one step of an iterator.
    pub(crate) fn bytes(&self) -> Result<Arc<LogBytes>, FileStorageError> {
        let too_old = || FileStorageError::IteratorTooOld { path: self.path.clone() };
        self.bytes.load_full().ok_or_else(too_old)
    }
}

/// The generations before the current one that iterators still read, oldest first.
#[derive(Default)]
pub(crate) struct OldLogs(Vec<Weak<PinnedLog>>);

impl OldLogs {
    /// Adds the previous generation, and frees the oldest when there are too many.
    pub(crate) fn add(&mut self, log: &Arc<PinnedLog>) {
        self.0.retain(|old| old.strong_count() > 0);
        while self.0.len() >= OLD_LOGS_MAX {
            if let Some(oldest) = self.0.remove(0).upgrade() {
                oldest.bytes.store(None);
            }
        }
        self.0.push(Arc::downgrade(log));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use zodium_disk::MemoryDisk;
    use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

    use super::*;
    use crate::{FileStorage, OpenOptions, TransactionIterator};
    use zodium_storage::{Access, NewBody, NewRecord, NewTransaction, PackOptions};

    /// Bytes of each revision.
    const LENGTH: usize = 100_000;

    fn commit(storage: &FileStorage, tid: u64) {
        let data = NewBody::Data(vec![b'x'; LENGTH].into());
        let new = NewTransaction {
            status: TransactionStatus::Normal,
            metadata: TransactionMetadata::default(),
            records: vec![NewRecord { oid: Oid(0), body: data }],
        };
        let prepared = storage.prepare(new, Access::Blocking).unwrap().unwrap();
        for appended in storage.append(vec![(Tid(tid), prepared)]).unwrap() {
            storage.publish(appended);
        }
    }

    /// A pack that keeps only the last revision.
    fn pack(storage: &FileStorage, tid: u64) {
        let cancelled = Arc::default();
        let options = PackOptions::new(&cancelled);
        let mut pack = storage.packer().begin(Tid(tid), &options).unwrap().unwrap();
        storage.packer().finish(&mut pack).unwrap();
    }

    /// Steps to the next transaction, reads its record, and returns its tid.
    fn step(iterator: &mut TransactionIterator) -> Result<Option<u64>, FileStorageError> {
        let Some(transaction) = iterator.step()? else { return Ok(None) };
        let record = iterator.records().unwrap().step()?.expect("it has one");
        assert_eq!(record.data.map(|data: Bytes| data.len()), Some(LENGTH));
        Ok(Some(transaction.tid.0))
    }

    #[test]
    fn iterators_over_packs_keep_the_bytes_alone_and_only_of_so_many_files() {
        let disk = MemoryDisk::new();
        let mut options = OpenOptions::new("Data.fs");
        options.cache_bytes = 1 << 20;
        let storage = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
        (1..=3).for_each(|tid| commit(&storage, tid));
        let mut iterators = Vec::new();
        let mut last = 3;
        for _ in 0..=OLD_LOGS_MAX {
            let mut iterator = storage.reader().iterate(None, None).unwrap();
            let first = step(&mut iterator).unwrap();
            iterators.push((iterator, first, last));
            let index_and_cache = Arc::downgrade(&storage.reader().log());
            pack(&storage, last);
            assert!(index_and_cache.upgrade().is_none(), "they go with the pack");
            last += 1;
            commit(&storage, last);
        }
        let (mut oldest, ..) = iterators.remove(0);
        let error = step(&mut oldest).unwrap_err();
        assert!(matches!(error, FileStorageError::IteratorTooOld { .. }), "{error}");
        let used = disk.used_bytes();
        for (iterator, first, last) in &mut iterators {
            for tid in first.unwrap() + 1..=*last {
                assert_eq!(step(iterator).unwrap(), Some(tid));
            }
            assert_eq!(step(iterator).unwrap(), None);
        }
        drop(oldest);
        assert_eq!(disk.used_bytes(), used, "its file had gone before");
        drop(iterators);
        assert!(disk.used_bytes() + 2 * LENGTH as u64 <= used);
    }

    #[test]
    fn iterators_that_are_dropped_leave_room_for_others() {
        let storage =
            FileStorage::open(Arc::new(MemoryDisk::new()), &OpenOptions::new("Data.fs")).unwrap();
        (1..=2).for_each(|tid| commit(&storage, tid));
        let mut kept = storage.reader().iterate(None, None).unwrap();
        for tid in 2..10 {
            let dropped = (tid > 2).then(|| storage.reader().iterate(None, None).unwrap());
            pack(&storage, tid);
            drop(dropped);
            commit(&storage, tid + 1);
        }
        assert_eq!(step(&mut kept).unwrap(), Some(1));
    }
}
