//! Packs of a storage in use.

mod client;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use client::{Client, open, open_file, record, transaction};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_disk::{Clock, MemoryDisk, SystemClock};
use zodium_engine::{Notice, VoteError};
use zodium_storage::{PackStep, StorageError};
use zodium_types::{Oid, Tid};

const WRITERS: u64 = 4;
const COMMITS: u64 = 400;
const PACKS: u64 = 4;

#[test]
fn commits_undos_and_loads_go_on_during_packs() {
    let disk = MemoryDisk::new();
    let storage = open(Arc::new(disk.clone()), Path::new("Data.fs"));
    let oids: Vec<_> = (1..=WRITERS).map(Oid).collect();
    Client::new(&storage).store(Oid::ROOT, record(0, &oids, 0));
    let packs = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = oids
        .iter()
        .map(|&oid| {
            let (client, packs) = (Client::new(&storage), Arc::clone(&packs));
            thread::spawn(move || write_and_undo(&client, oid, &packs))
        })
        .collect();
    while writers.iter().any(|writer| !writer.is_finished()) {
        let packed = storage.pack(now()).unwrap().is_some();
        packs.fetch_add(u64::from(packed), Ordering::Relaxed);
    }
    let values: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    storage.pack(now()).unwrap();
    storage.close().unwrap();
    let storage = open(Arc::new(disk.after_power_cut()), Path::new("Data.fs"));
    let client = Client::new(&storage);
    for (oid, value) in oids.into_iter().zip(values) {
        assert_eq!(client.load(oid).unwrap().1, record(value, &[], 100));
    }
    // Everything else was garbage: the root and one record for each writer are left.
    assert_eq!(storage.reader().object_count(), 1 + WRITERS);
    assert!(storage.reader().size() < 2000);
}

/// Changes one object again and again, sometimes by an undo, until there have been some packs
/// meanwhile; its last value.
fn write_and_undo(client: &Client, oid: Oid, packs: &AtomicU64) -> u64 {
    let mut random = SmallRng::seed_from_u64(oid.0);
    // Values and the transactions that wrote them, but for those that were undone.
    let mut written: Vec<(u64, Tid)> = Vec::new();
    let goes_on = |number| number <= COMMITS || packs.load(Ordering::Relaxed) < PACKS;
    for number in (1..).take_while(|number| goes_on(*number)) {
        match written.as_slice() {
            [.., (_, tid)] if written.len() > 1 && random.random_range(0..4) == 0 => {
                match client.undo(*tid) {
                    Ok(_) => {
                        written.pop();
                        // The undone one is the last transaction of its object no longer.
                        written.iter_mut().for_each(|(_, tid)| *tid = Tid::ZERO);
                    }
                    Err(VoteError::Storage(StorageError::NotUndoable { .. })) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            _ => written.push((number, client.store(oid, record(number, &[], 100)))),
        }
        let (value, _) = *written.last().unwrap();
        assert_eq!(client.load(oid).unwrap().1, record(value, &[], 100));
    }
    written.last().unwrap().0
}

#[test]
fn a_pack_sees_all_of_a_commit_or_nothing() {
    let disk = MemoryDisk::new();
    let storage = open(Arc::new(disk.clone()), Path::new("Data.fs"));
    let oids: Vec<_> = (1..=2000).map(Oid).collect();
    let client = Client::new(&storage);
    client.store(Oid::ROOT, record(0, &oids, 0));
    let committer = {
        let oids = oids.clone();
        thread::spawn(move || {
            for number in 1..=120 {
                store_all(&client, &oids, number);
                for &oid in &oids {
                    assert_eq!(client.load(oid).unwrap().1, record(number, &[], 0));
                }
            }
        })
    };
    while !committer.is_finished() {
        storage.pack(now()).unwrap();
        // The index that was saved, at a moment like any other, must be right too.
        let image = disk.after_power_cut();
        if image.bytes(Path::new("Data.fs.index")).is_some() {
            let file = open_file(Arc::new(image), Path::new("Data.fs"));
            let reader = file.reader();
            let first = reader.serial_of_living(Oid(1)).unwrap();
            assert!(oids.iter().all(|oid| reader.serial_of_living(*oid).unwrap() == first));
        }
    }
    committer.join().unwrap();
}

/// Stores the same in many objects, in one transaction.
fn store_all(client: &Client, oids: &[Oid], number: u64) {
    let mut transaction = transaction();
    for &oid in oids {
        let serial = client.load(oid).map_or(Tid::ZERO, |(serial, _)| serial);
        transaction.store(oid, serial, record(number, &[], 0));
    }
    client.commit(transaction).unwrap();
}

#[test]
fn the_last_step_waits_for_voted_back_pointers_and_for_nothing_else() {
    let storage = open(Arc::new(MemoryDisk::new()), Path::new("Data.fs"));
    let client = Client::new(&storage);
    let oid = Oid(1);
    client.store(Oid::ROOT, record(0, &[oid], 0));
    client.store(oid, record(1, &[], 0));
    client.store(oid, record(2, &[], 0));
    let pack_time = now();
    let undone = client.store(oid, record(3, &[], 0));

    let mut undo = transaction();
    undo.undo(undone);
    let (undo, voted_undo) = client.vote(undo).unwrap();
    let mut plain = transaction();
    plain.store(Oid(2), Tid::ZERO, record(9, &[], 0));
    let (plain, voted_plain) = client.vote(plain).unwrap();
    let packer = {
        let storage = Arc::clone(&storage);
        thread::spawn(move || storage.pack(pack_time).unwrap())
    };
    while !waits(&storage) {
        assert!(!packer.is_finished(), "it did not wait");
        thread::sleep(Duration::from_millis(1));
    }
    client.store(Oid(3), record(4, &[], 0));
    assert!(!packer.is_finished());
    assert!(matches!(storage.pack(pack_time), Err(StorageError::AlreadyPacking { .. })));

    let redone = client.finish(undo, voted_undo);
    assert!(packer.join().unwrap().is_some());
    client.wait(|notice| matches!(notice, Notice::Packed));
    client.finish(plain, voted_plain);
    assert_eq!(client.load(oid).unwrap().1, record(2, &[], 0));
    assert_eq!(client.load(Oid(2)).unwrap().1, record(9, &[], 0));
    assert_eq!(client.load(Oid(3)).unwrap().1, record(4, &[], 0));
    assert_eq!(storage.commit_status().waiting, 0);
    client.undo(redone).unwrap();
    assert_eq!(client.load(oid).unwrap().1, record(3, &[], 0));
}

#[test]
fn closing_gives_up_a_pack_that_waits() {
    let disk = MemoryDisk::new();
    let storage = open(Arc::new(disk.clone()), Path::new("Data.fs"));
    let client = Client::new(&storage);
    client.store(Oid::ROOT, record(0, &[], 0));
    let undone = client.store(Oid::ROOT, record(1, &[], 0));
    let mut undo = transaction();
    undo.undo(undone);
    let (number, voted) = client.vote(undo).unwrap();
    let packer = {
        let storage = Arc::clone(&storage);
        thread::spawn(move || storage.pack(now()))
    };
    while !waits(&storage) {
        thread::sleep(Duration::from_millis(1));
    }
    let size = storage.reader().size();
    storage.close().unwrap();
    let refused = packer.join().unwrap();
    assert!(matches!(refused, Err(StorageError::PackCancelled { .. })));
    assert_eq!(disk.bytes(Path::new("Data.fs")).unwrap().len() as u64, size);
    assert_eq!(disk.bytes(Path::new("Data.fs.pack")), None);
    assert_eq!(storage.commit_status().waiting, 0);
    storage.abort(number, Some(voted));
}

#[test]
fn the_status_says_how_the_last_pack_ended() {
    let storage = open(Arc::new(MemoryDisk::new()), Path::new("Data.fs"));
    let client = Client::new(&storage);
    let write_twice = || {
        for n in 0..2 {
            client.store(Oid::ROOT, record(n, &[], 0));
        }
    };
    let status = || {
        let status = storage.metrics().pack;
        assert!(status.running.is_none());
        (status.succeeded, status.failed, status.last.map(|last| last.result))
    };
    assert_eq!(status(), (0, 0, None));
    write_twice();
    let packed = storage.pack(now()).unwrap().unwrap();
    assert_ne!(packed.size_before, packed.size_after);
    assert_eq!(status(), (1, 0, Some(Ok(packed.size_before - packed.size_after))));
    assert_eq!(storage.pack(now()).unwrap(), None);
    assert_eq!(status(), (2, 0, Some(Ok(0))));
    write_twice();
    storage.cancel_pack();
    let error = storage.pack(now()).unwrap_err();
    assert_eq!(status(), (2, 1, Some(Err(error.to_string()))));
}

/// Whether a pack waits for its last step.
fn waits(storage: &zodium_engine::Database) -> bool {
    let running = storage.metrics().pack.running;
    running.and_then(|run| run.progress).is_some_and(|(step, ..)| step == PackStep::Waiting)
}

fn now() -> Tid {
    Tid::from_unix_nanos(SystemClock::new().unix_nanos())
}
