//! Where a transaction that is too large for memory waits until it is written.
//!
//! A spool is a nameless file: when its last user drops it, or the process
//! ends, it is gone.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;
use zodium_disk::{Disk, DiskFile, SpaceWatch, is_full, no_space_for};

use crate::StorageError;

/// Bytes written or read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// A file that data are appended to.
#[derive(Debug)]
pub struct Spool {
    place: Arc<Place>,
    end: u64,
    buffer: Vec<u8>,
}

/// Data that were put into a spool.
#[derive(Clone, Debug)]
pub struct SpooledData {
    place: Arc<Place>,
    position: u64,
    length: u64,
}

#[derive(Debug)]
struct Place {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    space: Arc<SpaceWatch>,
}

/// Why a spool could not be used.
#[derive(Debug, Error)]
#[error("{path}: {operation} failed: {source}", path = path.display())]
struct SpoolError {
    path: PathBuf,
    operation: &'static str,
    source: io::Error,
}

impl Spool {
    /// An empty spool on the disk of the file at `path`, beside which it is. `space` follows
    /// whether that disk has space. Blocking.
    pub fn new(
        disk: &dyn Disk,
        path: &Path,
        space: Arc<SpaceWatch>,
    ) -> Result<Spool, StorageError> {
        let path = path.to_owned();
        let file = disk.temporary(&path).map_err(|error| writing_failed(&path, 0, error));
        let file = space.noting(file)?;
        Ok(Spool { place: Arc::new(Place { path, file, space }), end: 0, buffer: Vec::new() })
    }

    /// Puts data behind those that are there. They can be read after [`Spool::flush`].
    pub fn append(&mut self, data: &Bytes) -> Result<SpooledData, StorageError> {
        let length = data.len() as u64;
        let position = self.end + self.buffer.len() as u64;
        if data.len() >= CHUNK_BYTES {
            self.flush()?;
            self.write(data)?;
        } else {
            self.buffer.extend_from_slice(data);
            if self.buffer.len() >= CHUNK_BYTES {
                self.flush()?;
            }
        }
        Ok(SpooledData { place: Arc::clone(&self.place), position, length })
    }

    /// Writes what is still in memory. (Nothing is synced: a spool need not survive a crash.)
    pub fn flush(&mut self) -> Result<(), StorageError> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        let Place { path, file, space } = self.place.as_ref();
        let written = file.write_all_at(bytes, self.end);
        let refused = |error| writing_failed(path, bytes.len() as u64, error);
        space.noting(written.map_err(refused))?;
        self.end += bytes.len() as u64;
        Ok(())
    }
}

impl SpooledData {
    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// All of the data, in memory again. Blocking.
    pub fn read(&self) -> Result<Bytes, StorageError> {
        let mut bytes = Vec::new();
        self.each_chunk(|chunk| {
            bytes.extend_from_slice(chunk);
            Ok::<(), StorageError>(())
        })?;
        Ok(bytes.into())
    }

    /// Calls `take` with the data, piece by piece. Blocking.
    pub fn each_chunk<E: From<StorageError>>(
        &self,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Place { path, file, .. } = self.place.as_ref();
        let mut buffer = vec![0; self.length.min(CHUNK_BYTES as u64) as usize];
        let mut done = 0;
        while done < self.length {
            let count = (self.length - done).min(CHUNK_BYTES as u64) as usize;
            let chunk = &mut buffer[..count];
            file.read_exact_at(chunk, self.position + done)
                .map_err(|source| failed(path, "read back a large transaction", source))?;
            take(chunk)?;
            done += count as u64;
        }
        Ok(())
    }
}

fn failed(path: &Path, operation: &'static str, source: io::Error) -> StorageError {
    StorageError::Io(Box::new(SpoolError { path: path.to_owned(), operation, source }))
}

fn writing_failed(path: &Path, bytes: u64, error: io::Error) -> StorageError {
    match is_full(&error) {
        true => {
            let cause = format!("{}: {}", path.display(), no_space_for(bytes));
            StorageError::Full { bytes, cause: cause.into() }
        }
        false => failed(path, "put a large transaction aside", error),
    }
}
