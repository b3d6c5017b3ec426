//! Log messages about a full disk: one when space runs out, one when there is space again.
//!
//! Key decision: a commit that still fits does not end a shortage. The file system has to grant
//! as much as was refused, or space ahead of the commits, else a disk with little left would be
//! reported as full and as free again in turns.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use tracing::{info, warn};

/// A shortage that begins within this time after the last one was logged is not logged: clients
/// can cause one with a transaction that is too large.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// An error that may say that there is no space.
pub trait NoSpace: std::fmt::Display {
    /// Bytes that did not fit; `None` for other errors.
    fn missing_bytes(&self) -> Option<u64>;

    /// Whether a quota, rather than the disk, has no space for them.
    fn is_over_quota(&self) -> bool {
        false
    }
}

/// Says that so many bytes did not fit; 0 if that is not known.
pub fn no_space_for(bytes: u64) -> String {
    let missing = match bytes {
        0 => "no space left, or no inodes".to_owned(),
        _ => format!("no space left for {bytes} more bytes"),
    };
    let limit = match getrlimit(Resource::Fsize).current {
        Some(most) => format!(", or raise the limit of {most} bytes for each file (ulimit -f)"),
        None => String::new(),
    };
    format!("{missing}; free some{limit} and try again")
}

/// Whether there was no space on the disk, or within a quota of the system.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Follows whether one directory's file system has space.
#[derive(Debug, Default)]
pub struct SpaceWatch {
    /// Whether there is a shortage. Relaxed: it only saves taking the lock on each commit.
    is_short: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    shortage: Option<Shortage>,
    logged: Option<Instant>,
}

#[derive(Debug)]
struct Shortage {
    since: Instant,
    /// Refusals so far.
    refused: u64,
    /// What was refused last, in bytes.
    bytes: u64,
    is_logged: bool,
}

impl SpaceWatch {
    /// Notes an error, if it says that there is no space, and logs it as the first of a shortage.
    pub fn note_error<E: NoSpace>(&self, error: &E) {
        let Some(bytes) = error.missing_bytes() else { return };
        let mut state = self.state.lock();
        if let Some(shortage) = &mut state.shortage {
            shortage.refused += 1;
            shortage.bytes = bytes;
            return;
        }
        let now = Instant::now();
        let is_logged = state.logged.is_none_or(|logged| now - logged >= LOG_INTERVAL);
        state.shortage = Some(Shortage { since: now, refused: 1, bytes, is_logged });
        self.is_short.store(true, Ordering::Relaxed);
        if is_logged {
            state.logged = Some(now);
            let until = match error.is_over_quota() {
                true => "once the storage is below its quota",
                false => "once there is space",
            };
            warn!(%error, "commits that need more space are refused, reads go on; commits are \
                accepted again without a restart {until}");
        }
    }

    /// Passes a result on and notes its error.
    pub fn noting<T, E: NoSpace>(&self, result: Result<T, E>) -> Result<T, E> {
        result.inspect_err(|error| self.note_error(error))
    }

    /// Notes that there was space for `bytes`, or for any amount that is usual (`is_ample`), and
    /// logs the end of a shortage.
    pub fn note_granted(&self, path: &Path, bytes: u64, is_ample: bool) {
        if !self.is_short.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        let ended = state.shortage.take_if(|shortage| is_ample || bytes >= shortage.bytes);
        let Some(shortage) = ended else { return };
        self.is_short.store(false, Ordering::Relaxed);
        if shortage.is_logged {
            let (path, seconds) = (path.display(), shortage.since.elapsed().as_secs());
            info!(%path, seconds, refused = shortage.refused,
                "there is space again, commits are accepted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_bytes_are_asked_for_where_their_number_is_not_known() {
        assert!(no_space_for(7).starts_with("no space left for 7 more bytes;"));
        assert!(no_space_for(0).starts_with("no space left, or no inodes;"));
    }
}
