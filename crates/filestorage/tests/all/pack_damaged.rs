//! Packs that leave damaged records out: what is dropped is what is damaged and what depends on it,
//! all else is as it was, and no older revision takes the place of a dropped one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::pack::history::{History, Transaction, revision};
use crate::support::{checked, commit, count_warnings, flip, overwrite, stores, tid};
use bytes::Bytes;
use zodium_disk::{Disk, MemoryDisk, OpenMode};
use zodium_filestorage::{ChecksumMode, DroppedRecord, FileStorage, FileStorageError, OpenOptions};
use zodium_storage::{Access, Load, PackOptions, Packed};
use zodium_types::{Oid, Tid};

const PATH: &str = "Data.fs";
/// Where the fields of a record's header begin, the first byte of what follows, and the second.
const FIELDS: [(u64, &str); 8] = [
    (7, "oid"),
    (14, "tid"),
    (23, "previous"),
    (30, "transaction"),
    (33, "version"),
    (41, "length"),
    (42, "data"),
    (49, "data or back pointer"),
];

/// A record of a sound file.
#[derive(Clone, Debug)]
struct Record {
    position: u64,
    oid: Oid,
    tid: Tid,
    back: Option<u64>,
}

#[test]
fn damaged_records_and_those_that_depend_on_them_are_dropped_and_nothing_else() {
    let (mut packs, mut dependents, mut roots) = (0, 0, 0);
    for seed in 1..=4 {
        let (disk, history) = written(seed, 30);
        if seed % 2 == 0 {
            disk.remove(Path::new("Data.fs.index")).unwrap();
        }
        let records = records(&disk.bytes(Path::new(PATH)).unwrap());
        for (number, record) in records.iter().enumerate() {
            for (nth, (offset, what)) in FIELDS.into_iter().enumerate() {
                let context = format!("seed {seed}, {what} of {record:?}");
                let damaged = flipped(&disk, record.position + offset);
                let lost = dependents_of(&records, record.position);
                let at = history.transactions.len() * ((number + nth) % 4) / 3;
                let pack_tid =
                    at.checked_sub(1).map_or(Tid::ZERO, |at| history.transactions[at].tid);
                if is_current(&records, Oid::ROOT, &lost) {
                    let error = drop_damaged(&damaged, pack_tid, true).unwrap_err();
                    assert!(
                        matches!(error, FileStorageError::RootDamaged { .. }),
                        "{error} {context}"
                    );
                    roots += 1;
                    continue;
                }
                let (packed, dropped) = drop_damaged(&damaged, pack_tid, true).unwrap();
                assert_dropped(&dropped, &records, &lost, &context);
                assert_history(
                    &damaged,
                    (&history, &records),
                    (pack_tid, packed),
                    &dropped,
                    &context,
                );
                assert_eq!(checked(&damaged).0.damages, 0, "{context}");
                packs += 1;
                dependents += lost.len() - 1;
            }
        }
    }
    assert!(packs > 1000 && dependents > 20 && roots > 20, "{packs} {dependents} {roots}");
}

#[test]
fn records_of_zeros_are_dropped_where_checksums_tell_their_ends() {
    let (disk, history) = written(5, 30);
    let records = records(&disk.bytes(Path::new(PATH)).unwrap());
    for record in &records {
        let lost = dependents_of(&records, record.position);
        if is_current(&records, Oid::ROOT, &lost) {
            continue;
        }
        let damaged = disk.after_kill();
        // Beneath an open storage: a file that is damaged like that at its end is not opened.
        let storage = open(&damaged);
        let file = damaged.open(Path::new(PATH), OpenMode::Write).unwrap();
        file.write_all_at(&[0; 50], record.position).unwrap();
        let cancelled = Arc::default();
        let packed = drop_damaged_of(&storage, Tid::ZERO, &options(&cancelled));
        let (packed, dropped) = packed.unwrap();
        drop(storage);
        let context = format!("{record:?}");
        let positions: BTreeSet<_> = dropped.iter().map(|dropped| dropped.position).collect();
        assert_eq!(positions, lost, "{context}");
        assert_history(&damaged, (&history, &records), (Tid::ZERO, packed), &dropped, &context);
        assert_eq!(checked(&damaged).0.damages, 0, "{context}");
    }
}

#[test]
fn many_damaged_records_are_dropped_together() {
    for seed in 6..26 {
        let (disk, history) = written(seed, 30);
        let records = records(&disk.bytes(Path::new(PATH)).unwrap());
        let damaged = disk.after_kill();
        let mut lost = BTreeSet::new();
        for record in records.iter().filter(|record| record.oid.0 % 3 == seed % 3) {
            let dependents = dependents_of(&records, record.position);
            if !is_current(&records, Oid::ROOT, &dependents) {
                flip(&damaged, record.position + 45, 0);
                lost.extend(dependents);
            }
        }
        let pack_tid = history.transactions[12].tid;
        let (packed, dropped) = drop_damaged(&damaged, pack_tid, true).unwrap();
        let context = format!("seed {seed}");
        assert_dropped(&dropped, &records, &lost, &context);
        assert_history(&damaged, (&history, &records), (pack_tid, packed), &dropped, &context);
        assert_eq!(checked(&damaged).0.damages, 0, "{context}");
    }
}

#[test]
fn garbage_goes_as_ever_when_only_old_revisions_are_damaged() {
    let (disk, storage, mut history) = begun();
    let (kept, garbage) = (Oid(1), Oid(2));
    history.store_all_references(&storage, &[(Oid::ROOT, &[kept]), (kept, &[]), (garbage, &[])]);
    history.store_references(&storage, kept, &[]);
    storage.close().unwrap();
    drop(storage);
    let records = records(&disk.bytes(Path::new(PATH)).unwrap());
    let old = records.iter().find(|record| record.oid == kept).unwrap();
    let new = records.iter().rfind(|record| record.oid == kept).unwrap();
    for (record, garbage_kept) in [(old, false), (new, true)] {
        let damaged = flipped(&disk, record.position + 45);
        let (packed, dropped) = drop_damaged(&damaged, history.last_tid(), true).unwrap();
        assert_eq!((packed.dropped, packed.garbage_kept), (1, garbage_kept));
        assert_eq!(packed.objects_dropped, u64::from(garbage_kept));
        assert_eq!(dropped[0].is_current, garbage_kept);
        let storage = open(&damaged);
        assert_eq!(loaded(&storage, garbage, Tid::MAX).is_some(), garbage_kept);
        assert_eq!(loaded(&storage, kept, Tid::MAX).is_some(), !garbage_kept);
        // The reference of the root, which is no reason to give up.
        assert_eq!(packed.dangling, u64::from(garbage_kept));
    }
    let damaged = flipped(&disk, new.position + 45);
    let error = drop_damaged_with(&damaged, history.last_tid(), |options| PackOptions {
        abort_on_dangling: true,
        ..options
    });
    let error = error.unwrap_err();
    assert!(matches!(error, FileStorageError::Dangling { references: 1, .. }), "{error}");
}

#[test]
fn nothing_is_dropped_from_a_sound_file() {
    let (disk, history) = written(7, 30);
    let plain = disk.after_kill();
    let storage = open(&plain);
    let cancelled = Arc::default();
    let pack_tid = history.transactions[20].tid;
    let mut pack = storage.packer().begin(pack_tid, &options(&cancelled)).unwrap().unwrap();
    storage.packer().finish(&mut pack).unwrap();
    let (packed, dropped) = drop_damaged(&disk, pack_tid, true).unwrap();
    assert_eq!((dropped.len(), packed.dropped, packed.garbage_kept), (0, 0, false));
    assert_eq!(disk.bytes(Path::new(PATH)), plain.bytes(Path::new(PATH)));
    // Once more there is nothing to pack.
    let storage = open(&disk);
    assert!(
        storage.packer().begin_without_damaged(pack_tid, &options(&cancelled)).unwrap().is_none()
    );
}

#[test]
fn damage_in_a_packed_file_is_dropped_whatever_the_pack_time() {
    let (disk, history) = written(8, 30);
    let pack_tid = history.transactions[20].tid;
    drop_damaged(&disk, pack_tid, true).unwrap();
    let records = records(&disk.bytes(Path::new(PATH)).unwrap());
    for record in records.iter().filter(|record| record.oid != Oid::ROOT) {
        let lost = dependents_of(&records, record.position);
        for to in [Tid::ZERO, history.transactions[3].tid, pack_tid, history.last_tid()] {
            let damaged = flipped(&disk, record.position + 45);
            let (_, dropped) = drop_damaged(&damaged, to, true).unwrap();
            assert_dropped(&dropped, &records, &lost, &format!("{record:?} {to}"));
            assert_eq!(checked(&damaged).0.damages, 0);
        }
    }
}

#[test]
fn broken_transaction_is_refused_and_the_file_stays() {
    let (disk, history) = written(9, 10);
    let bytes = disk.bytes(Path::new(PATH)).unwrap();
    let mut start = 4;
    while start < bytes.len() {
        let length = u64::from_be_bytes(bytes[start + 8..start + 16].try_into().unwrap()) as usize;
        for at in [start + 6, start + 17, start + length + 7] {
            let damaged = flipped(&disk, at as u64);
            let before = damaged.bytes(Path::new(PATH)).unwrap();
            // Where the last transaction is broken, the file opens without it, or not at all.
            let is_last = start + length + 8 == bytes.len();
            if is_last {
                continue;
            }
            let error = drop_damaged(&damaged, history.last_tid(), true).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("only damaged records can be left out"), "{text}");
            assert!(text.contains("zodium recover"), "{text}");
            assert_eq!(damaged.bytes(Path::new(PATH)).unwrap(), before);
            assert_eq!(damaged.bytes(Path::new("Data.fs.pack")), None);
        }
        start += length + 8;
    }
}

#[test]
fn plain_pack_names_the_damage_and_the_option() {
    let (disk, history) = written(10, 30);
    let records = records(&disk.bytes(Path::new(PATH)).unwrap());
    for record in &records {
        let damaged = flipped(&disk, record.position + 45);
        let storage = open(&damaged);
        let cancelled = Arc::default();
        for pack_tid in [history.last_tid(), history.transactions[2].tid] {
            let error = storage.packer().begin(pack_tid, &options(&cancelled)).err().unwrap();
            let text = error.to_string();
            assert_eq!(text.matches("zodium pack --drop-damaged").count(), 1, "{text}");
            assert!(text.contains(&format!("position {}", record.position)), "{text}");
        }
    }
}

#[test]
fn without_checksums_a_record_whose_end_is_not_known_is_refused() {
    let (disk, history) = written(11, 30);
    let records = records(&disk.bytes(Path::new(PATH)).unwrap());
    let mut dropped_count = 0;
    for record in records.iter().filter(|record| record.back.is_none() && record.oid != Oid::ROOT) {
        for (field, (offset, _)) in FIELDS.into_iter().enumerate() {
            let damaged = disk.after_kill();
            let options_off = OpenOptions::new(PATH);
            let storage = FileStorage::open(Arc::new(damaged.clone()), &options_off).unwrap();
            flip(&damaged, record.position + offset, 0);
            let cancelled = Arc::default();
            let begun =
                storage.packer().begin_without_damaged(history.last_tid(), &options(&cancelled));
            let expected = match field {
                // The length.
                5 => None,
                1 | 3 | 4 => Some(1),
                _ => continue,
            };
            match (begun, expected) {
                (Ok(Some(pack)), Some(_)) => {
                    assert!(pack.dropped().any(|dropped| dropped.position == record.position));
                    dropped_count += 1;
                }
                (Err(error), _) => {
                    let text = error.to_string();
                    assert!(text.contains("only damaged records can be left out"), "{text}");
                }
                (Ok(_), _) => panic!("field {field} of {record:?}"),
            }
        }
    }
    assert!(dropped_count > 20, "{dropped_count}");
}

/// Whether its header tells where that is, or the header is what is damaged.
#[test]
fn the_revision_before_a_lost_one_stays_at_the_pack_time() {
    let disk = MemoryDisk::new();
    let storage = open(&disk);
    let texts = [&b"the first"[..], b"the second", b"the third", b"the last"];
    for (n, text) in (1..).zip(texts) {
        commit(&storage, stores(tid(n), &[(0, text), (1, text), (2, text)])).unwrap();
    }
    storage.close().unwrap();
    drop(storage);
    let records = records(&disk.bytes(Path::new(PATH)).unwrap());
    for (lost, other) in [(Oid(1), Oid(2)), (Oid(2), Oid(1))] {
        let record = records.iter().rfind(|record| record.oid == lost).unwrap();
        for (offset, what) in FIELDS {
            let damaged = flipped(&disk, record.position + offset);
            let (packed, dropped) = drop_damaged(&damaged, tid(3), false).unwrap();
            assert_eq!((packed.dropped, packed.objects_dropped), (1, 1), "{what}");
            assert_eq!((dropped[0].oid, dropped[0].is_current), (Some(lost), true), "{what}");
            let storage = open(&damaged);
            let third = Some((tid(3), Bytes::from_static(texts[2])));
            for oid in [lost, other] {
                assert_eq!(loaded(&storage, oid, tid(4)), third, "{what}");
            }
            assert_eq!(loaded(&storage, lost, Tid::MAX), None, "{what}");
            let last = Some((tid(4), Bytes::from_static(texts[3])));
            assert_eq!(loaded(&storage, other, Tid::MAX), last, "{what}");
        }
    }
}

/// The header of the one behind it is sound, whatever has become of its data.
#[test]
fn a_lost_revision_tells_of_which_object_the_one_before_it_is() {
    let disk = MemoryDisk::new();
    let storage = open(&disk);
    for n in 1..=5 {
        commit(&storage, stores(tid(n), &[(0, b"root"), (1, b"revision")])).unwrap();
    }
    storage.close().unwrap();
    drop(storage);
    let damaged = disk.after_kill();
    for record in records(&disk.bytes(Path::new(PATH)).unwrap()) {
        if record.oid == Oid(1) && record.tid < tid(5) {
            flip(&damaged, record.position + 44, 0);
        }
    }
    let (packed, dropped) = drop_damaged(&damaged, tid(5), false).unwrap();
    assert_eq!((packed.dropped, packed.objects_dropped), (4, 0));
    let told: Vec<_> = dropped.iter().map(|it| (it.oid, it.tid, it.is_current)).collect();
    assert_eq!(told, [1, 2, 3, 4].map(|n| (Some(Oid(1)), tid(n), false)));
}

/// A record of an earlier transaction was called damaged before that was seen.
#[test]
fn nothing_is_dropped_when_the_checksums_turn_out_to_be_of_another_log() {
    let write = |salt: &[u8; 3]| {
        let disk = MemoryDisk::new();
        let storage = open(&disk);
        for n in 1..=60 {
            let (data, n) = match n {
                5 => (*salt, n),
                20..=40 => (*salt, 1000 * n + u64::from(salt[0])),
                41.. => (*b"sam", 1000 * n),
                _ => (*b"sam", n),
            };
            commit(&storage, stores(tid(n), &[(n % 50, &data)])).unwrap();
        }
        (disk, storage)
    };
    let ((disk, storage), (other, _)) = (write(b"one"), write(b"two"));
    overwrite(&disk, Path::new(PATH), &other.bytes(Path::new(PATH)).unwrap());
    let cancelled = Arc::default();
    let options = PackOptions { gc: false, ..options(&cancelled) };
    let (begun, warnings) =
        count_warnings(|| storage.packer().begin_without_damaged(tid(3), &options).unwrap());
    assert!(warnings.iter().any(|line| line.contains("not used any more")), "{warnings:?}");
    assert_eq!(begun.map_or(0, |pack| pack.dropped().count()), 0);
}

/// Or where the records of its transaction end.
#[test]
fn without_checksums_a_damaged_record_ends_where_its_length_says_so() {
    let disk = MemoryDisk::new();
    let storage = FileStorage::open(Arc::new(disk.clone()), &OpenOptions::new(PATH)).unwrap();
    commit(&storage, stores(tid(1), &[(0, b"root")])).unwrap();
    let objects = [(1, &b"first"[..]), (2, b"second"), (3, b"third")];
    commit(&storage, stores(tid(2), &objects)).unwrap();
    let records = records(&disk.bytes(Path::new(PATH)).unwrap());
    for (record, number) in records[1..].iter().zip(1..) {
        for (offset, what) in FIELDS {
            if !["tid", "transaction", "version", "length"].contains(&what) {
                continue;
            }
            let damaged = disk.after_kill();
            let options_off = OpenOptions::new(PATH);
            let storage = FileStorage::open(Arc::new(damaged.clone()), &options_off).unwrap();
            flip(&damaged, record.position + offset, 0);
            let cancelled = Arc::default();
            let options = PackOptions { gc: false, ..options(&cancelled) };
            let begun = storage.packer().begin_without_damaged(tid(2), &options);
            match begun {
                Ok(Some(pack)) => {
                    assert_ne!(what, "length");
                    let dropped: Vec<_> = pack.dropped().map(|it| (it.position, it.oid)).collect();
                    let expected = (record.position, Some(Oid(number)));
                    assert_eq!(dropped, [expected], "{what} of {number}");
                }
                Ok(None) => panic!("{what} of {number}: nothing is dropped"),
                // The first record of a transaction must name it.
                Err(error) => assert!(
                    what == "length" || number == 1 && what != "version",
                    "{what} of {number}: {error}"
                ),
            }
        }
    }
}

fn begun() -> (MemoryDisk, FileStorage, History) {
    let disk = MemoryDisk::new();
    let (storage, mut history) = (open(&disk), History::new(1));
    history.store_references(&storage, Oid::ROOT, &[]);
    (disk, storage, history)
}

/// No index is saved of a file with a damaged record, which may name a wrong object.
#[test]
fn the_index_is_saved_again_once_what_was_damaged_is_dropped() {
    let (disk, history) = written(1, 30);
    let index = Path::new("Data.fs.index");
    disk.remove(index).unwrap();
    let records = records(&disk.bytes(Path::new(PATH)).unwrap());
    let leaves_root = |record: &&Record| {
        record.back.is_none()
            && !is_current(&records, Oid::ROOT, &dependents_of(&records, record.position))
    };
    let record = records.iter().find(leaves_root).unwrap();
    let damaged = flipped(&disk, record.position + 42);
    open(&damaged).close().unwrap();
    assert_eq!(damaged.bytes(index), None);
    let last = history.transactions.last().unwrap();
    drop_damaged(&damaged, last.tid, false).unwrap();
    assert!(damaged.bytes(index).is_some());
}

fn written(seed: u64, count: usize) -> (MemoryDisk, History) {
    let disk = MemoryDisk::new();
    let (storage, mut history) = (open(&disk), History::new(seed));
    history.write(&storage, count);
    storage.close().unwrap();
    (disk, history)
}

fn open(disk: &MemoryDisk) -> FileStorage {
    let checksums = ChecksumMode::Full;
    let options = OpenOptions { checksums, cache_bytes: 0, ..OpenOptions::new(PATH) };
    FileStorage::open(Arc::new(disk.clone()), &options).unwrap()
}

fn options(cancelled: &Arc<AtomicBool>) -> PackOptions<'_> {
    PackOptions { gc: true, keep_old: true, ..PackOptions::new(cancelled) }
}

fn drop_damaged(
    disk: &MemoryDisk,
    pack_tid: Tid,
    gc: bool,
) -> Result<(Packed, Vec<DroppedRecord>), FileStorageError> {
    drop_damaged_with(disk, pack_tid, |options| PackOptions { gc, ..options })
}

/// Opens, packs and closes.
fn drop_damaged_with(
    disk: &MemoryDisk,
    pack_tid: Tid,
    change: impl for<'a> Fn(PackOptions<'a>) -> PackOptions<'a>,
) -> Result<(Packed, Vec<DroppedRecord>), FileStorageError> {
    let storage = open(disk);
    let cancelled = Arc::default();
    drop_damaged_of(&storage, pack_tid, &change(options(&cancelled)))
}

fn drop_damaged_of(
    storage: &FileStorage,
    pack_tid: Tid,
    options: &PackOptions<'_>,
) -> Result<(Packed, Vec<DroppedRecord>), FileStorageError> {
    let mut pack = storage.packer().begin_without_damaged(pack_tid, options)?.expect("a pack");
    let packed = storage.packer().finish(&mut pack)?;
    let dropped = pack.dropped().cloned().collect();
    drop(pack);
    storage.close().unwrap();
    Ok((packed, dropped))
}

/// The same files with a bit of a byte flipped.
fn flipped(disk: &MemoryDisk, at: u64) -> MemoryDisk {
    let damaged = disk.after_kill();
    flip(&damaged, at, 0);
    damaged
}

/// All records of a sound file, in its order.
fn records(bytes: &[u8]) -> Vec<Record> {
    let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    let short = |at: usize| usize::from(u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap()));
    let (mut found, mut start) = (Vec::new(), 4);
    while start < bytes.len() {
        let end = start + number(start + 8) as usize;
        let mut at = start + 23 + short(start + 17) + short(start + 19) + short(start + 21);
        while at < end {
            let length = number(at + 34) as usize;
            let back = (length == 0).then(|| number(at + 42));
            let (oid, tid) = (Oid(number(at)), Tid(number(at + 8)));
            found.push(Record { position: at as u64, oid, tid, back });
            at += 42 + if length == 0 { 8 } else { length };
        }
        start = end + 8;
    }
    found
}

/// The record at a position, and those whose data stand in it.
fn dependents_of(records: &[Record], position: u64) -> BTreeSet<u64> {
    let mut lost = BTreeSet::from([position]);
    for record in records {
        if record.back.is_some_and(|back| lost.contains(&back)) {
            lost.insert(record.position);
        }
    }
    lost
}

fn is_current(records: &[Record], oid: Oid, lost: &BTreeSet<u64>) -> bool {
    let current = records.iter().rfind(|record| record.oid == oid);
    current.is_some_and(|record| lost.contains(&record.position))
}

fn assert_dropped(
    dropped: &[DroppedRecord],
    records: &[Record],
    lost: &BTreeSet<u64>,
    context: &str,
) {
    let current: BTreeMap<_, _> = records.iter().map(|r| (r.oid, r.position)).collect();
    let expected = records.iter().filter(|record| lost.contains(&record.position));
    let expected: Vec<_> =
        expected.map(|r| (r.position, r.tid, current[&r.oid] == r.position)).collect();
    let found: Vec<_> = dropped.iter().map(|d| (d.position, d.tid, d.is_current)).collect();
    assert_eq!(found, expected, "{context}");
    let records = records.iter().filter(|record| lost.contains(&record.position));
    for (dropped, record) in dropped.iter().zip(records) {
        // Of an old revision that nothing else names it may be unknown.
        let is_named = dropped.oid == Some(record.oid);
        assert!(is_named || dropped.oid.is_none() && !dropped.is_current, "{context}: {dropped:?}");
    }
}

/// Each object at each tid from the pack time on is as the model has it, or dropped.
fn assert_history(
    disk: &MemoryDisk,
    (history, records): (&History, &[Record]),
    (pack_tid, packed): (Tid, Packed),
    dropped: &[DroppedRecord],
    context: &str,
) {
    let expected: Vec<Transaction> = match packed.garbage_kept {
        true => history.transactions.clone(),
        false => history.packed(pack_tid, history.last_tid(), true),
    };
    // Of two records of an object in one transaction the last one counts.
    let last: BTreeMap<_, _> = records.iter().map(|r| ((r.oid, r.tid), r.position)).collect();
    let lost: BTreeSet<_> = dropped.iter().map(|record| record.position).collect();
    let oids: BTreeSet<Oid> =
        history.transactions.iter().flat_map(|t| &t.records).map(|record| record.oid).collect();
    // With the index that the pack has left, and without.
    for keeps_index in [true, false] {
        let disk = disk.after_kill();
        if !keeps_index {
            disk.remove(Path::new("Data.fs.index")).unwrap();
        }
        let storage = open(&disk);
        for record in dropped.iter().filter(|record| record.is_current) {
            // A client that has the object can store it again, and no new object gets its oid.
            let serial = storage.reader().current_serial(record.oid.unwrap(), Access::Blocking);
            assert_eq!(serial.unwrap(), Some(Some(record.tid)), "{context}");
        }
        for tid in history.transactions.iter().map(|t| t.tid).filter(|tid| *tid >= pack_tid) {
            for oid in &oids {
                let expected = revision(&expected, *oid, tid)
                    .filter(|(tid, _)| !lost.contains(&last[&(*oid, *tid)]))
                    .and_then(|(tid, data)| Some((tid, data?)));
                let found = loaded(&storage, *oid, tid.next());
                assert_eq!(found, expected, "{context}: object {oid} at {tid}, packed {pack_tid}");
            }
        }
    }
}

fn loaded(storage: &FileStorage, oid: Oid, before: Tid) -> Option<(Tid, Bytes)> {
    match storage.reader().load_before(oid, before, Access::Blocking).unwrap() {
        Load::Revision(revision) => Some((revision.serial, revision.data)),
        Load::NoRevision | Load::Missing => None,
        Load::WouldBlock => unreachable!("access is blocking"),
    }
}
