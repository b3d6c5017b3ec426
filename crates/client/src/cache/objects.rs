//! The objects that are remembered, by oid: bounded in bytes, the least useful evicted first.
//!
//! Key decision: `quick_cache` does it (S3-FIFO in shards), each history of an object being one of
//! its items. What it does not count itself is in the weights: its table, at worst half empty after
//! it has grown, is a part of each item, and what it remembers of evicted items is taken off the
//! budget.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache as Items;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use rustc_hash::FxBuildHasher;
use zodium_types::Oid;

use super::history::History;
use crate::Revision;

/// What a cache has done and holds, all at about the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheMetrics {
    /// Lookups that found their revision.
    pub hits: u64,
    /// Lookups that did not.
    pub misses: u64,
    /// Objects evicted to make room for others.
    pub evictions: u64,
    /// Objects of which revisions are held.
    pub objects: usize,
    /// Bytes they take, with what it takes to keep them.
    pub bytes: usize,
    /// The most that all may take.
    pub bytes_max: usize,
}

/// Histories by oid. One thread at a time may change them, while others look things up.
pub(super) struct Objects {
    items: Items<Oid, History, Weights, FxBuildHasher, Evictions>,
    bytes_max: usize,
    /// The most that one history may weigh.
    item_bytes_max: usize,
    /// Lookups that found the object but not the revision.
    other_revisions: AtomicU64,
    evictions: AtomicU64,
}

/// How much memory an item takes.
#[derive(Clone)]
struct Weights;

/// Collects what is evicted, to be freed once the shard's lock is.
#[derive(Clone)]
struct Evictions;

#[derive(Default)]
struct Evicted {
    count: u64,
    last: Option<History>,
}

/// An item in the table: key, value and what orders the items, as `quick_cache` 0.7 keeps them.
const TABLE_ENTRY_BYTES: usize = size_of::<(Oid, History)>() + 40;

/// An item's share of the hash map: a number and a byte of its hash, in a table that is between 7/8
/// and 7/16 full.
const MAP_ENTRY_BYTES: usize = 12;

/// Beside the data: the table grows twofold, so that half of it may be empty.
const ITEM_OVERHEAD_BYTES: usize = 2 * TABLE_ENTRY_BYTES + MAP_ENTRY_BYTES;

/// Takes place of an average object, to guess how many there will be. As many as half of them are
/// remembered for having been evicted a moment ago: if they come back, they stay for longer.
const OBJECT_BYTES_TYPICAL: usize = 2048;

/// The share of objects that are remembered after they were evicted.
const GHOSTS_PER_OBJECT: f64 = 0.5;

/// A shard has to have room for a large object.
const SHARD_BYTES_MIN: usize = 2 << 20;

/// More threads than this do not wait for each other.
const SHARDS_MAX: usize = 64;

/// Of a shard, what one object's history may take; an item that takes almost all is not admitted.
const ITEM_SHARE: usize = 2;

impl Objects {
    pub(super) fn new(bytes_max: usize) -> Objects {
        let shards = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        // Rounded down, as `quick_cache` rounds up.
        let shards = 1 << shards.ilog2();
        let objects = bytes_max / OBJECT_BYTES_TYPICAL;
        let ghosts_bytes = (objects as f64 * GHOSTS_PER_OBJECT) as usize * ITEM_OVERHEAD_BYTES;
        let budget_bytes = bytes_max - ghosts_bytes;
        let mut options = OptionsBuilder::new();
        options.shards(shards).estimated_items_capacity(objects);
        options.weight_capacity(budget_bytes as u64).ghost_allocation(GHOSTS_PER_OBJECT);
        let Ok(options) = options.build() else { unreachable!("both capacities are given") };
        let items = Items::with_options(options, Weights, FxBuildHasher, Evictions);
        Objects {
            item_bytes_max: budget_bytes / shards / ITEM_SHARE,
            items,
            bytes_max,
            other_revisions: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// What `find` makes of an object's history; a sign of interest in it.
    #[inline]
    pub(super) fn lookup(
        &self,
        oid: Oid,
        find: impl FnOnce(History) -> Option<Revision>,
    ) -> Option<Revision> {
        let found = find(self.items.get(&oid)?);
        if found.is_none() {
            // Relaxed, here and below: metrics stand for themselves.
            self.other_revisions.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// The history of an object, without a sign of interest in it.
    pub(super) fn look_at(&self, oid: Oid) -> Option<History> {
        self.items.peek(&oid)
    }

    /// Whether data of this length are worth a copy.
    pub(super) fn has_room_for(&self, data_bytes: usize) -> bool {
        data_bytes.saturating_add(ITEM_OVERHEAD_BYTES + 256) <= self.item_bytes_max
    }

    /// What a history may take of memory.
    pub(super) fn history_bytes_max(&self) -> usize {
        self.item_bytes_max
    }

    /// Keeps a history of an object that has none.
    pub(super) fn put(&self, oid: Oid, history: History) {
        let mut evicted = Evicted::default();
        self.items.insert_with_lifecycle(oid, history, &mut evicted);
        self.evictions.fetch_add(evicted.count, Ordering::Relaxed);
    }

    /// Keeps another history of an object that has one.
    pub(super) fn replace(&self, oid: Oid, history: History) {
        let mut evicted = Evicted::default();
        // When it has been evicted after all, there is nothing to replace.
        let _ = self.items.replace_with_lifecycle(oid, history, true, &mut evicted);
        // One was replaced.
        self.evictions.fetch_add(evicted.count.saturating_sub(1), Ordering::Relaxed);
    }

    pub(super) fn remove(&self, oid: Oid) {
        self.items.remove(&oid);
    }

    pub(super) fn clear(&self) {
        self.items.clear();
    }

    /// All of them. The data are shared, not copied.
    pub(super) fn all(&self) -> Vec<(Oid, History)> {
        self.items.iter().collect()
    }

    pub(super) fn metrics(&self) -> CacheMetrics {
        let other_revisions = self.other_revisions.load(Ordering::Relaxed);
        CacheMetrics {
            hits: self.items.hits().saturating_sub(other_revisions),
            misses: self.items.misses() + other_revisions,
            evictions: self.evictions.load(Ordering::Relaxed),
            objects: self.items.len(),
            bytes: self.items.weight() as usize,
            bytes_max: self.bytes_max,
        }
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Objects").field(&self.metrics()).finish()
    }
}

impl Weighter<Oid, History> for Weights {
    fn weight(&self, _: &Oid, history: &History) -> u64 {
        (ITEM_OVERHEAD_BYTES + history.bytes()) as u64
    }
}

impl Lifecycle<Oid, History> for Evictions {
    type RequestState = Evicted;

    fn on_evict(&self, evicted: &mut Evicted, _: Oid, history: History) {
        evicted.count += 1;
        evicted.last = Some(history);
    }
}
