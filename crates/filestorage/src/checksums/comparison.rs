//! Holding transactions that were read against their entries.

use zodium_types::Oid;

use super::entry::{Entry, Part};
use super::entry_stream::EntryStream;
use super::side_file::SideFile;
use super::sums::each_chunk;
use crate::check::{Damage, DamageKind, Piece, Window};
use crate::format::POINTER_BYTES;

/// Goes through transactions in the order of the log.
pub(crate) struct Comparison<'a> {
    entries: EntryStream<'a>,
    /// Records and frames that have an entry.
    pub(crate) covered: u64,
    /// Those that have none.
    pub(crate) uncovered: u64,
}

impl Comparison<'_> {
    /// From the transaction at `start` on.
    pub(crate) fn new(side: &SideFile, start: u64) -> Comparison<'_> {
        Comparison { entries: EntryStream::new(side, start), covered: 0, uncovered: 0 }
    }

    /// What of a piece does not fit its entries: each entry must find its transaction or record.
    pub(crate) fn compare(&mut self, window: &mut Window, piece: &Piece) -> Vec<Damage> {
        let mut damages = Vec::new();
        let parts = piece.records.len() as u64 + u64::from(piece.transaction.is_some());
        let (mut records, mut covered) = (piece.records.iter().peekable(), 0);
        while let Some(entry) = self.entries.next_before(piece.end) {
            if entry.position < piece.start {
                continue;
            }
            covered += 1;
            if entry.part == Part::Frame {
                if entry.position != piece.start || !frame_fits(window, piece, &entry) {
                    damages.push(damage(&entry, None, piece));
                }
                continue;
            }
            while records.next_if(|r| r.entry.position < entry.position).is_some() {}
            let record = records.next_if(|r| r.entry.position == entry.position);
            let fits = record.is_some_and(|record| {
                let end = entry.position + record.entry.header.record_bytes();
                sum_of(window, 0, entry.position, end) == entry.sum
            });
            if !fits {
                damages.push(damage(&entry, record.map(|record| record.entry.header.oid), piece));
            }
        }
        self.covered += covered;
        self.uncovered += parts.saturating_sub(covered);
        damages
    }
}

fn damage(entry: &Entry, oid: Option<Oid>, piece: &Piece) -> Damage {
    let what = match entry.part {
        Part::Frame => "a transaction that does not fit its checksum",
        Part::Record => "a record that does not fit its checksum",
    };
    let (kind, position, tid) = (DamageKind::Checksum, entry.position, piece.tid);
    Damage { kind, position, what: what.to_owned(), oid, tid }
}

fn frame_fits(window: &mut Window, piece: &Piece, frame: &Entry) -> bool {
    let Some(entry) = piece.transaction else { return false };
    let start = entry.records_start();
    if start > entry.records_end() {
        return false;
    }
    let sum = sum_of(window, 0, entry.position, start);
    sum_of(window, sum, entry.records_end(), entry.records_end() + POINTER_BYTES) == frame.sum
}

fn sum_of(window: &mut Window, mut sum: u32, start: u64, end: u64) -> u32 {
    each_chunk(window, start, end, |bytes| sum = crc32c::crc32c_append(sum, bytes));
    sum
}
