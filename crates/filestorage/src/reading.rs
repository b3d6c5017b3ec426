//! Whether a read may wait for the disk.

use zodium_disk::{DiskFile, Missed};
use zodium_storage::Access;

/// As [`Access`], for each of the reads that a call consists of.
#[derive(Clone, Copy)]
pub(crate) enum Reading<'a> {
    /// Only what is in memory. The first bytes that are not are noted.
    NonBlocking(Option<&'a Missed>),
    /// Whatever it takes.
    Blocking,
}

impl Reading<'_> {
    /// Whether it may wait.
    pub(crate) fn may_wait(self) -> bool {
        matches!(self, Reading::Blocking)
    }

    /// Notes that it would wait for these bytes.
    pub(crate) fn note(self, file: &dyn DiskFile, position: u64, length: usize) {
        if let Reading::NonBlocking(Some(missed)) = self {
            missed.note(file, position, length);
        }
    }
}

impl From<Access> for Reading<'_> {
    fn from(access: Access) -> Self {
        match access {
            Access::NonBlocking => Reading::NonBlocking(None),
            Access::Blocking => Reading::Blocking,
        }
    }
}
