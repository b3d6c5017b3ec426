//! Whether there is room for a transaction: on the disk, and within the quota.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::SqlError;
use crate::place::Place;

/// A transaction is in the log, and later in the database file too.
const COPIES: u64 = 2;
/// Room that a commit leaves for pages that it splits.
const RESERVE_BYTES: u64 = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) quota_bytes: Option<u64>,
    refused: Mutex<Option<Instant>>,
    /// Bytes of the transactions that are prepared, and not written yet.
    prepared: Arc<AtomicU64>,
}

/// Room for a prepared transaction, until it is written or given up.
#[derive(Debug)]
pub(super) struct Reserved {
    prepared: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.prepared.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Room {
    pub(super) fn new(quota_bytes: Option<u64>) -> Room {
        Room { quota_bytes, ..Room::default() }
    }

    /// Reserves room for a transaction of `bytes`, beside those that are prepared.
    pub(super) fn reserve(
        &self,
        place: &Place,
        size: u64,
        bytes: u64,
    ) -> Result<Reserved, SqlError> {
        let all = self.prepared.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        let reserved = Reserved { prepared: Arc::clone(&self.prepared), bytes };
        self.check(place, size, (bytes, all)).map(|()| reserved)
    }

    /// Refuses a transaction of `bytes` if there is no room for `all` that are prepared with it.
    fn check(&self, place: &Place, size: u64, (bytes, all): (u64, u64)) -> Result<(), SqlError> {
        if let Some(quota) = self.quota_bytes
            && size.saturating_add(all) > quota
        {
            self.note_refusal();
            return Err(SqlError::Quota { path: place.path().to_owned(), bytes, quota });
        }
        let needed = all.saturating_mul(COPIES).saturating_add(RESERVE_BYTES);
        // A file system that does not tell is asked again by the commit itself, as is a server.
        let Some(path) = place.file() else { return Ok(()) };
        let is_full = rustix::fs::statvfs(path)
            .is_ok_and(|status| status.f_bavail.saturating_mul(status.f_frsize) < needed);
        if is_full {
            self.note_refusal();
            return Err(SqlError::Full { path: path.to_owned(), bytes });
        }
        Ok(())
    }

    /// Notes that there was no room.
    pub(super) fn note_refusal(&self) {
        *self.refused.lock() = Some(Instant::now());
    }

    /// Notes a commit: there is room again.
    pub(super) fn note_granted(&self) {
        *self.refused.lock() = None;
    }

    /// How long ago a transaction was refused, if none was committed since.
    pub(super) fn refused_ago(&self) -> Option<Duration> {
        self.refused.lock().map(|refused| refused.elapsed())
    }
}
