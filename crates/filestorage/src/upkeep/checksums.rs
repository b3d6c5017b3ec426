//! Checksums in the life of a storage: opened and closed with it, and kept up in between.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::warn;
use zodium_blobs::BlobDirectory;
use zodium_disk::Disk;
use zodium_disk::with_suffix;

use crate::FileStorage;
use crate::checksums::{ChecksumFigures, ChecksumMode, Checksums, Comparison, SUFFIX, Writing};
use crate::format::{Damage, MAGIC_BYTES};
use crate::open::{OpenOptions, Recovered};
use crate::read::LogFile;
use crate::scan::{Scan, Walk};

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

impl Recovered {
    /// Begins to use the side file, which is made when there is none. `None` when it is not asked
    /// for, or cannot be used, which is logged.
    pub(crate) fn start_checksums(
        &self,
        disk: &dyn Disk,
        options: &OpenOptions<'_>,
    ) -> Option<Arc<Checksums>> {
        let path = options.path.as_path();
        let side_path = with_suffix(path, SUFFIX);
        let writing = match (&self.checksums, options.checksums, options.read_only) {
            (_, ChecksumMode::Off, _) | (None, _, true) => return None,
            (Some(opened), _, true) => Ok(Writing::never(Arc::clone(&opened.side))),
            (Some(opened), _, false) => Writing::resume(opened, self.file.as_ref(), self.end),
            (None, _, false) => {
                Writing::create(disk, (&side_path, path), self.file.as_ref(), self.end, 0)
                    .and_then(|writing| disk.sync_folder_of(&side_path).map(|()| writing))
            }
        };
        let writing = writing
            .inspect_err(|error| {
                warn!(file = %side_path.display(), %error,
                    "checksums cannot be kept; the file is served without");
            })
            .ok()?;
        let checksums = Arc::new(Checksums::new(path, options.checksums, writing));
        self.damages.iter().for_each(|damage| checksums.note(damage));
        Some(checksums)
    }
}

impl Checksums {
    pub(crate) fn note(&self, damage: &Damage) {
        self.damages().note(damage.position, damage.oid, damage.tid, &damage.what);
    }
}

impl FileStorage {
    /// How far the checksums go; `None` when there are none.
    pub fn checksum_figures(&self) -> Option<ChecksumFigures> {
        let log = self.log();
        let checksums = log.checksums.as_ref()?;
        let bytes = log.end();
        Some(ChecksumFigures {
            covered_bytes: checksums.side().end().min(bytes),
            bytes,
            scrubbed_bytes: self.scrubbed_bytes.load(Ordering::Relaxed),
            damaged: log.damages.count(),
        })
    }

    /// Places of the file that were found damaged since it was opened or packed, each counted once,
    /// with or without checksums; and blobs that were found damaged when they were asked for.
    pub fn damaged_places(&self) -> u64 {
        self.log().damages.count() + self.blobs.as_ref().map_or(0, BlobDirectory::damaged_count)
    }

    /// Bytes of the file that have no checksums yet, and can get them.
    pub fn uncovered_bytes(&self) -> u64 {
        self.log().checksums.as_ref().map_or(0, |checksums| checksums.uncovered())
    }

    /// Takes the checksums of about `bytes` more of the file, and says how many bytes they were;
    /// 0 when none are missing, or they cannot be written. One caller at a time.
    pub fn cover(&self, bytes: u64) -> u64 {
        let log = self.log();
        if let Some(checksums) = &log.checksums {
            self.restart_void_checksums(checksums);
        }
        let covered = log.checksums.as_ref().map(|checksums| checksums.cover(&log.file, bytes));
        self.name_session_if_covered();
        covered.unwrap_or(0)
    }

    /// Begins with checksums anew when those that there were are not used any more. The session is
    /// unnamed first: what they do not cover would be taken for torn after a crash.
    fn restart_void_checksums(&self, checksums: &Checksums) {
        if !checksums.writing().is_void() || self.read_only || self.unname_session().is_err() {
            return;
        }
        let restarted = checksums.writing().restart();
        if let Err(error) = restarted {
            warn!(file = %checksums.side().path().display(), %error,
                "the checksums cannot be taken anew");
        }
    }

    /// Whether something does not fit its checksum.
    pub(crate) fn is_damage_suspected(&self) -> bool {
        let log = self.log();
        self.was_damaged.load(Ordering::Relaxed)
            || log.checksums.as_ref().is_some_and(|c| c.damages().count() > 0)
    }

    /// Reads about `bytes` of the file from `place` on, and holds them against their checksums.
    /// Gives where to go on; `None` at the end. What does not fit is logged and counted.
    pub fn scrub(&self, place: ScrubPlace, bytes: u64) -> Option<ScrubPlace> {
        let log = self.log();
        let checksums = log.checksums.as_ref()?;
        let start = match place {
            ScrubPlace { generation, position } if generation == log.generation => position,
            // Packed meanwhile.
            _ => MAGIC_BYTES,
        };
        let position = scrub(&log, checksums, start, bytes);
        self.scrubbed_bytes.fetch_add(position - start, Ordering::Relaxed);
        let is_end = position >= log.end() || position == start;
        (!is_end).then_some(ScrubPlace { generation: log.generation, position })
    }

    /// Brings the checksums to stable storage.
    pub fn sync_checksums(&self) {
        self.each_writing(Writing::sync);
    }

    pub(crate) fn close_checksums(&self) {
        // After a failed write the last session did not end in order.
        let is_failed = self.append.lock().is_failed();
        self.each_writing(if is_failed { Writing::sync } else { Writing::close });
    }

    fn each_writing(&self, action: impl Fn(&Writing) -> std::io::Result<()>) {
        let log = self.log();
        let Some(checksums) = &log.checksums else { return };
        if let Err(error) = action(checksums.writing()) {
            warn!(file = %checksums.side().path().display(), %error,
                "the checksums could not be synced");
        }
    }

    /// Holds the last transactions against their checksums.
    pub(crate) fn verify_tail(&self) {
        let log = self.log();
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
        scrub(&log, checksums, start, end - start);
    }
}

/// Where it has come to.
fn scrub(log: &LogFile, checksums: &Checksums, start: u64, bytes: u64) -> u64 {
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
        position = piece.end;
    }
    position
}
