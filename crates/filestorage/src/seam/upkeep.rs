//! Background work on the checksums of a file: computes missing ones, and scrubs the file. A scrub
//! reads the whole file and compares it with its checksums.
//!
//! The work is slow, so that clients do not notice it. Its reads go through the page cache like any
//! other, at a rate that does not evict the pages in use.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::info;
use zodium_storage::Upkeep;

use crate::{FileStorage, ScrubPlace};

/// Bytes read at once.
const STEP_BYTES: u64 = 1 << 20;
/// Rate while checksums are missing. It is high because damage is not detected until then.
const COVER_BYTES_PER_SECOND: u64 = 200 << 20;
const SCRUB_BYTES_PER_SECOND: u64 = 16 << 20;
/// Interval between checks for work. It is long, so that an idle server stays idle.
const IDLE: Duration = Duration::from_secs(2);
/// Interval between syncs of the side file.
const SYNC_INTERVAL: Duration = Duration::from_secs(60);
/// Longest delay between the start and the first scrub.
const FIRST_SCRUB: Duration = Duration::from_secs(3600);

/// The background work on one file.
pub(crate) struct ChecksumUpkeep {
    file: Arc<FileStorage>,
    scrub_interval: Option<Duration>,
    /// Start of the next scrub.
    next_scrub: Option<Instant>,
    /// Place of the running scrub.
    scrubbing: Option<ScrubPlace>,
    synced: Instant,
    /// Start of the current run over missing checksums, and the bytes they cover.
    covering: Option<(Instant, u64)>,
}

impl FileStorage {
    /// The background work on the checksums, for a thread of the caller; `None` without checksums.
    /// A scrub begins every `scrub_interval`, the first within an hour. Without an interval there
    /// are no scrubs.
    pub fn upkeep(self: &Arc<Self>, scrub_interval: Option<Duration>) -> Option<Box<dyn Upkeep>> {
        self.checksum_metrics()?;
        Some(Box::new(ChecksumUpkeep::new(Arc::clone(self), scrub_interval)))
    }
}

impl Upkeep for ChecksumUpkeep {
    fn step(&mut self) -> Duration {
        let started = Instant::now();
        if self.synced.elapsed() >= SYNC_INTERVAL {
            self.file.sync_checksums();
            self.synced = started;
        }
        let wait = match self.cover() {
            0 => match self.scrub() {
                true => time_of(STEP_BYTES, SCRUB_BYTES_PER_SECOND),
                false => IDLE,
            },
            covered => time_of(covered, COVER_BYTES_PER_SECOND),
        };
        wait.saturating_sub(started.elapsed())
    }
}

impl ChecksumUpkeep {
    fn new(file: Arc<FileStorage>, scrub_interval: Option<Duration>) -> ChecksumUpkeep {
        let now = Instant::now();
        let next_scrub = scrub_interval.and_then(|wait| now.checked_add(wait.min(FIRST_SCRUB)));
        let (scrubbing, covering) = (None, None);
        ChecksumUpkeep { file, scrub_interval, next_scrub, scrubbing, synced: now, covering }
    }

    /// Computes some of the missing checksums, and returns the number of bytes they cover.
    fn cover(&mut self) -> u64 {
        let file = &self.file;
        let missing = file.uncovered_bytes();
        if missing > 0 && self.covering.is_none() {
            self.covering = Some((Instant::now(), 0));
            info!(file = %file.path().display(), bytes = missing, "taking checksums");
        }
        let taken = file.cover(STEP_BYTES);
        if let Some((started, bytes)) = &mut self.covering {
            *bytes += taken;
            if file.uncovered_bytes() == 0 {
                let seconds = started.elapsed().as_secs_f64();
                info!(file = %file.path().display(), bytes, seconds, "all checksums taken");
                self.covering = None;
            }
        }
        taken
    }

    /// Continues a scrub, or begins one when it is due; `false` when there is none.
    fn scrub(&mut self) -> bool {
        let file = &self.file;
        if self.scrubbing.is_none() {
            if self.next_scrub.is_none_or(|next| Instant::now() < next) {
                return false;
            }
            self.scrubbing = Some(ScrubPlace::default());
        }
        self.scrubbing = self.scrubbing.and_then(|place| file.scrub(place, STEP_BYTES));
        if self.scrubbing.is_none() {
            self.next_scrub = self.scrub_interval.and_then(|wait| Instant::now().checked_add(wait));
            let damaged = file.checksum_metrics().map_or(0, |metrics| metrics.damaged);
            info!(file = %file.path().display(), bytes = file.size(), damaged,
                "read the whole file and held it against its checksums");
        }
        true
    }
}

fn time_of(bytes: u64, bytes_per_second: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64)
}
