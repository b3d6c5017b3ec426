//! Tests of the parts of the decision, each at its limits.

use super::*;
use crate::format::{Crafted, Watched, file_of};

const HEADER: u64 = TRANSACTION_HEADER_BYTES as u64;
const RECORD: u64 = DATA_HEADER_BYTES as u64;

/// A tail up to the end of the bytes.
struct Case {
    file: Arc<dyn DiskFile>,
    start: u64,
    end: u64,
    last_tid: Tid,
}

impl Case {
    fn new(bytes: &[u8], start: u64, last_tid: u64) -> Case {
        let end = bytes.len() as u64;
        Case { file: file_of(bytes), start, end, last_tid: Tid(last_tid) }
    }

    fn tail(&self) -> Tail<'_> {
        let Case { file, start, end, last_tid } = self;
        Tail { path: Crafted::path(), file, start: *start, end: *end, last_tid: *last_tid }
    }
}

fn was_written(data: &Crafted, start: u64) -> bool {
    Case::new(&data.bytes, start, 1).tail().was_written_to_its_end().unwrap()
}

fn is_zeroed(data: &Crafted, start: u64) -> bool {
    Case::new(&data.bytes, start, 1).tail().is_zeroed().unwrap()
}

fn shows_a_lost_sector(data: &Crafted, start: u64) -> bool {
    Case::new(&data.bytes, start, 1).tail().shows_a_lost_sector().unwrap()
}

fn is_followed(data: &Crafted, start: u64) -> bool {
    Case::new(&data.bytes, start, 2).tail().is_followed().unwrap()
}

/// A whole transaction, one that is the tail, and where that begins.
fn two(data: &[u8]) -> (Crafted, u64) {
    let mut file = Crafted::new();
    file.add(1, &[(1, b"of another length")]);
    let start = file.add(2, &[(2, data)]);
    (file, start)
}

#[test]
fn a_transaction_with_both_lengths_was_written_to_its_end() {
    let (data, start) = two(b"data");
    let length = data.end() - POINTER_BYTES - start;
    let copy = data.end() - POINTER_BYTES;
    assert!(was_written(&data, start));
    // Of the first or the second length any bit may be wrong, of the first even more.
    for bit in 0..64 {
        assert!(was_written(&data.with_number(copy, length ^ 1 << bit), start), "bit {bit}");
        assert!(was_written(&data.with_number(start + 8, length ^ 1 << bit), start), "bit {bit}");
    }
    assert!(was_written(&data.with_number(start + 8, !length), start));
    for wrong in [length ^ 3, 0, u64::MAX] {
        assert!(!was_written(&data.with_number(copy, wrong), start), "{wrong}");
    }
    // Neither is its length.
    let both = data.with_number(start + 8, length + 256).with_number(copy, length + 256 + 512);
    assert!(!was_written(&both, start));
}

#[test]
fn a_transaction_with_both_lengths_may_be_followed_by_anything() {
    let (mut data, start) = two(b"data");
    let copy = data.end() - POINTER_BYTES;
    data.append(&[0xff; 100]);
    assert!(was_written(&data, start));
    assert!(!was_written(&data.with_number(copy, copy - start + 1), start));
}

#[test]
fn a_transaction_that_was_voted_and_not_finished_was_not_written_to_its_end() {
    let (mut data, start) = two(b"data");
    data.put(start + STATUS_OFFSET as u64, &[STATUS_CHECKPOINT]);
    assert!(!was_written(&data, start));
    data.append(&[0xff; 100]);
    assert!(!was_written(&data, start));
}

#[test]
fn zeros_and_what_is_shorter_than_a_header_were_not_written_to_their_end() {
    let (mut data, start) = two(b"data");
    data.bytes.truncate((start + HEADER - 1) as usize);
    assert!(!was_written(&data, start));
    data.bytes.truncate(start as usize);
    for count in [HEADER, 31, 100] {
        let mut zeros = data.clone();
        zeros.append(&vec![0; count as usize]);
        assert!(!was_written(&zeros, start), "{count}");
    }
}

#[test]
fn zeros_from_any_byte_of_a_transaction_on_are_seen() {
    // Lengths with one and two bytes that are not zeros, and a tid that begins with zeros.
    for bytes in [&b"data"[..], &[b'x'; 300]] {
        let (data, start) = two(bytes);
        let copy = data.end() - POINTER_BYTES;
        for further in [0, 1, 7, 8, 9, 600] {
            let mut longer = data.clone();
            longer.append(&vec![0; further]);
            assert!(!is_zeroed(&longer, start), "whole, {further} zeros behind");
            for from in start..data.end() {
                let mut zeroed = longer.clone();
                zeroed.zero(from, data.end());
                assert!(is_zeroed(&zeroed, start), "zeros from {from}, {further} behind");
            }
        }
        for end in start + HEADER + 1..data.end() {
            let mut cut = data.clone();
            cut.bytes.truncate(end as usize);
            if cut.bytes.last() != Some(&0) {
                assert!(!is_zeroed(&cut, start), "cut at {end}");
            }
            cut.zero(end - 1, end);
            // Where all but the end of the second length is there, nothing tells of zeros.
            assert_eq!(is_zeroed(&cut, start), end <= copy, "cut at {end}, last byte zero");
        }
    }
}

#[test]
fn zeros_behind_other_bytes_are_not_those_of_a_transaction() {
    let (data, start) = two(&[b'x'; 300]);
    let copy = data.end() - POINTER_BYTES;
    // A second length that is not the beginning of the first.
    for byte in [2, 3, 0xff] {
        let mut other = data.clone();
        other.put(copy + 6, &[byte, 0]);
        assert!(!is_zeroed(&other, start), "{byte}");
    }
    // Something between the zeros.
    let mut between = data.clone();
    between.zero(copy, copy + POINTER_BYTES);
    between.append(b"x\0\0");
    assert!(!is_zeroed(&between, start));
    // A length that ends within the header.
    let mut short = data.with_number(start + 8, 5);
    short.zero(start + STATUS_OFFSET as u64, data.end());
    assert!(!is_zeroed(&short, start));
}

#[test]
fn the_zeros_at_the_end_are_found_however_many_they_are() {
    let window = WINDOW_BYTES as u64;
    let (start, end) = (100, 2 * window + 1_000);
    for last in [start, start + 1, 1_000, 999, window, window + 999, window + 1_000, end - 1] {
        let mut bytes = vec![0; end as usize];
        bytes[last as usize] = 1;
        let case = Case::new(&bytes, start, 1);
        assert_eq!(case.tail().zeros_start().unwrap(), last + 1, "{last}");
    }
    for (start, end) in [(100, 300), (0, 10)] {
        let mut bytes = vec![0; end];
        bytes[0] = 1;
        bytes[start] = 0;
        let case = Case::new(&bytes, start as u64, 1);
        assert_eq!(case.tail().zeros_start().unwrap(), start as u64);
    }
}

#[test]
fn a_sector_is_one_of_zeros_if_what_the_tail_has_of_it_is() {
    let (start, end) = (700, 4_600);
    let mut bytes = vec![b'x'; end];
    // A whole one, those that the tail has a part of, and all but a byte of others.
    for range in [start..1_024, 1_536..2_048, 2_560..3_071, 3_073..3_584, 4_608 - 512..end] {
        bytes[range].fill(0);
    }
    let case = Case::new(&bytes, start as u64, 1);
    for position in start as u64..6_000 {
        let expected = [1, 3, 8].contains(&(position / 512));
        let found = case.tail().is_zero_sector(position).unwrap();
        assert_eq!(found, expected, "{position}");
    }
    assert!(!case.tail().is_zero_sector(u64::MAX).unwrap());
}

/// A tail that begins 100 bytes into a sector, with records at these offsets from that sector, and
/// where the sector begins.
fn records_at(offsets: &[u64]) -> (Crafted, u64, u64) {
    let mut data = Crafted::new();
    data.add(1, &[(1, &vec![b'x'; 1_536 + 100 - 4 - 23 - 42 - 8])]);
    let (start, sector) = (data.end(), 1_536);
    assert_eq!(start, sector + 100);
    let data_of = |pair: &[u64]| vec![b'x'; (pair[1] - pair[0] - RECORD) as usize];
    let contents: Vec<_> = offsets.windows(2).map(data_of).collect();
    let records: Vec<(u64, &[u8])> = contents.iter().map(|data| (1, &data[..])).collect();
    data.add(2, &records);
    (data, start, sector)
}

#[test]
fn a_sector_of_zeros_over_a_header_is_seen_and_one_over_data_is_not() {
    // The second record begins 9 bytes before a sector ends, the third 31, the fourth 32; the
    // records end with a sector.
    let offsets = [123, 3 * 512 - 9, 6 * 512 - 31, 9 * 512 - 32, 12 * 512];
    let (data, start, sector) = records_at(&offsets);
    assert!(!shows_a_lost_sector(&data, start));
    for number in 0..=12 {
        let mut lost = data.clone();
        let from = sector + number * 512;
        lost.zero(from.max(start), (from + 512).min(data.end()));
        // The last one has nothing but the second length.
        let expected = [0, 2, 3, 5, 6, 8].contains(&number);
        assert_eq!(shows_a_lost_sector(&lost, start), expected || number == 9, "{number}");
    }
    // The tail ends within a header whose last bytes are zeros.
    let mut cut = data;
    let fourth = sector + offsets[3];
    cut.bytes.truncate((fourth + RECORD + 3) as usize);
    cut.zero(fourth + 32, cut.end());
    assert!(!shows_a_lost_sector(&cut, start));
}

#[test]
fn a_tail_shorter_than_a_header_shows_no_lost_sector() {
    let (mut data, start) = two(b"data");
    data.zero(start, data.end());
    data.bytes.truncate((start + HEADER) as usize);
    assert!(shows_a_lost_sector(&data, start));
    data.bytes.truncate((start + HEADER - 1) as usize);
    assert!(!shows_a_lost_sector(&data, start));
}

#[test]
fn a_transaction_is_left_over_if_the_file_has_one_of_its_tid_before_it() {
    let mut data = Crafted::new();
    for tid in [3, 5, 9] {
        data.add(tid, &[(tid, b"data")]);
    }
    let start = data.end();
    for (tid, expected) in
        [(2, false), (3, true), (4, false), (5, true), (7, false), (9, true), (10, false)]
    {
        let mut longer = data.clone();
        longer.add(tid, &[(1, b"left over")]);
        let is_left_over = |last| Case::new(&longer.bytes, start, last).tail().is_left_over();
        assert_eq!(is_left_over(9).unwrap(), expected, "{tid}");
        // Not one that is later than all.
        assert!(!is_left_over(tid - 1).unwrap(), "{tid}");
        longer.bytes.truncate((start + HEADER - 1) as usize);
        assert!(!Case::new(&longer.bytes, start, 9).tail().is_left_over().unwrap());
    }
}

#[test]
fn a_transaction_is_not_followed_by_itself() {
    let (data, start) = two(b"data");
    assert!(!Case::new(&data.bytes, start, 1).tail().is_followed().unwrap());
}

#[test]
fn the_shortest_transaction_that_follows_is_seen_up_to_the_end_of_the_file() {
    let (torn, start) = two(b"data");
    let torn_end = torn.end() - 3;
    for (tid, data, expected) in [(3, &b"x"[..], true), (2, b"x", false), (1, b"x", false)] {
        let mut file = torn.clone();
        file.bytes.truncate(torn_end as usize);
        file.add(tid, &[(9, data)]);
        assert_eq!(is_followed(&file, start), expected, "{tid}");
        file.bytes.pop();
        assert!(!is_followed(&file, start));
    }
}

#[test]
fn a_transaction_that_follows_has_records_that_are_all_its_own() {
    let (torn, start) = two(b"data");
    let with = |change: &dyn Fn(&mut Crafted, u64, u64)| {
        let mut file = torn.clone();
        file.bytes.truncate(torn.end() as usize - 3);
        let follower = file.add(3, &[(8, b"one"), (9, b"second")]);
        change(&mut file, follower, follower + HEADER + RECORD + 3);
        is_followed(&file, start)
    };
    assert!(with(&|_, _, _| {}));
    assert!(with(&|file, _, _| file.append(b"x")), "and something else behind it");
    assert!(!with(&|file, _, second| file.put_number(second + 8, 4)), "another tid");
    assert!(!with(&|file, _, second| file.put_number(second + 24, 4)), "another place");
    assert!(!with(&|file, _, second| file.put_number(second + 34, 7)), "reaches past");
    assert!(!with(&|file, follower, _| file.put_number(follower + HEADER + 8, 4)), "first");
    let mut described = torn.clone();
    described.bytes.truncate(torn.end() as usize - 3);
    described.add_described(described.end(), 3, &[b'd'; 60], &[]);
    assert!(!is_followed(&described, start), "without records");
}

#[test]
fn a_transaction_that_follows_is_seen_wherever_the_bytes_read_at_once_end() {
    for before in [HEADER + 1, HEADER, HEADER - 1, 1, 0] {
        let mut file = Crafted::new();
        let start = file.end();
        file.append(&vec![b'x'; 1 + WINDOW_BYTES - before as usize]);
        file.add(3, &[(1, b"data")]);
        assert!(is_followed(&file, start), "{before}");
    }
}

/// Transactions that name positions this far from their own, behind a torn one.
fn shifted(shifts: &[u64], behind: &[u8]) -> bool {
    let (mut file, start) = two(b"data");
    file.bytes.truncate(file.end() as usize - 3);
    for (tid, shift) in (3..).zip(shifts) {
        file.add_named(file.end() + shift, tid, &[(8, b"one"), (9, b"second")]);
    }
    file.append(behind);
    is_followed(&file, start)
}

#[test]
fn transactions_that_are_all_shifted_as_far_follow_if_they_are_many_or_the_last() {
    assert!(shifted(&[10], b""));
    assert!(!shifted(&[10], b"x"));
    assert!(shifted(&[10; 3], b""));
    assert!(!shifted(&[10; SHIFTED_MIN - 1], b"x"));
    assert!(shifted(&[10; SHIFTED_MIN], b"x"));
    // Those behind a break count for themselves.
    assert!(shifted(&[10, 11], b""));
    assert!(!shifted(&[10, 11], b"x"));
    assert!(!shifted(&[10, 10, 10, 10, 10, 10, 10, 11], b"x"));
}

#[test]
fn the_shift_of_a_transaction_is_that_of_all_its_records() {
    let mut data = Crafted::new();
    data.append(&[b'x'; 50]);
    let start = data.add_named(data.end() + 10, 3, &[(8, b"one"), (9, b"second")]);
    let second = start + HEADER + RECORD + 3;
    let shift = |data: &Crafted| {
        let case = Case::new(&data.bytes, 4, 1);
        let bytes = data.bytes[start as usize..][..TRANSACTION_HEADER_BYTES].try_into().unwrap();
        let header = TransactionHeader::parse(bytes);
        case.tail().shift_of(&TransactionEntry { position: start, header })
    };
    assert_eq!(shift(&data), Some(10));
    for (at, number) in [
        (second + 24, start + 11),
        (second + 24, start),
        (second + 8, 4),
        (second + 34, 5),
        (second + 34, 7),
        (second + 34, u64::MAX),
        (start + HEADER + 24, start + 9),
        (start + HEADER + 8, 4),
    ] {
        assert_eq!(shift(&data.with_number(at, number)), None, "{number} at {at}");
    }
    // Its last record reaches past the end of the file.
    data.bytes.truncate(data.bytes.len() - 20);
    assert_eq!(shift(&data), None);
    let mut empty = Crafted::new();
    empty.append(&[b'x'; 50]);
    empty.add(3, &[]);
    assert_eq!(shift(&empty), None);
}

#[test]
fn what_cannot_follow_is_not_looked_at() {
    let room = 400;
    for (tid, length, is_looked_at) in [
        (3, 65, false),
        (3, 66, true),
        (3, room - POINTER_BYTES, true),
        (3, room - POINTER_BYTES + 1, false),
        (3, u64::MAX, false),
        (2, 100, false),
    ] {
        let mut data = Crafted::new();
        let start = data.end();
        data.append(b"x");
        let follower = data.end();
        data.append(&vec![0xff; room as usize]);
        data.put_number(follower, tid);
        data.put_number(follower + 8, length);
        let file = Watched::of(&data.bytes, None);
        let shared: Arc<dyn DiskFile> = Arc::clone(&file) as _;
        let case = Case { file: shared, start, end: data.end(), last_tid: Tid(2) };
        assert!(!case.tail().is_followed().unwrap());
        // One read is that of the search.
        assert_eq!(file.reads().len() > 1, is_looked_at, "{tid}, {length}");
    }
}

#[test]
fn a_crash_explains_each_of_its_traces_though_both_lengths_are_there() {
    let check =
        |data: &Crafted, start, last| Case::new(&data.bytes, start, last).tail().check(None);
    // Of a length that is a power of two all bits but one are zeros.
    let (mut zeroed, start) = two(&[b'x'; 256 - 23 - 42]);
    assert!(check(&zeroed, start, 1).is_err());
    zeroed.zero(zeroed.end() - POINTER_BYTES, zeroed.end());
    assert!(was_written(&zeroed, start) && check(&zeroed, start, 1).is_ok());

    let (mut lost, start, sector) = records_at(&[123, 512 + 200, 3 * 512]);
    assert!(check(&lost, start, 1).is_err());
    lost.zero(sector + 512, sector + 1024);
    assert!(was_written(&lost, start) && check(&lost, start, 1).is_ok());

    let mut left_over = Crafted::new();
    left_over.add(7, &[(1, b"data")]);
    let start = left_over.end();
    left_over.add(7, &[(1, b"data")]);
    assert!(was_written(&left_over, start) && check(&left_over, start, 7).is_ok());
    assert!(check(&left_over, start, 6).is_err());
}

#[test]
fn reads_past_the_end_find_nothing_and_failing_ones_are_errors() {
    let (data, start) = two(b"data");
    let mut case = Case::new(&data.bytes, start, 1);
    let mut byte = [0];
    for (position, expected) in [(data.end() - 1, true), (data.end(), false), (u64::MAX, false)] {
        assert_eq!(case.tail().read(&mut byte, position).unwrap(), expected);
    }
    // The file has become shorter.
    case.end += 10;
    assert!(!case.tail().read(&mut byte, data.end()).unwrap());
    case.file = Watched::of(&data.bytes, Some(start + 5));
    assert!(matches!(case.tail().is_left_over(), Err(FileStorageError::Io { .. })));
}
