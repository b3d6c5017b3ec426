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
