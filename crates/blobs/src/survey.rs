//! Lists the blobs of a directory.

use std::path::PathBuf;

use zodium_disk::EntryKind;
use zodium_types::{Oid, Tid};

use crate::layout::{self, TEMPORARY_FOLDER};
use crate::{BlobDirectory, BlobError};

impl BlobDirectory {
    /// Calls `found` with every committed blob in the directory. Files elsewhere than where blobs
    /// are looked for are passed over. Blocking.
    pub fn each_committed(&self, found: &mut dyn FnMut(Oid, Tid)) -> Result<(), BlobError> {
        let mut names = Vec::new();
        for entry in self.list(&self.path)? {
            if entry.kind == EntryKind::Folder && entry.name != TEMPORARY_FOLDER {
                let Ok(name) = entry.name.into_string() else { continue };
                names.push(name);
                self.each_within(&mut names, found)?;
                names.pop();
            }
        }
        Ok(())
    }

    /// The blobs below the folder of these names. Bushy folders are eight deep, so is this.
    fn each_within(
        &self,
        names: &mut Vec<String>,
        found: &mut dyn FnMut(Oid, Tid),
    ) -> Result<(), BlobError> {
        let folder: PathBuf = names.iter().collect();
        let oid = self.layout.oid_of_folder(&folder);
        let entries = match self.list(&self.path.join(&folder)) {
            Err(BlobError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(()); // Removed meanwhile.
            }
            entries => entries?,
        };
        for entry in entries {
            let Ok(name) = entry.name.into_string() else { continue };
            match (entry.kind, oid) {
                (EntryKind::File, Some(oid)) => {
                    if let Some(tid) = layout::tid_of_name(&name) {
                        found(oid, tid);
                    }
                }
                (EntryKind::Folder, None) if names.len() < size_of::<Oid>() => {
                    names.push(name);
                    self.each_within(names, found)?;
                    names.pop();
                }
                _ => {}
            }
        }
        Ok(())
    }
}
