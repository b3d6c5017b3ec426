//! Whether a log is the one that its checksums were taken of.
//!
//! A wrong bit, or a lost sector, changes a transaction here and there, or leaves something of
//! which none can be made. Another program leaves whole transactions of which nothing fits.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;

use super::entry::{Entry, Part};
use super::repair;
use super::side_file::SideFile;
use super::sums::sum_at;
use crate::check::{Piece, Walk};
use crate::format::MAGIC_BYTES;

/// So many transactions in a row of which nothing fits are of another log.
const OTHERS_MIN: u64 = 8;
/// So many are enough where the checksums end behind them. Damage in several places of one
/// transaction must not pass for another log: nothing would be checked any more.
const LAST_OTHERS_MIN: u64 = 2;

/// A log and the checksums beside it.
#[derive(Clone, Copy)]
pub(crate) struct Evidence<'a> {
    pub(crate) side: &'a SideFile,
    pub(crate) path: &'a Path,
    pub(crate) data: &'a Arc<dyn DiskFile>,
    /// Of the log.
    pub(crate) length: u64,
}

impl Evidence<'_> {
    /// Where the log has another transaction than the checksums, if that shows at their ends and
    /// here and there between.
    pub(super) fn contradiction(&self) -> Option<u64> {
        let last = self.side.count().checked_sub(1)?;
        let samples = [last, 0, last / 2, last / 4, last / 4 * 3];
        let frames = samples.into_iter().filter_map(|number| self.side.frame_up_to(number));
        // A few transactions earlier, so that those up to the end can be told from damage.
        let before =
            |(number, frame)| self.frames_before(number, LAST_OTHERS_MIN - 1).unwrap_or(frame);
        let mut frames = frames.map(before);
        let other = frames.find(|frame| self.is_of_another_log(frame.position));
        other.map(|frame| frame.position)
    }

    /// The frame of the transaction that stands so many transactions before one; else none.
    fn frames_before(&self, number: u64, transactions: u64) -> Option<Entry> {
        let mut found = None;
        let mut number = number;
        for _ in 0..transactions {
            let (earlier, frame) = self.side.frame_up_to(number.checked_sub(1)?)?;
            (number, found) = (earlier, Some(frame));
        }
        found
    }

    /// Whether what does not fit at a position is part of so many whole transactions of which
    /// nothing fits that the log is another one.
    pub(crate) fn is_of_another_log(&self, position: u64) -> bool {
        let Some(last) = self.side.number_at(position + 1).checked_sub(1) else { return false };
        let Some((mut number, _)) = self.side.frame_up_to(last) else { return false };
        for others in 0..OTHERS_MIN {
            if !self.contradicts(number) {
                return false;
            }
            match self.frame_behind(number) {
                Some(next) => number = next,
                None => return others + 1 >= LAST_OTHERS_MIN,
            }
        }
        true
    }

    /// Whether the log has a whole transaction of which nothing fits where this entry says that
    /// one begins, or one within which none does.
    fn contradicts(&self, number: u64) -> bool {
        let Some(frame) = self.frame(number).filter(|frame| !self.fits(frame)) else {
            return false;
        };
        if let Some(piece) = self.walk_from(frame.position).step().filter(Piece::is_whole) {
            return self.nothing_fits(number, &piece, &frame);
        }
        let mut walk = self.walk_from(self.fitting_before(number));
        while let Some(piece) = walk.step().filter(Piece::is_whole) {
            if piece.end > frame.position {
                return piece.start < frame.position;
            }
        }
        false
    }

    /// Whether none of a transaction is as its entries say, or as it would be but for one bit.
    fn nothing_fits(&self, number: u64, piece: &Piece, frame: &Entry) -> bool {
        let mut records = (number + 1..self.side.count())
            .map_while(|number| self.side.entry(number))
            .take_while(|entry| entry.part == Part::Record && entry.position < piece.end)
            .peekable();
        // A frame alone may be damaged in more than a bit.
        records.peek().is_some()
            && !records.any(|record| self.fits(&record))
            && !repair::is_one_bit_off(self.data.as_ref(), frame, self.length)
    }

    /// Where a transaction before begins that is as its entry says; else where the first does.
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
