//! The memo: numbered values that PUT stores and GET fetches.
//!
//! Picklers number densely, so the memo is a vector. Numbers that are spread are stored in a map:
//! the vector never has many more slots than values were stored.

use std::collections::BTreeMap;

/// Slots of the vector for each value that was stored, and those it may have besides.
const SLOTS_PER_VALUE: usize = 2;
const SLOTS_SPARE: usize = 64;

#[derive(Debug)]
pub(crate) struct Memo<T> {
    dense: Vec<Option<T>>,
    sparse: BTreeMap<u32, T>,
    count: u32,
}

impl<T: Copy> Memo<T> {
    pub(crate) fn with_capacity(capacity: usize) -> Memo<T> {
        Memo { dense: Vec::with_capacity(capacity), sparse: BTreeMap::new(), count: 0 }
    }

    pub(crate) fn put(&mut self, number: u32, item: T) {
        self.count = self.count.saturating_add(1);
        let index = number as usize;
        if let Some(slot) = self.dense.get_mut(index) {
            *slot = Some(item);
        } else if index <= SLOTS_PER_VALUE * self.count as usize + SLOTS_SPARE {
            self.dense.resize(index + 1, None);
            self.dense[index] = Some(item);
        } else {
            self.sparse.insert(number, item);
        }
    }

    /// Stores under the next number, as MEMOIZE does: the number of items stored so far.
    pub(crate) fn push(&mut self, item: T) {
        self.put(self.count, item);
    }

    /// How many slots it has, some without an item.
    pub(crate) fn slot_count(&self) -> usize {
        self.dense.len() + self.sparse.len()
    }

    /// All items, in a walk over all slots.
    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.dense.iter().flatten().chain(self.sparse.values())
    }

    pub(crate) fn fetch(&self, number: u32) -> Option<T> {
        match self.dense.get(number as usize) {
            Some(Some(item)) => Some(*item),
            _ => self.sparse.get(&number).copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_number_does_not_make_the_store_huge() {
        let mut memo = Memo::with_capacity(0);
        memo.put(u32::MAX, 'a');
        memo.put(3, 'b');
        assert_eq!(memo.fetch(u32::MAX), Some('a'));
        assert_eq!(memo.fetch(3), Some('b'));
        assert_eq!(memo.fetch(2), None);
        assert!(memo.dense.len() < 10);
    }

    #[test]
    fn spread_numbers_do_not_make_the_store_large() {
        let mut memo = Memo::with_capacity(0);
        for number in (0..1000).map(|place| place * SLOTS_SPARE as u32) {
            memo.put(number, number);
        }
        assert!((0..1000).all(|place| memo.fetch(place * 64) == Some(place * 64)));
        assert!(memo.dense.len() + memo.sparse.len() < 1100, "{}", memo.dense.len());
    }

    #[test]
    fn a_number_reached_by_the_vector_later_is_still_found() {
        let mut memo = Memo::with_capacity(0);
        memo.put(100, 'a');
        for number in 0..90 {
            memo.put(number, 'b');
        }
        memo.put(120, 'c');
        assert_eq!(memo.fetch(100), Some('a'));
        memo.put(100, 'd');
        assert_eq!(memo.fetch(100), Some('d'));
    }
}
