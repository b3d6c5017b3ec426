//! The line of `.index.crc32c`, which says what an index is of that we wrote.
//!
//! Earlier versions wrote its first three words only, which do not tell the order of the tids.

use std::io::{self, Read};
use std::path::Path;

use zodium_disk::{Disk, FileStream, OpenMode, with_suffix};
use zodium_types::Tid;

use crate::read::Tids;

/// No line is longer.
const LINE_BYTES_MAX: u64 = 96;
/// In place of the latest tid, where that is the last one.
const ASCENDING: &str = "ascending";

/// The content of `.index.crc32c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexLine {
    pub(super) sum: Sum,
    /// Tid of the last transaction that the index covers; [`Tid::ZERO`] for an empty file.
    pub(super) last_tid: Tid,
    /// `None` if it was unknown.
    pub(super) order: Option<Order>,
}

/// Checksum and length of an index file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) crc32c: u32,
    pub(super) length: u64,
}

/// The order of the tids that an index covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Each transaction is later than all before it.
    Ascending,
    /// A transaction stands behind a later one.
    GoesBack { latest: Tid },
}

impl Order {
    /// `None` unless it is known.
    pub(super) fn of(tids: Tids) -> Option<Order> {
        tids.are_all_known.then_some(match tids.go_back {
            true => Order::GoesBack { latest: tids.latest },
            false => Order::Ascending,
        })
    }
}

impl IndexLine {
    pub(super) fn read(disk: &dyn Disk, path: &Path) -> Option<IndexLine> {
        let file = disk.open(&with_suffix(path, ".index.crc32c"), OpenMode::Read).ok()?;
        let mut text = String::new();
        FileStream::new(file.as_ref()).take(LINE_BYTES_MAX).read_to_string(&mut text).ok()?;
        IndexLine::parse(text.strip_suffix('\n')?)
    }

    fn parse(line: &str) -> Option<IndexLine> {
        let words: Vec<&str> = line.split(' ').collect();
        let (told, order) = match *words.as_slice() {
            [crc32c, length, last_tid] => ([crc32c, length, last_tid], None),
            [crc32c, length, last_tid, order, sum] => {
                // The other words are compared with the index and the data file, this one is not.
                let summed = line.strip_suffix(sum)?;
                if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(summed.as_bytes()) {
                    return None;
                }
                let order = match order {
                    ASCENDING => Order::Ascending,
                    latest => Order::GoesBack { latest: parse_tid(latest)? },
                };
                ([crc32c, length, last_tid], Some(order))
            }
            _ => return None,
        };
        let [crc32c, length, last_tid] = told;
        let crc32c = u32::from_str_radix(crc32c, 16).ok()?;
        let sum = Sum { crc32c, length: length.parse().ok()? };
        Some(IndexLine { sum, last_tid: parse_tid(last_tid)?, order })
    }

    fn line(self) -> String {
        let IndexLine { sum: Sum { crc32c, length }, last_tid, order } = self;
        let told = format!("{crc32c:08x} {length} {last_tid}");
        let told = match order {
            None => return told,
            Some(Order::Ascending) => format!("{told} {ASCENDING} "),
            Some(Order::GoesBack { latest }) => format!("{told} {latest} "),
        };
        format!("{told}{:08x}", crc32c::crc32c(told.as_bytes()))
    }

    pub(super) fn write(self, disk: &dyn Disk, path: &Path) -> io::Result<()> {
        let file = disk.open(&with_suffix(path, ".index.crc32c"), OpenMode::Truncate)?;
        file.write_all_at(format!("{}\n", self.line()).as_bytes(), 0)?;
        file.sync()
    }

    /// The tids that the index covers, if their order is known.
    pub(super) fn tids(self) -> Option<Tids> {
        let last = self.last_tid;
        let (latest, go_back) = match self.order? {
            Order::Ascending => (last, false),
            Order::GoesBack { latest } => (latest, true),
        };
        Some(Tids { last, latest, go_back, are_all_known: true })
    }
}

fn parse_tid(word: &str) -> Option<Tid> {
    u64::from_str_radix(word, 16).ok().map(Tid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDERS: [Option<Order>; 3] =
        [None, Some(Order::Ascending), Some(Order::GoesBack { latest: Tid(u64::MAX) })];

    #[test]
    fn what_is_written_is_read_back() {
        for order in ORDERS {
            for length in [0, 1264, 1 << 40] {
                let sum = Sum { crc32c: 0x5d1f_3c07, length };
                let line = IndexLine { sum, last_tid: Tid(7), order };
                assert!((line.line().len() as u64) < LINE_BYTES_MAX);
                assert_eq!(IndexLine::parse(&line.line()), Some(line));
            }
        }
    }

    #[test]
    fn line_of_an_earlier_version_does_not_tell_the_order() {
        let line = IndexLine::parse("5d1f3c07 1264 03f6b2a1c4d5e6f7").unwrap();
        let sum = Sum { crc32c: 0x5d1f_3c07, length: 1264 };
        assert_eq!(line, IndexLine { sum, last_tid: Tid(0x03f6_b2a1_c4d5_e6f7), order: None });
        assert_eq!(line.tids(), None);
    }

    #[test]
    fn wrong_bit_in_the_order_is_noticed() {
        for order in ORDERS.into_iter().flatten() {
            let line = IndexLine { sum: Sum::default(), last_tid: Tid(7), order: Some(order) };
            let text = line.line().into_bytes();
            for bit in 0..text.len() * 8 {
                let mut damaged = text.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let parsed = std::str::from_utf8(&damaged).ok().and_then(IndexLine::parse);
                assert!(parsed.is_none_or(|parsed| parsed == line), "bit {bit}: {parsed:?}");
            }
        }
    }
}
