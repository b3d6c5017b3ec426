//! A file whose contents were replaced by those of a log that went another way, while the checksums
//! of the first one are still beside it. Nothing of it is damage.

use std::ops::RangeInclusive;

use crate::support::{
    checked, commit, companion, count_warnings, data_file, data_of, open, open_summed, overwrite,
    stores, tid,
};
use zodium_disk::{Disk, MemoryDisk};
use zodium_filestorage::{ChecksumMode, Distrust, FileStorage};
use zodium_storage::{Access, Load};
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
