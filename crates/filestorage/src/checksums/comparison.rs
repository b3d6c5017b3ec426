//! Compares transactions that were read with their entries.

use zodium_types::Oid;

use super::checksummed_log::ChecksummedLog;
use super::distrust::Distrust;
use super::entry::Entry;
use super::entry_stream::EntryStream;
use super::side_file::SideFile;
use super::sums::each_chunk;
use crate::format::{Damage, DamageKind, POINTER_BYTES};
use crate::scan::Part;
use crate::scan::{Piece, Window};

/// Compares transactions in the order of the log.
pub(crate) struct Comparison<'a> {
    side: &'a SideFile,
    entries: EntryStream<'a>,
    /// The position at which the entries turned out to belong to another log. Nothing is compared
    /// from there on.
    other_at: Option<u64>,
    /// Records and frames that have an entry.
    pub(crate) covered: u64,
    /// Records and frames without an entry.
    pub(crate) uncovered: u64,
}

impl Comparison<'_> {
    /// A comparison that begins with the transaction at `start`.
    pub(crate) fn new(side: &SideFile, start: u64) -> Comparison<'_> {
        let entries = EntryStream::new(side, start);
        Comparison { side, entries, other_at: None, covered: 0, uncovered: 0 }
    }

    /// The position at which the entries turned out to belong to another log.
    pub(crate) fn other_at(&self) -> Option<u64> {
        self.other_at
    }

    /// Why the checksums are not used, if they turned out to belong to another log.
    pub(crate) fn distrust(&self) -> Option<Distrust> {
        self.other_at.map(|position| Distrust::OtherContents { position })
    }

    /// The mismatches of a piece: each entry must find its transaction or record. None are returned
    /// if the entries turn out to belong to another log.
    pub(crate) fn compare(&mut self, window: &mut Window, piece: &Piece) -> Vec<Damage> {
        if self.other_at.is_some() {
            self.uncovered += parts_of(piece);
            return Vec::new();
        }
        let damages = self.misfits(window, piece);
        let (path, data, length) = (window.path(), window.file(), window.end());
        let checksummed = ChecksummedLog { side: self.side, path, data, length };
        let first = damages.first().map(|damage| damage.position).filter(|_| piece.is_whole());
        self.other_at = first.filter(|position| checksummed.is_of_another_log(*position));
        if self.other_at.is_some() {
            self.uncovered += std::mem::take(&mut self.covered);
            return Vec::new();
        }
        damages
    }

    fn misfits(&mut self, window: &mut Window, piece: &Piece) -> Vec<Damage> {
        let mut damages = Vec::new();
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
        self.uncovered += parts_of(piece).saturating_sub(covered);
        damages
    }
}

/// The number of its records, plus one for its frame.
fn parts_of(piece: &Piece) -> u64 {
    piece.records.len() as u64 + u64::from(piece.transaction.is_some())
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
