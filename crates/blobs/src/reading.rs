//! Reads committed blobs, and compares them with their recorded length and CRC-32C.
//!
//! The length is compared when the blob is opened, and the CRC-32C with its last bytes, so that no
//! blob is read twice. A changed blob therefore fails at its last piece. After that it is read and
//! compared at each opening, until it has the right bytes again.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use zodium_disk::{DiskFile, OpenMode};
use zodium_types::{Oid, Tid};

use crate::damaged::BlobDamage;
use crate::fingerprint::{COPY_BYTES, Fingerprint};
use crate::{BlobDirectory, BlobError};

/// A committed blob, open for reading.
#[derive(Clone, Debug)]
pub struct CommittedBlob {
    /// Its file, which never changes.
    pub file: Arc<dyn DiskFile>,
    /// Bytes in it.
    pub length: u64,
    /// Where it is.
    pub path: PathBuf,
    oid: Oid,
    tid: Tid,
    /// What it was committed with.
    pub(crate) recorded: Option<Fingerprint>,
}

/// A committed blob that is being read, once from beginning to end.
#[derive(Debug)]
pub struct BlobReading {
    blob: CommittedBlob,
    position: u64,
    /// Of the bytes before it.
    crc32c: u32,
}

impl BlobReading {
    /// Begins to read a blob.
    pub fn new(blob: CommittedBlob) -> BlobReading {
        BlobReading { blob, position: 0, crc32c: 0 }
    }

    /// Bytes not read yet.
    pub fn left(&self) -> u64 {
        self.blob.length - self.position
    }
}

impl BlobDirectory {
    /// Opens a committed blob. Blocking.
    ///
    /// # Errors
    /// - [`BlobError::Missing`] when there is none of that object and transaction;
    /// - [`BlobError::Away`] when the directory is not there either;
    /// - [`BlobError::Length`] when it does not have the length that was committed;
    /// - [`BlobError::Sum`] when an earlier read found other bytes, which are still there.
    pub fn open_committed(&self, oid: Oid, tid: Tid) -> Result<CommittedBlob, BlobError> {
        let path = self.path_of(oid, tid);
        let opened = self.disk.open(&path, OpenMode::Read);
        let opened = opened.and_then(|file| file.length().map(|length| (file, length)));
        let (file, length) = opened.or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                self.check_present()?;
                let error = BlobError::Missing { path: path.clone(), oid, tid };
                // Those that only read are tools, which tell of it themselves.
                if !self.read_only {
                    self.missing.note(&error);
                }
                return Err(error);
            }
            Err(BlobError::io(&path, "open", error))
        })?;
        let recorded = self.sums.find(oid, tid);
        let blob = CommittedBlob { file, length, path, oid, tid, recorded };
        if let Some(recorded) = recorded.filter(|recorded| recorded.length != length) {
            let path = blob.path;
            let (recorded, found) = (recorded.length, length);
            let error = BlobError::Length { path, oid, tid, recorded, found };
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

    /// Reads the next bytes of a blob, `bytes_max` or the rest. Blocking.
    ///
    /// # Errors
    /// [`BlobError::Sum`] in place of the last bytes, when the blob does not hold the bytes
    /// that were committed.
    pub fn read_on(
        &self,
        reading: &mut BlobReading,
        bytes_max: usize,
    ) -> Result<Vec<u8>, BlobError> {
        let count = reading.left().min(bytes_max as u64) as usize;
        let blob = &reading.blob;
        let mut bytes = vec![0; count];
        let read = blob.file.read_exact_at(&mut bytes, reading.position);
        read.map_err(|error| BlobError::io(&blob.path, "read", error))?;
        reading.position += count as u64;
        reading.crc32c = crc32c::crc32c_append(reading.crc32c, &bytes);
        if reading.left() == 0 {
            self.compare(&reading.blob, reading.crc32c)?;
        }
        Ok(bytes)
    }

    fn compare(&self, blob: &CommittedBlob, found: u32) -> Result<(), BlobError> {
        let recorded = blob.recorded.and_then(|recorded| recorded.crc32c);
        let Some(recorded) = recorded.filter(|recorded| *recorded != found) else { return Ok(()) };
        let CommittedBlob { oid, tid, .. } = *blob;
        let path = blob.path.clone();
        let error = BlobError::Sum { path, oid, tid, recorded, found };
        self.damaged.note((oid, tid), BlobDamage::Bytes, &error);
        Err(error)
    }
}
