//! The cached objects by oid, bounded in bytes.
//!
//! Key decision: `quick_cache` evicts (S3-FIFO in shards); each item is the history of one object.
//! The weights include what `quick_cache` does not count itself. Its table may be half empty after
//! it has grown, so each item weighs its part of it; the memory for evicted keys is taken off the
//! budget.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache as Items;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use rustc_hash::FxBuildHasher;
use zodium_types::Oid;

use super::history::History;
use crate::Revision;

/// Counters and sizes of a cache, all of about the same moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheMetrics {
    /// Lookups that found their revision.
    pub hits: u64,
    /// Lookups that did not find their revision.
    pub misses: u64,
    /// Objects evicted to make room for others.
    pub evictions: u64,
    /// Objects with at least one revision.
    pub objects: usize,
    /// Memory they use, overhead included.
    pub bytes: usize,
    /// Limit of `bytes`.
    pub bytes_max: usize,
}

/// Histories by oid. One thread at a time may change them, while others look up.
pub(super) struct Objects {
    items: Items<Oid, History, Weights, FxBuildHasher, Evictions>,
    bytes_max: usize,
    /// Largest weight of one history.
    item_bytes_max: usize,
    /// Lookups that found the object, but not the revision.
    other_revisions: AtomicU64,
    evictions: AtomicU64,
}

/// Computes the weight of an item: the memory that it uses.
#[derive(Clone)]
struct Weights;

/// Collects evicted items, which are freed after the shard's lock is released.
#[derive(Clone)]
struct Evictions;

#[derive(Default)]
struct Evicted {
    count: u64,
    last: Option<History>,
}

/// Size of a table entry: key, value, and the links of the eviction order, as of `quick_cache` 0.7.
const TABLE_ENTRY_BYTES: usize = size_of::<(Oid, History)>() + 40;

/// An item's share of the hash map: an index and a byte of its hash, in a table between 7/16 and
/// 7/8 full.
const MAP_ENTRY_BYTES: usize = 12;

/// Overhead beside the data. The table doubles when it grows, so half of it may be empty.
const ITEM_OVERHEAD_BYTES: usize = 2 * TABLE_ENTRY_BYTES + MAP_ENTRY_BYTES;

/// Assumed size of an average object, to estimate the number of objects.
const OBJECT_BYTES_TYPICAL: usize = 2048;

/// Evicted keys that are remembered, per object; such a key stays longer when it comes back.
const GHOSTS_PER_OBJECT: f64 = 0.5;

/// Smallest shard: it must have room for a large object.
const SHARD_BYTES_MIN: usize = 2 << 20;

/// Enough shards that threads hardly wait for each other.
const SHARDS_MAX: usize = 64;

/// One history may take one part in this many of a shard; `quick_cache` rejects an item that takes
/// nearly all of it.
const ITEM_SHARE: usize = 2;

impl Objects {
    pub(super) fn new(bytes_max: usize) -> Objects {
        let shards = (bytes_max / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        // Rounded down, because `quick_cache` rounds up.
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

    /// Applies `find` to an object's history, and counts as a use of it.
    #[inline]
    pub(super) fn lookup(
        &self,
        oid: Oid,
        find: impl FnOnce(History) -> Option<Revision>,
    ) -> Option<Revision> {
        let found = find(self.items.get(&oid)?);
        if found.is_none() {
            // Relaxed, here and below: counters stand for themselves.
            self.other_revisions.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// The history of an object, without counting as a use of it.
    pub(super) fn look_at(&self, oid: Oid) -> Option<History> {
        self.items.peek(&oid)
    }

    /// Whether data of this length can be cached.
    pub(super) fn has_room_for(&self, data_bytes: usize) -> bool {
        data_bytes.saturating_add(ITEM_OVERHEAD_BYTES + 256) <= self.item_bytes_max
    }

    /// The largest history that can be cached.
    pub(super) fn history_bytes_max(&self) -> usize {
        self.item_bytes_max
    }

    /// Adds a history of an object that has none.
    pub(super) fn put(&self, oid: Oid, history: History) {
        let mut evicted = Evicted::default();
        self.items.insert_with_lifecycle(oid, history, &mut evicted);
        self.evictions.fetch_add(evicted.count, Ordering::Relaxed);
    }

    /// Replaces the history of an object.
    pub(super) fn replace(&self, oid: Oid, history: History) {
        let mut evicted = Evicted::default();
        // If the object was evicted meanwhile, there is nothing to replace.
        let _ = self.items.replace_with_lifecycle(oid, history, true, &mut evicted);
        // The replaced history is among the evicted ones.
        self.evictions.fetch_add(evicted.count.saturating_sub(1), Ordering::Relaxed);
    }

    pub(super) fn remove(&self, oid: Oid) {
        self.items.remove(&oid);
    }

    pub(super) fn clear(&self) {
        self.items.clear();
    }

    /// All histories. The data are shared, not copied.
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
