//! The folders of objects: made with their parents, durable before anything in them counts, and
//! removed when they have become empty.

use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use zodium_types::Oid;

use crate::{BlobDirectory, BlobError};

/// Folders known to be durable; more are found out again.
const KNOWN_MAX: usize = 1 << 16;

/// Locked while a folder is created or removed, and until the first file is in it, so that an
/// existing folder is not removed under its user.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    /// Synced in their parents by this process. A folder that was only found may have been made
    /// just before a crash, or by a client that shares the directory.
    durable: Mutex<FxHashSet<PathBuf>>,
}

impl BlobDirectory {
    /// Puts something into the folder of an object, which is made if need be, and is durable.
    pub(crate) fn with_folder<T>(
        &self,
        oid: Oid,
        put: impl FnOnce() -> Result<T, BlobError>,
    ) -> Result<T, BlobError> {
        let mut durable = self.folders.durable.lock();
        let folder = self.layout().folder_of(oid);
        // A program that cleans up beside the server may have removed folders that were empty.
        let leaf = self.path().join(&folder);
        let found = self.disk.kind(&leaf);
        if found.map_err(|error| BlobError::io(&leaf, "look at", error))?.is_none() {
            durable.clear();
        }
        let mut path = self.path().to_owned();
        for part in folder.components() {
            path.push(part);
            if durable.contains(&path) {
                continue;
            }
            let made = self.disk.create_folder(&path);
            made.and_then(|_| self.disk.sync_folder_of(&path))
                .map_err(|error| BlobError::writing(&path, "create", 0, error))?;
            if durable.len() >= KNOWN_MAX {
                durable.clear();
            }
            durable.insert(path.clone());
        }
        put()
    }

    /// Removes a folder of blobs and those above it, as far as they are empty.
    pub(crate) fn remove_empty_folders(&self, folder: &Path) -> io::Result<()> {
        let mut durable = self.folders.durable.lock();
        let inside = |folder: &&Path| *folder != self.path() && folder.starts_with(self.path());
        for folder in folder.ancestors().take_while(inside) {
            durable.remove(folder);
            match self.disk.remove_folder(folder) {
                Ok(true) => {}
                // A link to a folder stays, with what is in it.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => break,
                kept => return kept.map(drop),
            }
        }
        Ok(())
    }
}
