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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::ops::RangeInclusive;

    use zodium_disk::MemoryDisk;

    use super::*;
    use crate::FileStorage;
    use crate::testing::{PATH, bytes_of, commit, open, overwrite, stores};

    const TRANSACTIONS: u64 = 100;

    /// A description and the data of records.
    type New<'a> = (&'a str, &'a [&'a str]);

    /// A log with the checksums of other transactions, which are as long. Transaction number n has
    /// the tid n in both.
    struct Replaced {
        disk: MemoryDisk,
        storage: FileStorage,
    }

    impl Replaced {
        fn new<'a>(with_sums: &[New<'a>], in_log: &[New<'a>]) -> Replaced {
            let written = |transactions: &[New<'a>]| {
                let disk = MemoryDisk::new();
                let storage = open(disk.clone());
                for (tid, (description, data)) in (1..).zip(transactions) {
                    commit(&storage, tid, stores(description, data));
                }
                (disk, storage)
            };
            let ((disk, storage), (other, _)) = (written(with_sums), written(in_log));
            let bytes = bytes_of(&other);
            assert_eq!(bytes_of(&disk).len(), bytes.len());
            overwrite(&disk, &bytes);
            Replaced { disk, storage }
        }

        /// Those of the range differ in their description and in their only record.
        fn within(range: &RangeInclusive<u64>) -> Replaced {
            let of = |other: New<'static>| -> Vec<New<'static>> {
                let same: New<'static> = ("the same", &["the same"]);
                let transactions = (1..=TRANSACTIONS).map(|n| range.contains(&n));
                transactions.map(|is_other| if is_other { other } else { same }).collect()
            };
            Replaced::new(&of(("one way.", &["one way."])), &of(("another.", &["another."])))
        }

        fn ask<T>(&self, ask: impl FnOnce(ChecksummedLog<'_>) -> T) -> T {
            let log = self.storage.reader().log();
            let side = log.checksums.as_ref().expect("it has checksums").side();
            let (path, length) = (Path::new(PATH), log.end());
            ask(ChecksummedLog { side, path, data: &log.file, length })
        }

        fn contradiction(&self) -> Option<u64> {
            self.ask(|log| log.contradiction(false))
        }

        /// Where a transaction begins.
        fn start(&self, tid: u64) -> u64 {
            let bytes = bytes_of(&self.disk);
            (1..tid).fold(MAGIC_BYTES, |start, _| {
                let length = &bytes[start as usize + 8..start as usize + 16];
                start + u64::from_be_bytes(length.try_into().unwrap()) + 8
            })
        }
    }

    #[test]
    fn an_opening_sees_another_log_at_both_ends_and_three_places_between() {
        // Eight transactions from the one before the place on, or the last two.
        for range in [1..=8, 24..=31, 49..=56, 73..=80, 99..=100] {
            let log = Replaced::within(&range);
            assert_eq!(log.contradiction(), Some(log.start(*range.start())), "{range:?}");
        }
        for range in [9..=23, 24..=30, 25..=40, 49..=55, 50..=65, 73..=79, 74..=90] {
            assert_eq!(Replaced::within(&range).contradiction(), None, "{range:?}");
        }
    }

    #[test]
    fn eight_transactions_without_a_match_show_another_log_wherever_they_are() {
        let log = Replaced::within(&(31..=38));
        let is_other_at = |position| log.ask(|log| log.is_of_another_log(position));
        assert!(is_other_at(log.start(31)));
        // At its record, too, and no byte before.
        assert!(is_other_at(log.start(31) + 23) && is_other_at(log.start(32) - 1));
        assert!(!is_other_at(log.start(31) - 1) && !is_other_at(log.start(32)));
        assert!(!is_other_at(MAGIC_BYTES - 1));
        let log = Replaced::within(&(31..=37));
        assert!(!log.ask(|log| log.is_of_another_log(log_start(&log, 31))));
    }

    fn log_start(log: &ChecksummedLog<'_>, number: u64) -> u64 {
        // Each transaction has two entries.
        log.side.entry((number - 1) * 2).expect("an entry").position
    }

    /// A single one that may be damaged in each part is not enough, but two are.
    #[test]
    fn the_last_two_transactions_show_another_log_together() {
        let same: New<'static> = ("same", &["the same"]);
        let log = |others: usize| {
            let with = |other: New<'static>| [vec![same; 8 - others], vec![other; others]].concat();
            Replaced::new(&with(("one", &["one"])), &with(("two", &["two"])))
        };
        assert_eq!(log(0).contradiction(), None);
        assert_eq!(log(1).contradiction(), None);
        assert_eq!(log(2).contradiction(), Some(log(2).start(7)));
        // Not where the file was changed since an orderly close.
        let start = log(1).start(8);
        assert_eq!(log(1).ask(|log| log.contradiction(true)), Some(start));
        assert_eq!(log(0).ask(|log| log.contradiction(true)), None);
    }

    /// No program writes another description above the same record.
    #[test]
    fn wrong_bits_in_descriptions_are_damage_while_a_record_fits() {
        let kinds: [&[&str]; 4] = [&[], &["one"], &["one", "two"], &["a", "b", "c"]];
        for records in kinds {
            let log = Replaced::new(
                &[("first", records), ("one", records), ("one", records)],
                &[("first", records), ("two", records), ("two", records)],
            );
            assert_eq!(log.contradiction(), None, "{} records", records.len());
            let start = log.start(2);
            assert!(!log.ask(|log| log.is_of_another_log(start)), "{} records", records.len());
        }
    }

    /// The transaction before it has a wrong description, so nothing tells where it begins but the
    /// one before that.
    #[test]
    fn a_transaction_that_is_broken_behind_a_damaged_one_is_damage() {
        let log = Replaced::new(
            &[("one", &["one"]), ("one", &["one"]), ("one", &["one"])],
            &[("one", &["one"]), ("two", &["one"]), ("one", &["two"])],
        );
        let broken = log.start(3);
        let mut bytes = bytes_of(&log.disk);
        // Its length.
        bytes[broken as usize + 10] ^= 0xff;
        overwrite(&log.disk, &bytes);
        assert!(!log.ask(|log| log.is_of_another_log(broken)));
        assert_eq!(log.contradiction(), None);
    }

    /// The log has one long transaction where the other one had several.
    #[test]
    fn a_transaction_in_the_place_of_several_shows_another_log() {
        let long = "x".repeat(23 + 42 + 3 + 8);
        let log = Replaced::new(
            &[("", &["first"]), ("", &["one"]), ("", &["two"])],
            &[("", &["first"]), (&long, &["one"])],
        );
        for tid in [2, 3] {
            let start = log.ask(|log| log_start(&log, tid));
            assert!(log.ask(|log| log.is_of_another_log(start)), "transaction {tid}");
        }
        assert_eq!(log.contradiction(), Some(log.start(2)));
    }
}
