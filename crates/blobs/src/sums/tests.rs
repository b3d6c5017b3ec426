//! Whole entries are found, whatever else the file holds, and nothing else is taken for an entry.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation};
use zodium_types::{Oid, Tid};

use super::entry::ENTRY_BYTES;
use super::{HEAD_BYTES, NAME, Sums};
use crate::fingerprint::Fingerprint;

const FOLDER: &str = "blobs";

fn open(disk: &(impl Disk + Clone + 'static)) -> Sums {
    Sums::open(Arc::new(disk.clone()), Path::new(FOLDER), false)
}

fn disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_folder(Path::new(FOLDER)).unwrap();
    disk
}

fn path() -> std::path::PathBuf {
    Path::new(FOLDER).join(NAME)
}

fn print_of(oid: u64, tid: u64) -> Fingerprint {
    let crc32c = (oid != 3).then_some(u32::try_from(oid * 1000 + tid).unwrap());
    Fingerprint { length: oid * 7 + tid, crc32c }
}

/// Records blobs of objects 1 and up.
fn append(sums: &Sums, tid: u64, count: u64) {
    // In no order.
    let blobs = (1..=count).rev().map(|oid| (Oid(oid), print_of(oid, tid)));
    sums.append(Tid(tid), blobs.collect());
}

fn find(sums: &Sums, oid: u64, tid: u64) -> Option<Fingerprint> {
    sums.find(Oid(oid), Tid(tid))
}

/// Transactions 10, 20, 30... with 1 to 4 blobs each.
fn written(transactions: u64) -> MemoryDisk {
    let disk = disk();
    let sums = open(&disk);
    for number in 1..=transactions {
        append(&sums, number * 10, 1 + number % 4);
    }
    disk
}

/// Every blob of `transactions`, by (oid, tid).
fn blobs(transactions: u64) -> impl Iterator<Item = (u64, u64)> {
    (1..=transactions).flat_map(|number| (1..=1 + number % 4).map(move |oid| (oid, number * 10)))
}

fn with_bytes(bytes: &[u8]) -> MemoryDisk {
    let disk = disk();
    disk.put(&path(), bytes.to_vec());
    disk
}

#[test]
fn what_was_recorded_is_found_and_nothing_else() {
    for transactions in [1, 2, 3, 50, 51, 52, 53, 1_000] {
        let disk = written(transactions);
        let reader = Sums::open(Arc::new(disk.clone()), Path::new(FOLDER), true);
        for sums in [open(&disk), reader] {
            for (oid, tid) in blobs(transactions) {
                assert_eq!(find(&sums, oid, tid), Some(print_of(oid, tid)), "{oid} of {tid}");
                assert_eq!(find(&sums, oid + 4, tid), None);
                assert_eq!(find(&sums, oid, tid + 1), None);
            }
            assert_eq!(find(&sums, 1, 0), None);
            assert_eq!(find(&sums, 1, u64::MAX), None);
        }
    }
}

#[test]
fn without_blobs_there_is_no_file() {
    let disk = disk();
    let sums = open(&disk);
    sums.append(Tid(1), Vec::new());
    sums.make_way(Tid(2));
    sums.sync();
    assert_eq!(find(&sums, 1, 1), None);
    assert!(disk.paths().is_empty());
}

#[test]
fn a_file_cut_at_any_byte_keeps_its_whole_entries_and_takes_new_ones() {
    let bytes = written(20).bytes(&path()).unwrap();
    let all: Vec<_> = blobs(20).collect();
    for length in 0..=bytes.len() {
        let disk = with_bytes(&bytes[..length]);
        let sums = open(&disk);
        let whole = length.saturating_sub(HEAD_BYTES) / ENTRY_BYTES;
        append(&sums, 1_000, 2);
        for sums in [sums, open(&disk)] {
            for (place, (oid, tid)) in all.iter().enumerate() {
                let expected = (place < whole).then(|| print_of(*oid, *tid));
                assert_eq!(find(&sums, *oid, *tid), expected, "{length} bytes, {oid} of {tid}");
            }
            assert_eq!(find(&sums, 2, 1_000), Some(print_of(2, 1_000)), "{length} bytes");
        }
        let expected = HEAD_BYTES + (whole + 2) * ENTRY_BYTES;
        assert_eq!(disk.bytes(&path()).unwrap().len(), expected, "{length} bytes");
    }
}

#[test]
fn a_flipped_bit_costs_its_own_entry_and_no_other() {
    let bytes = written(12).bytes(&path()).unwrap();
    let all: Vec<_> = blobs(12).collect();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let sums = open(&with_bytes(&flipped));
        let lost = (bit / 8).checked_sub(HEAD_BYTES).map(|byte| byte / ENTRY_BYTES);
        for (place, (oid, tid)) in all.iter().enumerate() {
            let expected = (lost != Some(place)).then(|| print_of(*oid, *tid));
            assert_eq!(find(&sums, *oid, *tid), expected, "bit {bit}, {oid} of {tid}");
        }
    }
}

#[test]
fn garbage_between_entries_is_passed_over() {
    let bytes = written(400).bytes(&path()).unwrap();
    let all: Vec<_> = blobs(400).collect();
    for (start, end) in [(0, 1), (0, 500), (300, 700), (500, all.len() - 1), (1, 2), (999, 1000)] {
        let mut damaged = bytes.clone();
        damaged[HEAD_BYTES + start * ENTRY_BYTES..HEAD_BYTES + end * ENTRY_BYTES].fill(0);
        let sums = open(&with_bytes(&damaged));
        for (place, (oid, tid)) in all.iter().enumerate() {
            let expected = (!(start..end).contains(&place)).then(|| print_of(*oid, *tid));
            assert_eq!(find(&sums, *oid, *tid), expected, "{start}..{end}, {oid} of {tid}");
        }
    }
}

#[test]
fn a_lower_tid_cuts_what_was_given_up() {
    for (lower, kept) in [(1, 0), (10, 0), (45, 4), (50, 4), (99, 9), (100, 9)] {
        let disk = written(10);
        let sums = open(&disk);
        let new = Fingerprint { length: 1, crc32c: Some(1) };
        sums.make_way(Tid(lower));
        // What is not there any more must not come back after a power cut.
        for sums in [open(&disk.after_power_cut()), sums] {
            sums.append(Tid(lower), vec![(Oid(1), new)]);
            append(&sums, lower + 1, 2);
            assert_eq!(find(&sums, 1, lower), Some(new));
            assert_eq!(find(&sums, 2, lower + 1), Some(print_of(2, lower + 1)));
            for (oid, tid) in blobs(10).filter(|(_, tid)| ![lower, lower + 1].contains(tid)) {
                let is_there = find(&sums, oid, tid).is_some();
                assert!(!is_there || tid <= kept * 10, "{oid} of {tid} after {lower}");
            }
        }
        let sums = open(&disk);
        for (oid, tid) in blobs(kept) {
            assert_eq!(find(&sums, oid, tid), Some(print_of(oid, tid)), "{lower}");
        }
    }
}

#[test]
fn a_failed_write_costs_its_own_blobs_and_no_others() {
    use Operation::{Open, Read, SetLength, Sync, Write};
    for operation in [Open, Read, SetLength, Sync, Write] {
        for nth in 1.. {
            let disk = FaultyDisk::new(disk());
            disk.fail(operation, nth, ErrorKind::StorageFull);
            let sums = open(&disk);
            for tid in [10, 20, 30, 15, 40] {
                sums.make_way(Tid(tid));
                append(&sums, tid, 4);
            }
            let met = disk.has_failed();
            disk.mend();
            let mut lost = 0;
            for sums in [open(&disk.files().after_kill()), sums] {
                lost = 0;
                for tid in [10, 15, 40] {
                    for oid in 1..=4 {
                        let found = find(&sums, oid, tid);
                        assert!(found.is_none_or(|found| found == print_of(oid, tid)));
                        lost += u64::from(found.is_none());
                    }
                }
                assert!(lost <= 4, "{operation:?} {nth}: {lost}");
            }
            let length = disk.files().bytes(&path()).unwrap().len();
            assert_eq!(length % ENTRY_BYTES, 0, "{operation:?} {nth}");
            if !met {
                assert_eq!(lost, 0);
                break;
            }
        }
    }
}

#[test]
fn entries_of_dropped_blobs_go_and_those_recorded_meanwhile_stay() {
    let disk = FaultyDisk::new(written(100));
    let sums = Arc::new(open(&disk));
    let is_dropped = |(oid, tid): &(u64, u64)| (oid + tid / 10).is_multiple_of(3);
    let dropped: Vec<_> =
        blobs(100).filter(is_dropped).map(|(oid, tid)| (Oid(oid), Tid(tid))).collect();
    let committer = Arc::clone(&sums);
    disk.before_next(Operation::Sync, move || append(&committer, 2_000, 3));
    let before = disk.files().bytes(&path()).unwrap().len();
    sums.drop_entries(&dropped);
    append(&sums, 2_010, 1);
    let after = disk.files().bytes(&path()).unwrap().len();
    assert_eq!(after, before + (3 + 1) * ENTRY_BYTES - dropped.len() * ENTRY_BYTES);
    for sums in [open(&disk), open(&disk.files().after_kill())] {
        for blob in blobs(100) {
            let expected = (!is_dropped(&blob)).then(|| print_of(blob.0, blob.1));
            assert_eq!(find(&sums, blob.0, blob.1), expected, "{blob:?}");
        }
        for (oid, tid) in [(1, 2_000), (3, 2_000), (1, 2_010)] {
            assert_eq!(find(&sums, oid, tid), Some(print_of(oid, tid)));
        }
    }
    assert_eq!(disk.files().paths(), [path()]);
}

#[test]
fn a_failure_while_entries_are_dropped_loses_none() {
    use Operation::{Folder, Open, Read, Sync, Write};
    for operation in [Open, Read, Write, Sync, Folder] {
        for nth in 1.. {
            let disk = FaultyDisk::new(written(20));
            let sums = open(&disk);
            disk.fail(operation, nth, ErrorKind::Other);
            sums.drop_entries(&[(Oid(1), Tid(20)), (Oid(2), Tid(20))]);
            let met = disk.has_failed();
            disk.mend();
            append(&sums, 1_000, 1);
            for sums in [&sums, &open(&disk.files().after_kill())] {
                for (oid, tid) in blobs(20).filter(|(_, tid)| *tid != 20).chain([(1, 1_000)]) {
                    let found = find(sums, oid, tid);
                    assert_eq!(found, Some(print_of(oid, tid)), "{operation:?} {nth}");
                }
            }
            if !met {
                break;
            }
        }
    }
}

#[test]
fn a_cut_while_entries_are_dropped_is_not_undone() {
    let disk = FaultyDisk::new(written(20));
    let sums = Arc::new(open(&disk));
    let committer = Arc::clone(&sums);
    disk.before_next(Operation::Sync, move || {
        committer.make_way(Tid(105));
        append(&committer, 105, 1);
    });
    sums.drop_entries(&[(Oid(1), Tid(10))]);
    for sums in [&sums, &open(disk.files())] {
        assert_eq!(find(sums, 1, 105), Some(print_of(1, 105)));
        assert_eq!(find(sums, 1, 100), Some(print_of(1, 100)));
        assert_eq!(find(sums, 1, 110), None);
    }
}

#[test]
fn another_file_of_that_name_records_nothing_and_is_used() {
    for bytes in [&[][..], b"x", &[0; 1_000], &[0xff; 100], &[0xa5; 100_000]] {
        let disk = with_bytes(bytes);
        let sums = open(&disk);
        assert_eq!(find(&sums, 1, 10), None);
        append(&sums, 10, 1);
        assert_eq!(find(&open(&disk), 1, 10), Some(print_of(1, 10)));
    }
    // Opened for reading only, nothing is mended.
    let disk = with_bytes(b"torn");
    let sums = Sums::open(Arc::new(disk.clone()), Path::new(FOLDER), true);
    assert_eq!(find(&sums, 1, 10), None);
    assert_eq!(disk.open(&path(), OpenMode::Read).unwrap().length().unwrap(), 4);
}
