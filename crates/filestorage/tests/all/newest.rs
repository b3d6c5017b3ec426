//! Reads a file from its end towards its start.

use crate::support::{History, data_of, for_each_seed, open, stores, tid};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use zodium_disk::MemoryDisk;
use zodium_filestorage::FileStorage;
use zodium_types::Tid;

/// The tids of a storage, newest first, and of each the bytes of its records.
fn newest(storage: &FileStorage) -> Vec<(Tid, u64, u64, Vec<u8>)> {
    let mut transactions = storage.reader().newest();
    let mut found = Vec::new();
    while let Some(placed) = transactions.step().unwrap() {
        let mut bytes = Vec::new();
        transactions
            .records_bytes(&placed, |piece| {
                assert!(!piece.is_empty());
                bytes.extend_from_slice(piece);
            })
            .unwrap();
        let tid = placed.transaction.tid;
        found.push((tid, placed.place.position, placed.header_bytes, bytes));
    }
    found
}

#[test]
fn transactions_come_newest_first_each_with_the_bytes_of_its_records() {
    for_each_seed(5, "newest", |_, rng| {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        let mut history = History::new(SmallRng::from_rng(rng));
        while history.model.size() < 20_000 {
            history.commit_batch(&storage);
        }
        let (bytes, model) = (data_of(&disk), &history.model);
        let found = newest(&storage);
        let positions: Vec<u64> = found.iter().map(|found| found.1).rev().collect();
        assert_eq!(positions, model.positions()[..positions.len()]);
        assert_eq!(found[0].0, model.last_tid());
        let mut end = bytes.len();
        for (_, position, header_bytes, records) in found {
            let start = (position + header_bytes) as usize;
            // Its length stands once more at its end.
            assert!(records == bytes[start..end - 8]);
            end = position as usize;
        }
        assert_eq!(end, 4);
    });
}

/// More than is read at once, and as much, and none.
#[test]
fn records_of_any_size_come_whole() {
    const WINDOW_BYTES: usize = 64 << 10;
    let storage = open(MemoryDisk::new());
    // A record has a header of 42 bytes.
    let sizes = [WINDOW_BYTES - 42, WINDOW_BYTES - 41, 3 * WINDOW_BYTES, 1];
    for (n, size) in (1..).zip(sizes) {
        let data: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        crate::support::commit(&storage, stores(tid(n), &[(n, &data)])).unwrap();
    }
    crate::support::commit(&storage, stores(tid(9), &[])).unwrap();
    let lengths: Vec<_> = newest(&storage).into_iter().rev().map(|found| found.3.len()).collect();
    assert_eq!(lengths, [sizes[0] + 42, sizes[1] + 42, sizes[2] + 42, sizes[3] + 42, 0]);
}
