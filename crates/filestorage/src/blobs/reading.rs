//! Reading committed blobs, and holding them against what was recorded of them.
//!
//! The length is compared before the first byte is read, the CRC-32C with the last one: a blob
//! is not read twice for it. So the last piece of a changed blob is an error, and from then on
//! the whole blob is one at once, until it has the right bytes again.

use std::io;

use zodium_disk::OpenMode;
use zodium_types::{Oid, Tid};

use super::damaged::BlobDamage;
use super::{BlobDirectory, COPY_BYTES, CommittedBlob};
use crate::StorageError;

/// A committed blob that is read once, from its beginning to its end.
#[derive(Debug)]
pub struct BlobReading {
    blob: CommittedBlob,
    position: u64,
    /// Of the bytes before it.
    crc32c: u32,
}

impl BlobReading {
    /// From the beginning.
    pub fn new(blob: CommittedBlob) -> BlobReading {
        BlobReading { blob, position: 0, crc32c: 0 }
    }

    /// Bytes that are still to be read.
    pub fn left(&self) -> u64 {
        self.blob.length - self.position
    }
}

impl BlobDirectory {
    /// Opens a committed blob. Blocking.
    ///
    /// # Errors
    /// [`StorageError::BlobMissing`] when there is none of that object and transaction,
    /// [`StorageError::BlobLength`] when it has another length than it was committed with, and
    /// [`StorageError::BlobSum`] when it was found to hold other bytes, and still does.
    pub fn open_committed(&self, oid: Oid, tid: Tid) -> Result<CommittedBlob, StorageError> {
        let path = self.path_of(oid, tid);
        let opened = self.disk.open(&path, OpenMode::Read);
        let opened = opened.and_then(|file| file.length().map(|length| (file, length)));
        let (file, length) = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StorageError::BlobMissing { path: path.clone(), oid, tid },
            _ => StorageError::io(&path, "open", error),
        })?;
        let recorded = self.sums.find(oid, tid);
        let blob = CommittedBlob { file, length, path, oid, tid, recorded };
        if let Some(recorded) = recorded.filter(|recorded| recorded.length != length) {
            let path = blob.path;
            let (recorded, found) = (recorded.length, length);
            let error = StorageError::BlobLength { path, oid, tid, recorded, found };
            self.damaged.note((oid, tid), BlobDamage::Length, &error);
            return Err(error);
        }
        self.damaged.clear((oid, tid), BlobDamage::Length);
        if self.damaged.are((oid, tid), BlobDamage::Bytes) {
            let mut reading = BlobReading::new(blob.clone());
            while reading.left() > 0 {
                self.read_on(&mut reading, COPY_BYTES)?;
            }
            self.damaged.clear((oid, tid), BlobDamage::Bytes);
        }
        Ok(blob)
    }

    /// The next bytes of a blob, `bytes_max` of them or what is left. Blocking.
    ///
    /// # Errors
    /// [`StorageError::BlobSum`] in place of the last bytes, when all of them together are not
    /// those that were committed.
    pub fn read_on(
        &self,
        reading: &mut BlobReading,
        bytes_max: usize,
    ) -> Result<Vec<u8>, StorageError> {
        let count = reading.left().min(bytes_max as u64) as usize;
        let blob = &reading.blob;
        let mut bytes = vec![0; count];
        let read = blob.file.read_exact_at(&mut bytes, reading.position);
        read.map_err(|error| StorageError::io(&blob.path, "read", error))?;
        reading.position += count as u64;
        reading.crc32c = crc32c::crc32c_append(reading.crc32c, &bytes);
        if reading.left() == 0 {
            self.compare(&reading.blob, reading.crc32c)?;
        }
        Ok(bytes)
    }

    fn compare(&self, blob: &CommittedBlob, found: u32) -> Result<(), StorageError> {
        let recorded = blob.recorded.and_then(|recorded| recorded.crc32c);
        let Some(recorded) = recorded.filter(|recorded| *recorded != found) else { return Ok(()) };
        let CommittedBlob { oid, tid, .. } = *blob;
        let path = blob.path.clone();
        let error = StorageError::BlobSum { path, oid, tid, recorded, found };
        self.damaged.note((oid, tid), BlobDamage::Bytes, &error);
        Err(error)
    }
}
