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
