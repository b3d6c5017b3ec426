//! Appends transactions to the log, many at once with one sync, and reserves their space before.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use zodium_disk::SpaceWatch;
use zodium_storage::{Access, WriteState};
use zodium_types::{Distribution, Durations, Tid};

use super::append_state::{AppendState, WriteFailure};
use super::appended::Appended;
use super::back_pointers::BackPointers;
use super::batch_writer::BatchWriter;
use super::prepared::{PreparedTransaction, Reservation};
use crate::FileStorageError;
use crate::checksums::{Batch, SessionName};
use crate::format::DataFile;
use crate::read::Reader;

/// Space is reserved ahead in steps of an eighth of the file, within these bounds.
const RESERVE_BYTES_MIN: u64 = 1 << 20;
const RESERVE_BYTES_MAX: u64 = 64 << 20;

/// The writing end of the log. Any thread may reserve space, and one appends.
pub(crate) struct Appender {
    pub(super) file: Arc<DataFile>,
    quota_bytes: Option<u64>,
    pub(super) state: Mutex<AppendState>,
    /// Used with the `state` mutex: signals that reservations of space are allowed again.
    pub(super) reserving_resumed: Condvar,
    /// Whether the data file's disk has space for commits.
    space: Arc<SpaceWatch>,
    /// Whether the quota leaves space for commits.
    quota: SpaceWatch,
    /// Durations of syncs. Written by the appending thread.
    syncs: Durations,
    /// Held while a batch is written and published, and while a pack replaces the file. Taken
    /// before all other locks.
    appending: Mutex<()>,
    /// Voted and unfinished transactions whose records point back to other records.
    pub(crate) back_pointers: Arc<BackPointers>,
}

impl Appender {
    pub(crate) fn new(
        file: Arc<DataFile>,
        quota_bytes: Option<u64>,
        state: AppendState,
    ) -> Appender {
        Appender {
            file,
            quota_bytes,
            state: Mutex::new(state),
            reserving_resumed: Condvar::new(),
            space: Arc::default(),
            quota: SpaceWatch::default(),
            syncs: Durations::default(),
            appending: Mutex::default(),
            back_pointers: Arc::default(),
        }
    }

    /// Keeps other threads from appending, publishing, and replacing the file.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.appending.lock()
    }

    /// Whether that lock is held: another commit would wait.
    pub(crate) fn is_locked(&self) -> bool {
        self.appending.is_locked()
    }

    /// The latest tid that readers see; [`Tid::ZERO`] when there is none.
    pub(crate) fn last_tid(&self) -> Tid {
        self.state.lock().last_tid
    }

    /// Notes that readers see a transaction. Earlier, some would see a part of it by its tid.
    pub(crate) fn note_published(&self, tid: Tid) {
        let mut state = self.state.lock();
        state.last_tid = state.last_tid.max(tid);
    }

    /// Distribution of the durations of syncs, one for each batch of commits.
    pub(crate) fn sync_durations(&self) -> Distribution {
        self.syncs.distribution()
    }

    /// The watch over the space of the disk, where spools are too.
    pub(crate) fn space(&self) -> &Arc<SpaceWatch> {
        &self.space
    }

    /// Whether a write has failed, and the file was not reopened since.
    pub(crate) fn is_failed(&self) -> bool {
        self.state.lock().is_failed()
    }

    /// Whether commits are accepted, and if not, why.
    pub(crate) fn write_state(&self) -> WriteState {
        let state = self.state.lock();
        match state.failure {
            _ if self.file.read_only => WriteState::ReadOnly,
            Some(WriteFailure::Changed) => WriteState::Changed,
            Some(_) => WriteState::Failed,
            None => match state.full_since {
                Some(since) => WriteState::Full { ago: since.elapsed() },
                None => WriteState::Writable,
            },
        }
    }

    /// Reserves space for `bytes` more, so that a full disk refuses a vote and never a finish.
    /// `None`: the file system has to be asked, but access is non-blocking.
    pub(super) fn reserve(
        &self,
        reader: &Reader,
        bytes: u64,
        access: Access,
    ) -> Result<Option<Reservation>, FileStorageError> {
        let mut state = self.state.lock();
        while state.suspended {
            if access == Access::NonBlocking {
                return Ok(None);
            }
            self.reserving_resumed.wait(&mut state);
        }
        self.check_writable(&state)?;
        let wanted = state.end + state.promised + bytes;
        if let Some(quota_bytes) = self.quota_bytes.filter(|quota| wanted > *quota) {
            state.full_since = Some(Instant::now());
            let path = self.file.path.clone();
            return self.quota.noting(Err(FileStorageError::Quota { path, bytes, quota_bytes }));
        }
        let mut is_ample = false;
        if wanted > state.reserved_end {
            if access == Access::NonBlocking {
                return Ok(None);
            }
            // Ask the device without the lock: votes take that lock on worker threads.
            let (start, ahead) = (state.reserved_end, bytes_ahead(state.end));
            state.suspended = true;
            drop(state);
            let file = Arc::clone(&reader.log().file);
            let reserve = |end: u64| file.reserve(start, end).map(|()| end);
            let reserved = reserve(wanted + ahead).or_else(|_| reserve(wanted));
            state = self.state.lock();
            state.suspended = false;
            self.reserving_resumed.notify_all();
            state.full_since = reserved.is_err().then(Instant::now);
            let reserved = reserved.map_err(|error| reserve_error(&self.file.path, error, bytes));
            state.reserved_end = self.space.noting(reserved)?;
            is_ample = state.reserved_end > wanted;
        }
        state.full_since = None;
        state.promised += bytes;
        drop(state);
        self.space.note_granted(&self.file.path, bytes, is_ample);
        if let Some(quota_bytes) = self.quota_bytes {
            self.quota.note_granted(&self.file.path, quota_bytes - (wanted - bytes), false);
        }
        Ok(Some(Reservation { bytes }))
    }

    /// Releases the space of a transaction that will not be written.
    pub(crate) fn release(&self, prepared: PreparedTransaction) {
        let mut state = self.state.lock();
        state.promised = state.promised.saturating_sub(prepared.bytes());
    }

    /// Writes transactions one after the other and syncs once. They are durable when this returns.
    /// [`Appended::publish`] then makes them visible. One caller at a time; no two of the
    /// transactions may write the same object.
    ///
    /// After an error none of the transactions is committed. Every later call fails until the file
    /// is [reopened](Appender::reopen): the storage cannot know what a failed write or sync left on
    /// the device.
    pub(crate) fn append(
        &self,
        reader: &Reader,
        session: &SessionName,
        batch: Vec<(Tid, PreparedTransaction)>,
    ) -> Result<Vec<Appended>, FileStorageError> {
        let mut state = self.state.lock();
        // Used up in any case: a transaction that is not written releases its space.
        let promised: u64 = batch.iter().map(|(_, prepared)| prepared.bytes()).sum();
        if let Err(refused) = self.check_writable(&state) {
            state.promised = state.promised.saturating_sub(promised);
            return Err(refused);
        }
        let (start, identity) = (state.end, state.identity);
        let buffer = std::mem::take(&mut state.buffer);
        // The lock guards the numbers: votes go on while this thread waits for the device.
        drop(state);

        let log = reader.log();
        let announce = |batch: &Batch| {
            log.checksums.as_ref().map_or(Ok(true), |checksums| session.announce(checksums, batch))
        };
        let mut writer = BatchWriter::new(&log, start, buffer, &self.syncs, &announce);
        let checked = self.check_file(identity, start..=start);
        let is_begun = checked.is_ok();
        let rehearsed = checked.and_then(|()| writer.rehearse(&batch));
        let written = rehearsed.and_then(|()| writer.write_all(&batch));
        // Check again: bytes in a file that has lost its name must not be acknowledged.
        let written = written.and_then(|written| {
            self.check_file(identity, writer.position..=writer.position).map(|()| written)
        });
        let (end, crc32c) = (writer.position, writer.crc32c);
        if let (Ok(_), Some(checksums), Some(sums)) = (&written, &log.checksums, &writer.sums) {
            // Not before the sync: an entry states that its bytes are durable.
            checksums.writing().append(start, end, sums);
            session.settle_announcement(checksums, writer.is_unannounced);
        }
        let mut buffer = writer.buffer;
        buffer.clear();

        let mut state = self.state.lock();
        state.buffer = buffer;
        // Together with the end: reserved space becomes used space.
        state.promised = state.promised.saturating_sub(promised);
        match written {
            Ok(written) => {
                assert!(end >= start, "the log only grows");
                state.recent.note(start..end, crc32c);
                (state.end, state.refused_end) = (end, end);
                let appended = batch.into_iter().zip(written);
                Ok(appended.map(|((tid, new), at)| Appended::new(tid, new, at)).collect())
            }
            Err(error) => {
                let refused_end = is_begun.then_some(start + promised);
                state.fail(&error, refused_end);
                Err(error)
            }
        }
    }

    /// Releases the space that the file system has reserved behind the end.
    pub(crate) fn release_reserved(&self, reader: &Reader) -> Result<(), FileStorageError> {
        let mut state = self.state.lock();
        if state.reserved_end > state.end && state.failure.is_none() {
            // Cutting the file at its present length frees the space reserved behind it.
            let cut = reader.log().file.set_length(state.end);
            cut.map_err(|error| FileStorageError::io(&self.file.path, "cut", error))?;
            state.reserved_end = state.end;
        }
        Ok(())
    }

    pub(super) fn check_writable(&self, state: &AppendState) -> Result<(), FileStorageError> {
        self.file.check_writable()?;
        match state.is_failed() {
            true => Err(FileStorageError::Failed { path: self.file.path.clone() }),
            false => Ok(()),
        }
    }
}

pub(crate) fn bytes_ahead(end: u64) -> u64 {
    (end / 8).clamp(RESERVE_BYTES_MIN, RESERVE_BYTES_MAX)
}

pub(crate) fn reserve_error(path: &Path, error: std::io::Error, bytes: u64) -> FileStorageError {
    FileStorageError::writing(path, "reserve space", bytes, error)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn an_eighth_of_the_file_is_reserved_ahead_within_bounds() {
        let mib = 1 << 20;
        for (end, ahead) in [
            (0, mib),
            (8 * mib, mib),
            (8 * mib + 8, mib + 1),
            (80 * mib, 10 * mib),
            (512 * mib - 8, 64 * mib - 1),
            (512 * mib, 64 * mib),
            (u64::MAX, 64 * mib),
        ] {
            assert_eq!(bytes_ahead(end), ahead, "{end}");
        }
    }
}
