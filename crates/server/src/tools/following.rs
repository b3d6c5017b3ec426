//! A storage that is read again and again while others write to it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use zodium_backup::repository::Source;
use zodium_filestorage::FileStorageError;
use zodium_storage::{Read, StorageError};

use super::blobs::Blobs;
use super::open::{OpenArguments, Readable};
use super::storage_name::StorageName;

/// How often a database is opened anew, to see what other processes have committed.
const DATABASE_INTERVAL: Duration = Duration::from_secs(1);
/// Looks at bytes of a file that are no transaction, before they are damage.
const LOOKS_MAX: u32 = 20;

/// A storage that others write to.
pub(super) struct Followed {
    /// `None` while it could not be opened anew.
    readable: Option<Readable>,
    blobs: Blobs,
    size: u64,
    opened: Instant,
    /// Looks in a row that met unfinished bytes.
    doubts: u32,
}

impl Followed {
    pub(super) fn open(
        how: &OpenArguments,
        name: &StorageName,
        blob_directory: Option<&Path>,
    ) -> Result<Followed> {
        let readable = how.read(name)?;
        let blobs = Blobs::of(readable.client.as_ref(), blob_directory)?;
        let (size, opened) = (readable.storage.size(), Instant::now());
        Ok(Followed { readable: Some(readable), blobs, size, opened, doubts: 0 })
    }

    /// The storage as it is now.
    pub(super) fn storage(&self) -> Result<Arc<dyn Read>> {
        let readable = self.readable.as_ref().context("the storage is not open")?;
        Ok(Arc::clone(&readable.storage))
    }

    /// What a backup reads.
    pub(super) fn source<'s>(
        &'s self,
        storage: &'s Arc<dyn Read>,
        progress: &'s dyn Fn(usize),
    ) -> Source<'s> {
        Source { storage: &**storage, blobs: &self.blobs, progress }
    }

    /// Makes what was committed since visible; whether the storage was packed.
    pub(super) fn refresh(&mut self, how: &OpenArguments, name: &StorageName) -> Result<bool> {
        let is_same = match (name, self.readable.as_ref().and_then(|open| open.file.as_ref())) {
            (StorageName::File(_), Some(file)) => match file.refresh() {
                // A writer may be in the middle of it.
                Err(FileStorageError::Corrupt { .. }) if self.doubts < LOOKS_MAX => {
                    self.doubts += 1;
                    return Ok(false);
                }
                refreshed => refreshed.map_err(StorageError::from)?,
            },
            (StorageName::Sqlite(_) | StorageName::Maria(_), _) => {
                self.readable.is_some() && self.opened.elapsed() < DATABASE_INTERVAL
            }
            // These tell their clients.
            _ => {
                if let Some(client) = self.readable.as_ref().and_then(|open| open.client.as_ref()) {
                    // A server that is gone tells nothing, as one without commits.
                    client.sync()?;
                }
                self.readable.is_some()
            }
        };
        self.doubts = 0;
        if !is_same {
            // A database is locked as long as it is open.
            self.readable = None;
            self.readable = Some(how.read(name)?);
            self.opened = Instant::now();
        }
        let size = self.storage()?.size();
        let before = std::mem::replace(&mut self.size, size);
        Ok(self.size < before)
    }
}
