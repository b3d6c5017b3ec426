//! A repository is of one storage: another one is refused, and nothing of the same one is.

use std::sync::Arc;

use zodium_backup::BackupError;
use zodium_backup::repository::{Archiver, Backup, Repository, backup, points};
use zodium_memorystorage::MemoryStorage;
use zodium_storage::{Pack, PackOptions};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::memory::{Memory, log, plan, repository, restored, write};

/// A storage with these transactions, each of another object.
fn storage_of(tids: impl IntoIterator<Item = u64>) -> MemoryStorage {
    let storage = MemoryStorage::new();
    for tid in tids {
        commit(&storage, tid, tid);
    }
    storage
}

fn commit(storage: &MemoryStorage, tid: u64, oid: u64) {
    let data = [b"N.B\x01\0\0\0", &tid.to_be_bytes()[..], b"."].concat();
    write(storage, Tid(tid << 20), TransactionStatus::Normal, &[(Oid(oid), data)]);
}

/// A repository with one point, of the transactions 10 to 29.
fn backed_up(memory: &Memory) -> Repository {
    let repository = repository(memory, None);
    backup(&repository, &plan(&storage_of(10..30))).unwrap();
    repository
}

#[test]
fn another_storage_or_an_empty_one_is_refused_unless_it_is_said_to_be_new() {
    let (memory, others) = (Memory::default(), [vec![], vec![1, 5], vec![9, 31], vec![50, 60]]);
    let repository = backed_up(&memory);
    let before = restored(&repository, None);
    for tids in others {
        let other = storage_of(tids);
        for quick in [false, true] {
            let plan = Backup { quick, ..plan(&other) };
            let refused = backup(&repository, &plan).map(drop).unwrap_err();
            assert!(matches!(&refused, BackupError::Refused(text) if text.contains("--replaced")));
            assert!(matches!(Archiver::start(&repository, &plan), Err(BackupError::Refused(_))));
        }
        assert_eq!(points(&repository).unwrap().len(), 1);
        assert_eq!(restored(&repository, None), before);
    }
    let other = storage_of([50, 60]);
    backup(&repository, &Backup { replaced: true, ..plan(&other) }).unwrap();
    assert_eq!(restored(&repository, None), log(&other, Tid::MAX));
    backup(&repository, &plan(&other)).unwrap();
}

#[test]
fn an_older_copy_is_backed_up_and_told_of() {
    let memory = Memory::default();
    let repository = backed_up(&memory);
    let older = storage_of(10..20);
    let told = backup(&repository, &plan(&older)).unwrap().older_than.unwrap();
    assert_eq!((told.number, told.last()), (1, Tid(29 << 20)));
    assert!(backup(&repository, &plan(&older)).unwrap().older_than.is_none());
    // It has gone on, and a pack could have removed the rest.
    let memory = Memory::default();
    let repository = backed_up(&memory);
    let later = storage_of((10..20).chain([40]));
    assert!(backup(&repository, &plan(&later)).unwrap().older_than.is_none());
}

#[test]
fn a_pack_that_leaves_nothing_of_a_point_is_no_other_storage() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    for tid in 1..4 {
        commit(&storage, tid, 0);
    }
    backup(&repository, &plan(&storage)).unwrap();
    for tid in 4..7 {
        commit(&storage, tid, 0);
    }
    storage.pack(Tid(5 << 20), &PackOptions::new(&Arc::default())).unwrap();
    assert!(backup(&repository, &plan(&storage)).unwrap().older_than.is_none());
    assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
}
