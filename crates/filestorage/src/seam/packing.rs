//! Runs a pack in one call, while commits and loads go on.
//!
//! Reading and copying take no lock. Only the last step moves the records. It first waits until no
//! voted transaction has back pointers. Then it blocks commits while it copies the last
//! transactions and renames a file.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tracing::{info, warn};
use zodium_storage::{Pack, PackOptions, PackStep, Packed, StorageError};
use zodium_types::Tid;

use crate::{FileStorage, FileStorageError};

/// Attempts at a pack, when garbage objects come into use during it.
const ATTEMPTS: usize = 3;
/// How often a waiting pack checks whether it was cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval between log lines about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

impl Pack for FileStorage {
    fn pack(&self, until: Tid, options: &PackOptions<'_>) -> Result<Option<Packed>, StorageError> {
        let mut attempt = 1;
        loop {
            match self.try_pack(until, options) {
                Err(error @ FileStorageError::PackOvertaken { .. }) if attempt < ATTEMPTS => {
                    info!(file = %self.path().display(), %error, "packing anew");
                    attempt += 1;
                }
                result => return Ok(result?),
            }
        }
    }
}

impl FileStorage {
    fn try_pack(
        &self,
        until: Tid,
        options: &PackOptions<'_>,
    ) -> Result<Option<Packed>, FileStorageError> {
        let (started, file) = (Instant::now(), self.path().display());
        info!(%file, %until, gc = options.gc, "packing");
        let logged = Cell::new(started);
        let progress = |step, done, total| {
            (options.progress)(step, done, total);
            if logged.get().elapsed() >= PROGRESS_INTERVAL {
                logged.set(Instant::now());
                log_progress(step, done, total);
            }
        };
        let options = PackOptions { progress: &progress, ..*options };
        // It is dropped last, so that no commit waits while its files are closed.
        let Some(mut pack) = self.packer().begin(until, &options)? else {
            info!(%file, "packing would free nothing");
            return Ok(None);
        };
        let (packed, stall) = self.end_pack(&mut pack, &options)?;
        (options.packed)(&packed);
        info!(
            %file,
            bytes = packed.size_after,
            bytes_before = packed.size_before,
            objects = packed.objects_after,
            objects_before = packed.objects_before,
            dangling_references = packed.dangling,
            seconds = started.elapsed().as_secs_f64(),
            commits_waited_ms = stall.as_secs_f64() * 1e3,
            "packed"
        );
        // Commits go on without an index. Without one, the next opening merely has to scan the
        // file.
        if let Err(error) = self.save_index() {
            warn!(%file, %error, "the index of the packed file could not be saved");
        }
        if let Err(error) = self.packer().remove_blobs(&pack, options.cancelled) {
            warn!(%file, %error,
                "not all blobs of dropped revisions could be removed or kept in .old; the next \
                 start tries it again");
        }
        Ok(Some(packed))
    }

    /// Runs the last step; also returns how long it blocked commits.
    fn end_pack(
        &self,
        pack: &mut crate::Pack,
        options: &PackOptions<'_>,
    ) -> Result<(Packed, Duration), FileStorageError> {
        let closed = self.appender.back_pointers.close();
        loop {
            let transactions = closed.wait(CANCEL_INTERVAL);
            if options.cancelled.load(Ordering::Relaxed) {
                return Err(FileStorageError::PackCancelled { path: self.path().to_owned() });
            }
            if transactions == 0 {
                break;
            }
            (options.progress)(PackStep::Waiting, 0, transactions);
        }
        // Ordinary commits went on during that wait.
        self.packer().catch_up(pack)?;
        let appending = self.appender.lock();
        let started = Instant::now();
        let packed = self.packer().finish(pack);
        let stall = started.elapsed();
        drop(appending);
        Ok((packed?, stall))
    }
}

fn log_progress(step: PackStep, done: u64, total: u64) {
    match step {
        PackStep::Checking => info!(bytes = done, total, "pack: looking for damage"),
        PackStep::Marking => info!(objects = done, total, "pack: finding what is in use"),
        PackStep::Copying => info!(bytes = done, total, "pack: copying"),
        PackStep::Waiting => info!(transactions = total, "pack: waiting for undos and restores"),
    }
}
