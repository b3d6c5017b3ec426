//! Tests of the decision whether a saved index is used.

use std::io::BufWriter;

use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
use zodium_types::Tid;

use super::*;
use crate::format::TRANSACTION_HEADER_BYTES;
use crate::format::{Crafted, Watched};

const HEADER: u64 = TRANSACTION_HEADER_BYTES as u64;
const RECORD: u64 = DATA_HEADER_BYTES as u64;

fn index_of(end: u64, entries: &[(u64, u64)]) -> Vec<u8> {
    let mut index = Vec::new();
    let entries = entries.iter().map(|(oid, position)| (Oid(*oid), *position));
    index_file::write(&mut index, end, entries).unwrap();
    index
}

/// What becomes of an index beside a file, with this line beside it.
fn loaded(data: &Crafted, index: &[u8], line: Option<IndexLine>) -> Result<&'static str, String> {
    loaded_beside((&data.file(), data.end()), index, line)
}

fn loaded_beside(
    (file, length): (&Arc<dyn DiskFile>, u64),
    index: &[u8],
    line: Option<IndexLine>,
) -> Result<&'static str, String> {
    let (disk, path) = (MemoryDisk::new(), Crafted::path());
    disk.put(&with_suffix(path, ".index"), index.to_vec());
    if let Some(line) = line {
        line.write(&disk, path).unwrap();
    }
    match load(&disk, path, file, length)? {
        Found::Nothing => Ok("nothing"),
        Found::Unverified => Ok("unverified"),
        Found::Usable(_) => Ok("usable"),
    }
}

/// The line of an index whose last transaction has this tid.
fn line_of(index: &[u8], last_tid: u64) -> IndexLine {
    let sum = Sum { crc32c: crc32c::crc32c(index), length: index.len() as u64 };
    IndexLine { sum, last_tid: Tid(last_tid), order: Some(Order::Ascending) }
}

#[test]
fn the_index_of_a_small_file_is_used_if_it_fits_its_line() {
    let mut data = Crafted::new();
    let first = data.add(1, &[(1, b"one")]) + HEADER;
    let second = data.add(2, &[(2, b"two")]) + HEADER;
    let index = index_of(data.end(), &[(1, first), (2, second)]);
    let line = line_of(&index, 2);
    assert_eq!(loaded(&data, &index, Some(line)), Ok("usable"));
    assert_eq!(loaded(&data, &index, None), Ok("unverified"));
    assert_eq!(loaded(&data, &index, Some(IndexLine { order: None, ..line })), Ok("unverified"));
    let other = IndexLine { sum: Sum { crc32c: line.sum.crc32c ^ 1, ..line.sum }, ..line };
    let refused = loaded(&data, &index, Some(other)).unwrap_err();
    assert!(refused.contains("not the one that its checksum is of"), "{refused}");
    let refused = loaded(&data, &index, Some(line_of(&index, 1))).unwrap_err();
    assert!(refused.contains("another file"), "{refused}");
    // An entry that names no record of its object, though the line says that it is ours.
    let wrong = index_of(data.end(), &[(1, first + 1), (2, second)]);
    let refused = loaded(&data, &wrong, Some(line_of(&wrong, 2))).unwrap_err();
    assert!(refused.contains("is not at position"), "{refused}");
    assert_eq!(loaded(&data, b"garbage", None), Ok("unverified"));
    assert!(loaded(&data, b"garbage", Some(line)).is_err());
}

#[test]
fn an_index_that_cannot_be_opened_is_not_one_that_is_not_there() {
    let (disk, path, data) = (MemoryDisk::new(), Crafted::path(), Crafted::new());
    assert!(matches!(load(&disk, path, &data.file(), 4), Ok(Found::Nothing)));
    let failing = FaultyDisk::new(disk);
    failing.fail(Operation::Open, 1, io::ErrorKind::PermissionDenied);
    let Err(refused) = load(&failing, path, &data.file(), 4) else { panic!("it was opened") };
    assert!(refused.starts_with("Data.fs.index: "), "{refused}");
}

#[test]
fn an_index_covers_no_less_than_the_magic_and_no_more_than_the_file() {
    let covering = |data: &Crafted, end, entries: &[(u64, u64)], last_tid| {
        let index = index_of(end, entries);
        loaded(data, &index, Some(line_of(&index, last_tid)))
    };
    let mut data = Crafted::new();
    assert_eq!(covering(&data, 4, &[], 0), Ok("usable"));
    let refused = covering(&data, 3, &[], 0).unwrap_err();
    assert!(refused.contains("covers 3 bytes"), "{refused}");
    let first = data.add(1, &[(1, b"one")]) + HEADER;
    let end = data.end();
    data.add(2, &[(2, b"two")]);
    assert_eq!(covering(&data, end, &[(1, first)], 1), Ok("usable"));
    let refused = covering(&data, end + 1, &[(1, first)], 1).unwrap_err();
    assert!(refused.contains("no transactions"), "{refused}");
    data.bytes.truncate(end as usize);
    assert_eq!(covering(&data, end, &[(1, first)], 1), Ok("usable"));
    let refused = covering(&data, end + 1, &[(1, first)], 1).unwrap_err();
    assert!(refused.contains("covers"), "{refused}");
}

/// Without a line that fits, an index of a large file must agree with the last transactions, and
/// with many of its records.
#[test]
fn the_index_of_a_large_file_is_used_if_it_agrees_with_it() {
    let (objects, later) = (150, CHECKED_TRANSACTIONS as u64 + 1);
    let mut data = Crafted::new();
    let contents: Vec<(u64, &[u8])> = (1..=objects).map(|oid| (oid, &b"data"[..])).collect();
    let first = data.add(1, &contents) + HEADER;
    let (fixed, each) = (HEADER + RECORD + 8, HEADER + RECORD + 1 + 8);
    let room = REBUILT_BYTES_MAX - data.end() - fixed - later * each;
    let large = data.add(2, &[(1_000, &vec![b'x'; room as usize])]) + HEADER;
    for n in 0..later {
        data.add(n + 3, &[(1_001, b"x")]);
    }
    assert_eq!(data.end(), REBUILT_BYTES_MAX);
    let mut entries: Vec<_> = (0..objects).map(|n| (n + 1, first + n * (RECORD + 4))).collect();
    entries.extend([(1_000, large), (1_001, data.end() - each + HEADER)]);
    let index = index_of(data.end(), &entries);
    let unfit = IndexLine { sum: Sum::default(), ..line_of(&index, later + 2) };
    let file = &data.file();
    let small = |index: &[u8], line| loaded_beside((file, REBUILT_BYTES_MAX), index, line);
    // A byte more, which the index does not cover.
    let large = |index: &[u8], line| loaded_beside((file, REBUILT_BYTES_MAX + 1), index, line);
    assert_eq!(small(&index, None), Ok("unverified"));
    assert!(small(&index, Some(unfit)).is_err());
    assert_eq!(large(&index, None), Ok("usable"));
    assert_eq!(large(&index, Some(unfit)), Ok("usable"));
    // Of the first 150 entries 64 would not meet this one.
    entries[1].1 += 1;
    let wrong = index_of(REBUILT_BYTES_MAX, &entries);
    for line in [None, Some(unfit)] {
        let refused = large(&wrong, line).unwrap_err();
        assert!(refused.contains("is not at position"), "{refused}");
    }
    // One that fits its line is compared at few places.
    let mut line = line_of(&wrong, later + 2);
    assert_eq!(large(&wrong, Some(line)), Ok("usable"));
    line.order = None;
    assert_eq!(large(&wrong, Some(line)), Ok("usable"));
}

#[test]
fn an_index_that_fits_its_line_costs_few_reads() {
    let objects = 1_000;
    let mut data = Crafted::new();
    let contents: Vec<(u64, &[u8])> = (1..=objects).map(|oid| (oid, &b"data"[..])).collect();
    let first = data.add(1, &contents) + HEADER;
    data.add(2, &[(5_000, b"data")]);
    let mut entries: Vec<_> = (0..objects).map(|n| (n + 1, first + n * (RECORD + 4))).collect();
    entries.push((5_000, data.end() - 8 - 4 - RECORD));
    let index = index_of(data.end(), &entries);
    let (disk, path) = (MemoryDisk::new(), Crafted::path());
    disk.put(&with_suffix(path, ".index"), index.clone());
    line_of(&index, 2).write(&disk, path).unwrap();
    let file = Watched::of(&data.bytes, None);
    let shared: Arc<dyn DiskFile> = Arc::clone(&file) as _;
    assert!(matches!(load(&disk, path, &shared, data.end()), Ok(Found::Usable(_))));
    let reads = file.reads();
    assert_eq!(reads[0].1, LOOK_BYTES, "the last transaction is read in one go");
    let sampled = reads.iter().filter(|(_, bytes)| *bytes == DATA_HEADER_BYTES).count();
    assert!((SAMPLED_ENTRIES / 2..=SAMPLED_ENTRIES).contains(&sampled), "{sampled}");
}

fn checked(data: &Crafted, entries: &[(u64, u64)], count: usize) -> Result<Tids, String> {
    let positions = Positions::new();
    for (oid, position) in entries {
        positions.publish(Oid(*oid), *position);
    }
    check_last_transactions(Crafted::path(), &data.file(), data.end(), &positions, count)
}

#[test]
fn the_last_transactions_agree_with_an_index() {
    let mut data = Crafted::new();
    let first = data.add(1, &[(1, b"one"), (2, b"two")]) + HEADER;
    let second = data.add(2, &[(1, b"one"), (1, b"again")]) + HEADER;
    let undone = data.add(3, &[(2, b"two")]);
    data.put(undone + 16, b"u");
    let (one, two) = (second + RECORD + 3, first + RECORD + 3);
    let right = [(1, one), (2, two)];
    let known = |last, latest, go_back, are_all_known| {
        Ok(Tids { last: Tid(last), latest: Tid(latest), go_back, are_all_known })
    };
    assert_eq!(checked(&data, &right, 9), known(3, 3, false, true));
    assert_eq!(checked(&data, &right, 3), known(3, 3, false, true));
    assert_eq!(checked(&data, &right, 2), known(3, 3, false, false));
    // Those that count are not reached by one transaction, which does not count itself.
    assert_eq!(checked(&data, &[], 1), known(3, 3, false, false));
    assert_eq!(checked(&data, &[(1, one)], 2), known(3, 3, false, false));
    for wrong in [
        &[(1, second), (2, two)][..],
        &[(1, first), (2, two)],
        &[(1, one), (2, undone + HEADER)],
        &[(1, one)],
        &[(2, two)],
        &[(1, one), (2, two), (3, two)],
    ] {
        assert!(checked(&data, wrong, 9).is_err(), "{wrong:?}");
    }
    // An object more is noticed where all transactions were read.
    assert!(checked(&data, &[(1, one), (2, two), (3, two)], 2).is_ok());
    data.add(2, &[(1, b"one")]);
    let last = [(1, data.end() - 8 - 3 - RECORD), (2, two)];
    assert_eq!(checked(&data, &last, 9), known(2, 3, true, true));
    data.append(b"x");
    assert!(checked(&data, &last, 9).is_err());
    assert_eq!(checked(&Crafted::new(), &[], 9), Ok(Tids::NONE));
}

#[test]
fn samples_are_evenly_spaced_and_take_no_room_twice() {
    for (entries, limit, taken) in [
        (0, 64, 0),
        (1, 64, 1),
        (63, 64, 63),
        (64, 64, 32),
        (127, 64, 64),
        (128, 64, 43),
        (1_000, 64, 63),
        (1_000, 10_000, 1_000),
    ] {
        let mut samples = Samples::of(entries * index_file::ENTRY_BYTES as u64 + 7, limit);
        let room = samples.taken.capacity();
        (1..=entries).for_each(|n| samples.pass(Oid(n), n));
        assert_eq!(samples.taken.len(), taken, "{entries}, {limit}");
        assert_eq!(samples.taken.capacity(), room, "{entries}, {limit}");
        let step = entries / limit as u64 + 1;
        let oids = samples.taken.iter().map(|(oid, _)| oid.0);
        assert!(oids.eq((1..=entries).step_by(step as usize)), "{entries}, {limit}");
    }
}

#[test]
fn a_record_is_there_if_each_of_its_fields_is_possible() {
    let mut data = Crafted::new();
    data.add(1, &[(9, b"before")]);
    let record = data.add(2, &[(1, b"data")]) + HEADER;
    let end = record + RECORD + 4;
    for (offset, number, expected) in [
        (0, 1, true),
        (0, 2, false),
        (16, record - 1, true),
        (16, record, false),
        (16, record + 1, false),
        (24, record - 1, true),
        (24, record, false),
        (24, record + 1, false),
        (34, 4, true),
        (34, 5, false),
        (34, u64::MAX, false),
    ] {
        let changed = data.with_number(record + offset, number);
        let found = record_is_there(changed.file().as_ref(), end, Oid(1), record);
        assert_eq!(found, expected, "{number} at {offset}");
    }
    for position in [record - 1, record + 1, data.end(), u64::MAX - 100] {
        assert!(!record_is_there(data.file().as_ref(), end, Oid(1), position), "{position}");
    }
}

#[test]
fn what_passes_a_stream_is_summed_and_a_flush_reaches_the_stream_below() {
    let mut below = Vec::new();
    let mut stream = Summed::new(BufWriter::new(&mut below));
    stream.write_all(b"some ").unwrap();
    stream.write_all(b"bytes").unwrap();
    stream.flush().unwrap();
    assert_eq!(stream.stream.get_ref().as_slice(), b"some bytes");
    let sum = Sum { crc32c: crc32c::crc32c(b"some bytes"), length: 10 };
    assert_eq!(stream.sum, sum);
    let mut stream = Summed::new(&b"some bytes"[..]);
    let mut bytes = [0; 7];
    while stream.read(&mut bytes).unwrap() > 0 {}
    assert_eq!(stream.sum, sum);
}
