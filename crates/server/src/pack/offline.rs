//! Packs a file that no server has open.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use zodium_configuration::LogOptions;
use zodium_disk::RealDisk;
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError, OpenOptions};
use zodium_storage::{PackOptions, PackStep};
use zodium_types::Tid;

use super::{How, OfFile, Outcome};
use crate::logging;
use crate::progress::Progress;

/// Returns `None` if there was nothing to free.
pub(super) fn pack(path: &Path, to: Timestamp, how: &How) -> Result<Option<Outcome>> {
    logging::start(&LogOptions::default())?;
    if let Some(folder) = how.blob_dir.as_deref().filter(|folder| !folder.is_dir()) {
        bail!("{}: there is no such blob directory", folder.display());
    }
    let file = open(path, how).map_err(explain)?;
    let (checking, marking, copying) = (
        Progress::new("looking for damage".to_owned()),
        Progress::of_objects("finding what is in use".to_owned()),
        Progress::new("copying".to_owned()),
    );
    let options = PackOptions {
        gc: !how.no_gc,
        keep_old: !how.no_keep_old,
        abort_on_dangling: how.abort_on_dangling,
        progress: &|step, done, total| match step {
            PackStep::Checking => checking.report(done, total),
            PackStep::Marking => marking.report(done, total),
            PackStep::Copying => copying.report(done, total),
            // Nothing else writes to a file that is packed offline.
            PackStep::Waiting => {}
        },
        packed: &|_| (),
        cancelled: &Arc::default(),
    };
    let pack_tid = tid_at(to);
    let packer = file.packer();
    let begun = match how.drop_damaged {
        true => packer.begin_without_damaged(pack_tid, &options),
        false => packer.begin(pack_tid, &options),
    };
    let Some(mut pack) = begun? else { return Ok(None) };
    let packed = packer.finish(&mut pack)?;
    let blobs = packer
        .remove_blobs(&pack, options.cancelled)
        .context("packed, but not all blobs of dropped revisions could be removed");
    let closed = file.close();
    let closed =
        closed.context("packed, but the index could not be saved (the next start builds it again)");
    Ok(Some(Outcome {
        bytes_before: packed.size_before,
        bytes_after: packed.size_after,
        objects_before: packed.objects_before,
        objects_after: packed.objects_after,
        of_file: Some(OfFile {
            dangling: packed.dangling,
            dropped: pack.dropped().cloned().collect(),
            objects_dropped: packed.objects_dropped,
            garbage_kept: packed.garbage_kept,
            ending: blobs.and(closed),
        }),
    }))
}

/// The tid of a time. One before 1970 or after 2554 is taken for the nearest of these.
fn tid_at(time: Timestamp) -> Tid {
    let nanos = time.as_nanosecond().clamp(0, i128::from(u64::MAX));
    Tid::from_unix_nanos(nanos as u64)
}

fn open(path: &Path, how: &How) -> Result<FileStorage, FileStorageError> {
    let progress = Progress::new(format!("building the index of {}", path.display()));
    FileStorage::open(
        Arc::new(RealDisk),
        &OpenOptions {
            create: false,
            // Every record is read once.
            cache_bytes: 0,
            checksums: ChecksumMode::Full,
            blob_directory: how.blob_dir.clone(),
            progress: &|done, total| progress.report(done, total),
            ..OpenOptions::new(path)
        },
    )
}

fn explain(error: FileStorageError) -> anyhow::Error {
    let is_served = matches!(error, FileStorageError::Locked { .. });
    let error = anyhow::Error::from(error);
    match is_served {
        true => error.context(
            "this file is being served: give the server's address instead, as in \
             `zodium pack HOST:PORT`",
        ),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_tid_is_the_nearest_one() {
        let years = ["-002000", "1969", "2026", "2553", "2555", "9999"];
        let tids = years.map(|year| tid_at(format!("{year}-06-01T00:00Z").parse().unwrap()));
        assert!(tids.is_sorted(), "{tids:?}");
        assert!(tids[3] > tids[2] && tids[4] > tids[3] && tids[5] == tids[4], "{tids:?}");
    }
}
