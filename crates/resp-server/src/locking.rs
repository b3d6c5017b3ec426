//! Locking the stripes of a command's keys.

use std::time::{Duration, Instant};

use zodium_keyspace::{Hold, Reader, Stripes};

use crate::fail::Fail;
use crate::server::Server;

/// How long a lock is waited for at least before a script is looked at again.
const WAIT_MIN: Duration = Duration::from_millis(1);

impl Server {
    /// Locks stripes, and waits for those that others hold. If a script has held them for longer
    /// than `busy-reply-threshold`, it answers `BUSY`.
    pub(crate) fn lock(&self, stripes: Stripes, now: u64) -> Result<Hold<'_>, Fail> {
        let mut until = None;
        loop {
            if let Some(hold) = self.keyspace.try_lock(stripes, now, until) {
                return Ok(self.noting(hold));
            }
            until =
                Some(Instant::now() + self.scripts.running.patience(&self.settings)?.max(WAIT_MIN));
        }
    }

    /// Locks stripes for a command that changes nothing: others may read them meanwhile.
    pub(crate) fn lock_to_read<'a>(
        &'a self,
        reader: &'a Reader,
        stripes: Stripes,
        now: u64,
    ) -> Result<Hold<'a>, Fail> {
        match self.keyspace.try_read(reader, stripes, now) {
            Some(hold) => Ok(self.noting(hold)),
            None => self.lock(stripes, now),
        }
    }

    /// The same hold, which notes what clients wait for, and what the log gets.
    pub(crate) fn noting<'k>(&self, mut hold: Hold<'k>) -> Hold<'k> {
        hold.notes_created = self.waiting.is_any();
        hold.notes_new = self.publishing.events().has_new();
        self.journaling(hold)
    }

    /// The same hold, which notes what clients are told of, and what the log gets.
    pub(crate) fn journaling<'k>(&self, mut hold: Hold<'k>) -> Hold<'k> {
        hold.notes_altered = self.tracking.is_any();
        self.log.follow(&mut hold);
        hold
    }
}
