//! Reads a file that may be on a failing disk through a window, and continues behind unreadable
//! blocks.
//!
//! Unreadable blocks count as zeros and are remembered. So a walk continues, and a caller that
//! needs the bytes can ask whether they are real.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zodium_disk::DiskFile;

use crate::format::u64_at;

/// Bytes read at once on a walk.
pub(crate) const WALK_BYTES: usize = 128 << 10;
/// Bytes read at once to look at a single place.
pub(crate) const LOOK_BYTES: usize = 4096;
/// Size of the blocks that count as unreadable when a part of them is.
const BLOCK_BYTES: u64 = 4096;

/// A window into the first bytes of a file.
pub(crate) struct Window {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    end: u64,
    size: usize,
    start: u64,
    bytes: Vec<u8>,
    /// Starts of the blocks that cannot be read.
    unreadable: BTreeSet<u64>,
}

impl Window {
    /// A window of `size` bytes into the bytes before `end`.
    pub(crate) fn new(path: &Path, file: &Arc<dyn DiskFile>, end: u64, size: usize) -> Window {
        let (path, file) = (path.to_owned(), Arc::clone(file));
        Window { path, file, end, size, start: 0, bytes: Vec::new(), unreadable: BTreeSet::new() }
    }

    /// Another window into the same bytes.
    pub(crate) fn another(&self, size: usize) -> Window {
        Window::new(&self.path, &self.file, self.end, size)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self) -> &Arc<dyn DiskFile> {
        &self.file
    }

    /// Nothing is read from here on.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes at a position; `None` when the end comes first.
    pub(crate) fn bytes(&mut self, position: u64, length: usize) -> Option<&[u8]> {
        let end = position.checked_add(length as u64).filter(|end| *end <= self.end)?;
        if position < self.start || end > self.start + self.bytes.len() as u64 {
            let wanted = self.size.max(length) as u64;
            self.fill(position, position.saturating_add(wanted).min(self.end));
        }
        let at = (position - self.start) as usize;
        self.bytes.get(at..at + length)
    }

    /// As many of `length` bytes at a position as there are.
    pub(crate) fn some_bytes(&mut self, position: u64, length: usize) -> &[u8] {
        let count = self.end.saturating_sub(position).min(length as u64) as usize;
        self.bytes(position, count).unwrap_or_default()
    }

    pub(crate) fn chunk<const N: usize>(&mut self, position: u64) -> Option<[u8; N]> {
        self.bytes(position, N)?.try_into().ok()
    }

    /// The number at a position. The window stays where it is, so that a look at the end of a
    /// transaction does not cost reading its beginning again.
    pub(crate) fn number(&mut self, position: u64) -> Option<u64> {
        let end = position.checked_add(8).filter(|end| *end <= self.end)?;
        if position < self.start || end > self.start + self.bytes.len() as u64 {
            let mut bytes = [0; 8];
            if self.file.read_exact_at(&mut bytes, position).is_ok() {
                return Some(u64::from_be_bytes(bytes));
            }
        }
        Some(u64_at(self.bytes(position, 8)?, 0))
    }

    /// Reads bytes only to find out whether they are readable.
    pub(crate) fn probe(&mut self, range: Range<u64>) {
        let mut position = range.start;
        while position < range.end {
            let count = (range.end - position).min(self.size as u64) as usize;
            self.bytes(position, count);
            position += count as u64;
        }
    }

    /// Whether some of these bytes, which were asked for before, could not be read.
    pub(crate) fn is_unreadable(&self, range: Range<u64>) -> bool {
        let from = range.start - range.start % BLOCK_BYTES;
        range.start < range.end && self.unreadable.range(from..range.end).next().is_some()
    }

    fn fill(&mut self, start: u64, end: u64) {
        self.bytes.resize((end - start) as usize, 0);
        self.start = start;
        if self.file.read_exact_at(&mut self.bytes, start).is_ok() {
            return;
        }
        let mut position = start;
        while position < end {
            let next = (position - position % BLOCK_BYTES + BLOCK_BYTES).min(end);
            let block = &mut self.bytes[(position - start) as usize..(next - start) as usize];
            if self.file.read_exact_at(block, position).is_err() {
                block.fill(0);
                self.unreadable.insert(position - position % BLOCK_BYTES);
            }
            position = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Crafted, Watched};

    const END: u64 = 900;

    fn content() -> Vec<u8> {
        (0..1000_u32).map(|at| (at % 251) as u8).collect()
    }

    /// A window of 100 bytes into the first 900 of 1000, of which one may be unreadable.
    fn window(bad: Option<u64>) -> (Arc<Watched>, Window) {
        let watched = Watched::of(&content(), bad);
        let file: Arc<dyn DiskFile> = Arc::clone(&watched) as _;
        (watched, Window::new(Crafted::path(), &file, END, 100))
    }

    #[test]
    fn bytes_are_read_again_only_when_the_window_does_not_hold_them() {
        let (file, mut window) = window(None);
        for (position, length, reads) in [
            (200, 10, &[(200, 100)][..]),
            (200, 1, &[]),
            (299, 1, &[]),
            (200, 100, &[]),
            (250, 50, &[]),
            (199, 1, &[(199, 100)]),
            (250, 50, &[(250, 100)]),
            (349, 2, &[(349, 100)]),
            (300, 150, &[(300, 150)]),
            (440, 10, &[]),
            (850, 50, &[(850, 50)]),
            (899, 1, &[]),
        ] {
            let at = position as usize;
            let found = window.bytes(position, length);
            assert_eq!(found, Some(&content()[at..at + length]), "{length} at {position}");
            assert_eq!(file.reads(), reads, "{length} at {position}");
        }
        for (position, length) in [(850, 51), (900, 1), (901, 0), (u64::MAX, 2)] {
            assert_eq!(window.bytes(position, length), None, "{length} at {position}");
        }
        assert_eq!(file.reads(), []);
    }

    #[test]
    fn as_many_bytes_are_given_as_there_are_before_the_end() {
        let (_, mut window) = window(None);
        for (position, length, given) in
            [(800, 99, 99), (800, 100, 100), (800, 101, 100), (899, 7, 1), (900, 7, 0), (950, 7, 0)]
        {
            let found = window.some_bytes(position, length).to_vec();
            let at = position as usize;
            assert_eq!(found, content()[at..at + given], "{length} at {position}");
        }
    }

    #[test]
    fn a_number_leaves_the_window_where_it_is() {
        let number = |at: usize| u64::from_be_bytes(content()[at..at + 8].try_into().unwrap());
        let (file, mut window) = window(None);
        window.bytes(200, 1);
        file.reads();
        for (position, reads) in [
            (200, &[][..]),
            (250, &[]),
            (292, &[]),
            (199, &[(199, 8)]),
            (293, &[(293, 8)]),
            (20, &[(20, 8)]),
            (892, &[(892, 8)]),
        ] {
            assert_eq!(window.number(position), Some(number(position as usize)), "{position}");
            assert_eq!(file.reads(), reads, "{position}");
            assert!(window.bytes(200, 100).is_some());
            assert_eq!(file.reads(), [], "{position}");
        }
        for position in [893, 900, u64::MAX - 3] {
            assert_eq!(window.number(position), None, "{position}");
        }
        assert_eq!(file.reads(), []);
    }

    #[test]
    fn a_number_that_cannot_be_read_is_zero_and_its_block_is_known_as_unreadable() {
        for at in [493, 500] {
            let (_, mut window) = window(Some(500));
            assert_eq!(window.number(at), Some(0), "{at}");
            assert!(window.is_unreadable(500..501), "{at}");
        }
        for at in [492, 501] {
            let (_, mut window) = window(Some(500));
            assert!(window.number(at).is_some_and(|number| number > 0), "{at}");
            assert!(!window.is_unreadable(500..501), "{at}");
        }
    }

    #[test]
    fn a_probe_reads_each_byte_once() {
        let (file, mut window) = window(None);
        for (range, reads) in [
            (0..250, &[(0, 100), (100, 100), (200, 100)][..]),
            (620..621, &[(620, 100)]),
            (750..900, &[(750, 100), (850, 50)]),
            (420..420, &[]),
        ] {
            window.probe(range.clone());
            assert_eq!(file.reads(), reads, "{range:?}");
        }
    }

    #[test]
    fn another_window_is_into_the_same_bytes() {
        let (file, window) = window(None);
        let mut other = window.another(50);
        assert_eq!((other.end(), other.path()), (END, Crafted::path()));
        assert_eq!(other.bytes(300, 1), Some(&content()[300..301]));
        assert_eq!(file.reads(), [(300, 50)]);
    }

    #[test]
    fn of_bytes_that_cannot_be_read_their_block_counts_as_zeros_and_no_other() {
        const BLOCK: u64 = 4096;
        let (end, bad) = (5 * BLOCK + 100, 2 * BLOCK + 7);
        let file: Arc<dyn DiskFile> = Watched::of(&vec![b'x'; end as usize], Some(bad));
        let zeros = 2 * BLOCK..3 * BLOCK;
        for start in [0, 1, BLOCK, BLOCK + 900, 2 * BLOCK, bad, 3 * BLOCK, 4 * BLOCK + 1] {
            let mut window = Window::new(Crafted::path(), &file, end, 100);
            let found = window.bytes(start, (end - start) as usize).unwrap().to_vec();
            let expected = (start..end).map(|at| if zeros.contains(&at) { 0 } else { b'x' });
            assert!(found.into_iter().eq(expected), "from {start}");
            let is_met = start <= bad;
            for (range, is_within) in [
                (start..end, is_met),
                (0..zeros.start, false),
                (zeros.start - 1..zeros.start + 1, is_met),
                (zeros.end - 1..zeros.end, is_met),
                (zeros.end..end, false),
                (bad..bad, false),
            ] {
                assert_eq!(window.is_unreadable(range.clone()), is_within, "{start}, {range:?}");
            }
        }
    }
}
