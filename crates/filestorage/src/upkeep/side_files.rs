//! Keeps up the files beside the data file: its checksums and its index.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tracing::warn;

use super::tid_walk::TidWalk;
use crate::FileStorageError;
use crate::checksums::{ChecksumMetrics, Checksums, Comparison, SessionName, Writing};
use crate::format::{DataFile, MAGIC_BYTES};
use crate::open::save_index;
use crate::read::{LogFile, Reader};
use crate::scan::{Piece, Scan, Walk};

/// Transactions at the end that are held against their checksums when a file is opened, as far as
/// they lie within so many bytes.
const TAIL_TRANSACTIONS: usize = 64;
const TAIL_BYTES: u64 = 4 << 20;
/// Bytes read at once to find where these begin.
const TAIL_WINDOW_BYTES: usize = 16 << 10;

/// How far a storage has been held against its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubPlace {
    generation: u64,
    position: u64,
}

impl Default for ScrubPlace {
    fn default() -> ScrubPlace {
        ScrubPlace { generation: 0, position: MAGIC_BYTES }
    }
}

/// The files beside a data file.
pub(crate) struct SideFiles {
    file: Arc<DataFile>,
    /// The name of the session that writes the checksums.
    pub(crate) session: SessionName,
    /// Whether some bytes did not match their checksum when the file was opened.
    was_damaged: AtomicBool,
    /// A counter of its own, so accesses are `Relaxed`.
    scrubbed_bytes: AtomicU64,
    tid_walk: Mutex<Option<TidWalk>>,
}

impl SideFiles {
    /// For a file that was opened, and found damaged or not.
    pub(crate) fn new(file: Arc<DataFile>, was_damaged: bool) -> SideFiles {
        let session = SessionName::new(Arc::clone(&file));
        let (was_damaged, scrubbed_bytes) = (AtomicBool::new(was_damaged), AtomicU64::new(0));
        SideFiles { file, session, was_damaged, scrubbed_bytes, tid_walk: Mutex::default() }
    }

    /// How far the checksums go; `None` when there are none.
    pub(crate) fn metrics(&self, log: &LogFile) -> Option<ChecksumMetrics> {
        let checksums = log.checksums.as_ref()?;
        let bytes = log.end();
        Some(ChecksumMetrics {
            covered_bytes: checksums.side().end().min(bytes),
            bytes,
            scrubbed_bytes: self.scrubbed_bytes.load(Ordering::Relaxed),
            damaged: log.damages.count(),
        })
    }

    /// Takes the checksums of about `bytes` more of the file, and says how many bytes they were;
    /// 0 when none are missing, or they cannot be written. One caller at a time.
    pub(crate) fn cover(&self, reader: &Reader, bytes: u64) -> u64 {
        let log = reader.log();
        let covered = log.checksums.as_ref().map_or(0, |checksums| {
            self.restart_void_checksums(checksums, reader);
            checksums.cover(&log.file, bytes)
        });
        // A pack may have replaced the log.
        self.session.name_if_covered(reader.log().checksums.as_ref());
        covered
    }

    /// Begins with checksums anew when those that there were are not used any more. The session is
    /// unnamed first: what they do not cover would be taken for torn after a crash.
    fn restart_void_checksums(&self, checksums: &Checksums, reader: &Reader) {
        if !checksums.writing().is_void()
            || self.file.read_only
            || self.session.unname(reader.log().checksums.as_ref()).is_err()
        {
            return;
        }
        if let Err(error) = checksums.writing().restart() {
            warn!(file = %checksums.side().path().display(), %error,
                "the checksums cannot be taken anew");
        }
    }

    /// Whether something does not fit its checksum.
    fn is_damage_suspected(&self, log: &LogFile) -> bool {
        self.was_damaged.load(Ordering::Relaxed)
            || log.checksums.as_ref().is_some_and(|c| c.damages().count() > 0)
    }

    /// Notes that what was damaged when the file was opened is not in it any more.
    pub(crate) fn note_sound(&self) {
        self.was_damaged.store(false, Ordering::Relaxed);
    }

    /// Reads about `bytes` of the file from `place` on, and holds them against their checksums.
    /// Gives where to go on; `None` at the end. What does not fit is logged and counted.
    pub(crate) fn scrub(&self, log: &LogFile, place: ScrubPlace, bytes: u64) -> Option<ScrubPlace> {
        let checksums = log.checksums.as_ref()?;
        let start = match place {
            ScrubPlace { generation, position } if generation == log.generation => position,
            // Packed meanwhile.
            _ => MAGIC_BYTES,
        };
        let mut tid_walk = self.tid_walk.lock();
        *tid_walk = TidWalk::go_on(tid_walk.take(), log, start);
        let position = scrub(log, checksums, start, bytes, |piece| {
            tid_walk.iter_mut().for_each(|walk| walk.pass(piece));
        });
        tid_walk.iter().for_each(|walk| walk.settle(log));
        self.scrubbed_bytes.fetch_add(position - start, Ordering::Relaxed);
        let is_end = position >= log.end() || position == start;
        (!is_end).then_some(ScrubPlace { generation: log.generation, position })
    }

    /// Replaces an index file that was not used. That file is of no use any more, so a failure to
    /// replace it does not stop the opening.
    pub(crate) fn replace_index(&self, log: &LogFile) {
        if self.is_damage_suspected(log) {
            return;
        }
        if let Err(error) = save_index(self.file.disk.as_ref(), log) {
            warn!(file = %self.file.path.display(), %error, "the index could not be saved");
        }
    }

    /// Saves the index unless the file is damaged: a damaged record may name a wrong object.
    pub(crate) fn save_sound_index(&self, log: &LogFile) -> Result<(), FileStorageError> {
        if self.is_damage_suspected(log) {
            warn!(file = %self.file.path.display(),
                "the index is not saved, since the data file is damaged; the next start reads \
                 more");
            return Ok(());
        }
        save_index(self.file.disk.as_ref(), log)
    }
}

/// Brings the checksums of a log to stable storage.
pub(crate) fn sync_checksums(log: &LogFile) {
    write_checksums(log, Writing::sync);
}

/// As [`sync_checksums`], and notes that the session ended in order.
pub(crate) fn close_checksums(log: &LogFile) {
    write_checksums(log, |writing| writing.close(log.file.as_ref()));
}

fn write_checksums(log: &LogFile, action: impl Fn(&Writing) -> std::io::Result<()>) {
    let Some(checksums) = &log.checksums else { return };
    if let Err(error) = action(checksums.writing()) {
        warn!(file = %checksums.side().path().display(), %error,
            "the checksums could not be synced");
    }
}

/// Holds the last transactions of a log against their checksums.
pub(crate) fn verify_tail(log: &LogFile) {
    let Some(checksums) = &log.checksums else { return };
    let end = log.end();
    let mut scan = Scan::with_window(&log.path, Arc::clone(&log.file), end, TAIL_WINDOW_BYTES);
    let mut start = end;
    for _ in 0..TAIL_TRANSACTIONS {
        match scan.transaction_before(start) {
            Ok(Some(entry)) if end - entry.position <= TAIL_BYTES => start = entry.position,
            _ => break,
        }
    }
    scrub(log, checksums, start, end - start, |_| ());
}

/// Where it has come to.
fn scrub(
    log: &LogFile,
    checksums: &Checksums,
    start: u64,
    bytes: u64,
    mut pass: impl FnMut(&Piece),
) -> u64 {
    let path: &Path = &log.path;
    let mut walk = Walk::starting_at(path, &log.file, log.end(), start);
    let mut comparison = Comparison::new(checksums.side(), start);
    let mut position = start;
    while position < start.saturating_add(bytes)
        && let Some(piece) = walk.step()
    {
        for damage in comparison.compare(&mut walk.window, &piece) {
            checksums.note(&damage);
        }
        if let Some(position) = comparison.other_at() {
            checksums.throw_away(position);
        }
        pass(&piece);
        position = piece.end;
    }
    position
}
