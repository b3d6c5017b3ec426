//! Archives of a storage in memory, in a place in memory that fails: any transaction can be
//! restored, and of two writers one writes.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use zodium_backup::BackupError;
use zodium_backup::places::{Folder, Place};
use zodium_backup::repository::{Archiver, KeepRules, Key, Repository, prune, verify};
use zodium_memorystorage::MemoryStorage;
use zodium_storage::{Pack, PackOptions, Read};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::memory::{Memory, log, plan, repository, restored, source, write};

/// Commits `data` as a transaction of one object.
fn commit(storage: &MemoryStorage, oid: u64, data: &[u8]) -> Tid {
    commit_all(storage, &[(Oid(oid), data.to_vec())])
}

fn commit_all(storage: &MemoryStorage, records: &[(Oid, Vec<u8>)]) -> Tid {
    let tid = Tid(storage.last_tid().0 + (1 << 20));
    write(storage, tid, TransactionStatus::Normal, records);
    tid
}

#[test]
fn a_writer_that_another_one_has_followed_never_writes_again() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    commit(&storage, 1, b"a");
    let (mut first, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
    commit(&storage, 1, b"b");
    first.step(&source(&storage), 1).unwrap();
    let (mut second, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
    commit(&storage, 1, b"c");
    let before = memory.list("points").unwrap();
    let refused = first.step(&source(&storage), 1).unwrap_err();
    assert!(matches!(refused, BackupError::Fenced { .. }), "{refused}");
    assert!(matches!(first.complete(2).unwrap_err(), BackupError::Fenced { .. }));
    assert_eq!(memory.list("points").unwrap(), before);
    second.step(&source(&storage), 1).unwrap();
    assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
    verify(&repository, false).unwrap();
}

#[test]
fn a_point_whose_answer_was_lost_is_no_other_writer() {
    for write in 1..=2 {
        let (memory, storage) = (Memory::default(), MemoryStorage::new());
        let repository = repository(&memory, None);
        commit(&storage, 1, b"a");
        let (mut archiver, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
        commit(&storage, 1, b"b");
        memory.lost_answer.store(write, Ordering::Relaxed);
        assert!(archiver.step(&source(&storage), 1).is_err());
        commit(&storage, 1, b"c");
        archiver.step(&source(&storage), 1).unwrap();
        assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
        verify(&repository, false).unwrap();
    }
}

/// A complete point has what was read before a chunk of it could not be stored.
#[test]
fn a_complete_point_after_an_error_has_each_transaction_once() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    commit(&storage, 1, b"a");
    let (mut archiver, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
    commit(&storage, 1, b"b");
    archiver.step(&source(&storage), 1).unwrap();
    commit(&storage, 1, b"c");
    memory.failure.store(1, Ordering::Relaxed);
    assert!(archiver.step(&source(&storage), 1).is_err());
    archiver.complete(1).unwrap();
    assert_eq!(archiver.newest().last(), storage.last_tid());
    commit(&storage, 1, b"d");
    assert_eq!(archiver.step(&source(&storage), 1).unwrap().transactions, 1);
    assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
}

/// The data of an object that refers to no other one, with a state of so many bytes.
fn object_of(bytes: u32) -> Vec<u8> {
    [b"N.B", &bytes.to_le_bytes()[..], &vec![7; bytes as usize], b"."].concat()
}

/// A chunk of the newest transactions may be one of the packed storage, too: a complete point in
/// the middle of the second reading must leave it there.
#[test]
fn what_is_being_read_again_keeps_its_chunks() {
    const ENDS_A_CHUNK: u32 = 300_000;
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    commit(&storage, 0, &object_of(ENDS_A_CHUNK));
    let (mut archiver, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
    let garbage = commit(&storage, 77, &object_of(10));
    archiver.step(&source(&storage), 1).unwrap();
    commit(&storage, 0, &object_of(ENDS_A_CHUNK));
    archiver.step(&source(&storage), 1).unwrap();
    // More than one slice of a second reading.
    for oid in 0..2 {
        let records: Vec<_> =
            (0..5).map(|place| (Oid(5 * oid + place), object_of(900_000))).collect();
        commit_all(&storage, &records);
    }
    while !archiver.step(&source(&storage), 1).unwrap().is_caught_up {}
    let cancelled = Arc::default();
    let options = PackOptions { gc: true, ..PackOptions::new(&cancelled) };
    storage.pack(garbage, &options).unwrap();

    archiver.begin_rereading();
    assert!(!archiver.reread(&source(&storage), 1).unwrap());
    archiver.complete(1).unwrap();
    while !archiver.reread(&source(&storage), 1).unwrap() {}
    verify(&repository, false).unwrap();
    assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
}

/// An older copy takes the place of the storage, and is committed to before the archiver looks.
#[test]
fn what_a_roll_back_has_undone_is_not_in_the_next_complete_point() {
    let (memory, storage, copy) = (Memory::default(), MemoryStorage::new(), MemoryStorage::new());
    let repository = repository(&memory, None);
    for storage in [&storage, &copy] {
        write(storage, Tid(1), TransactionStatus::Normal, &[(Oid(0), object_of(10))]);
    }
    let (mut archiver, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
    assert!(archiver.is_continued_by(&storage).unwrap());
    commit(&storage, 1, &object_of(20));
    assert!(archiver.is_continued_by(&storage).unwrap());
    archiver.step(&source(&storage), 1).unwrap();

    let later = Tid(storage.last_tid().0 + 1);
    assert!(!archiver.is_continued_by(&copy).unwrap());
    write(&copy, later, TransactionStatus::Normal, &[(Oid(2), object_of(30))]);
    assert!(!archiver.is_continued_by(&copy).unwrap());
    archiver.begin_rereading();
    archiver.step(&source(&copy), 1).unwrap();
    while !archiver.reread(&source(&copy), 1).unwrap() {}
    assert!(archiver.is_continued_by(&copy).unwrap());
    verify(&repository, false).unwrap();
    assert_eq!(restored(&repository, None), log(&copy, Tid::MAX));
}

/// What happens to an archive.
#[derive(Clone, Debug)]
enum Event {
    Commit(Vec<u8>),
    /// A transaction of so many records, and their bytes.
    Long(u64, usize),
    Step,
    FailedStep(usize),
    LostAnswer(usize),
    Complete,
    Reread,
    Restart,
    Prune(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..200_000).prop_map(Event::Commit),
        1 => (1u64..80, 1usize..20_000).prop_map(|(count, bytes)| Event::Long(count, bytes)),
        1 => (1u64..3, 900_000usize..1_200_000)
            .prop_map(|(count, bytes)| Event::Long(count, bytes)),
        4 => Just(Event::Step),
        1 => (1usize..6).prop_map(Event::FailedStep),
        1 => (1usize..6).prop_map(Event::LostAnswer),
        1 => Just(Event::Complete),
        1 => Just(Event::Reread),
        1 => Just(Event::Restart),
        1 => (1usize..4).prop_map(Event::Prune),
    ];
    proptest::collection::vec(event, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 18, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_restored_at_any_transaction(events in events(), with_key: bool) {
        let key = Key::parse(&"5a".repeat(32)).unwrap();
        let (memory, storage) = (Memory::default(), MemoryStorage::new());
        let repository = repository(&memory, with_key.then_some(&key));
        let mut tids = vec![commit(&storage, 1, b"first")];
        let (mut archiver, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
        for (number, event) in events.into_iter().enumerate() {
            let seconds = number as i64;
            match event {
                Event::Commit(data) => tids.push(commit(&storage, number as u64 % 3, &data)),
                Event::Long(count, bytes) => {
                    let data = |oid| vec![oid as u8 ^ number as u8; bytes];
                    let records: Vec<_> = (0..count).map(|oid| (Oid(oid), data(oid))).collect();
                    tids.push(commit_all(&storage, &records));
                }
                Event::Step => {
                    archiver.step(&source(&storage), seconds).unwrap();
                }
                Event::FailedStep(writes) => {
                    memory.failure.store(writes, Ordering::Relaxed);
                    let _ = archiver.step(&source(&storage), seconds);
                    memory.failure.store(0, Ordering::Relaxed);
                }
                Event::LostAnswer(writes) => {
                    memory.lost_answer.store(writes, Ordering::Relaxed);
                    let _ = archiver.step(&source(&storage), seconds);
                    memory.lost_answer.store(0, Ordering::Relaxed);
                }
                Event::Complete => archiver.complete(seconds).unwrap(),
                Event::Reread => {
                    archiver.begin_rereading();
                    loop {
                        archiver.step(&source(&storage), seconds).unwrap();
                        if archiver.reread(&source(&storage), seconds).unwrap() {
                            break;
                        }
                    }
                }
                Event::Restart => {
                    archiver = Archiver::start(&repository, &plan(&storage)).unwrap().0;
                }
                Event::Prune(last) => {
                    let rules = KeepRules { last, ..KeepRules::default() };
                    prune(&repository, &rules, seconds, false).unwrap();
                    // An archiver and a prune keep each other out.
                    archiver = Archiver::start(&repository, &plan(&storage)).unwrap().0;
                }
            }
            verify(&repository, false).unwrap();
        }
        while !archiver.step(&source(&storage), 99).unwrap().is_caught_up {}
        prop_assert_eq!(archiver.newest().last(), storage.last_tid());
        verify(&repository, false).unwrap();
        for tid in tids {
            prop_assert_eq!(restored(&repository, Some(tid)), log(&storage, tid));
        }
    }
}

/// As when its disk is unmounted and mounted again.
#[test]
fn a_repository_that_is_gone_is_not_begun_anew_at_its_path() {
    let (outer, storage) = (tempfile::tempdir().unwrap(), MemoryStorage::new());
    let (path, away) = (outer.path().join("backups"), outer.path().join("away"));
    let open = || Repository::open_or_create(Box::new(Folder::new(&path)), None).unwrap();
    let (repository, late) = (open(), open());
    commit(&storage, 1, b"a");
    let (mut archiver, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
    fs::rename(&path, &away).unwrap();
    for is_mount_point in [false, true] {
        if is_mount_point {
            fs::create_dir(&path).unwrap();
        }
        commit(&storage, 1, b"b");
        for error in [archiver.check(), archiver.step(&source(&storage), 1).map(drop)] {
            let error = error.unwrap_err();
            assert!(matches!(error, BackupError::Gone { .. }), "{error}");
        }
        assert_eq!(path.exists(), is_mount_point);
    }
    let refused = Archiver::start(&late, &plan(&storage)).err().unwrap();
    assert!(matches!(refused, BackupError::Gone { .. }), "{refused}");
    assert!(fs::read_dir(&path).unwrap().next().is_none(), "it was written to");
    fs::remove_dir(&path).unwrap();
    fs::rename(&away, &path).unwrap();
    archiver.check().unwrap();
    while !archiver.step(&source(&storage), 1).unwrap().is_caught_up {}
    assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
    verify(&repository, false).unwrap();
}
