//! Bytes of a file that are not in memory, for a reader that need not know the file.

use std::cell::Cell;
use std::fs::File;
use std::sync::Arc;

use crate::DiskFile;

/// Most bytes that [`Missed`] tells: a thread reads more of them as fast.
const MISSED_BYTES_MAX: usize = 256 << 10;

/// Bytes of a file that would have to be read from the device.
///
/// The system keeps bytes in memory that were read, so that the next read of them need not wait.
/// The file stays open as long as this exists.
#[derive(Clone, Debug)]
pub struct ColdBytes {
    file: Arc<File>,
    position: u64,
    length: usize,
}

impl PartialEq for ColdBytes {
    fn eq(&self, other: &ColdBytes) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
            && (self.position, self.length) == (other.position, other.length)
    }
}

impl ColdBytes {
    /// `length` bytes of `file` from `position` on. The file may end before.
    pub fn new(file: Arc<File>, position: u64, length: usize) -> ColdBytes {
        ColdBytes { file, position, length }
    }

    /// The file, which is open for reading.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Where the first byte is.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The number of bytes, of which the file may have fewer.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// What reads that may not wait have missed.
#[derive(Default)]
pub struct Missed(Cell<Option<ColdBytes>>);

impl Missed {
    /// Notes that a read would wait for these bytes of a file, instead of those noted before.
    pub fn note(&self, file: &dyn DiskFile, position: u64, length: usize) {
        self.0.set(file.cold_bytes(position, length));
    }

    /// The bytes noted last; `None` if they are of no file of the system, or too many.
    pub fn into_bytes(self) -> Option<ColdBytes> {
        self.0.into_inner().filter(|bytes| bytes.length() <= MISSED_BYTES_MAX)
    }
}
