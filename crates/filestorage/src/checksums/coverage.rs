//! Computes missing checksums: of a file that had none, and of commits for which they could not be
//! written.

use std::path::Path;
use std::sync::Arc;

use tracing::warn;
use zodium_disk::with_suffix;
use zodium_disk::{Disk, DiskFile};

use super::batch::Batch;
use super::last_writer::{self, LastWriter};
use super::opening::SUFFIX;
use super::sums::add_piece;
use super::writing::Writing;
use super::{ChecksumMode, Checksums};
use crate::scan::Walk;

/// Bytes covered at once when nothing waits for the end.
const COVER_BYTES: u64 = 8 << 20;
/// Most bytes covered while commits wait, which is necessary to reach the end.
const LAST_BYTES: u64 = 256 << 10;

/// Creates the side file of a data file of `length` bytes that is known to be whole, and the
/// clean-shutdown marker in its lock file. A failure is logged.
pub(crate) fn take_all(disk: &dyn Disk, path: &Path, data: &Arc<dyn DiskFile>, length: u64) {
    let side_path = with_suffix(path, SUFFIX);
    let writing = Writing::create(disk, (&side_path, path), data.as_ref(), length, 0);
    let made = writing.and_then(|writing| {
        let checksums = Checksums::new(path, ChecksumMode::Commit, writing);
        while checksums.cover(data, COVER_BYTES) > 0 {}
        let writing = checksums.writing();
        writing.close(data.as_ref())?;
        disk.sync_folder_of(&side_path)?;
        let writer = writing.nonce().map(|nonce| LastWriter { nonce, is_complete: true });
        last_writer::write(disk, path, writer)
    });
    if let Err(error) = made {
        warn!(file = %side_path.display(), %error, "no checksums were made");
    }
}

impl Checksums {
    /// Bytes at the end of the log that have no checksums yet.
    pub(crate) fn uncovered(&self) -> u64 {
        let end = self.writing.state().map_or(0, |state| state.log_end);
        end.saturating_sub(self.side().end())
    }

    /// Covers about `bytes` more, and returns their number; 0 if nothing is missing or the side
    /// file cannot be written. Damaged parts get no entries. One caller at a time.
    pub(crate) fn cover(&self, data: &Arc<dyn DiskFile>, bytes: u64) -> u64 {
        let start = self.side().end();
        let Some(state) = self.writing.state() else { return 0 };
        let end = state.log_end;
        let is_last = end.saturating_sub(start) <= LAST_BYTES.min(bytes);
        // While this lock is held, nothing is appended.
        let mut held = is_last.then_some(state);
        if end <= start || self.writing.is_void() {
            return 0;
        }
        let mut walk = Walk::starting_at(&self.path, data, end, start);
        let (mut batch, mut position) = (Batch::default(), start);
        while position < start + bytes
            && let Some(piece) = walk.step()
        {
            add_piece(&mut batch, &mut walk.window, &piece);
            position = piece.end;
        }
        let Some(mut state) = held.take().or_else(|| self.writing.state()) else { return 0 };
        match self.side().end() == start && self.writing.add(&mut state, position, &batch) {
            true => position - start,
            false => 0,
        }
    }
}
