//! Which blobs a directory holds, and whether objects that are blobs have their files there.

use std::path::PathBuf;

use zodium_disk::EntryKind;
use zodium_types::{Oid, Tid};

use super::{BlobDirectory, TEMPORARY_FOLDER, is_blob_record, layout};
use crate::log::LogFile;
use crate::log_bytes::{Access, Body};
use crate::{FileStorage, StorageError};

/// What a look at some of a storage's current records has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobSample {
    /// Objects that are blobs.
    pub blobs: u64,
    /// Those of them that have no file in the blob directory, or that have none because there is
    /// no directory.
    pub missing: u64,
    /// The file of the first of these, where there is a directory.
    pub first_missing: Option<PathBuf>,
}

impl BlobDirectory {
    /// Calls `found` with every committed blob in the directory. Files elsewhere than where blobs
    /// are looked for are passed over. Blocking.
    pub(crate) fn each_committed(
        &self,
        found: &mut dyn FnMut(Oid, Tid),
    ) -> Result<(), StorageError> {
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
    ) -> Result<(), StorageError> {
        let folder: PathBuf = names.iter().collect();
        let oid = self.layout.oid_of_folder(&folder);
        let entries = match self.list(&self.path.join(&folder)) {
            Err(StorageError::Io { source, .. })
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
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

impl FileStorage {
    /// Looks at up to `count` current records, spread evenly over all objects, and whether those
    /// that are blobs have their files. Blocking: one read of the data file for each record.
    ///
    /// Records that cannot be read say nothing here: loads of them are errors.
    pub fn sample_blobs(&self, count: usize) -> BlobSample {
        let log = self.log();
        let mut chosen = spread(&log, count);
        // In the order of the file: a disk that has to seek does so one way.
        chosen.sort_unstable_by_key(|(_, position)| *position);
        let mut sample = BlobSample::default();
        for (oid, position) in chosen {
            let Some(tid) = blob_at(&log, oid, position) else { continue };
            sample.blobs += 1;
            let Some(directory) = self.blobs() else {
                sample.missing += 1;
                continue;
            };
            if matches!(directory.has(oid, tid), Ok(false)) {
                sample.missing += 1;
                sample.first_missing.get_or_insert_with(|| directory.path_of(oid, tid));
            }
        }
        sample
    }
}

/// Up to `count` objects, with the positions of their current records.
fn spread(log: &LogFile, count: usize) -> Vec<(Oid, u64)> {
    let objects = usize::try_from(log.positions.len()).unwrap_or(usize::MAX);
    let step = objects.div_ceil(count.max(1)).max(1);
    log.positions.iter().step_by(step).collect()
}

/// The transaction of the record at a position, if it is a blob's.
fn blob_at(log: &LogFile, oid: Oid, position: u64) -> Option<Tid> {
    let stored = log.read_stored(position, oid, Access::Blocking).ok().flatten()?;
    let data = match stored.body {
        Body::Data(data) => data,
        Body::Back(back) => log.data_at(back, oid).ok().flatten()?,
    };
    is_blob_record(&data).then_some(stored.header.tid)
}
