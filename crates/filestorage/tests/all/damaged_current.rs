//! A damaged current record keeps its serial, so that a client which has the object can store it
//! again: whatever bit is wrong, the serial is the right one or an error.

use crate::support::{commit, data_file, open_summed, stores, tid};
use zodium_disk::{Disk, MemoryDisk, OpenMode};
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError};
use zodium_storage::Access;
use zodium_types::{Oid, Tid};

const TRANSACTION_HEADER_BYTES: u64 = 23;
const RECORD_HEADER_BYTES: u64 = 42;
/// Within the header of a record.
const OID_END: u64 = 8;
const TID_END: u64 = 16;
const TRANSACTION_END: u64 = 32;

/// Transactions that store object 1 and a new one each, and where each of them begins. The current
/// record of object 11 is the second one of the tenth.
fn written(checksums: ChecksumMode) -> (MemoryDisk, FileStorage, Vec<u64>) {
    let disk = MemoryDisk::new();
    let storage = open_summed(&disk, checksums);
    let mut positions = Vec::new();
    for n in 1..=20 {
        positions.push(storage.size());
        commit(&storage, stores(tid(n), &[(1, b"first"), (n + 1, b"second")])).unwrap();
    }
    (disk, storage, positions)
}

fn record_of_object_11(positions: &[u64]) -> u64 {
    positions[9] + TRANSACTION_HEADER_BYTES + RECORD_HEADER_BYTES + 5
}

type Serial = Result<Option<Option<Tid>>, FileStorageError>;

fn serial(storage: &FileStorage) -> Serial {
    storage.reader().current_serial(Oid(11), Access::Blocking)
}

fn is_right(serial: &Serial) -> bool {
    match serial {
        Ok(found) => {
            assert_eq!(*found, Some(Some(tid(10))));
            true
        }
        Err(FileStorageError::Corrupt { .. }) => false,
        Err(other) => panic!("{other}"),
    }
}

/// Flips each bit of the bytes from `start` to `end`, one at a time; how many serials were known.
fn flip_each(disk: &MemoryDisk, (start, end): (u64, u64), storage: &FileStorage) -> u64 {
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    let mut known = 0;
    for bit in start * 8..end * 8 {
        let at = bit / 8;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], at).unwrap();
        known += u64::from(is_right(&serial(storage)));
        file.write_all_at(&byte, at).unwrap();
    }
    known
}

#[test]
fn damaged_current_record_keeps_its_serial_whatever_bit_is_wrong() {
    let (disk, storage, positions) = written(ChecksumMode::Full);
    let record = record_of_object_11(&positions);
    let bytes = RECORD_HEADER_BYTES + 6;
    assert_eq!(flip_each(&disk, (record, record + bytes), &storage), 8 * bytes);
    // The transaction around it: what it says of itself is then an error, or has not changed.
    let start = positions[9];
    let in_frame = flip_each(&disk, (start, start + TRANSACTION_HEADER_BYTES), &storage);
    assert_eq!(in_frame, 8 * TRANSACTION_HEADER_BYTES, "the record itself is sound");
}

#[test]
fn serial_is_asked_off_the_worker_when_its_record_is_damaged() {
    let (disk, storage, positions) = written(ChecksumMode::Full);
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(&[0xff], record_of_object_11(&positions)).unwrap();
    let resident = storage.reader().current_serial(Oid(11), Access::NonBlocking);
    assert_eq!(resident.unwrap(), None);
    assert!(is_right(&serial(&storage)));
}

#[test]
fn record_of_zeros_keeps_its_serial_and_its_transaction_must_be_sound() {
    let (disk, storage, positions) = written(ChecksumMode::Full);
    let record = record_of_object_11(&positions);
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(&[0; RECORD_HEADER_BYTES as usize + 6], record).unwrap();
    assert!(is_right(&serial(&storage)));
    let start = positions[9];
    let known = flip_each(&disk, (start, start + TRANSACTION_HEADER_BYTES), &storage);
    assert_eq!(known, 0);
}

#[test]
fn without_checksums_one_wrong_name_of_the_transaction_is_enough_to_find_it() {
    let (disk, storage, positions) = written(ChecksumMode::Off);
    let record = record_of_object_11(&positions);
    // Not the tid: without a checksum nothing shows that it is wrong.
    let known = flip_each(&disk, (record + TID_END, record + RECORD_HEADER_BYTES), &storage);
    assert_eq!(known, 8 * (RECORD_HEADER_BYTES - TID_END));
    // The oid: the record may be damaged, or the index that leads to it.
    assert_eq!(flip_each(&disk, (record, record + OID_END), &storage), 0);
    // With both names wrong it is an error.
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(&[0xff; 8], record + OID_END).unwrap();
    file.write_all_at(&[0xff; 8], record + TRANSACTION_END - 8).unwrap();
    assert!(!is_right(&serial(&storage)));
}
