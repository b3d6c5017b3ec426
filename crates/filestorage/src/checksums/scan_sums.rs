//! Gives a scan the checksums of what it reads.

use std::sync::Arc;

use zodium_disk::DiskFile;
use zodium_types::{Oid, Tid};

use super::side_file::{Found, Page};
use super::{Checksums, Log};
use crate::reading::Reading;
use crate::scan::{Part, Sums};

/// The checksums of a log up to `end`, and the page of entries that was read last.
pub(crate) struct ScanSums {
    checksums: Arc<Checksums>,
    page: Box<Page>,
    file: Arc<dyn DiskFile>,
    end: u64,
}

impl Checksums {
    /// For a scan up to `end`; `None` when reads are not compared with them.
    pub(crate) fn for_scan(
        self: &Arc<Self>,
        file: &Arc<dyn DiskFile>,
        end: u64,
    ) -> Option<ScanSums> {
        self.verifies_loads().then(|| {
            let (checksums, file) = (Arc::clone(self), Arc::clone(file));
            ScanSums { checksums, page: Page::empty(), file, end }
        })
    }
}

impl Sums for ScanSums {
    fn sum(&mut self, position: u64, part: Part) -> Option<u32> {
        match self.checksums.side().find_with(position, Reading::Blocking, &mut self.page) {
            Found::Entry(entry) if entry.part == part => Some(entry.sum),
            _ => None,
        }
    }

    fn is_damage(&self, position: u64, oid: Option<Oid>, tid: Tid, what: &str) -> bool {
        let log = Log { file: &self.file, end: self.end };
        self.checksums.is_damage(log, position, oid, Some(tid), what)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use zodium_disk::MemoryDisk;

    use super::*;
    use crate::testing::{commit, open, stores};

    #[test]
    fn a_part_has_the_sum_of_its_kind() {
        let storage = open(MemoryDisk::new());
        commit(&storage, 1, stores("about", &["first", "second"]));
        let log = storage.reader().log();
        let checksums = log.checksums.as_ref().unwrap();
        let mut sums = checksums.for_scan(&log.file, log.end()).unwrap();
        for number in 0..3 {
            let entry = checksums.side().entry(number).unwrap();
            let other = if entry.part == Part::Frame { Part::Record } else { Part::Frame };
            assert_eq!(sums.sum(entry.position, entry.part), Some(entry.sum));
            assert_eq!(sums.sum(entry.position, other), None);
            assert_eq!(sums.sum(entry.position + 1, entry.part), None);
        }
        assert_eq!(sums.sum(log.end(), Part::Frame), None);
    }
}
