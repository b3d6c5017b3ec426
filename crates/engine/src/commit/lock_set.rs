//! The locks of one transaction: every key once, in the strongest mode requested.
//!
//! Key decision: the worker builds and sorts a set before it enters the commit mutex, so that the
//! lock table only has to walk it.

use std::cmp::Reverse;

use zodium_types::Oid;

/// A resource from which transactions exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockKey {
    /// One object: [`Exclusive`](LockMode::Exclusive) to write it, [`Shared`](LockMode::Shared)
    /// to rely on its revision (`readCurrent`).
    Object(Oid),
    /// The assignment of tids. Ordinary transactions share it. One with an explicit tid takes it
    /// alone, so that no other tid is given between its vote and its finish.
    Clock,
}

/// The mode of a lock, in order of strength.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Compatible with other shared locks.
    Shared,
    /// Compatible with no other lock.
    Exclusive,
}

impl LockMode {
    /// Whether two transactions may hold a key in these modes at the same time.
    pub fn is_compatible(self, other: LockMode) -> bool {
        self == LockMode::Shared && other == LockMode::Shared
    }
}

/// The keys of one request, ascending, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LockSet {
    entries: Vec<(LockKey, LockMode)>,
}

impl LockSet {
    /// Adds a key, or strengthens its mode. Constant time for [`LockKey::Clock`], the last key.
    pub fn add(&mut self, key: LockKey, mode: LockMode) {
        match self.entries.binary_search_by_key(&key, |&(key, _)| key) {
            Ok(index) => {
                if let Some((_, present)) = self.entries.get_mut(index) {
                    *present = mode.max(*present);
                }
            }
            Err(index) => self.entries.insert(index, (key, mode)),
        }
    }

    /// The keys with their modes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (LockKey, LockMode)> + '_ {
        self.entries.iter().copied()
    }

    /// Whether the owner of this set holds all locks of `other`.
    pub fn covers(&self, other: &LockSet) -> bool {
        other.iter().all(|(key, mode)| {
            let found = self.entries.binary_search_by_key(&key, |&(key, _)| key);
            found.ok().and_then(|at| self.entries.get(at)).is_some_and(|&(_, held)| held >= mode)
        })
    }

    /// Whether a key is in the set, in any mode.
    pub(super) fn names(&self, key: LockKey) -> bool {
        self.entries.binary_search_by_key(&key, |&(key, _)| key).is_ok()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the set has no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl FromIterator<(LockKey, LockMode)> for LockSet {
    fn from_iter<I: IntoIterator<Item = (LockKey, LockMode)>>(keys: I) -> LockSet {
        let keys = keys.into_iter();
        // One place more: the machine adds the clock inside the mutex, and must not reallocate.
        let mut entries = Vec::with_capacity(keys.size_hint().0 + 1);
        entries.extend(keys);
        entries.sort_unstable_by_key(|&(key, mode)| (key, Reverse(mode)));
        entries.dedup_by_key(|&mut (key, _)| key);
        LockSet { entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockMode::{Exclusive, Shared};

    #[test]
    fn duplicates_merge_and_exclusive_wins() {
        let one = LockKey::Object(Oid(1));
        let two = LockKey::Object(Oid(2));
        let set: LockSet =
            [(two, Shared), (one, Shared), (one, Exclusive), (one, Shared), (two, Shared)]
                .into_iter()
                .collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [(one, Exclusive), (two, Shared)]);
    }

    #[test]
    fn a_set_covers_what_is_in_it_no_stronger() {
        let set = |modes: &[(u64, LockMode)]| -> LockSet {
            modes.iter().map(|&(oid, mode)| (LockKey::Object(Oid(oid)), mode)).collect()
        };
        let held = set(&[(1, Exclusive), (2, Shared)]);
        assert!(held.covers(&set(&[])));
        assert!(held.covers(&set(&[(1, Shared), (2, Shared)])));
        assert!(!held.covers(&set(&[(2, Exclusive)])));
        assert!(!held.covers(&set(&[(1, Exclusive), (3, Shared)])));
    }

    #[test]
    fn adding_strengthens_and_never_weakens() {
        let mut set = LockSet::default();
        set.add(LockKey::Clock, Shared);
        set.add(LockKey::Object(Oid(7)), Exclusive);
        set.add(LockKey::Clock, Exclusive);
        set.add(LockKey::Clock, Shared);
        let expected = [(LockKey::Object(Oid(7)), Exclusive), (LockKey::Clock, Exclusive)];
        assert_eq!(set.iter().collect::<Vec<_>>(), expected);
        assert_eq!(set.len(), 2);
        assert!(!set.is_empty());
        assert!(LockSet::from_iter([]).is_empty());
    }
}
