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
    while position < range.end {
        let room = (range.end - position).min(WALK_BYTES as u64) as usize;
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
