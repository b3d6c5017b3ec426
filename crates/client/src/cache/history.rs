//! The cached revisions of one object, oldest first.
//!
//! **Invariants.** Serials ascend. Only the last revision may be current, that is without an end.
//! A known end is never dropped or changed: it is a fact about the past.

use std::slice;
use std::sync::Arc;

use zodium_types::Tid;

use crate::Revision;

/// At least one revision of one object. Cheap to clone, as lookups do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum History {
    /// The common case.
    Single(Revision),
    /// More than one.
    Several(Arc<[Revision]>),
}

/// Most revisions kept of one object: enough for a few old views, not for a counter's whole past.
const REVISIONS_MAX: usize = 8;

/// Allocator overhead of the data, and the reference count of a shared `Bytes`.
const DATA_OVERHEAD_BYTES: usize = 64;

/// Reference counts of an `Arc`, and its allocator overhead.
const SHARED_OVERHEAD_BYTES: usize = 32;

impl History {
    /// A history of a single revision.
    pub(super) fn of(revision: Revision) -> History {
        History::Single(revision)
    }

    /// `None` if there are no revisions.
    fn of_all(mut revisions: Vec<Revision>) -> Option<History> {
        match revisions.len() {
            0 | 1 => revisions.pop().map(History::Single),
            _ => Some(History::Several(revisions.into())),
        }
    }

    /// All revisions, oldest first.
    pub(super) fn revisions(&self) -> &[Revision] {
        match self {
            History::Single(revision) => slice::from_ref(revision),
            History::Several(revisions) => revisions,
        }
    }

    /// The revision that a load before `before` asks for.
    pub(super) fn into_revision_before(self, before: Tid) -> Option<Revision> {
        match self {
            History::Single(revision) => Some(revision).filter(|it| is_seen(it, before)),
            History::Several(revisions) => {
                revisions.iter().rev().find(|it| is_seen(it, before)).cloned()
            }
        }
    }

    /// The revision that a transaction wrote.
    pub(super) fn revision_of(&self, serial: Tid) -> Option<&Revision> {
        self.revisions().iter().find(|revision| revision.serial == serial)
    }

    /// The history after transaction `tid` has written the object; `None` if it does not change.
    ///
    /// Revisions written by `tid` or later arrive before the invalidation of `tid`.
    pub(super) fn ended_at(&self, tid: Tid) -> Option<History> {
        let current = self.revisions().last()?;
        if current.end.is_some() || current.serial >= tid {
            return None;
        }
        let mut revisions = self.revisions().to_vec();
        if let Some(current) = revisions.last_mut() {
            current.end = Some(tid);
        }
        History::of_all(revisions)
    }

    /// The history with one more revision; `None` if it does not change.
    pub(super) fn with(&self, new: Revision, bytes_max: usize) -> Option<History> {
        let mut revisions = self.revisions().to_vec();
        match revisions.iter_mut().find(|known| known.serial == new.serial) {
            Some(known) if known.end.is_none() && new.end.is_some() => known.end = new.end,
            Some(_) => return None,
            None => {
                let place = revisions.partition_point(|known| known.serial < new.serial);
                let is_latest = place == revisions.len();
                if !is_latest && new.end.is_none() {
                    // No longer current, and its end is unknown.
                    return None;
                }
                if is_latest && revisions.last().is_some_and(|known| known.end.is_none()) {
                    // The same holds for the revision that was cached as current.
                    revisions.pop();
                }
                revisions.insert(place.min(revisions.len()), new);
            }
        }
        drop_oldest(&mut revisions, bytes_max);
        History::of_all(revisions)
    }

    /// The history without its current revision, for when that may be stale. `None` if it has no
    /// current revision, `Some(None)` if nothing is left.
    pub(super) fn without_current(&self) -> Option<Option<History>> {
        let (current, ended) = self.revisions().split_last()?;
        current.end.is_none().then(|| History::of_all(ended.to_vec()))
    }

    /// Memory it uses beyond the size of this type.
    pub(super) fn bytes(&self) -> usize {
        let data = self.revisions().iter().map(data_bytes).sum::<usize>();
        match self {
            History::Single(_) => data,
            History::Several(revisions) => {
                data + SHARED_OVERHEAD_BYTES + size_of_val::<[Revision]>(revisions)
            }
        }
    }
}

/// Whether a load before `before` asks for this revision.
fn is_seen(revision: &Revision, before: Tid) -> bool {
    revision.serial < before && revision.end.is_none_or(|end| before <= end)
}

fn data_bytes(revision: &Revision) -> usize {
    revision.data.len() + DATA_OVERHEAD_BYTES
}

/// Drops old revisions until at most [`REVISIONS_MAX`] and `bytes_max` are left, but keeps one.
fn drop_oldest(revisions: &mut Vec<Revision>, bytes_max: usize) {
    let mut bytes = 0;
    let kept = revisions.iter().rev().take(REVISIONS_MAX).take_while(|revision| {
        bytes += data_bytes(revision) + size_of::<Revision>();
        bytes <= bytes_max
    });
    let dropped = revisions.len() - kept.count().max(1);
    revisions.drain(..dropped);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const BYTES_MAX: usize = 1 << 20;

    fn revision(serial: u64, end: Option<u64>) -> Revision {
        Revision { serial: Tid(serial), end: end.map(Tid), data: Bytes::from_static(b"data") }
    }

    fn history(revisions: &[(u64, Option<u64>)]) -> History {
        let all = revisions.iter().map(|&(serial, end)| revision(serial, end));
        History::of_all(all.collect()).unwrap()
    }

    fn spans(history: &History) -> Vec<(u64, Option<u64>)> {
        let span = |it: &Revision| (it.serial.0, it.end.map(|end| end.0));
        history.revisions().iter().map(span).collect()
    }

    #[test]
    fn a_load_finds_what_was_written_before_and_not_replaced_before() {
        let history = history(&[(2, Some(4)), (6, Some(8)), (8, None)]);
        let found = |before| {
            history.clone().into_revision_before(Tid(before)).map(|revision| revision.serial.0)
        };
        let expected = [
            (2, None),
            (3, Some(2)),
            (4, Some(2)),
            (5, None),
            (6, None),
            (7, Some(6)),
            (8, Some(6)),
        ];
        for (before, serial) in expected {
            assert_eq!(found(before), serial, "before {before}");
        }
        assert_eq!(found(9), Some(8));
        assert_eq!(found(Tid::MAX.0), Some(8));
    }

    #[test]
    fn only_an_earlier_current_revision_ends() {
        assert_eq!(spans(&history(&[(2, None)]).ended_at(Tid(5)).unwrap()), [(2, Some(5))]);
        assert_eq!(history(&[(2, Some(4))]).ended_at(Tid(5)), None);
        assert_eq!(history(&[(5, None)]).ended_at(Tid(5)), None);
        assert_eq!(history(&[(6, None)]).ended_at(Tid(5)), None);
    }

    #[test]
    fn a_known_end_stays() {
        let ended = history(&[(2, Some(4))]);
        assert_eq!(ended.with(revision(2, None), BYTES_MAX), None);
        assert_eq!(ended.with(revision(2, Some(9)), BYTES_MAX), None);
        let current = history(&[(2, None)]);
        assert_eq!(spans(&current.with(revision(2, Some(4)), BYTES_MAX).unwrap()), [(2, Some(4))]);
    }

    #[test]
    fn what_is_no_longer_current_goes_when_its_end_is_not_known() {
        let current = history(&[(1, Some(2)), (2, None)]);
        let later = current.with(revision(5, None), BYTES_MAX).unwrap();
        assert_eq!(spans(&later), [(1, Some(2)), (5, None)]);
        let later = current.with(revision(5, Some(7)), BYTES_MAX).unwrap();
        assert_eq!(spans(&later), [(1, Some(2)), (5, Some(7))]);
        assert_eq!(later.with(revision(3, None), BYTES_MAX), None);
        let filled = later.with(revision(3, Some(5)), BYTES_MAX).unwrap();
        assert_eq!(spans(&filled), [(1, Some(2)), (3, Some(5)), (5, Some(7))]);
    }

    #[test]
    fn without_the_current_revision_the_past_stays() {
        let past = history(&[(1, Some(2)), (2, None)]).without_current().unwrap().unwrap();
        assert_eq!(spans(&past), [(1, Some(2))]);
        assert_eq!(past.without_current(), None);
        assert_eq!(history(&[(1, None)]).without_current(), Some(None));
    }

    #[test]
    fn the_oldest_revisions_make_room_for_later_ones() {
        let mut history = history(&[(1, None)]);
        for tid in 2..100 {
            history = history.ended_at(Tid(tid)).unwrap();
            history = history.with(revision(tid, None), BYTES_MAX).unwrap();
        }
        assert_eq!(history.revisions().len(), REVISIONS_MAX);
        assert_eq!(history.revisions().last().unwrap().serial, Tid(99));
        let small = history.ended_at(Tid(100)).unwrap().with(revision(100, None), 1).unwrap();
        assert_eq!(spans(&small), [(100, None)]);
        let of_one = data_bytes(&revision(1, None)) + size_of::<Revision>();
        let two = history.ended_at(Tid(100)).unwrap().with(revision(100, None), 2 * of_one);
        let two = two.unwrap();
        assert_eq!(spans(&two), [(99, Some(100)), (100, None)]);
        assert_eq!(two.bytes(), 2 * of_one + SHARED_OVERHEAD_BYTES);
    }
}
