//! A blob that is not committed yet: gone with its value, unless a transaction takes it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use zodium_disk::{DiskFile, SpaceWatch};

use crate::BlobError;
use crate::cleaner::{Cleaner, Refuse};
use crate::fingerprint::Fingerprint;

/// The data of a blob on their way into a transaction. Its file is removed on drop.
#[derive(Debug)]
pub struct TemporaryBlob {
    cleaner: Arc<Cleaner>,
    space: Arc<SpaceWatch>,
    path: PathBuf,
    /// `None` when it is complete.
    file: Option<Arc<dyn DiskFile>>,
    length: u64,
    /// CRC-32C of the bytes so far; `None` when that of a client's own file is not known.
    crc32c: Option<u32>,
    /// Whether the file has gone elsewhere. Relaxed: nothing is read on the strength of it.
    is_taken: AtomicBool,
}

impl TemporaryBlob {
    /// An empty one.
    pub(crate) fn new(
        cleaner: Arc<Cleaner>,
        space: Arc<SpaceWatch>,
        path: PathBuf,
        file: Arc<dyn DiskFile>,
    ) -> TemporaryBlob {
        let (file, crc32c, is_taken) = (Some(file), Some(0), AtomicBool::new(false));
        TemporaryBlob { cleaner, space, path, file, length: 0, crc32c, is_taken }
    }

    /// One that a client has written, which is complete. Its file is read for what is recorded of
    /// it: after its sync it is usually still in the system's memory.
    pub(crate) fn adopted(
        cleaner: Arc<Cleaner>,
        space: Arc<SpaceWatch>,
        path: PathBuf,
        file: Arc<dyn DiskFile>,
        length: u64,
    ) -> Result<TemporaryBlob, BlobError> {
        let mut blob = TemporaryBlob::new(cleaner, space, path, Arc::clone(&file));
        (blob.length, blob.crc32c) = (length, None);
        blob.complete()?;
        // A failed read must not fail the commit: the length alone is recorded.
        if let Ok(found) = Fingerprint::of(file.as_ref(), |_| ()) {
            (blob.length, blob.crc32c) = (found.length, found.crc32c);
        }
        Ok(blob)
    }

    /// Where it is for now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes so far.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds the next bytes. Blocking. After an error the blob is of no use.
    ///
    /// # Panics
    /// When it is complete.
    pub fn append(&mut self, chunk: &[u8]) -> Result<(), BlobError> {
        let Some(file) = &self.file else { unreachable!("a complete blob gets no more bytes") };
        let written = file.write_all_at(chunk, self.length);
        let written = written
            .map_err(|error| BlobError::writing(&self.path, "write", chunk.len() as u64, error));
        self.space.noting(written)?;
        self.length += chunk.len() as u64;
        self.crc32c = self.crc32c.map(|before| crc32c::crc32c_append(before, chunk));
        Ok(())
    }

    /// Notes that it has all its bytes. Blocking. They are brought to stable storage, so that the
    /// file need not stay open for that: a transaction may have more blobs than a process may
    /// open files.
    pub fn complete(&mut self) -> Result<(), BlobError> {
        self.space.noting(self.sync())?;
        self.file = None;
        Ok(())
    }

    /// What to record of the blob.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        Fingerprint { length: self.length, crc32c: self.crc32c }
    }

    /// Notes that the file has moved to a transaction.
    pub(crate) fn note_taken(&self) {
        self.is_taken.store(true, Ordering::Relaxed);
    }

    /// Returns when it is on stable storage. Not by opening the file anew: an error of writing it
    /// may be known to its first opening only.
    pub(crate) fn sync(&self) -> Result<(), BlobError> {
        let synced = self.file.as_ref().map_or(Ok(()), |file| file.sync());
        synced.map_err(|error| BlobError::writing(&self.path, "sync", self.length, error))
    }
}

impl Drop for TemporaryBlob {
    fn drop(&mut self) {
        if *self.is_taken.get_mut() {
            return;
        }
        let file = (std::mem::take(&mut self.path), self.file.take());
        self.cleaner.take(Refuse { files: vec![file], intent: None, is_durable: false });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use zodium_disk::MemoryDisk;
    use zodium_types::{Oid, Tid};

    use crate::{BlobDirectory, NewBlob};

    #[test]
    fn a_complete_blob_is_closed_and_survives_a_power_cut_once_it_is_committed() {
        let disk = MemoryDisk::new();
        let directory =
            BlobDirectory::open(Arc::new(disk.clone()), Path::new("blobs"), false).unwrap();
        let mut blob = directory.temporary().unwrap();
        blob.append(b"con").unwrap();
        blob.append(b"tent").unwrap();
        blob.complete().unwrap();
        assert!(blob.file.is_none());
        let (oid, tid) = (Oid(1), Tid(1));
        let mut staged = directory.stage(Tid::ZERO, &[(oid, NewBlob::Sent(&blob))]).unwrap();
        staged.commit(tid).unwrap();
        staged.keep();
        let path = directory.path_of(oid, tid);
        assert_eq!(disk.after_power_cut().bytes(&path).unwrap(), b"content");
        assert_eq!(directory.recorded(oid, tid).unwrap().length, 7);
    }
}
