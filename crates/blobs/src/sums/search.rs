//! Looks up entries by bisecting the file, one page at a time, with nothing kept in memory.
//!
//! Invalid entries, which a crash or a damaged disk can leave, are skipped.

use std::io;

use zodium_disk::DiskFile;
use zodium_types::{Oid, Tid};

use super::entry::{ENTRY_BYTES, Entry};
use super::offset_of;

/// Entries read together.
const PAGE_ENTRIES: u64 = 128;
const PAGE_BYTES: usize = PAGE_ENTRIES as usize * ENTRY_BYTES;
/// Most invalid entries that a search skips in a row; entries after more are not found. So a
/// file of garbage does not delay downloads.
const SKIPPED_MAX: u64 = 1 << 16;

/// Reads entries by their number.
pub(super) struct Search<'a> {
    file: &'a dyn DiskFile,
    /// Entries in the file.
    count: u64,
    /// Number of the first entry in the current page.
    first: Option<u64>,
    page: [u8; PAGE_BYTES],
    /// Bytes of the page that the file has.
    filled: usize,
}

impl<'a> Search<'a> {
    pub(super) fn new(file: &'a dyn DiskFile, count: u64) -> Search<'a> {
        Search { file, count, first: None, page: [0; PAGE_BYTES], filled: 0 }
    }

    /// The entry of a blob.
    pub(super) fn find(&mut self, oid: Oid, tid: Tid) -> io::Result<Option<Entry>> {
        let place = self.first_not_before((tid, oid))?;
        let found = self.next_whole(place, self.count)?.map(|(_, entry)| entry);
        Ok(found.filter(|entry| entry.key() == (tid, oid)))
    }

    /// The first place whose entry, and all after it, are not before `key`.
    pub(super) fn first_not_before(&mut self, key: (Tid, Oid)) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.next_whole(middle, high)? {
                Some((place, entry)) if entry.key() < key => low = place + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// The last whole entry, and its place.
    pub(super) fn last_whole(&mut self) -> io::Result<Option<(u64, Entry)>> {
        for place in (0..self.count).rev() {
            if let Some(entry) = self.entry(place)? {
                return Ok(Some((place, entry)));
            }
        }
        Ok(None)
    }

    /// The first whole entry from `place` on and before `end`, and its place.
    fn next_whole(&mut self, place: u64, end: u64) -> io::Result<Option<(u64, Entry)>> {
        for place in place..end.min(place.saturating_add(SKIPPED_MAX)) {
            if let Some(entry) = self.entry(place)? {
                return Ok(Some((place, entry)));
            }
        }
        Ok(None)
    }

    fn entry(&mut self, place: u64) -> io::Result<Option<Entry>> {
        let first = place / PAGE_ENTRIES * PAGE_ENTRIES;
        if self.first != Some(first) {
            self.first = None;
            self.filled = self.file.read_up_to(&mut self.page, offset_of(first))?;
            self.first = Some(first);
        }
        let within = (place - first) as usize * ENTRY_BYTES;
        let bytes = self.page[..self.filled].get(within..).and_then(|bytes| bytes.first_chunk());
        Ok(bytes.and_then(Entry::parse))
    }
}
