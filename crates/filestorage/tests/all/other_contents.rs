//! A file whose contents were replaced by those of a log that went another way, while the checksums
//! of the first one are still beside it. Nothing of it is damage.

use std::ops::RangeInclusive;

use crate::support::{
    New, checked, commit, companion, count_warnings, data_file, data_of, open, open_summed,
    overwrite, referring, stores, tid,
};
use zodium_disk::{Disk, MemoryDisk};
use zodium_filestorage::{ChecksumMode, DamageKind, Distrust, FileStorage};
use zodium_storage::{Access, Load, Pack, PackOptions};
use zodium_types::{Oid, Tid};

const TRANSACTIONS: u64 = 100;
/// These differ in the two logs: up to the end, and between the places that an opening looks at.
const DIFFERENT: [RangeInclusive<u64>; 2] = [31..=TRANSACTIONS, 31..=45];

/// Writes transactions. Those of the range have this data, and are so much later.
fn write(storage: &FileStorage, range: &RangeInclusive<u64>, data: &[u8], later: u64) {
    for n in 1..=TRANSACTIONS {
        let (data, later) = match range.contains(&n) {
            true => (data, later),
            false => (&b"the same"[..], 0),
        };
        commit(storage, stores(Tid(tid(n).0 + later), &[(n, data)])).unwrap();
    }
}

/// A disk with the checksums of one log, and the bytes of the other one. Also where they part.
fn parted(range: &RangeInclusive<u64>) -> (MemoryDisk, u64) {
    let (disk, other) = (MemoryDisk::new(), MemoryDisk::new());
    let storage = open_summed(&disk, ChecksumMode::Full);
    write(&storage, range, b"one way.", 0);
    storage.close().unwrap();
    let storage = open(other.clone());
    write(&storage, range, b"another.", 5);
    storage.close().unwrap();
    let (one, another) = (data_of(&disk), data_of(&other));
    assert_eq!(one.len(), another.len());
    let transaction_bytes = (one.len() as u64 - 4) / TRANSACTIONS;
    overwrite(&disk, data_file(), &another);
    (disk, 4 + (range.start() - 1) * transaction_bytes)
}

#[test]
fn a_check_says_so_and_counts_nothing_as_covered() {
    for range in DIFFERENT {
        let (disk, parts_at) = parted(&range);
        let (found, damages) = checked(&disk);
        assert_eq!(damages, []);
        let Some(Distrust::OtherContents { position }) = found.distrust else {
            panic!("{found:?}");
        };
        // At an opening the end of the log is looked at first.
        let is_at_end = *range.end() == TRANSACTIONS;
        assert!(if is_at_end { position >= parts_at } else { position == parts_at });
        // Each transaction has one record.
        assert_eq!((found.covered, found.uncovered), (0, 2 * TRANSACTIONS));
    }
}

#[test]
fn an_opening_that_reads_the_whole_log_goes_by_the_log() {
    for range in DIFFERENT {
        let (disk, _) = parted(&range);
        disk.remove(&companion(".index")).unwrap();
        let (storage, warnings) = count_warnings(|| open_summed(&disk, ChecksumMode::Full));
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        for n in 1..=TRANSACTIONS {
            let load = storage.reader().load_before(Oid(n), Tid::MAX, Access::Blocking).unwrap();
            let Load::Revision(found) = load else { panic!("object {n}") };
            let expected = if range.contains(&n) { &b"another."[..] } else { b"the same" };
            assert_eq!(found.data, expected);
        }
        while storage.cover(1 << 20) > 0 {}
        storage.scrub(Default::default(), u64::MAX);
        assert_eq!(storage.checksum_metrics().unwrap().damaged, 0);
    }
}

/// A transaction of this many records of the data, with this description.
fn described(tid: Tid, records: u64, description: &[u8], data: &[u8]) -> New {
    let objects: Vec<(u64, &[u8])> = (1..=records).map(|oid| (oid, data)).collect();
    let (tid, mut new) = stores(tid, &objects);
    new.metadata.description = description.to_vec();
    (tid, new)
}

/// A disk with the checksums of one transaction behind another one that is the same in both logs,
/// and with the bytes of another transaction.
fn last_replaced(one: New, another: New) -> MemoryDisk {
    let written = |last: New| {
        let disk = MemoryDisk::new();
        let storage = open_summed(&disk, ChecksumMode::Full);
        commit(&storage, stores(tid(1), &[(1, b"the same")])).unwrap();
        commit(&storage, last).unwrap();
        storage.close().unwrap();
        disk
    };
    let (disk, other) = (written(one), written(another));
    overwrite(&disk, data_file(), &data_of(&other));
    disk
}

/// Of what is found in a file: whether it is called that of another log, and the damages.
fn found_in(disk: &MemoryDisk) -> (bool, usize) {
    let (found, damages) = checked(disk);
    let is_other = matches!(found.distrust, Some(Distrust::OtherContents { .. }));
    (is_other, damages.iter().filter(|damage| damage.kind == DamageKind::Checksum).count())
}

#[test]
fn a_single_transaction_that_damage_cannot_have_left_shows_another_log() {
    let (now, later) = (tid(2), tid(3));
    let cases = [
        // No metadata that could be damaged.
        (described(now, 1, b"", b"one"), described(later, 1, b"", b"two")),
        // Too many records to be all damaged.
        (described(now, 3, b"one", b"one"), described(later, 3, b"two", b"two")),
        // Another length.
        (described(now, 1, b"one", b"one"), described(later, 1, b"two", b"longer")),
    ];
    for (number, (one, another)) in cases.into_iter().enumerate() {
        assert_eq!(found_in(&last_replaced(one, another)), (true, 0), "case {number}");
    }
}

/// As by flipped bits in the description and in each record, unlikely as that is.
#[test]
fn a_single_transaction_that_damage_may_have_left_is_damage() {
    for records in [0, 1, 2] {
        let one = described(tid(2), records, b"one", b"one");
        let another = described(tid(2), records, b"two", b"two");
        let disk = last_replaced(one, another);
        assert_eq!(found_in(&disk), (false, records as usize + 1), "{records} records");
    }
}

/// No program writes transactions that differ in one bit of their descriptions.
#[test]
fn a_transaction_with_one_wrong_bit_in_its_description_is_damage_whatever_its_records_are() {
    for bit in 0..3 * 8 {
        let mut wrong = *b"one";
        wrong[bit / 8] ^= 1 << (bit % 8);
        let one = described(tid(2), 3, b"one", b"one");
        let another = described(tid(2), 3, &wrong, b"two");
        assert_eq!(found_in(&last_replaced(one, another)), (false, 4), "bit {bit}");
    }
}

/// A backup of the file before a pack comes in its place: its first transaction has the tid of the
/// only one that the pack left.
#[test]
fn a_file_from_before_a_pack_that_left_one_transaction_is_no_damage() {
    let disk = MemoryDisk::new();
    let storage = open_summed(&disk, ChecksumMode::Full);
    let (root, leaf) = (referring([1]), referring([]));
    let objects = [(0, &root[..]), (1, &leaf), (2, &leaf), (3, &leaf)];
    commit(&storage, stores(tid(1), &objects)).unwrap();
    let unpacked = data_of(&disk);
    let cancelled = std::sync::Arc::default();
    let options = PackOptions { gc: true, ..PackOptions::new(&cancelled) };
    assert!(storage.pack(tid(1), &options).unwrap().is_some());
    storage.close().unwrap();
    assert!(data_of(&disk).len() < unpacked.len());
    overwrite(&disk, data_file(), &unpacked);
    assert_eq!(found_in(&disk), (true, 0));
}
