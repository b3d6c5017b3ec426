//! A map from oids to one number each, for every object of a database.
//!
//! Key decision: ZODB numbers objects in sequence, so the numbers are in pages of 256 oids: 8
//! bytes an object, and no key. Oids that are spread thinly cost a small page each.

use rustc_hash::FxHashMap;
use zodium_types::Oid;

const PAGE_OIDS: u64 = 256;
/// A page that holds no more than this many objects is a list of pairs.
const SPARSE_MAX: usize = 16;

/// One number below `u64::MAX` for each oid.
#[derive(Debug, Default)]
pub struct OidMap {
    pages: FxHashMap<u64, Page>,
}

#[derive(Debug)]
enum Page {
    /// Oids within the page, with their numbers.
    Sparse(Vec<(u8, u64)>),
    /// `u64::MAX` where there is none.
    Dense(Box<[u64; PAGE_OIDS as usize]>),
}

impl OidMap {
    /// The number of an object.
    pub fn find(&self, oid: Oid) -> Option<u64> {
        let (page, slot) = place(oid);
        match self.pages.get(&page)? {
            Page::Sparse(pairs) => {
                pairs.iter().find(|(place, _)| *place == slot).map(|(_, number)| *number)
            }
            Page::Dense(numbers) => Some(numbers[usize::from(slot)]).filter(|n| *n != u64::MAX),
        }
    }

    /// Sets the number of an object, and gives the one it had.
    pub fn insert(&mut self, oid: Oid, number: u64) -> Option<u64> {
        let (page, slot) = place(oid);
        let page = self.pages.entry(page).or_insert_with(|| Page::Sparse(Vec::new()));
        match page {
            Page::Dense(numbers) => {
                let old = std::mem::replace(&mut numbers[usize::from(slot)], number);
                Some(old).filter(|old| *old != u64::MAX)
            }
            Page::Sparse(pairs) => {
                if let Some((_, old)) = pairs.iter_mut().find(|(place, _)| *place == slot) {
                    return Some(std::mem::replace(old, number));
                }
                if pairs.len() < SPARSE_MAX {
                    pairs.push((slot, number));
                    return None;
                }
                let mut numbers = Box::new([u64::MAX; PAGE_OIDS as usize]);
                for (slot, number) in pairs.iter().copied().chain([(slot, number)]) {
                    numbers[usize::from(slot)] = number;
                }
                *page = Page::Dense(numbers);
                None
            }
        }
    }

    /// Shows all objects in the order of their oids.
    pub fn each(&self, mut visit: impl FnMut(Oid, u64)) {
        let mut pages: Vec<_> = self.pages.iter().collect();
        pages.sort_unstable_by_key(|(page, _)| **page);
        for (page, content) in pages {
            let oid = |slot: u64| Oid(page * PAGE_OIDS + slot);
            match content {
                Page::Sparse(pairs) => {
                    let mut pairs = pairs.clone();
                    pairs.sort_unstable();
                    pairs.iter().for_each(|(slot, number)| visit(oid(u64::from(*slot)), *number));
                }
                Page::Dense(numbers) => {
                    let present = (0..).zip(numbers.iter()).filter(|(_, n)| **n != u64::MAX);
                    present.for_each(|(slot, number)| visit(oid(slot), *number));
                }
            }
        }
    }
}

fn place(oid: Oid) -> (u64, u8) {
    (oid.0 / PAGE_OIDS, (oid.0 % PAGE_OIDS) as u8)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_is_a_map_for_dense_and_for_thin_oids() {
        let (mut map, mut model) = (OidMap::default(), BTreeMap::new());
        let mut random = 1_u64;
        for step in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let oid = match step % 4 {
                0 => random,
                1 => (random >> 40) << 7,
                _ => random >> 52,
            };
            let oid = Oid(oid);
            assert_eq!(map.find(oid), model.get(&oid).copied());
            assert_eq!(map.insert(oid, step), model.insert(oid, step));
        }
        let mut all = Vec::new();
        map.each(|oid, number| all.push((oid, number)));
        assert_eq!(all, model.into_iter().collect::<Vec<_>>());
    }
}
