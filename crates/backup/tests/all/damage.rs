//! Damaged repositories: damage keeps nothing sound from being restored.

use zodium_backup::BackupError;
use zodium_backup::places::Place;
use zodium_backup::repository::{Backup, Repository, Source, backup, restored_point, verify};
use zodium_memorystorage::MemoryStorage;
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::blobs::SameData;
use crate::memory::{Memory, log, repository, restored, restored_with, source, write};

fn commit(storage: &MemoryStorage, tid: u64, data: &[u8]) -> Tid {
    let record = (Oid(1), data.to_vec());
    write(storage, Tid(tid << 20), TransactionStatus::Normal, &[record]);
    Tid(tid << 20)
}

fn full(storage: &MemoryStorage) -> Backup<'_> {
    let blobs = &SameData(b"data of a blob");
    Backup { source: Source { blobs, ..source(storage) }, quick: false, seconds: 1 }
}

fn objects(memory: &Memory, folder: &str) -> Vec<String> {
    memory.list(folder).unwrap().into_iter().map(|found| found.object).collect()
}

fn flip(memory: &Memory, object: &str) {
    let mut bytes = memory.get(object).unwrap().unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    memory.put(object, bytes).unwrap();
}

fn check(repository: &Repository, storage: &MemoryStorage) {
    verify(repository, false).unwrap();
    assert_eq!(restored(repository, None), log(storage, Tid::MAX));
}

/// The last transactions of three points, each of which is complete.
fn three_points(repository: &Repository, storage: &MemoryStorage) -> [Tid; 3] {
    [1, 2, 3].map(|tid| {
        let tid = commit(storage, tid, b"N.");
        backup(repository, &full(storage)).unwrap();
        tid
    })
}

#[test]
fn a_damaged_point_keeps_no_other_from_being_restored() {
    for damaged in 0..3 {
        let (memory, storage) = (Memory::default(), MemoryStorage::new());
        let repository = repository(&memory, None);
        let tids = three_points(&repository, &storage);
        flip(&memory, &objects(&memory, "points")[damaged]);
        for (number, tid) in tids.into_iter().enumerate() {
            match number == damaged && number == 2 {
                // A later one than the last sound one is not what was there then.
                true => assert!(restored_point(&repository, Some(tid)).unwrap_err().is_damage()),
                false => assert_eq!(restored(&repository, Some(tid)), log(&storage, tid)),
            }
        }
        let put = crate::blobs::Put::default();
        restored_with(&repository, Some(tids[1]), Some(&put));
        assert_eq!(put.len(), 2);
        if damaged == 2 {
            let error = restored_point(&repository, None).unwrap_err();
            let last = tids[1];
            assert!(matches!(error, BackupError::Damaged { .. }), "{error}");
            assert!(
                error.to_string().ends_with(&format!("before it is 2: --at {last}")),
                "{error}"
            );
        } else {
            assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
        }
    }
}

#[test]
fn lists_of_chunks_that_are_lost_keep_no_other_point_from_being_restored() {
    for damaged in 0..3 {
        let (memory, storage) = (Memory::default(), MemoryStorage::new());
        let repository = repository(&memory, None);
        let tids = three_points(&repository, &storage);
        let point = &objects(&memory, "points")[damaged];
        let text = String::from_utf8(memory.get(point).unwrap().unwrap()).unwrap();
        let is_page = |object: &String| text.contains(object.rsplit('/').next().unwrap());
        let page = objects(&memory, "chunks").into_iter().find(is_page).unwrap();
        memory.remove(&page).unwrap();
        assert_eq!(restored(&repository, Some(tids[1])), log(&storage, tids[1]));
        let put = crate::blobs::Put::default();
        restored_with(&repository, Some(tids[0]), Some(&put));
        assert_eq!(put.len(), 1);
    }
}

#[test]
fn a_backup_beside_a_damaged_point_is_complete_and_takes_the_next_number() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    three_points(&repository, &storage);
    let newest = &objects(&memory, "points")[2];
    flip(&memory, newest);
    let done = backup(&repository, &full(&storage)).unwrap();
    assert_eq!((done.point.number, done.is_new), (4, true));
    assert!(done.damage.unwrap().to_string().contains(newest));
    assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
    let again = backup(&repository, &full(&storage)).unwrap();
    assert!(!again.is_new && again.damage.is_none());
    memory.remove(newest).unwrap();
    check(&repository, &storage);
}
