//! With checksums beside it a `Data.fs` gives the bytes that were stored, or an error: whatever
//! bit of a committed transaction is flipped.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod support;

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use support::{
    History, Model, check_everything, companion, data_file, data_of, disk_of, for_each_seed,
    loads_other_bytes, same_answers,
};
use zodium_disk::{Disk, MemoryDisk};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};

fn open(disk: impl Disk + 'static) -> FileStorage {
    let checksums = ChecksumMode::Full;
    let options = OpenOptions { checksums, ..OpenOptions::new(data_file()) };
    FileStorage::open(Arc::new(disk), &options).expect("it opens")
}

/// Takes all checksums that are missing.
fn cover(storage: &FileStorage) {
    while storage.cover(1 << 20) > 0 {}
    assert_eq!(storage.uncovered_bytes(), 0);
}

fn written(rng: &SmallRng, bytes: u64) -> (MemoryDisk, History) {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let mut history = History::new(rng.clone());
    while history.model.size() < bytes {
        history.commit_batch(&storage);
    }
    storage.close().unwrap();
    (disk, history)
}

/// Where the last `count` transactions of the model begin in the file.
fn start_of_last(bytes: &[u8], count: usize) -> usize {
    (0..count).fold(bytes.len(), |end, _| {
        let length = u64::from_be_bytes(bytes[end - 8..end].try_into().unwrap());
        end - 8 - length as usize
    })
}

/// How many flips were seen at the opening, by a load or an iteration; the rest by the scrub.
fn flip_every_bit(disk: &MemoryDisk, model: &Model) -> (u32, u32) {
    let bytes = data_of(disk);
    let side = disk.bytes(&companion(".checksums")).unwrap();
    let index = disk.bytes(&companion(".index"));
    let (mut by_reading, mut flips) = (0, 0);
    for bit in start_of_last(&bytes, 3) * 8..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let disk = disk_of(&damaged);
        disk.put(&companion(".checksums"), side.clone());
        if let Some(index) = &index {
            disk.put(&companion(".index"), index.clone());
        }
        let storage = open(disk.clone());
        assert!(!loads_other_bytes(&storage, model), "bit {bit}");
        match same_answers(&storage, model) {
            Ok(is_same) => assert!(!is_same || is_repeated(bit, &bytes), "bit {bit} goes unseen"),
            Err(_) => by_reading += 1,
        }
        flips += 1;
        storage.scrub(Default::default(), u64::MAX);
        assert!(storage.checksum_figures().unwrap().damaged >= 1, "bit {bit}");
        drop(storage);
        assert_eq!(data_of(&disk), damaged, "bit {bit}: damage is kept");
    }
    (by_reading, flips)
}

/// Whether a bit is one that nobody reads: everything that is read is read otherwise too.
fn is_repeated(_bit: usize, _bytes: &[u8]) -> bool {
    false
}

#[test]
fn every_flipped_bit_of_the_last_three_transactions_is_seen() {
    for_each_seed(2, "checksums", |_, rng| {
        let (disk, history) = written(rng, 1_000);
        let (by_reading, flips) = flip_every_bit(&disk, &history.model);
        println!("with an index: {by_reading} of {flips} seen by reading, all by the scrub");
        disk.remove(&companion(".index")).unwrap();
        let (by_reading, flips) = flip_every_bit(&disk, &history.model);
        println!("without an index: {by_reading} of {flips} seen by reading, all by the scrub");
    });
}

#[test]
fn checksums_are_written_with_commits_and_taken_up_by_the_next_session() {
    let (disk, mut history) = written(&SmallRng::seed_from_u64(1), 2_000);
    for round in 0..3 {
        let storage = open(disk.clone());
        let figures = storage.checksum_figures().unwrap();
        assert_eq!((figures.covered_bytes, figures.damaged), (figures.bytes, 0), "round {round}");
        history.commit_batch(&storage);
        check_everything(&storage, &history.model, &mut SmallRng::seed_from_u64(9));
        if round % 2 == 0 {
            storage.close().unwrap();
        }
    }
}

#[test]
fn file_without_checksums_gets_them_while_it_is_written_to() {
    let (disk, mut history) = written(&SmallRng::seed_from_u64(2), 50_000);
    disk.remove(&companion(".checksums")).unwrap();
    let storage = open(disk.clone());
    assert_eq!(storage.checksum_figures().unwrap().covered_bytes, 4);
    for _ in 0..10 {
        storage.cover(1_000);
        history.commit_batch(&storage);
    }
    cover(&storage);
    history.commit_batch(&storage);
    assert_eq!(storage.uncovered_bytes(), 0);
    storage.scrub(Default::default(), u64::MAX);
    let figures = storage.checksum_figures().unwrap();
    assert_eq!((figures.covered_bytes, figures.damaged), (figures.bytes, 0));
    check_everything(&storage, &history.model, &mut SmallRng::seed_from_u64(9));
}
