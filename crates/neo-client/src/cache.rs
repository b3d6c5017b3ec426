//! Current revisions in memory.
//!
//! Key decision: only what is current is kept, and a commit takes its objects out before it is told
//! of. So what is found here needs no comparison, and no second request for the next revision.
//!
//! A commit takes its objects out before it counts in `freshness`. A reader takes a number and then
//! looks here: what it finds in spite of the commit has a number from before it.

use std::ops::ControlFlow;

use bytes::Bytes;
use parking_lot::RwLock;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use zodium_storage::{Freshness, LOOKED_UP_TOGETHER, ResidentRevision, ResidentRevisions};
use zodium_types::{Oid, Tid};

/// What an entry takes beside its data.
const ENTRY_BYTES: u64 = 160;
/// Bytes of an object that the size of the table is estimated by.
const OBJECT_BYTES: usize = 1 << 10;

/// A current revision.
#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) serial: Tid,
    pub(crate) data: Bytes,
}

/// Current revisions, and the commits that end them.
pub(crate) struct CurrentRevisions {
    /// `None`: nothing is kept.
    kept: Option<Cache<Oid, Current, EntryBytes>>,
    freshness: Freshness,
    /// Written while a commit takes its objects out, so that no older answer comes in afterwards.
    changing: RwLock<()>,
}

/// Weighs entries.
#[derive(Clone)]
struct EntryBytes;

impl Weighter<Oid, Current> for EntryBytes {
    fn weight(&self, _: &Oid, current: &Current) -> u64 {
        current.data.len() as u64 + ENTRY_BYTES
    }
}

impl CurrentRevisions {
    /// Keeps so many bytes at most; with 0 none.
    pub(crate) fn new(bytes: u64) -> CurrentRevisions {
        let objects = usize::try_from(bytes).unwrap_or(usize::MAX) / OBJECT_BYTES;
        let kept = (bytes > 0).then(|| Cache::with_weighter(objects.max(1), bytes, EntryBytes));
        CurrentRevisions { kept, freshness: Freshness::default(), changing: RwLock::default() }
    }

    /// The number for an answer that is about to be asked for: see [`Freshness`].
    pub(crate) fn now(&self) -> u64 {
        self.freshness.now()
    }

    /// Whether an answer with this number may still say that it is current.
    pub(crate) fn is_current(&self, oid: Oid, number: u64) -> bool {
        self.freshness.is_current(oid, number)
    }

    /// Takes out what a commit has changed. From now on earlier answers are stale.
    pub(crate) fn note_commit(&self, oids: &[Oid]) {
        let _changing = self.changing.write();
        if let Some(kept) = &self.kept {
            oids.iter().for_each(|oid| drop(kept.remove(oid)));
        }
        self.freshness.note_commit(oids);
    }

    /// From now on earlier answers are stale. What is current stays so.
    pub(crate) fn note_pack(&self) {
        let _changing = self.changing.write();
        self.freshness.note_pack();
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let _changing = self.changing.write();
        if let Some(kept) = &self.kept {
            kept.clear();
        }
        self.freshness.note_pack();
    }

    /// Keeps an answer that said that it is current, if it still is. `number` is from before it was
    /// asked for.
    pub(crate) fn insert(&self, oid: Oid, current: Current, number: u64) {
        let Some(kept) = &self.kept else { return };
        let _changing = self.changing.read();
        if self.freshness.is_current(oid, number) {
            kept.insert(oid, current);
        }
    }

    /// The current revision of an object, if it is here.
    pub(crate) fn find(&self, oid: Oid) -> Option<Current> {
        self.kept.as_ref()?.get(&oid)
    }
}

impl ResidentRevisions for CurrentRevisions {
    fn look_up(
        &self,
        oids: &[Oid],
        visit: &mut dyn FnMut(usize, Option<ResidentRevision<'_>>) -> ControlFlow<()>,
    ) {
        for (number, oid) in oids.iter().take(LOOKED_UP_TOGETHER).enumerate() {
            let found = self.find(*oid);
            let flow = match &found {
                Some(Current { serial, data }) => {
                    let share = || data.clone();
                    visit(number, Some(ResidentRevision { data, serial: *serial, share: &share }))
                }
                None => visit(number, None),
            };
            if flow.is_break() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn current(serial: u64) -> Current {
        Current { serial: Tid(serial), data: Bytes::from_static(b"data") }
    }

    fn serial(cache: &CurrentRevisions, oid: u64) -> Option<u64> {
        cache.find(Oid(oid)).map(|found| found.serial.0)
    }

    #[test]
    fn commits_take_their_objects_out_and_earlier_answers_stay_out() {
        let cache = CurrentRevisions::new(1 << 20);
        let before = cache.now();
        cache.insert(Oid(1), current(10), before);
        cache.insert(Oid(2), current(10), before);
        cache.note_commit(&[Oid(1), Oid(3)]);
        assert_eq!((serial(&cache, 1), serial(&cache, 2)), (None, Some(10)));
        cache.insert(Oid(3), current(10), before);
        assert_eq!(serial(&cache, 3), None, "the answer is from before the commit");
        cache.insert(Oid(3), current(20), cache.now());
        assert_eq!(serial(&cache, 3), Some(20));
        cache.clear();
        assert_eq!((serial(&cache, 2), serial(&cache, 3)), (None, None));
    }

    #[test]
    fn what_is_found_beside_a_commit_is_stale_after_it() {
        let last = Oid(9_999);
        let oids: Vec<_> = (0..=last.0).map(Oid).collect();
        for _ in 0..20 {
            let cache = CurrentRevisions::new(100 << 20);
            cache.insert(last, current(10), cache.now());
            let number = thread::scope(|scope| {
                let mut found = cache.now();
                scope.spawn(|| cache.note_commit(&oids));
                loop {
                    let number = cache.now();
                    if cache.find(last).is_none() {
                        return found;
                    }
                    found = number;
                }
            });
            assert!(!cache.is_current(last, number));
        }
    }

    #[test]
    fn memory_is_bounded_and_can_be_none() {
        let cache = CurrentRevisions::new(100 << 10);
        let data = Bytes::from(vec![0; 1000]);
        for oid in 0..1000 {
            cache.insert(Oid(oid), Current { serial: Tid(1), data: data.clone() }, cache.now());
        }
        let kept = (0..1000).filter(|oid| serial(&cache, *oid).is_some()).count();
        assert!((20..=100).contains(&kept), "{kept}");
        let none = CurrentRevisions::new(0);
        none.insert(Oid(1), current(1), none.now());
        assert_eq!(serial(&none, 1), None);
    }

    #[test]
    fn objects_are_looked_up_in_their_order_until_one_is_enough() {
        let cache = CurrentRevisions::new(1 << 20);
        cache.insert(Oid(2), current(7), cache.now());
        let mut seen = Vec::new();
        cache.look_up(&[Oid(1), Oid(2), Oid(3)], &mut |number, found| {
            seen.push((number, found.map(|found| (found.serial, (found.share)()))));
            if number == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(seen, [(0, None), (1, Some((Tid(7), Bytes::from_static(b"data"))))]);
    }
}
