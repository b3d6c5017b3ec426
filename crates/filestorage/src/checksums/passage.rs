//! Reads through a damaged log with the help of its checksums.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;

use super::checksummed_log::ChecksummedLog;
use super::entry::Entry;
use super::opening::Opened;
use super::repair;
use super::side_file::{Found, Page, SideFile};
use crate::format::{DataHeader, TransactionHeader};
use crate::reading::Reading;
use crate::scan::Part;

/// Longest record whose header is repaired by trying each of its bits.
const REPAIRED_BYTES_MAX: u64 = 16 << 20;

/// The checksums, for building an index.
pub(crate) struct Passage<'a> {
    side: &'a SideFile,
    /// The data file.
    path: &'a Path,
    data: &'a Arc<dyn DiskFile>,
    /// The end of the file.
    end: u64,
    page: Box<Page>,
}

impl<'a> Passage<'a> {
    pub(crate) fn new(
        opened: &'a Opened,
        path: &'a Path,
        data: &'a Arc<dyn DiskFile>,
        end: u64,
    ) -> Passage<'a> {
        Passage { side: &opened.side, path, data, end, page: Page::empty() }
    }

    /// Whether a mismatch at a position shows that the checksums belong to another log.
    pub(crate) fn is_of_another_log(&self, position: u64) -> bool {
        let (side, path, data, length) = (self.side, self.path, self.data, self.end);
        ChecksummedLog { side, path, data, length }.is_of_another_log(position)
    }

    /// The entry of the part at `position`.
    pub(crate) fn entry(&mut self, position: u64, part: Part) -> Option<Entry> {
        match self.side.find_with(position, Reading::Blocking, &mut self.page) {
            Found::Entry(entry) if entry.part == part => Some(entry),
            _ => None,
        }
    }

    /// The original header of a damaged transaction.
    pub(crate) fn transaction_header(&self, frame: &Entry) -> Option<TransactionHeader> {
        repair::transaction_header(self.data.as_ref(), frame, self.end)
    }

    /// The original header of a damaged record, which ended before `limit`; `None` if it cannot be
    /// found, or the header is not damaged.
    pub(crate) fn data_header(&self, record: &Entry, limit: u64) -> Option<DataHeader> {
        let next = self.side.number_at(record.position + 1);
        let next = self.side.entry(next).filter(|_| next < self.side.count());
        let end = next.map_or(limit, |next| next.position.min(limit));
        let is_short = end.saturating_sub(record.position) <= REPAIRED_BYTES_MAX;
        is_short.then(|| repair::data_header(self.data.as_ref(), record, end)).flatten()
    }
}
