//! The log of a server with what belongs to it: the workers that wait for it, its compactions.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use zodium_keylog::{Log, Reached, Sync};
use zodium_keyspace::now;

/// Bytes that may be ahead of what is written.
const AHEAD_BYTES_MAX: u64 = 64 << 20;
/// Milliseconds from which on clients wait for a write, or for a sync that delays it: what is
/// acknowledged in between is lost if the process is killed.
const AHEAD_TIME_MAX: u64 = 1000;
/// The longest pause after compactions that have failed, in milliseconds.
const PAUSE_MAX: u64 = 3_600_000;

/// The log of a server.
pub(crate) struct Keeper {
    pub(crate) log: Log,
    /// Whether clients of a worker wait for the log.
    waiting: Vec<AtomicBool>,
    is_compacting: AtomicBool,
    /// When the log was compacted last, in seconds since 1970; or when it was opened.
    compacted_at: AtomicU64,
    /// Compactions that have failed since the last one that succeeded.
    failures: AtomicU32,
    /// When the last one has failed, in milliseconds since 1970.
    failed_at: AtomicU64,
}

/// The value of `appendfsync` as one of a log.
pub(super) fn sync_named(name: &str) -> Option<Sync> {
    match name {
        "always" => Some(Sync::Always),
        "everysec" => Some(Sync::EverySecond),
        "no" => Some(Sync::No),
        _ => None,
    }
}

impl Keeper {
    pub(crate) fn new(log: Log, workers: usize) -> Keeper {
        Keeper {
            log,
            waiting: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            is_compacting: AtomicBool::new(false),
            compacted_at: AtomicU64::new(now() / 1000),
            failures: AtomicU32::new(0),
            failed_at: AtomicU64::new(0),
        }
    }

    /// The position up to which readers need not wait for the log. They never wait for a disk that
    /// fails.
    pub(crate) fn safe(&self) -> u64 {
        match self.log.sync() == Sync::Always && self.log.failure().is_none() {
            true => self.log.reached(Reached::Synced),
            false => u64::MAX,
        }
    }

    /// What answers wait for.
    pub(crate) fn has_reached(&self, position: u64) -> bool {
        let wanted = match self.log.sync() {
            Sync::Always => Reached::Synced,
            Sync::EverySecond | Sync::No => Reached::Written,
        };
        self.log.has_reached(position, wanted)
    }

    /// The position that must be written before more is ahead of the log, though not synced; 0 for
    /// none, as is usual. `now` is in milliseconds since 1970.
    pub(super) fn must_reach(&self, end: u64, now: u64) -> u64 {
        let least = match self.log.busy_time(now) > AHEAD_TIME_MAX {
            true => end,
            false => end.saturating_sub(AHEAD_BYTES_MAX),
        };
        if self.log.has_reached(least, Reached::Written) { 0 } else { least }
    }

    /// Has a worker be told of progress. It looks at the log once more after this.
    pub(crate) fn note_waiting(&self, worker: usize) {
        if let Some(waiting) = self.waiting.get(worker) {
            waiting.store(true, Ordering::SeqCst);
        }
        // Either the writer sees the mark, or the worker its progress.
        fence(Ordering::SeqCst);
    }

    /// The workers whose clients wait.
    pub(super) fn take_waiting(&self) -> impl Iterator<Item = usize> {
        fence(Ordering::SeqCst);
        let waiting = self.waiting.iter().enumerate();
        waiting.filter(|(_, is_set)| is_set.swap(false, Ordering::SeqCst)).map(|(worker, _)| worker)
    }

    /// Whether a compaction may begin on its own. Each one that fails may have filled the disk, so
    /// the pauses grow.
    pub(super) fn may_compact(&self, now: u64) -> bool {
        let since = now.saturating_sub(self.failed_at.load(Ordering::Relaxed));
        let pause = match self.failures.load(Ordering::Relaxed) {
            0 => 0,
            failures => 2_u64.saturating_pow(failures).saturating_mul(1000).min(PAUSE_MAX),
        };
        since >= pause
    }

    /// Begins a compaction; false if one goes on.
    pub(super) fn begin_compaction(&self) -> bool {
        !self.is_compacting.swap(true, Ordering::AcqRel)
    }

    /// Notes that a compaction has not begun after all.
    pub(super) fn drop_compaction(&self) {
        self.is_compacting.store(false, Ordering::Release);
    }

    /// Notes the end of a compaction, and whether it succeeded.
    pub(super) fn end_compaction(&self, is_done: bool) {
        let now = now();
        if is_done {
            self.failures.store(0, Ordering::Relaxed);
            self.compacted_at.store(now / 1000, Ordering::Relaxed);
        } else {
            self.failed_at.store(now, Ordering::Relaxed);
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        self.is_compacting.store(false, Ordering::Release);
    }

    /// Whether a compaction goes on.
    pub(crate) fn is_compacting(&self) -> bool {
        self.is_compacting.load(Ordering::Relaxed)
    }

    /// Whether the last compaction succeeded.
    pub(crate) fn is_compacted(&self) -> bool {
        self.failures.load(Ordering::Relaxed) == 0
    }

    /// When the log was compacted last, in seconds since 1970; or when it was opened.
    pub(crate) fn compacted_at(&self) -> u64 {
        self.compacted_at.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use zodium_disk::{Disk, FaultyDisk, MemoryDisk, Operation};
    use zodium_keylog::OpenError;

    fn keeper(disk: &FaultyDisk) -> Keeper {
        let disk: Arc<dyn Disk> = Arc::new(disk.clone());
        let log =
            Log::open(&disk, "/keys".as_ref(), Sync::EverySecond, |_| Ok::<(), OpenError>(()));
        Keeper::new(log.unwrap(), 1)
    }

    #[test]
    fn bytes_and_time_ahead_of_a_write_are_limited() {
        let disk = FaultyDisk::new(MemoryDisk::default());
        let keeper = keeper(&disk);
        let (told, hangs) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        disk.before_next(Operation::Write, move || {
            told.send(()).unwrap();
            ended.recv().ok();
        });
        let first = keeper.log.append(b"first");
        hangs.recv().unwrap();
        let late = now() + AHEAD_TIME_MAX + 1;
        assert_eq!((keeper.must_reach(first, 0), keeper.must_reach(first, late)), (0, first));
        let bytes = usize::try_from(AHEAD_BYTES_MAX).unwrap();
        let second = keeper.log.append(&vec![0; bytes]);
        let waits_for = keeper.must_reach(second, 0);
        assert!((1..1000).contains(&waits_for), "{waits_for}");
        drop(end);
        while !keeper.log.has_reached(second, Reached::Written) {
            std::thread::yield_now();
        }
        assert_eq!((keeper.must_reach(second, 0), keeper.must_reach(second, late)), (0, 0));
    }

    #[test]
    fn pauses_grow_with_each_compaction_that_fails() {
        let keeper = keeper(&FaultyDisk::new(MemoryDisk::default()));
        assert!(keeper.may_compact(0) && keeper.is_compacted());
        let growing = [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];
        for seconds in growing.into_iter().chain([3600; 60]) {
            keeper.end_compaction(false);
            assert!(!keeper.is_compacted());
            let (at, pause) = (keeper.failed_at.load(Ordering::Relaxed), seconds * 1000);
            assert!(!keeper.may_compact(at + pause - 1) && keeper.may_compact(at + pause));
        }
        keeper.end_compaction(true);
        assert!(keeper.may_compact(0) && keeper.is_compacted());
    }
}
