//! Packing the file while it is served.
//!
//! Reading and copying take no lock. Only the last step, which moves the records, waits until no
//! transaction between vote and finish knows positions of records, and then holds the log writer
//! for as long as it takes to copy what little is left and to rename a file.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use thiserror::Error;
use tracing::{info, warn};
use zodium_filestorage::{Pack, PackOptions, PackStep, Packed, StorageError};
use zodium_types::Tid;

use crate::commit::{CommitError, LockAnswer, LockKey, LockMode, LockSet, TransactionNumber};
use crate::{Mailbox, Notice, Storage};

/// How often a pack begins anew when objects that were garbage have come into use during it.
const ATTEMPTS: usize = 3;
/// How often a pack that waits for its lock looks whether it was cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);
/// Between two log lines about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Why a pack failed. The file is as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PackError {
    /// No lock is given any more, because an earlier write failed.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The file refused it, or could not be packed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Storage {
    /// Drops the revisions that nobody sees at `pack_tid` and later, and, as configured, the
    /// objects that cannot be reached from the root. `None`: there was nothing to free.
    ///
    /// Blocking, for as long as it takes to read and write the file. When it ends,
    /// [`Notice::Packed`] has been posted to all mailboxes.
    pub fn pack(&self, pack_tid: Tid) -> Result<Option<Packed>, PackError> {
        let Some(_packing) = self.packing.try_lock() else {
            return Err(StorageError::AlreadyPacking { path: self.file.path().to_owned() }.into());
        };
        self.note_pack();
        let packed = self.pack_in_attempts(pack_tid);
        self.note_pack_end(&packed);
        packed
    }

    fn pack_in_attempts(&self, pack_tid: Tid) -> Result<Option<Packed>, PackError> {
        let mut attempt = 1;
        loop {
            match self.try_pack(pack_tid) {
                Err(PackError::Storage(error @ StorageError::PackOvertaken { .. }))
                    if attempt < ATTEMPTS =>
                {
                    info!(file = %self.file.path().display(), %error, "packing anew");
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// Gives up a pack that is under way, and any later one: the storage is about to be closed.
    pub fn cancel_pack(&self) {
        self.pack_cancelled.store(true, Ordering::Relaxed);
    }

    fn try_pack(&self, pack_tid: Tid) -> Result<Option<Packed>, PackError> {
        let (started, path) = (Instant::now(), self.file.path().display());
        info!(file = %path, until = %pack_tid, gc = self.pack_gc, "packing");
        let said = Cell::new(started);
        let options = PackOptions {
            gc: self.pack_gc,
            keep_old: self.pack_keep_old,
            abort_on_dangling: self.pack_abort_on_dangling,
            progress: &|step, done, total| {
                self.note_pack_progress(step, done, total);
                if said.get().elapsed() >= PROGRESS_INTERVAL {
                    said.set(Instant::now());
                    log_progress(step, done, total);
                }
            },
            cancelled: &self.pack_cancelled,
        };
        let Some(pack) = self.file.begin_pack(pack_tid, &options)? else {
            info!(file = %path, "packing would free nothing");
            return Ok(None);
        };
        let (packed, stall) = self.finish_pack(pack)?;
        self.post_to_all(&Notice::Packed);
        info!(
            file = %path,
            bytes = packed.size_after,
            bytes_before = packed.size_before,
            objects = packed.objects_after,
            objects_before = packed.objects_before,
            dangling_references = packed.dangling,
            seconds = started.elapsed().as_secs_f64(),
            commits_waited_ms = stall.as_secs_f64() * 1e3,
            "packed"
        );
        // Commits go on; without an index the file would only be scanned when opened.
        if let Err(error) = self.file.save_index() {
            warn!(file = %path, %error, "the index of the packed file could not be saved");
        }
        Ok(Some(packed))
    }

    /// The last step, and how long commits waited for it.
    fn finish_pack(&self, mut pack: Pack) -> Result<(Packed, Duration), PackError> {
        let hold = self.hold_positions()?;
        // Ordinary commits went on while that waited.
        self.file.catch_up(&mut pack)?;
        let appending = self.appending.lock();
        let started = Instant::now();
        let packed = self.file.finish_pack(&mut pack);
        let stall = started.elapsed();
        if let Err(error) = &packed {
            self.note_pack_failure(error);
        }
        drop(appending);
        drop(hold);
        if packed.is_ok()
            && let Err(error) = self.file.remove_packed_blobs(&pack)
        {
            warn!(file = %self.file.path().display(), %error,
                "not all blobs of dropped revisions could be removed; the next start will");
        }
        // The pack itself goes last: nobody should wait for its files to be let go.
        Ok((packed?, stall))
    }

    /// Waits until no transaction between vote and finish knows positions of records, and keeps
    /// it that way.
    fn hold_positions(&self) -> Result<Hold<'_>, PackError> {
        let number = self.next_number();
        let gate = Arc::new(Gate::default());
        let owner: Arc<dyn Mailbox> = Arc::clone(&gate) as _;
        let locks = LockSet::from_iter([(LockKey::Positions, LockMode::Exclusive)]);
        let answer = self.commits.hold(number, locks, owner, self.clock.monotonic())?;
        let hold = Hold { storage: self, number };
        let mut is_granted = answer == LockAnswer::Granted;
        while !is_granted {
            if self.pack_cancelled.load(Ordering::Relaxed) {
                let path = self.file.path().to_owned();
                return Err(StorageError::PackCancelled { path }.into());
            }
            is_granted = gate.wait(CANCEL_INTERVAL);
        }
        Ok(hold)
    }
}

/// The positions of all records, held or asked for.
struct Hold<'a> {
    storage: &'a Storage,
    number: TransactionNumber,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.storage.abort(self.number, None);
    }
}

/// The mailbox of a thread that waits for a lock.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    /// Whether the lock was granted by the end of `timeout`.
    fn wait(&self, timeout: Duration) -> bool {
        let mut is_open = self.is_open.lock();
        if !*is_open {
            self.opened.wait_for(&mut is_open, timeout);
        }
        *is_open
    }
}

impl Mailbox for Gate {
    fn post(&self, notice: Notice) {
        if let Notice::Granted(_) = notice {
            *self.is_open.lock() = true;
            self.opened.notify_all();
        }
    }
}

fn log_progress(step: PackStep, done: u64, total: u64) {
    match step {
        PackStep::Checking => info!(bytes = done, total, "pack: looking for damage"),
        PackStep::Marking => info!(objects = done, total, "pack: finding what is in use"),
        PackStep::Copying => info!(bytes = done, total, "pack: copying"),
    }
}
