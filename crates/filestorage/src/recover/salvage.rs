//! Finds whole records in a part of the file that contains no whole transaction.
//!
//! A record names its transaction's position and tid, and ends at the next record or at the end of
//! its transaction. Bytes with these properties, within the gap and between the tids around it, are
//! a record, whether or not the header of the transaction is left.

use std::ops::Range;

use zodium_types::Tid;

use crate::format::{DATA_HEADER_BYTES, DataHeader, u64_at};
use crate::scan::{RecordLookup, SeenRecord, WALK_BYTES, Window};

/// The whole records of a transaction that is damaged.
pub(super) struct Group {
    /// Where the transaction begins, or began.
    pub(super) position: u64,
    pub(super) tid: Tid,
    pub(super) records: Vec<SeenRecord>,
}

/// Finds the whole records between `range.start` and `range.end`, whose tids are above those
/// before and below those after.
pub(super) fn salvage(
    window: &mut Window,
    lookup: &mut RecordLookup,
    range: Range<u64>,
    (after, before): (Tid, Tid),
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut position = range.start;
    loop {
        let room = range.end.saturating_sub(position).min(WALK_BYTES as u64) as usize;
        let bytes = window.some_bytes(position, room);
        let Some(starts) = bytes.len().checked_sub(DATA_HEADER_BYTES) else { break };
        let is_candidate = |at: usize| {
            let (bytes, tid) = (&bytes[at..], u64_at(&bytes[at..], DataHeader::TID_OFFSET));
            let transaction = u64_at(bytes, DataHeader::TRANSACTION_OFFSET);
            (after.0 + 1..before.0).contains(&tid)
                && (range.start..position + at as u64).contains(&transaction)
        };
        let Some(at) = (0..starts).find(|at| is_candidate(*at)) else {
            position += starts.max(1) as u64;
            continue;
        };
        let oid = zodium_types::Oid(u64_at(&bytes[at..], 0));
        position += at as u64;
        let record = lookup.lone_record(position, oid);
        let record = record.filter(|r| position + r.header.record_bytes() <= range.end);
        match record.filter(|record| lookup.is_bounded(record)) {
            Some(entry) if fits(&groups, &entry.header) => {
                position += entry.header.record_bytes();
                let seen = SeenRecord { entry, back: lookup.back_pointer(&entry) };
                add(&mut groups, seen);
            }
            _ => position += 1,
        }
    }
    groups
}

/// Whether a record belongs to the last group, or to a transaction after it.
fn fits(groups: &[Group], header: &DataHeader) -> bool {
    groups.last().is_none_or(|last| {
        let is_its = last.tid == header.tid && last.position == header.transaction;
        let end = last
            .records
            .last()
            .map_or(0, |record| record.entry.position + record.entry.header.record_bytes());
        is_its || last.tid < header.tid && end <= header.transaction
    })
}

fn add(groups: &mut Vec<Group>, record: SeenRecord) {
    let header = record.entry.header;
    match groups.last_mut() {
        Some(last) if last.tid == header.tid => last.records.push(record),
        _ => groups.push(Group {
            position: header.transaction,
            tid: header.tid,
            records: vec![record],
        }),
    }
}

#[cfg(test)]
mod tests {
    use zodium_types::Oid;

    use super::*;
    use crate::format::{Crafted, Holds};
    use crate::format::{POINTER_BYTES, TRANSACTION_HEADER_BYTES};
    use crate::scan::DataEntry;

    const HEADER: u64 = TRANSACTION_HEADER_BYTES as u64;
    const RECORD: u64 = DATA_HEADER_BYTES as u64;

    /// What is found in a range of a file: groups of a position, a tid, and positions of records.
    fn found(data: &Crafted, range: Range<u64>, tids: (u64, u64)) -> Vec<(u64, u64, Vec<u64>)> {
        let (file, end) = (data.file(), data.end());
        let mut window = Window::new(Crafted::path(), &file, end, WALK_BYTES);
        let mut lookup = RecordLookup::new(Crafted::path(), &file, end);
        let groups = salvage(&mut window, &mut lookup, range, (Tid(tids.0), Tid(tids.1)));
        let positions = |group: &Group| {
            group.records.iter().map(|record| record.entry.position).collect::<Vec<_>>()
        };
        groups.iter().map(|group| (group.position, group.tid.0, positions(group))).collect()
    }

    /// Three transactions, of which the second has two records.
    fn three() -> (Crafted, [u64; 4]) {
        let mut data = Crafted::new();
        let first = data.add(2, &[(1, b"first")]);
        let second = data.add(4, &[(1, b"second"), (2, b"x")]);
        let third = data.add(6, &[(1, b"third")]);
        let end = data.end();
        (data, [first, second, third, end])
    }

    #[test]
    fn records_are_found_from_any_byte_to_any_other() {
        let (data, [_, second, third, end]) = three();
        let (one, two) = (second + HEADER, second + HEADER + RECORD + 6);
        let all = [(second, one..two), (second, two..third - 8), (third, third + HEADER..end - 8)];
        for from in second - 5..third + HEADER + 3 {
            for to in [two, two + 1, third - 9, third - 8, third, end - 9, end - 8, end] {
                let mut expected: Vec<(u64, u64, Vec<u64>)> = Vec::new();
                for (start, record) in &all {
                    if from <= *start && record.end <= to {
                        let tid = if *start == second { 4 } else { 6 };
                        match expected.last_mut() {
                            Some(last) if last.1 == tid => last.2.push(record.start),
                            _ => expected.push((*start, tid, vec![record.start])),
                        }
                    }
                }
                let from_to = from..to.max(from);
                assert_eq!(found(&data, from_to, (2, 9)), expected, "{from}..{to}");
            }
        }
    }

    #[test]
    fn records_between_the_tids_around_are_found_and_no_others() {
        let (data, [_, second, third, end]) = three();
        let tids = |after, before| {
            let groups = found(&data, second..end, (after, before));
            groups.into_iter().map(|(_, tid, _)| tid).collect::<Vec<_>>()
        };
        assert_eq!(tids(3, 7), [4, 6]);
        assert_eq!(tids(4, 7), [6]);
        assert_eq!(tids(3, 6), [4]);
        assert_eq!(tids(4, 6), [0; 0]);
        assert_eq!(found(&data, third..end, (0, u64::MAX)).len(), 1);
    }

    #[test]
    fn a_record_that_ends_nowhere_is_passed_over() {
        let (data, [_, second, third, end]) = three();
        let (one, two) = (second + HEADER, second + HEADER + RECORD + 6);
        let longer = data.with_number(one + 34, 7);
        assert_eq!(found(&longer, second..end, (2, 9))[0].2, [two]);
        // Neither the next record nor the second length says that it ends there.
        let unbounded = data.with_number(third - POINTER_BYTES, 0);
        assert_eq!(found(&unbounded, second..end, (2, 9))[0].2, [one]);
    }

    #[test]
    fn records_are_found_wherever_the_bytes_read_at_once_end() {
        for before in [RECORD + 1, RECORD, RECORD - 1, RECORD - 2, 1, 0] {
            let mut data = Crafted::new();
            data.append(&vec![b'x'; WALK_BYTES - (HEADER + before) as usize]);
            let start = data.add(4, &[(1, b"data")]);
            let expected = [(start, 4, vec![start + HEADER])];
            assert_eq!(found(&data, 4..data.end(), (2, 9)), expected, "{before}");
        }
    }

    #[test]
    fn records_of_a_transaction_that_is_not_later_are_passed_over() {
        let mut data = Crafted::new();
        let first = data.add(5, &[(1, b"first")]);
        data.add(4, &[(1, b"second")]);
        let third = data.add(6, &[(1, b"third")]);
        let groups = found(&data, 4..data.end(), (2, 9));
        let expected = [(first, 5, vec![first + HEADER]), (third, 6, vec![third + HEADER])];
        assert_eq!(groups, expected);
    }

    #[test]
    fn a_back_pointer_is_salvaged_with_its_record() {
        let mut data = Crafted::new();
        data.add_holding(4, &[(1, Holds::Back(0)), (2, Holds::Data(b"data"))]);
        let (file, end) = (data.file(), data.end());
        let mut window = Window::new(Crafted::path(), &file, end, WALK_BYTES);
        let mut lookup = RecordLookup::new(Crafted::path(), &file, end);
        let groups = salvage(&mut window, &mut lookup, 4..end, (Tid(2), Tid(9)));
        let backs: Vec<_> = groups[0].records.iter().map(|record| record.back).collect();
        assert_eq!(backs, [Some(0), None]);
    }

    #[test]
    fn a_record_belongs_to_the_last_group_or_to_a_later_transaction() {
        let header = |tid, transaction| DataHeader {
            oid: Oid(1),
            tid: Tid(tid),
            previous: 0,
            transaction,
            version_length: 0,
            data_length: 8,
        };
        // It ends at 150.
        let entry = DataEntry { position: 100, header: header(5, 77) };
        let records = vec![SeenRecord { entry, back: None }];
        let groups = [Group { position: 77, tid: Tid(5), records }];
        for (tid, transaction, expected) in [
            (5, 77, true),
            (5, 78, false),
            (5, 150, false),
            (5, 200, false),
            (6, 77, false),
            (6, 149, false),
            (6, 150, true),
            (6, 151, true),
            (4, 77, false),
            (4, 150, false),
        ] {
            assert_eq!(fits(&groups, &header(tid, transaction)), expected, "{tid}, {transaction}");
            assert!(fits(&[], &header(tid, transaction)));
        }
    }
}
