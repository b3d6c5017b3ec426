//! Blobs that only a later point has, as of a first backup without their directory.

use std::cell::RefCell;
use std::io;

use zodium_backup::BackupError;
use zodium_backup::places::Place;
use zodium_backup::repository::{
    Backup, BlobSource, BlobTarget, ReadBlob, Restored, Source, backup, verify,
};
use zodium_memorystorage::MemoryStorage;
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::memory::{Memory, repository, restored_with, source, write};

/// Each record is of a blob with the same data.
pub(crate) struct SameData(pub(crate) &'static [u8]);

impl BlobSource for SameData {
    fn is_blob(&self, _: &[u8]) -> bool {
        true
    }

    fn open(&self, _: Oid, _: Tid) -> Result<Option<Box<dyn io::Read + '_>>, BackupError> {
        Ok(Some(Box::new(self.0)))
    }
}

fn full(source: Source<'_>) -> Backup<'_> {
    Backup { source, quick: false, replaced: false, seconds: 1 }
}

#[test]
fn a_lost_object_of_a_blob_is_found_beside_a_content_of_an_earlier_point() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    write(&storage, Tid(1 << 20), TransactionStatus::Normal, &[(Oid(1), b"N.".to_vec())]);
    backup(&repository, &full(source(&storage))).unwrap();
    let first = memory.list("chunks").unwrap();
    let blobs = SameData(b"data of a blob");
    backup(&repository, &full(Source { blobs: &blobs, ..source(&storage) })).unwrap();
    assert_eq!(verify(&repository, false).unwrap().blobs, 1);
    let added = memory.list("chunks").unwrap().into_iter().map(|found| found.object);
    let added: Vec<_> =
        added.filter(|added| first.iter().all(|found| found.object != *added)).collect();
    // The list of chunks, and the blob.
    assert_eq!(added.len(), 2);
    for object in added {
        let bytes = memory.get(&object).unwrap().unwrap();
        memory.remove(&object).unwrap();
        for quick in [false, true] {
            let error = verify(&repository, quick).unwrap_err();
            assert!(error.is_damage(), "{object}: {error}");
        }
        memory.put(&object, bytes).unwrap();
    }
    verify(&repository, false).unwrap();
}

/// The blobs that a restore has put.
#[derive(Default)]
pub(crate) struct Put(RefCell<Vec<(Oid, Tid, Vec<u8>)>>);

impl Put {
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl BlobTarget for Put {
    fn put(&self, oid: Oid, tid: Tid, read: &mut ReadBlob<'_>) -> Result<(), BackupError> {
        let mut data = Vec::new();
        read(&mut |piece| {
            data.extend_from_slice(piece);
            Ok(())
        })?;
        self.0.borrow_mut().push((oid, tid, data));
        Ok(())
    }
}

/// A blob whose last bytes turn out to be others than were committed.
struct Damaged;

impl BlobSource for Damaged {
    fn is_blob(&self, _: &[u8]) -> bool {
        true
    }

    fn open(&self, _: Oid, _: Tid) -> Result<Option<Box<dyn io::Read + '_>>, BackupError> {
        Ok(Some(Box::new(io::Read::chain(&b"data of"[..], Damaged))))
    }
}

impl io::Read for Damaged {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::ErrorKind::InvalidData.into())
    }
}

#[test]
fn a_damaged_blob_is_left_out_until_it_is_sound() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    write(&storage, Tid(1 << 20), TransactionStatus::Normal, &[(Oid(1), b"N.".to_vec())]);
    let backed_up = |blobs: &dyn BlobSource| {
        let done = backup(&repository, &full(Source { blobs, ..source(&storage) })).unwrap();
        (done.missing_blobs, verify(&repository, false).unwrap().blobs)
    };
    assert_eq!(backed_up(&Damaged), (1, 0));
    assert_eq!(backed_up(&SameData(b"data of a blob")), (0, 1));
}

#[test]
fn a_blob_that_a_point_lacks_is_taken_from_a_later_one() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    let tids = [1, 2, 3].map(|number| Tid(number << 20));
    let commit = |tid, oid| {
        write(&storage, tid, TransactionStatus::Normal, &[(Oid(oid), b"N.".to_vec())]);
    };
    let blobs = SameData(b"data of a blob");
    let with_blobs = || full(Source { blobs: &blobs, ..source(&storage) });
    commit(tids[0], 1);
    backup(&repository, &full(source(&storage))).unwrap();
    commit(tids[1], 2);
    commit(tids[2], 1);
    backup(&repository, &with_blobs()).unwrap();
    // Of another history: a transaction of the same tid without that object.
    let other = MemoryStorage::new();
    write(&other, tids[0], TransactionStatus::Normal, &[(Oid(7), b"N.".to_vec())]);
    write(&other, tids[2], TransactionStatus::Normal, &[(Oid(1), b"N.".to_vec())]);
    backup(&repository, &full(Source { blobs: &blobs, ..source(&other) })).unwrap();
    for (at, expected) in [(tids[0], 1), (tids[1], 2), (tids[2], 3)] {
        let put = Put::default();
        let done = restored_with(&repository, Some(at), Some(&put));
        let (transactions, blobs_left_out) = (expected as u64, 0);
        assert_eq!(done, Restored { transactions, blobs_left_out });
        let expected: Vec<_> = [(1, tids[0]), (2, tids[1]), (1, tids[2])][..expected]
            .iter()
            .map(|(oid, tid)| (Oid(*oid), *tid, blobs.0.to_vec()))
            .collect();
        assert_eq!(put.0.into_inner(), expected, "{at}");
    }
    assert_eq!(restored_with(&repository, Some(tids[2]), None).blobs_left_out, 3);
}
