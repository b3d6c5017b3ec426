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
    /// By their first oids, whose hashes clients that choose oids do not know.
    pages: FxHashMap<Oid, Page>,
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
        pages.sort_unstable_by_key(|(first, _)| **first);
        for (first, content) in pages {
            let oid = |slot: u64| Oid(first.0 + slot);
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

/// The first oid of the page, and the place in it.
fn place(oid: Oid) -> (Oid, u8) {
    let slot = oid.0 % PAGE_OIDS;
    (Oid(oid.0 - slot), slot as u8)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::hash::BuildHasher;

    use rustc_hash::FxHashSet;

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

    #[test]
    fn chosen_oids_do_not_share_one_place_of_the_map() {
        const FACTOR: u64 = 0xf135_7aea_2e62_a9c5;
        // Numbers of pages for which the hasher alone has all low bits zero: it multiplies, then
        // rotates. So it has for their first oids.
        let inverse =
            (0..6).fold(FACTOR, |x, _| x.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(x))));
        let pages = (1_u64..).map(|n| n.wrapping_mul(inverse)).filter(|page| page >> 56 == 0);
        let mut map = OidMap::default();
        pages.take(1000).for_each(|page| assert_eq!(map.insert(Oid(page << 8), 1), None));
        let place = |hash: u64| hash & ((1 << 22) - 1);
        let (hasher, firsts) = (map.pages.hasher(), || map.pages.keys());
        let plain: FxHashSet<u64> = firsts()
            .flat_map(|Oid(oid)| [*oid, oid >> 8])
            .map(|n| place(hasher.hash_one(n)))
            .collect();
        assert_eq!(plain.len(), 1, "else the oids are not chosen well");
        let places: FxHashSet<u64> = firsts().map(|first| place(hasher.hash_one(first))).collect();
        assert!(places.len() > 900, "{}", places.len());
    }
}
