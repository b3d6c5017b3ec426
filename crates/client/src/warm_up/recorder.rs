//! Records the objects that a run loads first.
//!
//! Key decision: the record ends, after a number of objects or some minutes after the first one.
//! From then on a load only reads a flag.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use zodium_types::Oid;

/// How long the record goes on after the first load.
const RECORDED: Duration = Duration::from_secs(300);
/// Least time between two saves, for processes that are killed.
const SAVE_EVERY: Duration = Duration::from_secs(30);

/// The record of one run.
pub(super) struct Recorder {
    /// Relaxed: a hint; what is noted too late is ignored.
    is_on: AtomicBool,
    objects_max: usize,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    known: FxHashSet<Oid>,
    /// In the order of their first loads.
    oids: Vec<Oid>,
    began: Option<Instant>,
    /// When the record was last taken, and its length then.
    taken: Option<(Instant, usize)>,
}

impl Recorder {
    /// A recorder of at most so many objects; of none, it is off.
    pub(super) fn new(objects_max: usize) -> Recorder {
        let is_on = AtomicBool::new(objects_max > 0);
        Recorder { is_on, objects_max, record: Mutex::default() }
    }

    #[inline]
    pub(super) fn note(&self, oid: Oid) {
        if self.is_on.load(Ordering::Relaxed) {
            self.note_at(oid, Instant::now());
        }
    }

    #[cold]
    fn note_at(&self, oid: Oid, now: Instant) {
        let mut record = self.record.lock();
        let began = *record.began.get_or_insert(now);
        let is_over = record.oids.len() >= self.objects_max || now > began + RECORDED;
        if is_over {
            self.is_on.store(false, Ordering::Relaxed);
            // Only its length counts from now on, and the oids for a save that is still to come.
            record.known = FxHashSet::default();
        } else if record.known.insert(oid) {
            record.oids.push(oid);
        }
    }

    /// Whether there is something new, and the last save is long enough ago.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        let record = self.record.lock();
        let last = record.taken.map(|(taken, _)| taken).or(record.began);
        record.has_news() && last.is_some_and(|last| now >= last + SAVE_EVERY)
    }

    /// All that was recorded, unless nothing was added since the last call.
    pub(super) fn news(&self, now: Instant) -> Option<Vec<Oid>> {
        let mut record = self.record.lock();
        if !record.has_news() {
            return None;
        }
        record.taken = Some((now, record.oids.len()));
        Some(record.oids.clone())
    }
}

impl Record {
    fn has_news(&self) -> bool {
        self.oids.len() > self.taken.map_or(0, |(_, count)| count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oids(numbers: &[u64]) -> Option<Vec<Oid>> {
        Some(numbers.iter().copied().map(Oid).collect())
    }

    #[test]
    fn each_object_is_recorded_once_in_the_order_of_loads() {
        let (recorder, now) = (Recorder::new(10), Instant::now());
        [3, 1, 3, 2, 1].into_iter().for_each(|oid| recorder.note(Oid(oid)));
        assert_eq!(recorder.news(now), oids(&[3, 1, 2]));
        assert_eq!(recorder.news(now), None);
        recorder.note(Oid(2));
        assert_eq!(recorder.news(now), None);
        recorder.note(Oid(4));
        assert_eq!(recorder.news(now), oids(&[3, 1, 2, 4]));
    }

    #[test]
    fn the_record_ends_after_a_number_of_objects_and_after_some_time() {
        let (recorder, now) = (Recorder::new(3), Instant::now());
        (0..9).for_each(|oid| recorder.note(Oid(oid)));
        assert_eq!(recorder.news(now), oids(&[0, 1, 2]));
        assert!(!recorder.is_on.load(Ordering::Relaxed));
        let recorder = Recorder::new(3);
        recorder.note_at(Oid(1), now);
        recorder.note_at(Oid(2), now + RECORDED);
        recorder.note_at(Oid(3), now + RECORDED + Duration::from_secs(1));
        assert_eq!(recorder.news(now), oids(&[1, 2]));
        assert!(!recorder.is_on.load(Ordering::Relaxed));
    }

    #[test]
    fn a_save_is_due_once_there_is_something_new() {
        let (recorder, now) = (Recorder::new(3), Instant::now());
        assert!(!recorder.is_due(now + SAVE_EVERY));
        recorder.note_at(Oid(1), now);
        assert!(!recorder.is_due(now));
        assert!(recorder.is_due(now + SAVE_EVERY));
        recorder.news(now + SAVE_EVERY);
        assert!(!recorder.is_due(now + 3 * SAVE_EVERY));
        recorder.note_at(Oid(2), now + SAVE_EVERY);
        assert!(!recorder.is_due(now + SAVE_EVERY));
        assert!(recorder.is_due(now + 2 * SAVE_EVERY));
    }
}
