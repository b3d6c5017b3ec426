//! Checksums of the bytes appended last, in memory.
//!
//! After a failed sync the system may show bytes that the device does not hold. With these
//! checksums, bytes read back from the device are compared with the acknowledged bytes.

use std::collections::VecDeque;
use std::ops::Range;

/// Bytes at the end of the log whose checksums are kept, if so many were appended.
const KEPT_BYTES_MIN: u64 = 8 << 20;
/// Largest number of pieces. Each is of one sync and takes 24 bytes.
const PIECES_MAX: usize = 4096;

/// The bytes appended last in pieces without gaps, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentAppends {
    pieces: VecDeque<Piece>,
}

/// Bytes that one sync made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) range: Range<u64>,
    pub(crate) crc32c: u32,
}

impl RecentAppends {
    /// Notes durable bytes, which must begin where the last piece ended.
    pub(crate) fn note(&mut self, range: Range<u64>, crc32c: u32) {
        let continues = self.pieces.back().is_none_or(|last| last.range.end == range.start);
        assert!(continues, "what is appended begins where the last append ended");
        let end = range.end;
        self.pieces.push_back(Piece { range, crc32c });
        let is_enough = |second: &Piece| end - second.range.start >= KEPT_BYTES_MIN;
        while self.pieces.len() > PIECES_MAX || self.pieces.get(1).is_some_and(is_enough) {
            self.pieces.pop_front();
        }
    }

    /// The pieces, oldest first.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.pieces.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_is_kept_and_not_much_more() {
        let mut recent = RecentAppends::default();
        let mut end = 0;
        for length in (1..100).cycle().take(20_000) {
            let start = end;
            end += length * 1000;
            recent.note(start..end, 7);
        }
        let kept = end - recent.pieces().next().unwrap().range.start;
        assert!((KEPT_BYTES_MIN..KEPT_BYTES_MIN + 100_000).contains(&kept), "{kept}");
        for start in end..end + 2 * PIECES_MAX as u64 {
            recent.note(start..start + 1, 7);
        }
        assert_eq!(recent.pieces().count(), PIECES_MAX);
    }

    #[test]
    fn the_oldest_piece_goes_when_the_others_have_enough() {
        for (later, is_kept) in [(KEPT_BYTES_MIN - 1, true), (KEPT_BYTES_MIN, false)] {
            let mut recent = RecentAppends::default();
            recent.note(1000..2000, 1);
            recent.note(2000..2000 + later, 2);
            let pieces: Vec<_> = recent.pieces().map(|piece| piece.crc32c).collect();
            assert_eq!(pieces, if is_kept { vec![1, 2] } else { vec![2] }, "{later} bytes later");
        }
        // A single piece stays, however large.
        let mut recent = RecentAppends::default();
        recent.note(0..3 * KEPT_BYTES_MIN, 1);
        assert_eq!(recent.pieces().count(), 1);
    }

    #[test]
    #[should_panic(expected = "begins where the last append ended")]
    fn a_gap_is_a_mistake() {
        let mut recent = RecentAppends::default();
        recent.note(4..10, 1);
        recent.note(11..12, 2);
    }
}
