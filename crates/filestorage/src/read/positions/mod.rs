//! Position of the current record of each object: oid -> file position, read without a lock.
//!
//! Oids are small dense integers, so the index is an array: pages of 4096 positions behind a
//! two-level directory. A lookup takes three dependent loads, and an object takes 8 bytes. Oids
//! above 2^32, or too sparse for a page, are in a skip list.
//!
//! **Which of the two.** A page is made as soon as an object needs it and there is credit for it.
//! Each new object earns [`CREDIT_BYTES_PER_OBJECT`], up to a balance of [`CREDIT_BYTES_MAX`]. A
//! page or a block of the directory costs the bytes it occupies. So whatever oids a client invents,
//! `n` new objects make at most `CREDIT_BYTES_MAX + n * CREDIT_BYTES_PER_OBJECT` bytes of pages and
//! directory. Each object in the skip list takes about 56 bytes more: under 200 bytes an object in
//! all. Objects numbered in sequence use a sixteenth of that credit and never enter the skip list.
//!
//! **Invariant:** once a page exists it holds every object of its range. Objects move from the skip
//! list into a new page; they are in both places for a moment, never in neither.

#[cfg(test)]
#[cfg(loom)]
mod models;

use std::ops::Range;

use zodium_types::Oid;

use crate::sync::{AtomicU64, OnceLock, Ordering, SkipMap, cells, fence, zeros};

/// The index of current records: for each oid the position in the file of its newest data record.
///
/// Any number of threads look up; one thread at a time publishes (the log writer, or the builder of
/// the index before the storage is open).
pub(crate) struct Positions {
    directory: Box<Directory>,
    sparse: SkipMap<u64, AtomicU64>,
    tally: Tally,
}

/// The objects of [`Positions`] in oid order.
pub(crate) struct Iter<'a> {
    positions: &'a Positions,
    /// The smallest oid not yet returned; `None` at the end of the oid space.
    next: Option<u64>,
    /// The first object at or after `next` that the last look at the skip list found.
    sparse: Option<(u64, u64)>,
}

/// Fields that only the publisher writes. They have their own cache lines, because every lookup
/// reads the neighbouring fields.
#[repr(align(128))]
struct Tally {
    objects: AtomicU64,
    oid_max: AtomicU64,
    credit_bytes: AtomicU64,
}

type Directory = [OnceLock<Box<Block>>; DIRECTORY_BLOCKS];
type Block = [OnceLock<Box<Page>>; BLOCK_PAGES];
type Page = [AtomicU64; PAGE_SLOTS];

// The loom model has two pages of two slots, because it explores every order of accesses.
const PAGE_SLOTS: usize = if cfg!(loom) { 2 } else { 4096 };
const BLOCK_PAGES: usize = if cfg!(loom) { 2 } else { 1024 };
const DIRECTORY_BLOCKS: usize = if cfg!(loom) { 1 } else { 1024 };

const PAGE_OIDS: u64 = PAGE_SLOTS as u64;
const BLOCK_OIDS: u64 = PAGE_OIDS * BLOCK_PAGES as u64;
/// Oids from here on are always in the skip list.
const DENSE_OIDS: u64 = BLOCK_OIDS * DIRECTORY_BLOCKS as u64;

const PAGE_BYTES: u64 = size_of::<Page>() as u64;
const BLOCK_BYTES: u64 = size_of::<Block>() as u64;

/// The objects of a page have paid for it when it is a sixteenth full.
const CREDIT_BYTES_PER_OBJECT: u64 = PAGE_BYTES * 16 / PAGE_OIDS;
/// Largest balance of credit. Without this limit, the first sparse oids in a large dense database
/// could spend the credit of all its objects at once.
const CREDIT_BYTES_MAX: u64 = 2 << 20;

/// Marks an empty slot. The magic is at position 0, so no record is. New pages are filled with it.
const ABSENT: u64 = 0;

const _: () = assert!(DENSE_OIDS == 1 << 32 || cfg!(loom));
const _: () = assert!(CREDIT_BYTES_MAX > PAGE_BYTES + BLOCK_BYTES);

impl Positions {
    /// An empty index, about 16 KB.
    pub(crate) fn new() -> Positions {
        Positions {
            directory: cells(),
            sparse: SkipMap::new(),
            tally: Tally {
                objects: AtomicU64::new(0),
                oid_max: AtomicU64::new(0),
                credit_bytes: AtomicU64::new(CREDIT_BYTES_MAX),
            },
        }
    }

    /// The file position of the current record of `oid`; `None` for an unknown object.
    ///
    /// Never locks, never makes a system call. All writes that the publisher made before it
    /// published the position are visible to the caller: Acquire here pairs with Release in
    /// [`Positions::publish`].
    #[inline]
    pub(crate) fn position(&self, oid: Oid) -> Option<u64> {
        match self.page(oid.0) {
            Some(page) => present(page[slot_of(oid.0)].load(Ordering::Acquire)),
            None => self.sparse_position(oid.0),
        }
    }

    /// Makes `position` the current record of `oid` and returns the one before.
    ///
    /// One thread at a time: two at once would not be unsafe, but could lose a position, or an
    /// object in the count. Release here pairs with Acquire in [`Positions::position`].
    ///
    /// # Panics
    /// When `position` is 0, which means "absent" and is never the position of a record.
    pub(crate) fn publish(&self, oid: Oid, position: u64) -> Option<u64> {
        assert_ne!(position, ABSENT, "no record lies at the start of the file");
        let previous = match self.page(oid.0).or_else(|| self.make_page(oid.0)) {
            Some(page) => replace(&page[slot_of(oid.0)], position),
            None => self.publish_sparse(oid.0, position),
        };
        if previous.is_none() {
            self.tally.add(oid.0);
        }
        previous
    }

    /// Number of objects.
    pub(crate) fn len(&self) -> u64 {
        self.tally.objects.load(Ordering::Acquire)
    }

    /// Whether the index has no objects.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest oid; `None` when there is no object.
    pub(crate) fn largest_oid(&self) -> Option<Oid> {
        // Acquire pairs with Release in `Tally::add`: a reader that counts the object sees its oid.
        let objects = self.tally.objects.load(Ordering::Acquire);
        (objects != 0).then(|| Oid(self.tally.oid_max.load(Ordering::Relaxed)))
    }

    /// The object with the smallest oid at or after `oid`, with its position.
    pub(crate) fn next_from(&self, oid: Oid) -> Option<(Oid, u64)> {
        self.iter_from(oid).next()
    }

    /// All objects in oid order.
    ///
    /// Not a snapshot. An object that is there at the start is returned once, with a position it
    /// has had since. An object added meanwhile may or may not be returned.
    pub(crate) fn iter(&self) -> Iter<'_> {
        self.iter_from(Oid(0))
    }

    fn iter_from(&self, oid: Oid) -> Iter<'_> {
        Iter { positions: self, next: Some(oid.0), sparse: self.next_sparse(oid.0) }
    }

    #[inline]
    fn page(&self, oid: u64) -> Option<&Page> {
        if oid >= DENSE_OIDS {
            return None;
        }
        let page = self.directory[block_of(oid)].get()?[page_of(oid)].get()?;
        Some(page)
    }

    #[cold]
    fn sparse_position(&self, oid: u64) -> Option<u64> {
        if !self.sparse.is_empty()
            && let Some(entry) = self.sparse.get(&oid)
        {
            return present(entry.value().load(Ordering::Acquire));
        }
        // The page may have been made after the caller's look at the pages and before this one.
        // Pairs with the fence in `make_page`: a reader that misses a moved object sees its page.
        fence(Ordering::Acquire);
        present(self.page(oid)?[slot_of(oid)].load(Ordering::Acquire))
    }

    fn publish_sparse(&self, oid: u64, position: u64) -> Option<u64> {
        if let Some(entry) = self.sparse.get(&oid) {
            return replace(entry.value(), position);
        }
        self.sparse.insert(oid, AtomicU64::new(position));
        None
    }

    /// Makes the missing page of `oid` and moves the skip list's objects of its range into it;
    /// `None` when there is no credit for it.
    #[cold]
    fn make_page(&self, oid: u64) -> Option<&Page> {
        if oid >= DENSE_OIDS {
            return None;
        }
        let block = &self.directory[block_of(oid)];
        let block_cost = if block.get().is_none() { BLOCK_BYTES } else { 0 };
        if !self.tally.spend(block_cost + PAGE_BYTES) {
            return None;
        }
        let block = block.get_or_init(cells);

        let first = oid - oid % PAGE_OIDS;
        let range = first..first + PAGE_OIDS;
        // Complete before any reader can see it: from then on readers use this page alone.
        let page = block[page_of(oid)].get_or_init(|| self.page_from_sparse(range.clone()));
        // Pairs with the fences of readers that miss an object in the skip list.
        fence(Ordering::Release);
        for entry in self.sparse.range(range) {
            entry.remove();
        }
        Some(page)
    }

    fn page_from_sparse(&self, range: Range<u64>) -> Box<Page> {
        let page: Box<Page> = zeros();
        for entry in self.sparse.range(range) {
            let position = entry.value().load(Ordering::Relaxed);
            page[slot_of(*entry.key())].store(position, Ordering::Relaxed);
        }
        page
    }

    fn next_sparse(&self, oid: u64) -> Option<(u64, u64)> {
        if self.sparse.is_empty() {
            return None;
        }
        let entry = self.sparse.range(oid..).next()?;
        Some((*entry.key(), entry.value().load(Ordering::Acquire)))
    }

    /// The first object with a page in `first..=last`.
    fn next_dense(&self, first: u64, last: u64) -> Option<(u64, u64)> {
        let end = last.saturating_add(1).min(DENSE_OIDS);
        let mut oid = first;
        while oid < end {
            let Some(block) = self.directory[block_of(oid)].get() else {
                oid = (oid / BLOCK_OIDS + 1) * BLOCK_OIDS;
                continue;
            };
            let page_end = (oid / PAGE_OIDS + 1) * PAGE_OIDS;
            if let Some(page) = block[page_of(oid)].get() {
                for oid in oid..page_end.min(end) {
                    let position = page[slot_of(oid)].load(Ordering::Acquire);
                    if position != ABSENT {
                        return Some((oid, position));
                    }
                }
            }
            oid = page_end;
        }
        None
    }
}

impl Default for Positions {
    fn default() -> Positions {
        Positions::new()
    }
}

impl Iterator for Iter<'_> {
    type Item = (Oid, u64);

    fn next(&mut self) -> Option<(Oid, u64)> {
        let first = self.next?;
        // The skip list is searched before the pages: an object that moves in between is found in
        // its page. Pairs with the fence in `make_page`.
        fence(Ordering::Acquire);
        let last = self.sparse.map_or(u64::MAX, |(oid, _)| oid);
        let found = self.positions.next_dense(first, last).or(self.sparse);
        self.next = found.and_then(|(oid, _)| oid.checked_add(1));
        if let (Some((oid, _)), Some(next)) = (self.sparse, self.next)
            && oid < next
        {
            self.sparse = self.positions.next_sparse(next);
        }
        found.map(|(oid, position)| (Oid(oid), position))
    }
}

impl Tally {
    /// Counts a new object. Its position is published already, so `len` never runs ahead.
    ///
    /// Only the publisher calls this, so no step has to be atomic: building an index of ten million
    /// objects takes a third of the time.
    fn add(&self, oid: u64) {
        if oid > self.oid_max.load(Ordering::Relaxed) {
            self.oid_max.store(oid, Ordering::Relaxed);
        }
        let credit = self.credit_bytes.load(Ordering::Relaxed) + CREDIT_BYTES_PER_OBJECT;
        self.credit_bytes.store(credit.min(CREDIT_BYTES_MAX), Ordering::Relaxed);
        let objects = self.objects.load(Ordering::Relaxed);
        self.objects.store(objects + 1, Ordering::Release);
    }

    fn spend(&self, cost_bytes: u64) -> bool {
        let credit = self.credit_bytes.load(Ordering::Relaxed);
        let Some(rest) = credit.checked_sub(cost_bytes) else { return false };
        self.credit_bytes.store(rest, Ordering::Relaxed);
        true
    }
}

/// Only the publisher calls this, so the loaded value cannot change before the store.
#[inline]
fn replace(place: &AtomicU64, position: u64) -> Option<u64> {
    let previous = place.load(Ordering::Relaxed);
    place.store(position, Ordering::Release);
    present(previous)
}

fn present(position: u64) -> Option<u64> {
    (position != ABSENT).then_some(position)
}

// The remainders keep the indices within their arrays, so the compiler can drop the checks.
fn block_of(oid: u64) -> usize {
    (oid / BLOCK_OIDS) as usize % DIRECTORY_BLOCKS
}

fn page_of(oid: u64) -> usize {
    (oid / PAGE_OIDS) as usize % BLOCK_PAGES
}

fn slot_of(oid: u64) -> usize {
    oid as usize % PAGE_SLOTS
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::{BTreeMap, HashSet};
    use std::sync::atomic::AtomicUsize;

    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::seq::SliceRandom;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Bytes of pages and directory blocks.
    fn dense_bytes(positions: &Positions) -> u64 {
        let blocks: Vec<_> = positions.directory.iter().filter_map(|block| block.get()).collect();
        let pages =
            blocks.iter().flat_map(|block| block.iter()).filter(|page| page.get().is_some());
        blocks.len() as u64 * BLOCK_BYTES + pages.count() as u64 * PAGE_BYTES
    }

    fn publish_all(oids: impl IntoIterator<Item = u64>) -> Positions {
        let positions = Positions::new();
        for oid in oids {
            positions.publish(Oid(oid), oid.wrapping_add(100).max(1));
        }
        positions
    }

    fn assert_within_bound(positions: &Positions) {
        let bound = CREDIT_BYTES_MAX + positions.len() * CREDIT_BYTES_PER_OBJECT;
        assert!(dense_bytes(positions) <= bound, "{} > {bound}", dense_bytes(positions));
    }

    #[test]
    fn unknown_objects_have_no_position() {
        let positions = Positions::new();
        for oid in [0, 1, 4096, DENSE_OIDS - 1, DENSE_OIDS, u64::MAX] {
            assert_eq!(positions.position(Oid(oid)), None);
        }
        assert_eq!(positions.next_from(Oid(0)), None);
        assert_eq!(positions.largest_oid(), None);
        assert_eq!(positions.iter().count(), 0);
        assert!(positions.is_empty());
    }

    #[test]
    fn publish_returns_the_position_before() {
        let positions = Positions::new();
        for oid in [0, 5, DENSE_OIDS - 1, DENSE_OIDS, u64::MAX] {
            assert_eq!(positions.publish(Oid(oid), 10), None);
            assert_eq!(positions.publish(Oid(oid), 20), Some(10));
            assert_eq!(positions.position(Oid(oid)), Some(20));
        }
        assert_eq!(positions.len(), 5);
        assert_eq!(positions.largest_oid(), Some(Oid(u64::MAX)));
        assert_eq!(positions.next_from(Oid(u64::MAX)), Some((Oid(u64::MAX), 20)));
    }

    #[test]
    #[should_panic(expected = "start of the file")]
    fn position_zero_is_refused() {
        Positions::new().publish(Oid(1), 0);
    }

    #[test]
    fn sequential_oids_cost_eight_bytes_and_never_meet_the_skip_list() {
        let positions = publish_all(0..1_000_000);
        assert!(positions.sparse.is_empty());
        assert!(dense_bytes(&positions) < 8 * 1_000_000 + PAGE_BYTES + BLOCK_BYTES);
        assert!(positions.iter().map(|(oid, _)| oid.0).eq(0..1_000_000));
    }

    #[test]
    fn dense_oids_in_random_order_all_end_up_in_pages() {
        let mut oids: Vec<u64> = (0..1_000_000).collect();
        oids.shuffle(&mut SmallRng::seed_from_u64(1));
        let positions = publish_all(oids);
        assert!(positions.sparse.is_empty());
        assert!(positions.iter().map(|(oid, _)| oid.0).eq(0..1_000_000));
    }

    #[test]
    fn random_64_bit_oids_make_no_pages() {
        let mut random = SmallRng::seed_from_u64(2);
        let positions = publish_all((0..100_000).map(|_| random.random::<u64>() | DENSE_OIDS));
        assert_eq!(dense_bytes(&positions), 0);
        assert_eq!(positions.sparse.len() as u64, positions.len());
    }

    #[test]
    fn random_32_bit_oids_stay_within_the_bound_at_every_moment() {
        let mut random = SmallRng::seed_from_u64(3);
        let positions = Positions::new();
        for _ in 0..60 {
            for _ in 0..5000 {
                positions.publish(Oid(random.random::<u32>().into()), 7);
            }
            assert_within_bound(&positions);
        }
        assert!(dense_bytes(&positions) > positions.len() * CREDIT_BYTES_PER_OBJECT / 2);
    }

    #[test]
    fn hostile_oids_cannot_spend_what_a_dense_database_has_earned() {
        let positions = publish_all(0..1_000_000);
        let before = dense_bytes(&positions);
        let mut random = SmallRng::seed_from_u64(4);
        for _ in 0..10_000 {
            positions.publish(Oid(random.random::<u32>().into()), 7);
        }
        let grown = dense_bytes(&positions) - before;
        assert!(grown <= CREDIT_BYTES_MAX + 10_000 * CREDIT_BYTES_PER_OBJECT, "{grown}");
    }

    #[test]
    fn dense_objects_get_their_pages_in_spite_of_a_hostile_client() {
        let mut random = SmallRng::seed_from_u64(5);
        let positions = Positions::new();
        for oid in 0..100_000 {
            positions.publish(Oid(oid), 7);
            for _ in 0..9 {
                positions.publish(Oid(random.random::<u32>().into()), 7);
            }
        }
        let sparse = positions.sparse.range(0..100_000).count();
        assert!(sparse < 2 * PAGE_SLOTS, "{sparse} of the dense objects are in the skip list");
        assert_within_bound(&positions);
    }

    #[test]
    fn a_new_page_takes_its_objects_out_of_the_skip_list() {
        let positions = Positions::new();
        positions.tally.credit_bytes.store(0, Ordering::Relaxed);
        let enough = (PAGE_BYTES + BLOCK_BYTES).div_ceil(CREDIT_BYTES_PER_OBJECT);
        for oid in 0..enough {
            positions.publish(Oid(oid * 3), oid + 1);
        }
        assert_eq!((dense_bytes(&positions), positions.sparse.len() as u64), (0, enough));
        assert_eq!(positions.publish(Oid(0), 500), Some(1));
        assert_eq!(dense_bytes(&positions), PAGE_BYTES + BLOCK_BYTES);
        assert!(positions.sparse.is_empty());
        assert_eq!(positions.position(Oid(0)), Some(500));
        assert!((1..enough).all(|oid| positions.position(Oid(oid * 3)) == Some(oid + 1)));
        assert_eq!(positions.len(), enough);
    }

    /// Oids near all the edges of the structure, which make collisions and updates common.
    fn any_oid() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..10_000_u64,
            (0..64_u64).prop_map(|page| page * PAGE_OIDS * 7),
            (0..8_u64).prop_map(|block| block * BLOCK_OIDS * 100 + PAGE_OIDS - 1),
            DENSE_OIDS - 3..DENSE_OIDS + 3,
            u64::MAX - 3..=u64::MAX,
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_an_ordered_map(
            credit_bytes in 0..4 * PAGE_BYTES,
            published in prop::collection::vec((any_oid(), 1..1_000_000_u64), 1..800),
            asked in prop::collection::vec(any_oid(), 50),
        ) {
            let positions = Positions::new();
            positions.tally.credit_bytes.store(credit_bytes, Ordering::Relaxed);
            let mut model = BTreeMap::new();
            for (oid, position) in published {
                prop_assert_eq!(positions.publish(Oid(oid), position), model.insert(oid, position));
            }
            prop_assert_eq!(positions.len(), model.len() as u64);
            prop_assert_eq!(positions.largest_oid(), model.keys().next_back().map(|&oid| Oid(oid)));
            for oid in asked {
                prop_assert_eq!(positions.position(Oid(oid)), model.get(&oid).copied());
                let next = model.range(oid..).next().map(|(&oid, &position)| (Oid(oid), position));
                prop_assert_eq!(positions.next_from(Oid(oid)), next);
            }
            let all: Vec<_> = positions.iter().map(|(oid, position)| (oid.0, position)).collect();
            prop_assert_eq!(all, model.into_iter().collect::<Vec<_>>());
        }
    }

    /// A position that encodes the object and the revision.
    fn stamp(object: usize, revision: u64) -> u64 {
        (object as u64 + 1) << 8 | revision
    }

    /// 4000 objects over 1000 pages in random order. Nearly every page is made while objects of its
    /// range are in the skip list and are being read.
    fn scattered_oids(seed: u64) -> Vec<u64> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut oids = HashSet::new();
        while oids.len() < 4000 {
            oids.insert(random.random_range(0..1000 * PAGE_OIDS));
        }
        let mut oids: Vec<u64> = oids.into_iter().collect();
        oids.sort_unstable();
        oids.shuffle(&mut random);
        oids
    }

    #[test]
    fn readers_never_miss_a_published_object_nor_see_it_go_back() {
        for seed in 0..10 {
            let oids = scattered_oids(seed);
            let positions = Positions::new();
            let published = AtomicUsize::new(0);
            std::thread::scope(|scope| {
                for reader in 0..3 {
                    let (oids, positions, published) = (&oids, &positions, &published);
                    scope.spawn(move || look_up_at_random(reader, oids, positions, published));
                }
                publish_three_revisions(&oids, &positions, &published);
            });
            assert_eq!(positions.len(), oids.len() as u64);
        }
    }

    fn publish_three_revisions(oids: &[u64], positions: &Positions, published: &AtomicUsize) {
        for revision in 0..3 {
            for (object, &oid) in oids.iter().enumerate() {
                // Extra credit, so that pages are made until the end.
                positions.tally.credit_bytes.fetch_add(PAGE_BYTES / 8, Ordering::Relaxed);
                let before = positions.publish(Oid(oid), stamp(object, revision));
                assert_eq!(before, revision.checked_sub(1).map(|before| stamp(object, before)));
                published.fetch_add(1, Ordering::Release);
            }
        }
    }

    fn look_up_at_random(seed: u64, oids: &[u64], positions: &Positions, published: &AtomicUsize) {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut seen = vec![0; oids.len()];
        loop {
            let count = published.load(Ordering::Acquire);
            for _ in 0..100 {
                // Half of the lookups are of the object published last.
                let object = match random.random::<bool>() {
                    true => random.random_range(0..oids.len()),
                    false => (count + oids.len() - random.random_range(0..4)) % oids.len(),
                };
                let least = (count + oids.len() - 1 - object) / oids.len();
                let found = positions.position(Oid(oids[object])).unwrap_or(0);
                if least > 0 {
                    assert!(found >= stamp(object, least as u64 - 1), "object {object} missed");
                }
                assert!(found == 0 || found >> 8 == object as u64 + 1, "another object's");
                assert!(found >= seen[object], "object {object} went back");
                seen[object] = found;
            }
            if count == oids.len() * 3 {
                return;
            }
        }
    }

    #[test]
    fn iteration_during_publishing_gives_every_earlier_object_once_in_order() {
        let oids = scattered_oids(99);
        let positions = Positions::new();
        let published = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while published.load(Ordering::Acquire) < oids.len() * 3 {
                        let count = published.load(Ordering::Acquire).min(oids.len());
                        let given: Vec<u64> = positions.iter().map(|(oid, _)| oid.0).collect();
                        assert!(given.is_sorted_by(|a, b| a < b));
                        let given: HashSet<u64> = given.into_iter().collect();
                        assert!(oids[..count].iter().all(|oid| given.contains(oid)));
                    }
                });
            }
            publish_three_revisions(&oids, &positions, &published);
        });
    }
}
