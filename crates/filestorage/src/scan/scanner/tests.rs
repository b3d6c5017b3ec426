//! Tests of a scan: what it takes for a transaction and a record, what it verifies, and what it
//! reads for that.

use std::collections::HashMap;

use zodium_types::{Oid, Tid};

use super::*;
use crate::format::STATUS_OFFSET;
use crate::format::{Crafted, Holds, Watched};
use crate::scan::sums::Part;

const HEADER: u64 = TRANSACTION_HEADER_BYTES as u64;
const RECORD: u64 = DATA_HEADER_BYTES as u64;

/// Checksums of some parts of a log.
#[derive(Clone, Default)]
struct Sealed {
    sums: HashMap<(u64, bool), u32>,
    are_of_another_log: bool,
}

impl Sums for Sealed {
    fn sum(&mut self, position: u64, part: Part) -> Option<u32> {
        self.sums.get(&(position, part == Part::Frame)).copied()
    }

    fn is_damage(&self, _: u64, _: Option<Oid>, _: Tid, _: &str) -> bool {
        !self.are_of_another_log
    }
}

fn scan(data: &Crafted) -> Scan<'static> {
    Scan::new(Crafted::path(), data.file(), data.end())
}

/// A scan through what is committed, without checksums.
fn committed(data: &Crafted) -> Scan<'static> {
    let damages = Arc::new(Damages::new(Crafted::path()));
    scan(data).committed(None::<Sealed>, &damages, false)
}

/// A transaction, or the position of the damage.
fn found(step: Result<Step, FileStorageError>) -> Result<&'static str, u64> {
    match step {
        Ok(Step::Transaction(_)) => Ok("transaction"),
        Ok(Step::End) => Ok("end"),
        Ok(Step::Unfinished) => Ok("unfinished"),
        Err(FileStorageError::Corrupt { position, .. }) => Err(position),
        Err(error) => panic!("{error}"),
    }
}

fn entry_at(data: &Crafted, position: u64) -> TransactionEntry {
    match scan(data).transaction(position) {
        Ok(Step::Transaction(entry)) => entry,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_transaction_is_one_by_its_lengths_and_its_status() {
    let (data, [_, second, third]) = Crafted::three();
    let end = data.end();
    let length = end - third - POINTER_BYTES;
    assert_eq!(found(scan(&data).transaction(second)), Ok("transaction"));
    assert_eq!(found(scan(&data).transaction(third)), Ok("transaction"));
    assert_eq!(found(scan(&data).transaction(end)), Ok("end"));
    for (position, number, expected) in [
        (third, length + 1, Ok("unfinished")),
        (third, u64::MAX, Ok("unfinished")),
        (third, u64::MAX - third, Ok("unfinished")),
        (third, length - 1, Err(third)),
        (third, HEADER - 1, Err(third)),
        (third, 0, Err(third)),
        (second, length, Err(second)),
    ] {
        let changed = data.with_number(position + 8, number);
        assert_eq!(found(scan(&changed).transaction(position)), expected, "{number}");
        // Of what is committed nothing is unfinished.
        assert_eq!(found(committed(&changed).transaction(position)), Err(position), "{number}");
    }
    for (status, expected) in
        [(b'c', Ok("unfinished")), (b'u', Ok("transaction")), (b'?', Err(third))]
    {
        let mut changed = data.clone();
        changed.put(third + STATUS_OFFSET as u64, &[status]);
        assert_eq!(found(scan(&changed).transaction(third)), expected);
    }
    for cut in 1..end - third {
        let mut cut_off = data.clone();
        cut_off.bytes.truncate((end - cut) as usize);
        assert_eq!(found(scan(&cut_off).transaction(third)), Ok("unfinished"), "{cut}");
    }
    let copy = data.with_number(end - POINTER_BYTES, length + 1);
    assert_eq!(found(scan(&copy).transaction(third)), Err(third));
}

#[test]
fn a_transaction_may_be_all_description_and_no_longer() {
    let mut data = Crafted::new();
    let start = data.add_described(4, 1, b"described", &[]);
    assert_eq!(found(scan(&data).transaction(start)), Ok("transaction"));
    let entry = entry_at(&data, start);
    assert_eq!(scan(&data).metadata(&entry).unwrap().description, b"described");
    assert_eq!(scan(&data).metadata_bytes(&entry).unwrap(), b"described");
    data.put(start + 20, &[10]);
    assert_eq!(found(scan(&data).transaction(start)), Err(start));
}

#[test]
fn a_scan_reads_a_mebibyte_at_once_and_no_byte_twice() {
    let mut data = Crafted::new();
    let starts = [1, 2, 3, 4].map(|tid| data.add(tid, &[(tid, &[b'x'; 400_000])]));
    let file = Watched::of(&data.bytes, None);
    let shared: Arc<dyn DiskFile> = Arc::clone(&file) as _;
    let mut scan = Scan::new(Crafted::path(), shared, data.end());
    let mut read = Vec::new();
    for start in starts {
        let Ok(Step::Transaction(entry)) = scan.transaction(start) else { panic!("{start}") };
        scan.each_record(&entry, |_| ()).unwrap();
        read.extend(file.reads());
    }
    let mebibyte = WINDOW_BYTES;
    assert_eq!(WINDOW_BYTES, 1 << 20);
    // The third does not fit the first window, so it begins the second.
    let rest = (data.end() - starts[2]) as usize;
    assert_eq!(read, [(4, mebibyte), (starts[2], rest.min(mebibyte))]);
}

#[test]
fn the_second_length_of_a_long_transaction_does_not_move_the_window() {
    let mut data = Crafted::new();
    let start = data.add(1, &[(1, &[b'x'; 300])]);
    let copy = data.end() - POINTER_BYTES;
    for (window, reads) in [
        // The header, the second length, the record.
        (100, &[(start, 100), (copy, 8)][..]),
        (372, &[(start, 372), (copy, 8)]),
        (373, &[(start, 373)]),
    ] {
        let file = Watched::of(&data.bytes, None);
        let shared: Arc<dyn DiskFile> = Arc::clone(&file) as _;
        let mut scan = Scan::with_window(Crafted::path(), shared, data.end(), window);
        let Ok(Step::Transaction(entry)) = scan.transaction(start) else { panic!("{window}") };
        scan.each_record(&entry, |_| ()).unwrap();
        assert_eq!(file.reads(), reads, "{window}");
    }
}

#[test]
fn a_transaction_that_fits_the_window_is_read_in_one_go() {
    let mut data = Crafted::new();
    let starts = [1, 2].map(|tid| data.add(tid, &[(tid, &[b'x'; 50])]));
    let file = Watched::of(&data.bytes, None);
    let shared: Arc<dyn DiskFile> = Arc::clone(&file) as _;
    // The header of the second is in the first window, its end is not.
    let mut scan = Scan::with_window(Crafted::path(), shared, data.end(), 150);
    for start in starts {
        let Ok(Step::Transaction(entry)) = scan.transaction(start) else { panic!("{start}") };
        scan.each_record(&entry, |_| ()).unwrap();
    }
    let rest = (data.end() - starts[1]) as usize;
    assert_eq!(file.reads(), [(4, 150), (starts[1], rest)]);
}

#[test]
fn transactions_are_met_backwards_up_to_the_start_of_the_file() {
    let (data, starts) = Crafted::three();
    for window in [10, 40, 100, 150, 1_000] {
        let file = data.file();
        let mut scan = Scan::with_window(Crafted::path(), file, data.end(), window);
        let mut end = data.end();
        for start in starts.into_iter().rev() {
            let entry = scan.transaction_before(end).unwrap().unwrap();
            assert_eq!((entry.position, entry.next_position()), (start, end), "{window}");
            end = start;
        }
        assert!(scan.transaction_before(end).unwrap().is_none());
        assert!(scan.transaction_before(0).unwrap().is_none());
    }
    let file = Watched::of(&data.bytes, None);
    let shared: Arc<dyn DiskFile> = Arc::clone(&file) as _;
    let mut scan = Scan::with_window(Crafted::path(), shared, data.end(), 1_000);
    for end in [data.end(), starts[2], starts[1]] {
        scan.transaction_before(end).unwrap().unwrap();
    }
    assert_eq!(file.reads(), [(0, data.bytes.len())], "one window holds them all");
}

#[test]
fn a_length_that_leads_to_no_transaction_backwards_is_damage() {
    let (data, [first, second, third]) = Crafted::three();
    let (end, copy) = (data.end(), data.end() - POINTER_BYTES);
    let position = |data: &Crafted, end| match scan(data).transaction_before(end) {
        Err(FileStorageError::Corrupt { position, .. }) => Err(position),
        found => Ok(found.unwrap().unwrap().position),
    };
    assert_eq!(position(&data, end), Ok(third));
    for (length, expected) in [
        (copy - MAGIC_BYTES, Err(first)),
        (copy - MAGIC_BYTES + 1, Err(copy)),
        (copy + 1, Err(copy)),
        (u64::MAX, Err(copy)),
        (copy - second, Err(second)),
        (copy - third - 1, Err(third + 1)),
    ] {
        let changed = data.with_number(copy, length);
        assert_eq!(position(&changed, end), expected, "{length}");
    }
    // The header says another length.
    let changed = data.with_number(third + 8, copy - third - 1);
    assert_eq!(position(&changed, end), Err(third));
}

#[test]
fn each_field_of_a_record_agrees_with_its_transaction() {
    let (data, [first, second, third]) = Crafted::three();
    let entry = entry_at(&data, second);
    let (one, two) = (second + HEADER, second + HEADER + RECORD + 6);
    let room = entry.records_end() - one - RECORD;
    for (at, number, sound) in [
        (one, 77, true),
        (one + 8, 2, true),
        (one + 8, 1, false),
        (one + 16, one - 1, true),
        (one + 16, one, false),
        (one + 16, one + 1, false),
        (one + 24, first, false),
        (one + 24, third, false),
        (one + 34, room, true),
        (one + 34, room + 1, false),
        (one + 34, u64::MAX, false),
    ] {
        let changed = data.with_number(at, number);
        let record = scan(&changed).record(one, &entry);
        assert_eq!(record.is_ok(), sound, "{number} at {at}");
    }
    let mut version = data.clone();
    version.put(one + 32, &[0, 1]);
    assert!(scan(&version).record(one, &entry).is_err());
    let mut met = Vec::new();
    scan(&data).each_record(&entry, |record| met.push(record.position)).unwrap();
    assert_eq!(met, [one, two]);
    // The file ends within its header.
    let mut cut = data.clone();
    cut.bytes.truncate((two + RECORD - 1) as usize);
    assert!(scan(&cut).record(two, &entry).is_err());
}

#[test]
fn data_are_given_from_any_byte_to_any_other() {
    let (data, [_, second, _]) = Crafted::three();
    let entry = entry_at(&data, second);
    let mut scan = scan(&data);
    let record = scan.record(second + HEADER, &entry).unwrap();
    for offset in 0..=6 {
        for length in 0..=6 - offset {
            let found = scan.data(&record, offset as u64, length).unwrap();
            assert_eq!(found, &b"second"[offset..offset + length]);
        }
    }
}

#[test]
fn a_back_pointer_leads_to_an_earlier_position() {
    let mut data = Crafted::new();
    let first = data.add(1, &[(1, b"data")]) + HEADER;
    let start = data.add_holding(2, &[(1, Holds::Back(first))]);
    let (entry, record) = (entry_at(&data, start), start + HEADER);
    for (back, sound) in
        [(first, true), (0, true), (record - 1, true), (record, false), (record + 1, false)]
    {
        let changed = data.with_number(record + RECORD, back);
        let mut scan = scan(&changed);
        let record = scan.record(record, &entry).unwrap();
        assert_eq!(scan.back_pointer(&record).ok(), sound.then_some(back));
    }
}

#[test]
fn bytes_up_to_the_end_of_the_scan_are_given_and_none_behind_it() {
    let (data, _) = Crafted::three();
    let mut scan = Scan::new(Crafted::path(), data.file(), 50);
    for (position, length, given) in
        [(40, 10, true), (40, 11, false), (50, 0, true), (51, 0, false), (u64::MAX, 2, false)]
    {
        assert_eq!(scan.expect_bytes(position, length).is_ok(), given, "{length} at {position}");
        let bytes = scan.bytes(position, length).unwrap().map(<[u8]>::len);
        assert_eq!(bytes, given.then_some(length), "{length} at {position}");
    }
}

#[test]
fn missing_bytes_are_damage_where_they_were_committed() {
    let (data, [first, second, third]) = Crafted::three();
    let mut cut = data.clone();
    cut.bytes.truncate((third + 10) as usize);
    let of = |file| Scan::with_window(Crafted::path(), file, data.end(), 40);
    let damages = Arc::new(Damages::new(Crafted::path()));
    let step = of(cut.file()).transaction(third);
    assert!(matches!(step, Err(FileStorageError::Io { .. })), "{step:?}");
    let mut scan = of(cut.file()).committed(None::<Sealed>, &damages, false);
    assert_eq!(found(scan.transaction(third)), Err(third));
    assert!(damages.contain(third));
    // What cannot be read is not missing.
    let watched: Arc<dyn DiskFile> = Watched::of(&data.bytes, Some(second + 5));
    let mut scan = of(watched).committed(None::<Sealed>, &damages, false);
    assert!(matches!(scan.transaction(second), Err(FileStorageError::Io { .. })));
    assert_eq!(damages.count(), 1);
    assert_eq!((scan.path(), scan.end()), (Crafted::path(), data.end()));
    assert_eq!(found(scan.transaction(first)), Ok("transaction"));
}

#[test]
fn the_first_record_confirms_a_header_without_a_checksum() {
    let (data, [first, second, _]) = Crafted::three();
    assert_eq!(found(committed(&data).transaction(second)), Ok("transaction"));
    let record = second + HEADER;
    for (at, number) in [(second, 3), (record + 8, 1), (record + 24, first)] {
        let changed = data.with_number(at, number);
        assert_eq!(found(committed(&changed).transaction(second)), Err(second), "{number} at {at}");
        // A scan of what may be unfinished leaves it to the records.
        assert_eq!(found(scan(&changed).transaction(second)), Ok("transaction"));
    }
}

#[test]
fn a_transaction_without_records_stands_between_those_around_it() {
    let is_sound = |before: Option<u64>, tid, next: Option<u64>, go_back| {
        let mut data = Crafted::new();
        if let Some(before) = before {
            data.add(before, &[(1, b"before")]);
        }
        let start = data.add(tid, &[]);
        if let Some(next) = next {
            data.add(next, &[(1, b"behind")]);
        }
        let damages = Arc::new(Damages::new(Crafted::path()));
        let mut scan = scan(&data).committed(None::<Sealed>, &damages, go_back);
        found(scan.transaction(start)).is_ok()
    };
    for (before, tid, next, sound) in [
        (Some(10), 11, Some(12), true),
        (Some(10), 10, Some(12), false),
        (Some(10), 9, Some(12), false),
        (Some(10), 12, Some(12), false),
        (Some(10), 13, Some(12), false),
        (None, 11, Some(12), true),
        (None, 12, Some(12), false),
        (None, 13, Some(12), false),
        (Some(10), 11, None, true),
        (Some(10), 10, None, false),
        (Some(10), 9, None, false),
        (None, 1, None, true),
        // Those around it say nothing.
        (Some(12), 1, Some(10), true),
        (Some(10), 1, Some(10), true),
        (Some(12), 50, Some(10), true),
    ] {
        assert_eq!(is_sound(before, tid, next, false), sound, "{before:?}, {tid}, {next:?}");
        assert!(is_sound(before, tid, next, true), "{before:?}, {tid}, {next:?}");
    }
}

#[test]
fn a_checksum_decides_alone_unless_it_is_of_another_log() {
    let mut data = Crafted::new();
    data.add(10, &[(1, b"before")]);
    let start = data.add(9, &[]);
    let entry = entry_at(&data, start);
    let sum = scan(&data).frame_sum(&entry).unwrap();
    let content =
        [&data.bytes[start as usize..][..TRANSACTION_HEADER_BYTES], &[0, 0, 0, 0, 0, 0, 0, 23]];
    assert_eq!(sum, crc32c::crc32c(&content.concat()));
    let step = |sum, are_of_another_log, data: &Crafted| {
        let sums = HashMap::from([((start, true), sum)]);
        let damages = Arc::new(Damages::new(Crafted::path()));
        let sealed = Sealed { sums, are_of_another_log };
        let step = scan(data).committed(Some(sealed), &damages, false).transaction(start);
        (found(step), damages.count())
    };
    assert_eq!(step(sum, false, &data), (Ok("transaction"), 0), "whatever is around it");
    assert_eq!(step(sum ^ 1, false, &data), (Err(start), 1));
    assert_eq!(step(sum ^ 1, true, &data), (Err(start), 1), "by what is around it");
    let later = data.with_number(start, 11);
    assert_eq!(step(sum, false, &later), (Err(start), 1));
    assert_eq!(step(sum, true, &later), (Ok("transaction"), 0));
}

#[test]
fn a_record_fits_its_checksum() {
    let mut data = Crafted::new();
    let long = vec![b'x'; WINDOW_BYTES + 100];
    let start = data.add(1, &[(1, &long), (2, b"beside it")]);
    let (entry, one) = (entry_at(&data, start), start + HEADER);
    let two = one + RECORD + long.len() as u64;
    let records = [one..two, two..two + RECORD + 9];
    let sums = records
        .clone()
        .map(|range| crc32c::crc32c(&data.bytes[range.start as usize..range.end as usize]));
    for (position, sum) in [(one, sums[0]), (two, sums[1])] {
        let record = scan(&data).record(position, &entry).unwrap();
        assert_eq!(scan(&data).record_sum(&record).unwrap(), sum);
    }
    let each = |wrong: u32, are_of_another_log| {
        let sums = HashMap::from([((one, false), sums[0]), ((two, false), sums[1] ^ wrong)]);
        let damages = Arc::new(Damages::new(Crafted::path()));
        let sealed = Sealed { sums, are_of_another_log };
        let mut scan = scan(&data).committed(Some(sealed), &damages, false);
        let met = scan.each_record(&entry, |_| ());
        (met.is_ok(), damages.contain(two))
    };
    assert_eq!(each(0, false), (true, false));
    assert_eq!(each(1, false), (false, true));
    assert_eq!(each(1, true), (true, false));
}
