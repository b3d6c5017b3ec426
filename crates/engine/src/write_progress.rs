//! Since when the log writer has been writing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When the batch that is being written was begun.
///
/// Relaxed: no other data depends on it.
#[derive(Debug, Default)]
pub(crate) struct WriteProgress(
    /// Monotonic nanoseconds, and one more; 0 while nothing is written.
    AtomicU64,
);

/// A batch that is being written. The write has ended when it is dropped.
pub(crate) struct Writing<'a>(&'a WriteProgress);

impl WriteProgress {
    /// Notes that a write begins, at `now` (monotonic).
    pub(crate) fn begin(&self, now: Duration) -> Writing<'_> {
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX - 1);
        self.0.store(nanos.saturating_add(1), Ordering::Relaxed);
        Writing(self)
    }

    /// When the current write began (monotonic); `None` if nothing is written.
    pub(crate) fn since(&self) -> Option<Duration> {
        self.0.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_known_from_its_begin_to_its_end() {
        let progress = WriteProgress::default();
        assert_eq!(progress.since(), None);
        for now in [Duration::ZERO, Duration::from_secs(7)] {
            let writing = progress.begin(now);
            assert_eq!(progress.since(), Some(now));
            drop(writing);
            assert_eq!(progress.since(), None);
        }
    }
}
