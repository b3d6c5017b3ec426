//! Damaged repositories: a backup stores again what is lost, and damage keeps nothing sound from
//! being restored.

use std::collections::BTreeSet;

use zodium_backup::BackupError;
use zodium_backup::places::Place;
use zodium_backup::repository::{
    Archiver, Backup, KeepRules, Repository, Source, backup, find_damage, prune, restored_point,
    verify,
};
use zodium_memorystorage::MemoryStorage;
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::blobs::SameData;
use crate::memory::{Memory, log, plan, repository, restored, restored_with, source, write};

/// Bytes of a record that is a chunk of its own.
const ENDS_A_CHUNK: usize = 1 << 20;

fn commit(storage: &MemoryStorage, tid: u64, data: &[u8]) -> Tid {
    let record = (Oid(1), data.to_vec());
    write(storage, Tid(tid << 20), TransactionStatus::Normal, &[record]);
    Tid(tid << 20)
}

fn full(storage: &MemoryStorage) -> Backup<'_> {
    let blobs = &SameData(b"data of a blob");
    Backup {
        source: Source { blobs, ..source(storage) },
        quick: false,
        replaced: false,
        seconds: 1,
    }
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

/// Random bytes, of which no compression makes fewer.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn check(repository: &Repository, storage: &MemoryStorage) {
    verify(repository, false).unwrap();
    assert_eq!(restored(repository, None), log(storage, Tid::MAX));
}

#[test]
fn a_full_backup_stores_each_object_again_that_is_lost() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    for tid in 1..4 {
        commit(&storage, tid, &noise(tid, ENDS_A_CHUNK));
    }
    backup(&repository, &full(&storage)).unwrap();
    let lost = objects(&memory, "chunks");
    // Three chunks and the rest of their transactions, a piece of all blobs, and a list of chunks.
    assert!(lost.len() >= 6, "{lost:?}");
    for object in lost {
        memory.remove(&object).unwrap();
        verify(&repository, true).unwrap_err();
        backup(&repository, &full(&storage)).unwrap();
        check(&repository, &storage);
        assert_eq!(restored_with(&repository, None, None).blobs_left_out, 3);
    }
}

#[test]
fn a_second_reading_stores_again_what_is_lost() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    for tid in 1..4 {
        commit(&storage, tid, &noise(tid, ENDS_A_CHUNK));
    }
    let (mut archiver, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
    let large = memory.list("chunks").unwrap().into_iter().max_by_key(|found| found.bytes);
    memory.remove(&large.unwrap().object).unwrap();
    archiver.begin_rereading();
    while !archiver.reread(&source(&storage), 1).unwrap() {}
    check(&repository, &storage);
}

/// A pack has chunks stored as differences from those of before.
#[test]
fn no_difference_is_made_from_what_is_damaged() {
    let (memory, storage, packed) = (Memory::default(), MemoryStorage::new(), MemoryStorage::new());
    let repository = repository(&memory, None);
    let mut records: Vec<_> = (0..20).map(|oid| (Oid(oid), noise(oid, 10_000))).collect();
    write(&storage, Tid(1 << 20), TransactionStatus::Normal, &records);
    backup(&repository, &full(&storage)).unwrap();
    let chunks = memory.list("chunks").unwrap();
    let large = chunks.into_iter().max_by_key(|found| found.bytes).unwrap();
    flip(&memory, &large.object);
    records.truncate(15);
    write(&packed, Tid(1 << 20), TransactionStatus::Packed, &records);
    let stored = backup(&repository, &full(&packed)).unwrap().stored_bytes;
    assert!(stored > 100_000, "{stored} bytes are a difference");
    prune(&repository, &KeepRules { last: 1, ..KeepRules::default() }, 1, false).unwrap();
    check(&repository, &packed);
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
fn each_damage_is_found() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    three_points(&repository, &storage);
    let points = objects(&memory, "points");
    let texts = points.iter().map(|point| memory.get(point).unwrap().unwrap());
    let texts = String::from_utf8(texts.flatten().collect()).unwrap();
    let is_list = |object: &String| texts.contains(object.rsplit('/').next().unwrap());
    let contents = objects(&memory, "chunks").into_iter().filter(|object| !is_list(object));
    for object in contents.chain([points[1].clone()]) {
        flip(&memory, &object);
    }
    let mut found = BTreeSet::new();
    let mut note = |damage: BackupError| {
        found.insert(damage.to_string());
    };
    find_damage(&repository, false, &mut note).unwrap();
    assert!(found.iter().any(|damage| damage.contains(&points[1])), "{found:?}");
    // A chunk of the first point, one of the last, and the piece of all blobs.
    assert_eq!(found.len(), 4, "{found:?}");
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
