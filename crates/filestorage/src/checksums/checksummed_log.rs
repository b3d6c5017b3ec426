//! Decides whether checksums belong to another log than the one beside them.
//!
//! A wrong bit or a lost sector changes single transactions, or leaves bytes that are not a
//! transaction. Another program leaves whole transactions of which nothing matches. A single one of
//! these counts if damage cannot have left it ([`OtherTransaction::is_certain`]).

use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;

use super::entry::Entry;
use super::repair;
use super::side_file::SideFile;
use super::sums::sum_at;
use crate::format::MAGIC_BYTES;
use crate::scan::Part;
use crate::scan::{Piece, Walk};

/// Consecutive transactions without any match that show another log.
const OTHERS_MIN: u64 = 8;
/// The same, if the checksums end behind them. Damage in several places of one transaction must not
/// count as another log, since nothing would be checked any more.
const LAST_OTHERS_MIN: u64 = 2;
/// Records of a transaction of which each would have to be damaged, besides its metadata, to look
/// like another transaction.
const RECORDS_MIN: usize = 3;

/// A log and the checksums beside it.
#[derive(Clone, Copy)]
pub(crate) struct ChecksummedLog<'a> {
    pub(crate) side: &'a SideFile,
    pub(crate) path: &'a Path,
    pub(crate) data: &'a Arc<dyn DiskFile>,
    /// Length of the log.
    pub(crate) length: u64,
}

impl ChecksummedLog<'_> {
    /// The position of a transaction that the checksums do not belong to. Samples their ends and
    /// three places between. `is_modified`: the log was written to after an orderly close, so the
    /// last transaction alone is enough.
    pub(super) fn contradiction(&self, is_modified: bool) -> Option<u64> {
        let last = self.side.count().checked_sub(1)?;
        let samples = [last, 0, last / 2, last / 4, last / 4 * 3];
        let frames = samples.into_iter().filter_map(|number| self.side.frame_up_to(number));
        // A few transactions earlier, so that enough follow to distinguish damage from another log.
        let before =
            |(number, frame)| self.frames_before(number, LAST_OTHERS_MIN - 1).unwrap_or(frame);
        // The last one may be the only one that differs.
        let only = self.side.frame_up_to(last);
        let mut frames = frames.map(before).chain(only.map(|(_, frame)| frame));
        let other = frames.find(|frame| self.is_of_another_log(frame.position));
        let replaced = || {
            let (number, frame) = only.filter(|_| is_modified)?;
            self.other_transaction(number).map(|_| frame)
        };
        other.or_else(replaced).map(|frame| frame.position)
    }

    /// The frame that is `transactions` before another one.
    fn frames_before(&self, number: u64, transactions: u64) -> Option<Entry> {
        let mut found = None;
        let mut number = number;
        for _ in 0..transactions {
            let (earlier, frame) = self.side.frame_up_to(number.checked_sub(1)?)?;
            (number, found) = (earlier, Some(frame));
        }
        found
    }

    /// Whether a mismatch at a position shows another log: enough whole transactions follow of
    /// which nothing matches, or one up to the end of the checksums that damage cannot have left.
    pub(crate) fn is_of_another_log(&self, position: u64) -> bool {
        let Some(last) = self.side.number_at(position + 1).checked_sub(1) else { return false };
        let Some((mut number, _)) = self.side.frame_up_to(last) else { return false };
        for others in 0..OTHERS_MIN {
            let Some(other) = self.other_transaction(number) else { return false };
            match self.frame_behind(number) {
                Some(next) => number = next,
                None => return others + 1 >= LAST_OTHERS_MIN || other.is_certain(),
            }
        }
        true
    }

    /// The whole transaction that contradicts the entry of this frame: it begins there and is none
    /// that damage made of the one with the entry, or the position lies within it.
    fn other_transaction(&self, number: u64) -> Option<OtherTransaction> {
        let frame = self.frame(number).filter(|frame| !self.fits(frame))?;
        if let Some(piece) = self.walk_from(frame.position).step().filter(Piece::is_whole) {
            let has_other_length = piece.damage.is_empty() && self.end_of(number) != piece.end;
            let is_other = has_other_length || self.nothing_fits(number, &piece, &frame);
            return is_other.then_some(OtherTransaction { piece, has_other_length });
        }
        let mut walk = self.walk_from(self.fitting_before(number));
        while let Some(piece) = walk.step().filter(Piece::is_whole) {
            if piece.end > frame.position {
                let is_within = piece.start < frame.position;
                return is_within.then_some(OtherTransaction { piece, has_other_length: true });
            }
        }
        None
    }

    /// Whether no part of a transaction matches its entry, nor would with one bit of its frame
    /// flipped.
    fn nothing_fits(&self, number: u64, piece: &Piece, frame: &Entry) -> bool {
        let mut records = (number + 1..self.side.count())
            .map_while(|number| self.side.entry(number))
            .take_while(|entry| entry.part == Part::Record && entry.position < piece.end)
            .peekable();
        // A frame alone may be damaged in several bits.
        records.peek().is_some()
            && !records.any(|record| self.fits(&record))
            && !repair::is_one_bit_off(self.data.as_ref(), frame, self.length)
    }

    /// Where the transaction ended that had the frame of this entry.
    fn end_of(&self, number: u64) -> u64 {
        let next = self.frame_behind(number).and_then(|next| self.side.entry(next));
        next.map_or(self.side.end(), |next| next.position)
    }

    /// The position of an earlier transaction whose frame matches, or that of the first one.
    fn fitting_before(&self, number: u64) -> u64 {
        let mut distance = 1;
        while let Some(earlier) = number.checked_sub(distance) {
            let frame = self.side.frame_up_to(earlier);
            if let Some((_, frame)) = frame.filter(|(_, frame)| self.fits(frame)) {
                return frame.position;
            }
            distance *= 2;
        }
        MAGIC_BYTES
    }

    fn frame(&self, number: u64) -> Option<Entry> {
        self.side.entry(number).filter(|entry| entry.part == Part::Frame)
    }

    fn frame_behind(&self, number: u64) -> Option<u64> {
        (number + 1..self.side.count()).find(|number| self.frame(*number).is_some())
    }

    fn fits(&self, entry: &Entry) -> bool {
        sum_at(self.data.as_ref(), entry.position, self.length, entry.part) == Some(entry.sum)
    }

    fn walk_from(&self, position: u64) -> Walk {
        Walk::starting_at(self.path, self.data, self.length, position)
    }
}

/// A whole transaction that contradicts its entries.
struct OtherTransaction {
    piece: Piece,
    /// Another length than that of the transaction with the entries.
    has_other_length: bool,
}

impl OtherTransaction {
    /// Whether no damage of a few places can have left this transaction. Such damage leaves its
    /// length, which is there twice, and its tid, which is in each record: so it is in the data of
    /// each record, and in metadata.
    fn is_certain(&self) -> bool {
        let Piece { transaction, records, damage, .. } = &self.piece;
        let has_metadata = transaction.is_some_and(|it| it.header.metadata_bytes() > 0);
        self.has_other_length
            || damage.is_empty() && (!has_metadata || records.len() >= RECORDS_MIN)
    }
}
