//! Reopens a storage that refuses commits after a failed write.
//!
//! The log writer reopens it between two batches, so that nothing is appended meanwhile. It tries
//! at growing intervals, since many disk faults are repaired while the server runs: a full quota, a
//! lost path to a storage network. Unacknowledged data in the file are cut
//! ([`Write::reopen`](zodium_storage::Write::reopen)).

use std::time::Duration;

use tracing::{error, info, warn};
use zodium_storage::{StorageError, WriteState};

use crate::Database;

/// When a storage reopens its file by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reopening {
    /// Delay from the failure to the first attempt.
    pub first: Duration,
    /// Each further delay is twice the one before, but at most this.
    pub longest: Duration,
}

impl Default for Reopening {
    fn default() -> Reopening {
        Reopening { first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

/// Why commits are refused, and when reopening is tried.
#[derive(Clone, Debug)]
pub struct WriteFailure {
    /// The last failure: of the write, or of the last attempt to reopen.
    pub reason: String,
    /// Number of attempts to reopen.
    pub attempts: u32,
    /// When the next attempt is due (monotonic); `None`: only when the operator asks.
    pub next_attempt: Option<Duration>,
    /// When the write failed (monotonic).
    pub since: Duration,
    pause: Duration,
}

impl Database {
    /// Why commits are refused; `None` when they are accepted.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        self.failure.lock().clone()
    }

    /// Requests an immediate attempt to reopen, if a write has failed. Returns whether one has.
    pub fn ask_to_reopen(&self) -> bool {
        let mut failure = self.failure.lock();
        let Some(failure) = &mut *failure else { return false };
        failure.next_attempt = Some(self.clock.monotonic());
        self.commits.wake();
        true
    }

    /// Records that a write failed, unless a failure is already recorded.
    pub(crate) fn note_write_failure(&self, error: &StorageError) {
        let mut failure = self.failure.lock();
        if failure.is_some() {
            return;
        }
        let now = self.clock.monotonic();
        let pause = self.config.reopening.map_or(Duration::ZERO, |reopening| reopening.first);
        self.metrics.write_failures.add(1);
        *failure = Some(WriteFailure {
            reason: error.to_string(),
            attempts: 0,
            next_attempt: self.config.reopening.map(|_| now + pause),
            since: now,
            pause,
        });
        drop(failure);
        self.commits.wake();
        match self.config.reopening {
            // Logged once; the error itself says what to do.
            _ if is_change(error) => error!(%error, "commits are refused from now on, reads go on"),
            Some(_) => error!(%error, "commits are refused from now on, reads go on; the file \
                will be reopened in {} s", pause.as_secs_f64()),
            None => error!(%error, "commits are refused from now on, reads go on. Find out what \
                is wrong with the disk, then have the file reopened, or restart the server"),
        }
    }

    /// Time until the next attempt to reopen; `None` when there will be none.
    pub(crate) fn time_to_reopening(&self) -> Option<Duration> {
        let due = self.failure.lock().as_ref()?.next_attempt?;
        Some(due.saturating_sub(self.clock.monotonic()))
    }

    /// Reopens the storage, if an attempt is due. Runs on the log writer's thread.
    pub(crate) fn reopen_if_due(&self) {
        if self.time_to_reopening() != Some(Duration::ZERO) {
            return;
        }
        match self.store.reopen() {
            Ok(()) => self.reopened(),
            Err(error) => self.not_reopened(&error),
        }
    }

    fn reopened(&self) {
        let Some(failure) = self.failure.lock().take() else { return };
        // The transactions of these blobs were refused, and the log holds nothing of them any more.
        self.undecided.lock().clear();
        self.commits.machine().reopened();
        self.metrics.reopenings.add(1);
        let seconds = self.clock.monotonic().saturating_sub(failure.since).as_secs_f64();
        info!(file = %self.store.name(), seconds, attempts = failure.attempts + 1,
            "reopened the file after a failed write, commits are taken again");
    }

    fn not_reopened(&self, error: &StorageError) {
        let file = self.store.name();
        let mut failure = self.failure.lock();
        let Some(failure) = &mut *failure else { return };
        failure.attempts += 1;
        let is_told = is_change(error) && failure.reason == error.to_string();
        failure.reason = error.to_string();
        // Waiting does not bring back lost data.
        let is_lost = matches!(error, StorageError::Corrupt { .. } | StorageError::Failed { .. });
        failure.next_attempt = match self.config.reopening {
            Some(Reopening { longest, .. }) if !is_lost => {
                failure.pause = (failure.pause * 2).min(longest);
                Some(self.clock.monotonic() + failure.pause)
            }
            _ => None,
        };
        if is_lost {
            error!(%file, %error, "not reopened: commits stay refused. Run `zodium check`, and \
                restore what is missing from a backup, before the server is restarted");
        } else if !is_told {
            warn!(%file, %error, again_in_seconds = failure.pause.as_secs_f64(),
                "not reopened, commits stay refused");
        }
    }

    /// Records a failed pack as a failed write, if the file now refuses appends.
    pub(crate) fn note_pack_failure(&self, error: &StorageError) {
        if matches!(self.store.write_state(), WriteState::Failed | WriteState::Changed) {
            self.note_write_failure(error);
        }
    }
}

/// Whether another program changed the file. Only that program or the operator can repair it.
fn is_change(error: &StorageError) -> bool {
    matches!(error, StorageError::Changed { .. })
}
