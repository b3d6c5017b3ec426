//! Reads entries in order, many at once.

use std::collections::VecDeque;

use super::entry::{ENTRY_BYTES, Entry};
use super::header::Header;
use super::side_file::SideFile;

/// Entries read at once.
const READ_ENTRIES: u64 = 4096;

/// Reads the entries from a position of the log on.
pub(super) struct EntryStream<'a> {
    side: &'a SideFile,
    read: VecDeque<Entry>,
    /// Number of the entry that is read next.
    number: u64,
}

impl<'a> EntryStream<'a> {
    pub(super) fn new(side: &'a SideFile, start: u64) -> EntryStream<'a> {
        EntryStream { side, read: VecDeque::new(), number: side.number_at(start) }
    }

    /// The next entry, if its position is before `end`.
    pub(super) fn next_before(&mut self, end: u64) -> Option<Entry> {
        while self.read.is_empty() && self.number < self.side.count() {
            self.fill();
        }
        self.read.pop_front_if(|entry| entry.position < end)
    }

    /// Reads more entries. Unreadable and invalid ones are left out.
    fn fill(&mut self) {
        let count = (self.side.count() - self.number).min(READ_ENTRIES);
        let mut bytes = vec![0; count as usize * ENTRY_BYTES];
        let offset = Header::entry_offset(self.number);
        let read = self.side.file.read_exact_at(&mut bytes, offset);
        self.number += count;
        if read.is_ok() {
            let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
            let entries = entries.iter().filter_map(|bytes| Entry::parse(bytes, self.side.salt));
            self.read.extend(entries);
        }
    }
}
