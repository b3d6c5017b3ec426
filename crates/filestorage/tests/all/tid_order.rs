//! The index of a file tells whether its tids go back, and which one is the latest: the last
//! transaction need not be that.

use std::path::PathBuf;
use std::sync::Arc;

use crate::support::{
    commit, companion, data_of, open, open_read_only, open_summed, scanned_bytes, stores, tid,
};
use zodium_disk::MemoryDisk;
use zodium_filestorage::{ChecksumMode, FileStorage};
use zodium_storage::PackOptions;
use zodium_types::Tid;

const TIDS: [u64; 7] = [1, 3, 5, 7, 2, 4, 6];
/// More than a file has that is read because its index has no checksum.
const LARGE_BYTES: usize = 65 << 20;

fn line_path() -> PathBuf {
    companion(".index.crc32c")
}

fn line(disk: &MemoryDisk) -> Vec<String> {
    let bytes = disk.bytes(&line_path()).unwrap_or_default();
    String::from_utf8(bytes).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// The first words, which are all that earlier versions wrote.
fn shorten_line(disk: &MemoryDisk) {
    let words = line(disk);
    assert_eq!(words.len(), 5);
    disk.put(&line_path(), format!("{}\n", words[..3].join(" ")).into_bytes());
}

fn file_of(tids: &[u64], first_bytes: usize) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let large = vec![7; first_bytes];
    for (oid, n) in (1..).zip(tids) {
        let data: &[u8] = if oid == 1 { &large } else { b"x" };
        commit(&storage, stores(tid(*n), &[(oid, data)])).unwrap();
    }
    storage.close().unwrap();
    disk
}

fn tids_of(storage: &FileStorage) -> Vec<Tid> {
    let mut transactions = storage.reader().iterate(None, Some(storage.last_tid())).unwrap();
    std::iter::from_fn(|| transactions.step().unwrap()).map(|found| found.tid).collect()
}

fn is_found(storage: &FileStorage, n: u64) -> bool {
    storage.reader().records_to_undo(tid(n)).is_ok()
}

fn check_known(storage: &FileStorage) {
    assert_eq!(storage.last_tid(), tid(7));
    assert_eq!(tids_of(storage), TIDS.map(tid));
    assert!(TIDS.into_iter().all(|n| is_found(storage, n)));
    assert!(!is_found(storage, 8));
}

#[test]
fn index_tells_the_latest_tid_where_tids_go_back() {
    for first_bytes in [1, LARGE_BYTES] {
        let disk = file_of(&TIDS, first_bytes);
        assert_eq!(line(&disk)[2..4], [tid(6).to_string(), tid(7).to_string()]);
        assert_eq!(scanned_bytes(&disk), 0);
        check_known(&open_read_only(disk.clone()).unwrap());
        let storage = open(disk.clone());
        check_known(&storage);
        // What a kill leaves behind the index.
        commit(&storage, stores(tid(9), &[(9, b"later")])).unwrap();
        drop(storage);
        let storage = open(disk.clone());
        assert_eq!(storage.last_tid(), tid(9));
        assert!(is_found(&storage, 2));
        storage.close().unwrap();
        assert_eq!(line(&disk)[2..4], [tid(9).to_string(), tid(9).to_string()]);
    }
}

#[test]
fn index_tells_that_tids_ascend() {
    let disk = file_of(&[1, 2, 3], 1);
    assert_eq!(line(&disk)[2..4], [tid(3).to_string(), "ascending".to_owned()]);
    assert_eq!(open(disk.clone()).last_tid(), tid(3));
    assert_eq!(scanned_bytes(&disk), 0);
}

#[test]
fn small_file_with_the_index_of_an_earlier_version_is_scanned_once() {
    let disk = file_of(&TIDS, 1);
    shorten_line(&disk);
    assert_eq!(scanned_bytes(&disk), data_of(&disk).len() as u64 - 4);
    let storage = open(disk.clone());
    check_known(&storage);
    drop(storage);
    assert_eq!(scanned_bytes(&disk), 0);
    check_known(&open(disk));
}

/// A scrub reads all, and so tells.
#[test]
fn scrub_learns_the_order_that_the_index_of_an_earlier_version_does_not_tell() {
    for piece_bytes in [1, u64::MAX] {
        let disk = file_of(&TIDS, LARGE_BYTES);
        let storage = open_summed(&disk, ChecksumMode::Full);
        while storage.cover(1 << 20) > 0 {}
        storage.close().unwrap();
        drop(storage);
        shorten_line(&disk);
        let storage = open_summed(&disk, ChecksumMode::Full);
        assert_eq!(scanned_bytes(&disk), 0);
        // The last transaction is all that an opening looks at.
        assert_eq!(storage.last_tid(), tid(6));
        assert!(!is_found(&storage, 2));
        let mut place = storage.scrub(Default::default(), piece_bytes);
        commit(&storage, stores(tid(8), &[(8, b"x")])).unwrap();
        while let Some(here) = place {
            place = storage.scrub(here, piece_bytes);
        }
        assert!(TIDS.into_iter().chain([8]).all(|n| is_found(&storage, n)));
        storage.close().unwrap();
        assert_eq!(line(&disk)[2..4], [tid(8).to_string(), tid(8).to_string()]);
    }
}

/// A pack copies all, and so tells too.
#[test]
fn pack_learns_the_order() {
    let disk = file_of(&TIDS, LARGE_BYTES);
    shorten_line(&disk);
    let storage = open(disk.clone());
    assert!(!is_found(&storage, 2));
    commit(&storage, stores(tid(8), &[(2, b"y")])).unwrap();
    let cancelled = Arc::default();
    let begun = storage.packer().begin(tid(8), &PackOptions::new(&cancelled));
    let mut pack = begun.unwrap().unwrap();
    storage.packer().finish(&mut pack).unwrap();
    assert!(!tids_of(&storage).contains(&tid(3)));
    storage.close().unwrap();
    assert_eq!(line(&disk)[2..4], [tid(8).to_string(), tid(8).to_string()]);
}

#[test]
fn follower_of_a_file_whose_last_tid_is_not_the_latest_goes_on() {
    let disk = file_of(&TIDS, 1);
    let follower = open_read_only(disk.clone()).unwrap();
    let mut tail = follower.follow().unwrap();
    assert_eq!(tail.step().unwrap(), None);
    let storage = open(disk);
    for n in [8, 9] {
        commit(&storage, stores(tid(n), &[(n, b"x")])).unwrap();
        assert!(follower.refresh().unwrap(), "it needs no other opening");
        assert_eq!(follower.last_tid(), tid(n));
        assert_eq!(tail.step().unwrap().map(|(tid, _)| tid), Some(tid(n)));
    }
}
