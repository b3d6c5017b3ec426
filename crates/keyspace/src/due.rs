//! The keys of a database that expire, by time: what is due is found without a search.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::random_below;
use crate::table::HASH_BITS;

/// Entries that need not be of any key, before all are looked at.
const STALE_MAX: usize = 64;

/// Times in milliseconds, each with the hash of a key that may expire then.
///
/// A key that gets another time, or none, leaves its entry behind: the taker of an entry looks
/// whether there is an expired key with that hash.
#[derive(Debug, Default)]
pub(crate) struct Due {
    times: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Due {
    pub(crate) fn note(&mut self, at: u64, hash: u64) {
        self.times.push(Reverse((at, hash)));
    }

    /// Takes the hash of a key whose time is past.
    pub(crate) fn take(&mut self, now: u64) -> Option<u64> {
        let is_due = self.times.peek().is_some_and(|Reverse((at, _))| *at <= now);
        is_due.then(|| self.times.pop().map(|Reverse((_, hash))| hash))?
    }

    /// A time by chance, with the hash of a key that may expire then.
    pub(crate) fn random(&self) -> Option<(u64, u64)> {
        let times = self.times.as_slice();
        times.get(random_below(times.len())).map(|Reverse(entry)| *entry)
    }

    /// Whether most entries are left over: with so many keys that expire.
    pub(crate) fn is_stale(&self, keys: usize) -> bool {
        self.times.len() > STALE_MAX + 2 * keys
    }

    pub(crate) fn len(&self) -> usize {
        self.times.len()
    }

    pub(crate) fn rebuild(&mut self, times: impl Iterator<Item = (u64, u64)>) {
        self.times = times.map(Reverse).collect();
    }

    /// Keeps one of each entry for which a condition holds.
    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut((u64, u64)) -> bool) {
        let mut times = std::mem::take(&mut self.times).into_vec();
        times.retain(|Reverse(entry)| is_kept(*entry));
        // A key that has got the same time again has several. Of hashes a rebuild has only the bits
        // that a table looks at.
        times.sort_unstable();
        times.dedup_by_key(|Reverse((at, hash))| (*at, *hash >> HASH_BITS));
        times.shrink_to(STALE_MAX + 2 * times.len());
        self.times = times.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_each_entry_that_is_kept_stays() {
        let mut due = Due::default();
        for round in 0..1000 {
            due.note(round % 7, ((round % 7) << HASH_BITS) | round);
        }
        due.retain(|(at, _)| at % 2 == 0);
        assert_eq!(due.len(), 4);
        assert!(due.times.capacity() < 1000);
        let taken = std::iter::from_fn(|| due.take(6)).map(|hash| hash >> HASH_BITS);
        let taken: Vec<u64> = taken.collect();
        assert_eq!(taken, [0, 2, 4, 6]);
    }
}
