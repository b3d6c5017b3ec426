//! The thread that writes the log, and syncs it.
//!
//! Invariant: it keeps all frames that are not synced, or not written if nothing is synced. When a
//! write or a sync fails it writes them again at the same place, until that succeeds: after a
//! failed sync the file may lack any of them. The file that it writes is the one that has the name.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::locked_file::LockedFile;
use crate::record;
use crate::replacement::Replacement;
use crate::shared::{Queue, Shared, Sync};

/// Interval of syncs that are not asked for each group.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Unsynced bytes from which a sync comes earlier: they are kept in memory.
const UNSYNCED_BYTES_MAX: usize = 32 << 20;
/// Time between a failed write and its next try.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// What writes a log.
pub(crate) struct Writer {
    shared: Arc<Shared>,
    file: LockedFile,
    /// Bytes of the file before those that are kept: they are synced, or need no sync.
    base: u64,
    /// Bytes of the file that are certainly on the device.
    device_length: u64,
    /// The frames behind these.
    kept: Vec<u8>,
    /// How many of these are written.
    written: usize,
    /// The position of their end, for callers.
    end: u64,
    /// The position that a file had reached when it took the place of the log, if the folder is not
    /// synced since then: a power cut could bring the old file back.
    moved: Option<u64>,
    synced_at: Instant,
}

impl Writer {
    pub(crate) fn new(shared: Arc<Shared>, file: LockedFile, length: u64) -> Writer {
        Writer {
            shared,
            file,
            base: length,
            // What a killed process has written may be in the system's memory only.
            device_length: 0,
            kept: Vec::new(),
            written: 0,
            end: 0,
            moved: None,
            synced_at: Instant::now(),
        }
    }

    /// Writes until the log is closed.
    pub(crate) fn run(mut self) {
        loop {
            let shared = Arc::clone(&self.shared);
            let mut queue = shared.queue.lock();
            while queue.bytes.is_empty() && queue.replacement.is_none() && !queue.is_stopped {
                match self.time_left() {
                    None => shared.filled.wait(&mut queue),
                    Some(left) if left.is_zero() => break,
                    Some(left) => drop(shared.filled.wait_for(&mut queue, left)),
                }
            }
            let is_stopped = queue.is_stopped;
            let taken = Queue { end: queue.end, ..std::mem::take(&mut *queue) };
            (queue.end, queue.is_stopped) = (taken.end, is_stopped);
            drop(queue);
            shared.busy_since.store(now(), Ordering::Relaxed);
            let is_done = self.step(taken, is_stopped);
            shared.busy_since.store(0, Ordering::Relaxed);
            if is_stopped {
                // What was not written now never will be.
                if is_done && let Err(error) = self.seal() {
                    let path = self.shared.path.display();
                    tracing::warn!(%error, "cannot note in {path} that all of it is synced");
                }
                return;
            }
            if !is_done {
                self.pause();
            }
        }
    }

    /// Time until something is to be done without a new record.
    fn time_left(&self) -> Option<Duration> {
        if self.shared.is_failed.load(Ordering::Relaxed) {
            return Some(Duration::ZERO);
        }
        if !self.has_unsynced() {
            return None;
        }
        match self.shared.sync() {
            Sync::No => None,
            Sync::Always => Some(Duration::ZERO),
            Sync::EverySecond => Some(SYNC_INTERVAL.saturating_sub(self.synced_at.elapsed())),
        }
    }

    /// Whether anything was appended that is not synced. It need not be kept: there may have been
    /// no syncs until now.
    fn has_unsynced(&self) -> bool {
        self.shared.synced.load(Ordering::Relaxed) < self.end
    }

    /// Writes what was appended; whether that succeeded.
    fn step(&mut self, mut taken: Queue, is_last: bool) -> bool {
        let Some((replacement, last, at)) = taken.replacement.take() else {
            self.keep(&taken.bytes, taken.end);
            return self.flush(is_last);
        };
        let (old, new) = taken.bytes.split_at(at);
        self.keep(old, taken.end - new.len() as u64);
        // The replacement means the same as what is kept: that need not be written any more.
        match self.replace(replacement, &last) {
            Ok(()) => {}
            Err(error) => {
                let path = self.shared.path.display();
                tracing::error!(%error, "cannot compact {path}: it stays as it is");
            }
        }
        self.keep(new, taken.end);
        self.flush(is_last)
    }

    fn keep(&mut self, frames: &[u8], end: u64) {
        if !frames.is_empty() {
            if self.written == self.kept.len() {
                record::write_synced(&mut self.kept, self.device_length);
            }
            self.kept.extend_from_slice(frames);
        }
        self.end = end;
    }

    /// Writes what is kept, and syncs it if it is time.
    fn flush(&mut self, is_last: bool) -> bool {
        let outcome = self.try_flush(is_last);
        let shared = &self.shared;
        match &outcome {
            Ok(()) => {
                if shared.is_failed.swap(false, Ordering::AcqRel) {
                    let path = shared.path.display();
                    tracing::warn!("writing to {path} succeeds again: writes are accepted");
                }
            }
            Err(error) => {
                // All is written again, also what the system took before the sync failed.
                self.written = 0;
                *shared.failure.lock() = error.to_string();
                if !shared.is_failed.swap(true, Ordering::AcqRel) {
                    let path = shared.path.display();
                    tracing::error!(
                        %error,
                        "cannot write to {path}: commands that write are refused until it succeeds"
                    );
                }
            }
        }
        shared.tell();
        outcome.is_ok()
    }

    fn try_flush(&mut self, is_last: bool) -> io::Result<()> {
        let shared = &*self.shared;
        if let Some(position) = self.moved {
            shared.disk.sync_folder_of(&shared.path)?;
            self.moved = None;
            shared.written.store(position, Ordering::Release);
            shared.synced.store(position, Ordering::Release);
        }
        if self.written < self.kept.len() {
            self.check_unchanged()?;
            let position = self.base + self.written as u64;
            self.file.write_all_at(&self.kept[self.written..], position)?;
            self.written = self.kept.len();
            shared.length.store(self.base + self.written as u64, Ordering::Relaxed);
        }
        let is_due = match shared.sync() {
            Sync::No => is_last,
            Sync::Always => true,
            Sync::EverySecond => {
                is_last
                    || self.synced_at.elapsed() >= SYNC_INTERVAL
                    || self.kept.len() >= UNSYNCED_BYTES_MAX
            }
        };
        if is_due && self.has_unsynced() {
            if shared.sync() != Sync::Always {
                // Those that wait for the file need not wait for the device.
                shared.written.store(self.end, Ordering::Release);
                shared.tell();
            }
            self.file.sync()?;
            self.synced_at = Instant::now();
            self.device_length = self.base + self.kept.len() as u64;
        }
        if is_due || shared.sync() == Sync::No {
            self.base += self.kept.len() as u64;
            self.kept.clear();
            self.written = 0;
        }
        if is_due {
            shared.synced.store(self.end, Ordering::Release);
        }
        shared.written.store(self.end, Ordering::Release);
        Ok(())
    }

    /// Notes at the end that all of the file is synced: damage is no write then that a crash has
    /// cut off. The note itself needs no sync, as it says nothing that is not so without it.
    fn seal(&mut self) -> io::Result<()> {
        self.check_unchanged()?;
        if record::is_sealed(&*self.file, self.base)? {
            return Ok(());
        }
        if self.device_length < self.base {
            self.file.sync()?;
        }
        let mut note = Vec::new();
        record::write_synced(&mut note, self.base);
        self.file.write_all_at(&note, self.base)
    }

    /// Puts a replacement in the place of the log. The next flush makes that durable.
    fn replace(&mut self, mut replacement: Replacement, last: &[u8]) -> io::Result<()> {
        self.check_unchanged()?;
        replacement.append_frames(last)?;
        replacement.sync()?;
        let shared = &*self.shared;
        shared.disk.copy_permissions(&shared.path, &replacement.path)?;
        shared.disk.move_file(&replacement.path, &shared.path)?;
        // From here on the old file has no name: nothing may fail before the new one is taken over.
        self.moved = Some(self.end);
        replacement.is_used = true;
        self.file = replacement.file.clone();
        self.base = replacement.length();
        self.device_length = self.base;
        self.kept.clear();
        self.written = 0;
        shared.length.store(self.base, Ordering::Relaxed);
        shared.base_length.store(self.base, Ordering::Relaxed);
        shared.replacements.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Checks that the path leads to the file that is open, and that the file ends with what was
    /// written here. No lock stops `mv`, `rm`, `cp` or a restore, after which all that is written
    /// would be lost at the end of this process.
    fn check_unchanged(&self) -> io::Result<()> {
        let Shared { disk, path, .. } = &*self.shared;
        let open = self.file.status()?;
        if disk.status(path)?.map(|found| found.identity) != Some(open.identity) {
            let what =
                "the file was removed, renamed or replaced: put it back, it is still open here";
            return Err(io::Error::other(what));
        }
        // A write that failed may have left some of what is written again.
        let (least, most) = (self.base + self.written as u64, self.base + self.kept.len() as u64);
        if (least..=most).contains(&open.length) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "another program has overwritten the file: it has {} bytes, {least} were written here. \
             Restart the server to use the file as it is now",
            open.length
        )))
    }

    /// Waits before the next try, or until the log is closed.
    fn pause(&self) {
        let mut queue = self.shared.queue.lock();
        if !queue.is_stopped {
            let until = Instant::now() + RETRY_INTERVAL;
            while !queue.is_stopped && !self.shared.filled.wait_until(&mut queue, until).timed_out()
            {
            }
        }
    }
}

/// The time in milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
