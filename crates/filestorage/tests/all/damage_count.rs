//! Damage that a read meets is counted once for each place, with and without checksums; what an
//! opening tries out is not.

use crate::support::{
    commit, damaged_at, data_file, data_of, disk_of, flip, logged, open_summed, stores, tid,
};
use tracing::Level;
use zodium_disk::{Disk, MemoryDisk, OpenMode};
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError};
use zodium_storage::Access;
use zodium_types::{Oid, Tid};

const MODES: [ChecksumMode; 3] = [ChecksumMode::Full, ChecksumMode::Commit, ChecksumMode::Off];
const TRANSACTION_HEADER_BYTES: u64 = 23;

/// Ten transactions, number n with object n, and where each begins; without a cache.
fn written(checksums: ChecksumMode) -> (MemoryDisk, FileStorage, Vec<u64>) {
    let disk = MemoryDisk::new();
    let storage = open_summed(&disk, checksums);
    let mut positions = Vec::new();
    for n in 0..10 {
        positions.push(storage.size());
        commit(&storage, stores(tid(n + 1), &[(n, b"some data")])).unwrap();
    }
    (disk, storage, positions)
}

fn load(storage: &FileStorage, oid: u64) -> Result<(), FileStorageError> {
    storage.reader().load_before(Oid(oid), Tid::MAX, Access::Blocking).map(drop)
}

#[test]
fn wrong_header_of_a_record_is_counted_once_however_often_it_is_loaded() {
    for mode in MODES {
        let (disk, storage, positions) = written(mode);
        let record = positions[4] + TRANSACTION_HEADER_BYTES;
        // The lowest byte of its oid.
        flip(&disk, record + 7, 0);
        assert_eq!(storage.damaged_places(), 0);
        for _ in 0..3 {
            assert_eq!(damaged_at(load(&storage, 4)), record, "{mode:?}");
            assert_eq!(storage.damaged_places(), 1, "{mode:?}");
        }
        for sound in [3, 5] {
            load(&storage, sound).unwrap();
        }
        assert_eq!(storage.damaged_places(), 1, "{mode:?}");
        let metrics = storage.checksum_metrics();
        assert!(metrics.is_none_or(|metrics| metrics.damaged == 1), "{mode:?}");
        flip(&disk, positions[6] + TRANSACTION_HEADER_BYTES + 7, 0);
        load(&storage, 6).unwrap_err();
        assert_eq!(storage.damaged_places(), 2, "{mode:?}");
    }
}

#[test]
fn wrong_header_of_a_transaction_is_counted_by_whatever_passes_it() {
    type Read = fn(&FileStorage) -> Result<(), FileStorageError>;
    let reads: [(&str, Read); 5] = [
        ("iteration", |storage| {
            let mut transactions = storage.reader().iterate(None, None)?;
            while transactions.step()?.is_some() {}
            Ok(())
        }),
        ("history", |storage| storage.reader().history(Oid(4), 10).map(drop)),
        ("undo", |storage| storage.reader().records_to_undo(tid(5)).map(drop)),
        ("undo log", |storage| storage.reader().undo_log(|_| true)),
        ("recent", |storage| storage.reader().recent(10).map(drop)),
    ];
    for (name, read) in reads {
        for mode in MODES {
            let (disk, storage, positions) = written(mode);
            flip(&disk, positions[4] + 7, 0);
            assert_eq!(damaged_at(read(&storage)), positions[4], "{name}, {mode:?}");
            assert_eq!(storage.damaged_places(), 1, "{name}, {mode:?}");
        }
    }
}

#[test]
fn file_that_was_cut_while_it_is_served_is_counted_as_damaged() {
    for mode in MODES {
        let (disk, storage, positions) = written(mode);
        let file = disk.open(data_file(), OpenMode::Write).unwrap();
        // Within the data of object 8; object 9 is gone.
        let record = positions[8] + TRANSACTION_HEADER_BYTES;
        file.set_length(record + 45).unwrap();
        assert_eq!(damaged_at(load(&storage, 9)), positions[9] + TRANSACTION_HEADER_BYTES);
        assert_eq!(storage.damaged_places(), 1, "{mode:?}");
        damaged_at(load(&storage, 8));
        assert_eq!(storage.damaged_places(), 2, "{mode:?}");
        let mut transactions = storage.reader().iterate(Some(tid(1)), None).err();
        if let Ok(mut all) = storage.reader().iterate(None, None) {
            while transactions.is_none() {
                transactions = all.step().err();
            }
        }
        assert!(matches!(transactions, Some(FileStorageError::Corrupt { .. })), "{mode:?}");
        load(&storage, 7).unwrap();
    }
}

#[test]
fn damage_is_logged_once_however_often_it_is_met() {
    for mode in MODES {
        let (disk, storage, positions) = written(mode);
        // The lowest bytes of the oids of two records.
        for number in [4, 6] {
            flip(&disk, positions[number] + TRANSACTION_HEADER_BYTES + 7, 5);
        }
        let ((), messages) = logged(Level::ERROR, || {
            for oid in [4, 6, 4, 6, 4] {
                damaged_at(load(&storage, oid));
            }
        });
        assert_eq!(messages.len(), 2, "{mode:?}: {messages:?}");
    }
}

#[test]
fn what_an_opening_tries_out_is_no_damage() {
    for mode in MODES {
        let (disk, storage, positions) = written(mode);
        storage.close().unwrap();
        let bytes = data_of(&disk);
        let garbage = [&bytes[..], &[0xa5; 200][..]].concat();
        let cut = bytes[..positions[9] as usize + 30].to_vec();
        let zeros = [&bytes[..], &[0; 4096][..]].concat();
        for (name, bytes) in [("garbage", garbage), ("cut", cut), ("zeros", zeros)] {
            for has_side_file in [false, true] {
                let other = disk_of(&bytes);
                if let Some(side) = disk.bytes(&crate::support::companion(".checksums"))
                    && has_side_file
                {
                    other.put(&crate::support::companion(".checksums"), side);
                }
                let storage = open_summed(&other, mode);
                storage.reader().iterate(None, None).unwrap().step().unwrap();
                storage.reader().undo_log(|_| true).unwrap();
                load(&storage, 8).unwrap();
                assert_eq!(storage.damaged_places(), 0, "{name}, {mode:?}");
            }
        }
    }
}
