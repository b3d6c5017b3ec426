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

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use zodium_disk::{Disk, MemoryDisk, OpenMode};

    use super::*;
    use crate::checksums;
    use crate::format::DATA_HEADER_BYTES;
    use crate::testing::{PATH, bytes_of, commit, open, overwrite, stores};

    /// Two transactions of three records each, and a look at a damaged copy of them.
    struct Log {
        disk: MemoryDisk,
        sound: Vec<u8>,
        entries: Vec<Entry>,
    }

    impl Log {
        fn new() -> Log {
            let disk = MemoryDisk::new();
            let storage = open(disk.clone());
            for tid in [1, 2] {
                commit(&storage, tid, stores("about", &["first", "second", "third"]));
            }
            let log = storage.reader().log();
            let side = log.checksums.as_ref().unwrap().side();
            let entries = (0..side.count()).map(|number| side.entry(number).unwrap()).collect();
            storage.close().unwrap();
            Log { sound: bytes_of(&disk), disk, entries }
        }

        fn look<T>(&self, flip: Option<(u64, u8)>, look: impl FnOnce(&mut Passage<'_>) -> T) -> T {
            overwrite(&self.disk, &self.sound);
            let (path, end) = (Path::new(PATH), self.sound.len() as u64);
            let data = self.disk.open(path, OpenMode::Write).unwrap();
            let opened = checksums::open(&self.disk, path, OpenMode::Read, &data, end);
            let opened = opened.unwrap().unwrap();
            if let Some((at, bits)) = flip {
                let byte = self.sound[at as usize] ^ bits;
                data.write_all_at(&[byte], at).unwrap();
            }
            look(&mut Passage::new(&opened, path, &data, end))
        }
    }

    #[test]
    fn each_part_has_an_entry_as_what_it_is() {
        let log = Log::new();
        assert_eq!(log.entries.len(), 8);
        log.look(None, |passage| {
            for entry in &log.entries {
                let other = if entry.part == Part::Frame { Part::Record } else { Part::Frame };
                assert_eq!(passage.entry(entry.position, entry.part), Some(*entry));
                assert_eq!(passage.entry(entry.position, other), None);
                assert_eq!(passage.entry(entry.position + 1, entry.part), None);
                assert!(!passage.is_of_another_log(entry.position));
            }
        });
    }

    #[test]
    fn a_damaged_header_of_a_record_is_known_by_where_the_next_one_begins() {
        let log = Log::new();
        let records = log.entries.iter().zip(log.entries[1..].iter().map(Some).chain([None]));
        for (record, next) in records.filter(|(entry, _)| entry.part == Part::Record) {
            let start = record.position;
            let header = DataHeader::parse(log.sound[start as usize..].first_chunk().unwrap());
            let end = start + header.record_bytes();
            let next = next.filter(|next| next.part == Part::Record);
            let limits = match next {
                // The next record ends it, whatever comes behind.
                Some(_) => vec![(end, true), (end + 50, true), (end - 1, false)],
                // The last one of a transaction ends before the length of that.
                None => vec![(end, true), (end + 1, false), (end - 1, false)],
            };
            for (limit, is_known) in limits {
                for at in [0, 15, 20, 41] {
                    let flip = (start + at, 4);
                    let found = log.look(Some(flip), |passage| passage.data_header(record, limit));
                    assert_eq!(found, is_known.then_some(header), "byte {at} of {start}, {limit}");
                }
            }
            let two = log.look(Some((start + 9, 3)), |passage| passage.data_header(record, end));
            assert_eq!(two, None);
        }
        assert_eq!(log.entries[1].position + DATA_HEADER_BYTES as u64 + 5, log.entries[2].position);
    }

    #[test]
    fn a_damaged_header_of_a_transaction_is_known() {
        let log = Log::new();
        for frame in [log.entries[0], log.entries[4]] {
            let sound = log.look(None, |passage| passage.transaction_header(&frame)).unwrap();
            for at in [0, 10, 22] {
                let flip = Some((frame.position + at, 8));
                let found = log.look(flip, |passage| passage.transaction_header(&frame));
                assert_eq!(found, Some(sound));
            }
            let two = log
                .look(Some((frame.position + 3, 3)), |passage| passage.transaction_header(&frame));
            assert_eq!(two, None);
        }
    }
}
