//! After a failed write: commits are refused, and the storage is reopened for them when it can be.
//!
//! The log writer does it itself, between two batches, so that nothing is appended meanwhile. It
//! tries at growing intervals, since what is wrong with a disk is often mended while the server
//! runs: a full quota, a lost path to a storage network. What the file holds that was not
//! acknowledged is cut ([`Write::reopen`](zodium_storage::Write::reopen)).

use std::time::Duration;

use tracing::{error, info, warn};
use zodium_storage::{StorageError, WriteState};

use crate::Storage;

/// When a storage is reopened by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reopening {
    /// How long after the failure it is tried for the first time.
    pub first: Duration,
    /// Each further time comes twice as long after the one before, but no longer than this.
    pub longest: Duration,
}

impl Default for Reopening {
    fn default() -> Reopening {
        Reopening { first: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

/// Why commits are refused, and what is done about it.
#[derive(Clone, Debug)]
pub struct WriteFailure {
    /// What failed last: the write, or the last try to reopen.
    pub reason: String,
    /// How often reopening was tried.
    pub attempts: u32,
    /// When it is tried next (monotonic); `None`: when somebody asks.
    pub next_attempt: Option<Duration>,
    /// When the write failed (monotonic).
    pub since: Duration,
    pause: Duration,
}

impl Storage {
    /// Why commits are refused; `None` when they are not.
    pub fn write_failure(&self) -> Option<WriteFailure> {
        self.failure.lock().clone()
    }

    /// Has the storage reopened now, if a write has failed. Returns whether one has.
    pub fn ask_to_reopen(&self) -> bool {
        let mut failure = self.failure.lock();
        let Some(failure) = &mut *failure else { return false };
        failure.next_attempt = Some(self.clock.monotonic());
        self.commits.wake();
        true
    }

    /// Notes that a write failed, unless that is known already.
    pub(crate) fn note_write_failure(&self, error: &StorageError) {
        let mut failure = self.failure.lock();
        if failure.is_some() {
            return;
        }
        let now = self.clock.monotonic();
        let pause = self.reopening.map_or(Duration::ZERO, |reopening| reopening.first);
        self.figures.write_failures.add(1);
        *failure = Some(WriteFailure {
            reason: error.to_string(),
            attempts: 0,
            next_attempt: self.reopening.map(|_| now + pause),
            since: now,
            pause,
        });
        drop(failure);
        self.commits.wake();
        match self.reopening {
            // Once; what to do about it is in the error.
            _ if is_change(error) => error!(%error, "commits are refused from now on, reads go on"),
            Some(_) => error!(%error, "commits are refused from now on, reads go on; the file \
                will be reopened in {} s", pause.as_secs_f64()),
            None => error!(%error, "commits are refused from now on, reads go on. Find out what \
                is wrong with the disk, then have the file reopened, or restart the server"),
        }
    }

    /// How long until reopening is tried; `None` when it will not be.
    pub(crate) fn time_to_reopening(&self) -> Option<Duration> {
        let due = self.failure.lock().as_ref()?.next_attempt?;
        Some(due.saturating_sub(self.clock.monotonic()))
    }

    /// Tries to take commits again, when it is time. On the log writer's thread.
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
        // Their transactions were refused, and nothing of them is in the log any more.
        self.undecided.lock().clear();
        self.commits.machine().reopened();
        self.figures.reopenings.add(1);
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
        // What is not there any more does not come back by waiting.
        let is_lost = matches!(error, StorageError::Corrupt { .. } | StorageError::Failed { .. });
        failure.next_attempt = match self.reopening {
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

    /// Whether the file refuses appends though the machine does not know: a pack failed late.
    pub(crate) fn note_pack_failure(&self, error: &StorageError) {
        if matches!(self.store.write_state(), WriteState::Failed | WriteState::Changed) {
            self.note_write_failure(error);
        }
    }
}

/// Whether another program changed the file. Only that program, or the operator, can mend it.
fn is_change(error: &StorageError) -> bool {
    matches!(error, StorageError::Changed { .. })
}
