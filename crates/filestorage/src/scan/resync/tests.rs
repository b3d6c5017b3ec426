//! Tests of the search for whole transactions and records.

use std::sync::Arc;

use zodium_disk::DiskFile;

use super::*;
use crate::format::{Crafted, Holds, Watched};

const HEADER: u64 = TRANSACTION_HEADER_BYTES as u64;
const RECORD: u64 = DATA_HEADER_BYTES as u64;

fn window_of(data: &Crafted) -> Window {
    Window::new(Crafted::path(), &data.file(), data.end(), WALK_BYTES)
}

fn find(data: &Crafted, from: u64) -> Option<u64> {
    Resync::new(&window_of(data)).find(from)
}

fn entry_at(data: &Crafted, position: u64) -> TransactionEntry {
    framed(&mut window_of(data), position).unwrap()
}

#[test]
fn the_first_whole_transaction_is_found_from_every_byte() {
    let (data, starts) = Crafted::three();
    for from in 4..data.end() + 40 {
        let expected = starts.iter().copied().find(|start| *start >= from);
        assert_eq!(find(&data, from), expected, "from {from}");
    }
}

#[test]
fn a_transaction_is_found_wherever_the_bytes_that_are_read_at_once_end() {
    let header = TRANSACTION_HEADER_BYTES;
    for before in [header + 1, header, header - 1, 9, 1, 0] {
        let mut data = Crafted::new();
        data.append(&vec![b' '; WALK_BYTES - before]);
        let start = data.add(7, &[(1, b"data")]);
        assert_eq!(find(&data, 4), Some(start), "{before} bytes before");
    }
}

#[test]
fn a_transaction_with_any_wrong_field_is_passed_over() {
    let (data, [first, second, third]) = Crafted::three();
    let records = second + HEADER;
    let beside = records + RECORD + 6;
    let length = third - second - POINTER_BYTES;
    for (at, number) in [
        (second + 8, length - 1),
        (second + 8, length + 1),
        (second + 8, HEADER - 1),
        (second + 8, u64::MAX),
        (third - POINTER_BYTES, length + 1),
        (records + 8, 9),
        (records + 24, second + 1),
        (records + 34, 7),
        (beside + 8, 9),
        (beside + 24, first),
        (beside + 34, 8),
        (beside + 34, 10),
    ] {
        let damaged = data.with_number(at, number);
        assert_eq!(find(&damaged, second), Some(third), "{number} at {at}");
        assert_eq!(find(&damaged, first), Some(first));
    }
    for (at, byte) in [(second + 16, b'c'), (second + 16, 0), (records + 33, 1), (beside + 33, 1)] {
        let mut damaged = data.clone();
        damaged.put(at, &[byte]);
        assert_eq!(find(&damaged, second), Some(third), "{byte} at {at}");
    }
}

#[test]
fn a_transaction_without_records_is_believed_with_what_follows_it() {
    for (empty, found) in [(1, 0), (EMPTY_MAX, 0), (EMPTY_MAX + 1, 1), (EMPTY_MAX + 2, 2)] {
        let mut data = Crafted::new();
        let starts: Vec<u64> = (0..empty).map(|n| data.add(n as u64 + 1, &[])).collect();
        assert_eq!(find(&data, 4), Some(starts[found]), "{empty} up to the end");
        let mut garbage = data.clone();
        garbage.append(&[0xff; 50]);
        assert_eq!(find(&garbage, 4), None, "{empty} before garbage");
        data.add(1_000, &[(1, b"data")]);
        // One of those that may be looked at is the one with a record.
        let found = (empty + 1).saturating_sub(EMPTY_MAX);
        assert_eq!(find(&data, 4), Some(starts[found]), "{empty} before one with a record");
    }
}

#[test]
fn what_confirms_a_transaction_without_records_is_sound_itself() {
    let mut data = Crafted::new();
    let first = data.add(1, &[]);
    let second = data.add(2, &[(1, b"data")]);
    assert_eq!(find(&data, 4), Some(first));
    for (at, byte) in [(second + 16, b'?'), (second + 15, 0), (data.end() - 1, 0), (second + 19, 1)]
    {
        let mut damaged = data.clone();
        damaged.put(at, &[byte]);
        assert_eq!(find(&damaged, 4), None, "{at}");
    }
}

#[test]
fn a_transaction_may_be_all_description_and_no_longer() {
    let mut data = Crafted::new();
    let start = data.add_described(4, 1, b"described", &[]);
    assert_eq!(find(&data, 4), Some(start));
    // The last byte of the description's length.
    data.put(start + 20, &[10]);
    assert_eq!(find(&data, 4), None);
}

#[test]
fn what_cannot_begin_a_transaction_is_not_looked_at() {
    for (length, reads) in [(HEADER - 1, 1), (HEADER, 2), (92, 2), (93, 1), (u64::MAX, 1)] {
        let mut data = Crafted::new();
        data.append(&[0xff; 10]);
        // What looks like a header, with 100 bytes from its start to the end.
        data.append(&[0xff; 8]);
        data.append(&length.to_be_bytes());
        data.append(b" ");
        data.append(&[0xff; 83]);
        let file = Watched::of(&data.bytes, None);
        let shared: Arc<dyn DiskFile> = Arc::clone(&file) as _;
        let window = Window::new(Crafted::path(), &shared, data.end(), WALK_BYTES);
        assert_eq!(Resync::new(&window).find(4), None);
        // One read is that of the sweep.
        assert_eq!(file.reads().len(), reads, "{length}");
    }
}

#[test]
fn the_next_record_is_found_from_every_byte() {
    let mut data = Crafted::new();
    data.add(1, &[(1, b"before")]);
    let start = data.add(2, &[(1, b"one"), (2, b"second"), (3, b"x")]);
    data.add(3, &[(1, b"behind")]);
    let entry = entry_at(&data, start);
    let first = start + HEADER;
    let records = [first, first + RECORD + 3, first + 2 * RECORD + 9];
    for from in start..entry.records_end() + 20 {
        let expected = records.iter().copied().find(|record| *record >= from);
        assert_eq!(next_record(&mut window_of(&data), &entry, from), expected, "from {from}");
    }
}

#[test]
fn a_record_with_a_wrong_field_is_not_the_next() {
    let mut data = Crafted::new();
    let start = data.add(2, &[(1, b"one"), (2, b"second")]);
    let entry = entry_at(&data, start);
    let (first, second) = (start + HEADER, start + HEADER + RECORD + 3);
    let room = entry.records_end() - first - RECORD;
    for (at, number, found) in [
        (first + 8, 3, second),
        (first + 24, start + 1, second),
        (first + 34, room, first),
        (first + 34, room + 1, second),
        (first + 34, u64::MAX, second),
    ] {
        let damaged = data.with_number(at, number);
        let next = next_record(&mut window_of(&damaged), &entry, first);
        assert_eq!(next, Some(found), "{number} at {at}");
    }
    // The second reaches past the end by a byte.
    let damaged = data.with_number(second + 34, 7);
    assert_eq!(next_record(&mut window_of(&damaged), &entry, first + 1), None);
    data.put(first + 32, &[0, 1]);
    assert_eq!(next_record(&mut window_of(&data), &entry, first), Some(second), "a version");
}

#[test]
fn the_next_record_is_found_wherever_the_bytes_that_are_read_at_once_end() {
    for before in [DATA_HEADER_BYTES + 1, DATA_HEADER_BYTES, DATA_HEADER_BYTES - 1, 9, 1, 0] {
        let mut data = Crafted::new();
        let long = vec![b'x'; WALK_BYTES - DATA_HEADER_BYTES - before + 1];
        let start = data.add(2, &[(1, &long), (2, b"second")]);
        let entry = entry_at(&data, start);
        let first = start + HEADER;
        let second = first + RECORD + long.len() as u64;
        let next = next_record(&mut window_of(&data), &entry, first + 1);
        assert_eq!(next, Some(second), "{before} bytes before");
    }
}

#[test]
fn a_record_with_a_back_pointer_belongs_to_a_whole_transaction() {
    let mut data = Crafted::new();
    let start = data.add_holding(1, &[(1, Holds::Back(0)), (2, Holds::Data(b"data"))]);
    assert_eq!(find(&data, 4), Some(start));
}
