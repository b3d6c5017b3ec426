//! With whatever index file beside it, a data file gives the same answers as with none.
//!
//! The index may be missing, cut, have a wrong bit, be that of another file, of an earlier time or
//! of a later one, and its checksum (`.index.crc32c`) may be any of that too. Each case opens the
//! file and compares every answer with the model.
//!
//! One promise is weaker, for a file of more than 64 MB whose index has no checksum, as stock ZODB
//! leaves it. Wrong bits must give the same answers or an error. Entries that name an older record
//! of their object are noticed if the newest one is in the last 1,000 transactions.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::{
    History, Model, commit, companion, data_file, data_of, disk_of, for_each_seed,
    loads_other_bytes, open, open_read_only, same_answers, scanned_bytes, stores, tid,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use zodium_disk::{Disk, MemoryDisk};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_storage::Write;
use zodium_types::Oid;

#[test]
fn missing_or_cut_index_changes_no_answer() {
    let written = Written::new(1);
    for length in 0..=written.index.len() {
        written.check(Some(&written.index[..length]), None);
        written.check(Some(&written.index[..length]), Some(&written.checksum));
    }
    written.check(None, None);
    written.check(None, Some(&written.checksum));
}

#[test]
fn cut_or_wrong_checksum_changes_no_answer() {
    let written = Written::new(2);
    for length in 0..written.checksum.len() {
        written.check(Some(&written.index), Some(&written.checksum[..length]));
    }
    for damaged in with_each_bit_flipped(&written.checksum) {
        written.check(Some(&written.index), Some(&damaged));
    }
    written.check(Some(&written.index), Some(&[0xff; 200]));
}

#[test]
fn wrong_bit_in_the_index_changes_no_answer() {
    let written = Written::new(3);
    for damaged in with_each_bit_flipped(&written.index) {
        written.check(Some(&damaged), None);
        written.check(Some(&damaged), Some(&written.checksum));
    }
}

#[test]
fn entry_that_names_an_older_record_changes_no_answer() {
    let written = Written::new(4);
    for damaged in written.indexes_with_an_older_record() {
        written.check(Some(&damaged), None);
        written.check(Some(&damaged), Some(&written.checksum));
    }
}

#[test]
fn index_of_an_earlier_or_later_time_changes_no_answer() {
    for_each_seed(10, "index_file_trust", |_, rng| {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        let mut history = History::new(rng.clone());
        let mut moments = Vec::new();
        for _ in 0..6 {
            history.commit_batch(&storage);
            storage.save_index().unwrap();
            moments.push((disk.after_power_cut(), history.model.clone()));
        }
        for (data, model) in &moments {
            for (index, _) in &moments {
                for (checksum, _) in &moments {
                    let part = |of: &MemoryDisk, suffix| of.bytes(&companion(suffix));
                    check(
                        &data_of(data),
                        model,
                        part(index, ".index").as_deref(),
                        part(checksum, ".index.crc32c").as_deref(),
                    );
                }
            }
        }
    });
}

#[test]
fn index_of_another_file_changes_no_answer() {
    let files: Vec<_> = (5..10).map(Written::new).collect();
    for file in &files {
        for other in &files {
            file.check(Some(&other.index), Some(&other.checksum));
            file.check(Some(&other.index), None);
        }
    }
}

/// As after a restored backup: another course of events in records of the same lengths, and so at
/// the same positions. Each entry of the index names a record of its object, the last transaction
/// wrote the same object; only object 3 has a newer record here.
#[test]
fn index_of_another_course_of_the_same_history_changes_no_answer() {
    let course = |order: [u64; 4], from: u64| {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        let mut history = History::new(SmallRng::seed_from_u64(1));
        for n in 1..=3 {
            history.commit(&storage, stores(tid(n), &[(n, b"base")]));
        }
        for (n, oid) in order.into_iter().enumerate() {
            history.commit(&storage, stores(tid(from + n as u64), &[(oid, b"more")]));
        }
        storage.save_index().unwrap();
        (disk, history.model)
    };
    let (one, model) = course([1, 2, 3, 1], 10);
    let (other, _) = course([1, 2, 1, 1], 20);
    assert_eq!(data_of(&one).len(), data_of(&other).len());
    for checksum in [None, other.bytes(&companion(".index.crc32c"))] {
        let index = other.bytes(&companion(".index"));
        check(&data_of(&one), &model, index.as_deref(), checksum.as_deref());
    }
}

#[test]
fn index_that_was_not_believed_is_replaced_at_the_close() {
    let written = Written::new(3);
    let disk = written.disk(Some(&written.index[1..]), Some(&written.checksum));
    assert_eq!(scanned_bytes(&disk), data_of(&disk).len() as u64 - 4);
    open(disk.clone()).close().unwrap();
    assert_eq!(disk.bytes(&companion(".index")).unwrap(), written.index);
    assert_eq!(scanned_bytes(&disk), 0);
}

#[test]
fn index_saved_during_commits_is_good() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"first")])).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 2..20_000 {
                let (one, other) = (n % 7, 7 + n % 3);
                commit(&storage, stores(tid(n), &[(one, b"one"), (other, b"other")])).unwrap();
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..50 {
            storage.save_index().unwrap();
            let image = disk.after_power_cut();
            let (scanned, length) = (scanned_bytes(&image), data_of(&image).len() as u64);
            let with_index = open_read_only(image.clone()).unwrap();
            image.remove(&companion(".index")).unwrap();
            let without = open_read_only(image).unwrap();
            assert!(scanned + 4 < length, "the index was not used");
            for oid in 0..10 {
                assert_eq!(current(&with_index, oid), current(&without, oid));
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn unverified_index_of_a_large_file_never_gives_other_bytes() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let mut history = History::new(SmallRng::seed_from_u64(21));
    history.commit(&storage, stores(tid(0).next(), &[(9_999, &vec![7; 65 << 20])]));
    for _ in 0..8 {
        history.commit_batch(&storage);
    }
    drop(storage);
    let bytes = data_of(&disk);
    open(disk.clone()).close().unwrap();
    disk.remove(&companion(".index.crc32c")).unwrap();
    assert_eq!(scanned_bytes(&disk), 0);

    // The large object is the model's too, but reading it each time takes too long.
    let index = disk.bytes(&companion(".index")).unwrap();
    let mut model = history.model.clone();
    let written =
        Written { bytes, index: index.clone(), checksum: Vec::new(), model: model.clone() };
    model.transactions.remove(0);
    for damaged in with_each_bit_flipped(&index) {
        disk.put(&companion(".index"), damaged);
        let storage = open_read_only(disk.clone()).unwrap();
        assert!(!loads_other_bytes(&storage, &model));
    }
    for damaged in written.indexes_with_an_older_record() {
        disk.put(&companion(".index"), damaged);
        assert_eq!(scanned_bytes(&disk), written.bytes.len() as u64 - 4);
    }
}

/// A server that is killed saves no index; the file must not grow to where a wrong one ends.
#[test]
fn index_that_was_not_used_is_replaced_when_the_file_is_opened_for_writing() {
    let written = Written::new(6);
    let longer = Written::new(7);
    let older = written.indexes_with_an_older_record();
    let unused = [
        (written.index.as_slice(), None),
        (older[0].as_slice(), Some(written.checksum.as_slice())),
        (longer.index.as_slice(), Some(longer.checksum.as_slice())),
        (b"no index", None),
    ];
    for (number, (index, checksum)) in unused.into_iter().enumerate() {
        let disk = written.disk(Some(index), checksum);
        drop(open_read_only(disk.clone()).unwrap());
        assert_eq!(disk.bytes(&companion(".index")).unwrap(), index, "case {number}");
        drop(open(disk.clone()));
        assert_eq!(disk.bytes(&companion(".index")).unwrap(), written.index, "case {number}");
        assert_eq!(scanned_bytes(&disk), 0, "case {number}");
    }
    let disk = written.disk(None, None);
    drop(open(disk.clone()));
    assert_eq!(disk.bytes(&companion(".index")), None);
}

/// A program may want it elsewhere.
#[test]
fn a_copy_of_the_index_is_the_index_and_says_how_far_it_goes() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=9 {
        commit(&storage, stores(tid(n), &[(n % 4, b"data")])).unwrap();
    }
    storage.save_index().unwrap();
    let mut copy = Vec::new();
    assert_eq!(storage.write_index(&mut copy).unwrap(), storage.size());
    assert_eq!(disk.bytes(&companion(".index")), Some(copy));
}

#[test]
fn a_storage_that_the_engine_closes_saves_its_index() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"data")])).unwrap();
    let engines: &dyn Write = &storage;
    engines.close().unwrap();
    assert_eq!(scanned_bytes(&disk), 0);
}

#[test]
fn an_opening_tells_every_8_mib_how_much_it_has_read_of_what_the_index_does_not_cover() {
    const MIB: u64 = 1 << 20;
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let commit_mib = |n| commit(&storage, stores(tid(n), &[(n, &vec![0; MIB as usize])])).unwrap();
    (1..=3).for_each(commit_mib);
    storage.save_index().unwrap();
    let covered = storage.size();
    (4..=23).for_each(commit_mib);
    let told = RefCell::new(Vec::new());
    let progress = |done, total| told.borrow_mut().push((done, total));
    let options =
        OpenOptions { read_only: true, progress: &progress, ..OpenOptions::new(data_file()) };
    FileStorage::open(Arc::new(disk), &options).unwrap();
    let told = told.into_inner();
    let total = storage.size() - covered;
    assert!(told.iter().all(|(_, of)| *of == total), "{told:?}");
    let done: Vec<_> = told.iter().map(|(done, _)| done / MIB).collect();
    assert_eq!(done, [8, 16, 20]);
    assert_eq!(told.last(), Some(&(total, total)));
}

#[test]
fn a_file_that_begins_anew_has_nothing_of_the_old_one_beside_it() {
    let checksums = ChecksumMode::Full;
    let options = OpenOptions { checksums, ..OpenOptions::new(data_file()) };
    let disk = MemoryDisk::new();
    let storage = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
    commit(&storage, stores(tid(1), &[(1, b"old")])).unwrap();
    storage.close().unwrap();
    drop(storage);
    let options = OpenOptions { truncate: true, checksums: ChecksumMode::Off, ..options };
    let storage = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
    assert_eq!(storage.size(), 4);
    assert_eq!(current(&storage, 1), None);
    assert_eq!(disk.bytes(&companion(".index")), None);
    assert_eq!(disk.bytes(&companion(".checksums")), None);
}

/// A file with the index that belongs to it.
struct Written {
    bytes: Vec<u8>,
    index: Vec<u8>,
    checksum: Vec<u8>,
    model: Model,
}

impl Written {
    fn new(seed: u64) -> Written {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        let mut history = History::new(SmallRng::seed_from_u64(seed));
        for _ in 0..6 {
            history.commit_batch(&storage);
        }
        storage.close().unwrap();
        Written {
            bytes: data_of(&disk),
            index: disk.bytes(&companion(".index")).unwrap(),
            checksum: disk.bytes(&companion(".index.crc32c")).unwrap(),
            model: history.model,
        }
    }

    fn disk(&self, index: Option<&[u8]>, checksum: Option<&[u8]>) -> MemoryDisk {
        disk_with(&self.bytes, index, checksum)
    }

    fn check(&self, index: Option<&[u8]>, checksum: Option<&[u8]>) {
        check(&self.bytes, &self.model, index, checksum);
    }

    /// For each record that is not the newest of its object: the index that names it instead.
    fn indexes_with_an_older_record(&self) -> Vec<Vec<u8>> {
        let records = self.model.record_positions();
        let newest = |oid| records.iter().rev().find(|(other, _)| *other == oid).unwrap().1;
        let mut indexes = Vec::new();
        for (oid, position) in &records {
            let newest = newest(*oid).to_be_bytes();
            let at = self.index.windows(6).position(|bytes| bytes == &newest[2..]).unwrap();
            let mut index = self.index.clone();
            index[at..at + 6].copy_from_slice(&position.to_be_bytes()[2..]);
            if index != self.index {
                indexes.push(index);
            }
        }
        assert!(indexes.len() > 5, "{records:?}");
        indexes
    }
}

fn disk_with(bytes: &[u8], index: Option<&[u8]>, checksum: Option<&[u8]>) -> MemoryDisk {
    let disk = disk_of(bytes);
    for (suffix, bytes) in [(".index", index), (".index.crc32c", checksum)] {
        if let Some(bytes) = bytes {
            disk.put(&companion(suffix), bytes.to_vec());
        }
    }
    disk
}

fn check(bytes: &[u8], model: &Model, index: Option<&[u8]>, checksum: Option<&[u8]>) {
    let storage = open_read_only(disk_with(bytes, index, checksum)).unwrap();
    assert!(same_answers(&storage, model).unwrap(), "index {index:x?}, checksum {checksum:x?}");
    assert_eq!(storage.reader().object_count(), model.objects().len() as u64);
    assert_eq!(storage.new_oids(1), open(disk_of(bytes)).new_oids(1));
}

fn with_each_bit_flipped(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..bytes.len() * 8).map(|bit| {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        damaged
    })
}

fn current(storage: &FileStorage, oid: u64) -> Option<zodium_types::Tid> {
    storage.reader().serial_of_living(Oid(oid)).unwrap()
}
