//! Checks a sample of blob objects for their files in the blob directory.

use std::path::PathBuf;

use zodium_blobs::{BlobDirectory, is_blob_record};
use zodium_types::{Oid, Tid};

use super::log::LogFile;
use super::log_bytes::Body;
use super::reader::Reader;
use crate::reading::Reading;

/// Result of a look at a sample of a storage's current records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlobSample {
    /// Objects in the sample that are blobs.
    pub blobs: u64,
    /// Blobs without a file in the blob directory; all blobs if there is no directory.
    pub missing: u64,
    /// Path of the first missing blob file, if there is a directory.
    pub first_missing: Option<PathBuf>,
}

impl Reader {
    /// Reads up to `count` current records, spread evenly over all objects, and checks that each
    /// blob among them has its file. Blocking: each record is one read of the data file.
    ///
    /// Unreadable records are skipped here: loads of them return errors.
    pub fn sample_blobs(&self, blobs: Option<&BlobDirectory>, count: usize) -> BlobSample {
        let log = self.log();
        let mut chosen = spread(&log, count);
        // In file order, so that a disk seeks in one direction only.
        chosen.sort_unstable_by_key(|(_, position)| *position);
        let mut sample = BlobSample::default();
        for (oid, position) in chosen {
            let Some(tid) = blob_at(&log, oid, position) else { continue };
            sample.blobs += 1;
            let Some(directory) = blobs else {
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

/// Tid of the record at a position, if the record is a blob's.
fn blob_at(log: &LogFile, oid: Oid, position: u64) -> Option<Tid> {
    let stored = log.read_stored(position, oid, Reading::Blocking).ok().flatten()?;
    let data = match stored.body {
        Body::Data(data) => data,
        Body::Back(back) => log.data_at(back, oid).ok().flatten()?,
    };
    is_blob_record(&data).then_some(stored.header.tid)
}
