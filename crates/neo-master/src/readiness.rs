//! Which storages are ready for clients.

use rustc_hash::{FxHashMap, FxHashSet};
use zodium_neo::NodeId;

/// Which storages are ready for clients.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// Told to operate, and not ready yet.
    starting: FxHashSet<NodeId>,
    /// When each got ready: the number among all.
    ready: FxHashMap<NodeId, u64>,
    count: u64,
    /// The cluster shuts down: transactions do not begin any more.
    is_closed: bool,
}

impl Readiness {
    /// No storage operates.
    pub(crate) fn reset(&mut self) {
        *self = Readiness::default();
    }

    /// Transactions do not begin any more.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// A storage is told to operate.
    pub(crate) fn start(&mut self, storage: NodeId) {
        self.ready.remove(&storage);
        self.starting.insert(storage);
    }

    /// A storage is ready; `false` if it was not told to operate.
    pub(crate) fn set_ready(&mut self, storage: NodeId) -> bool {
        let is_new = self.starting.remove(&storage);
        if is_new {
            self.count += 1;
            self.ready.insert(storage, self.count);
        }
        is_new
    }

    /// A storage does not operate any more.
    pub(crate) fn remove(&mut self, storage: NodeId) {
        self.starting.remove(&storage);
        self.ready.remove(&storage);
    }

    /// Whether transactions may begin: no storage is starting.
    pub(crate) fn is_settled(&self) -> bool {
        self.starting.is_empty() && !self.is_closed
    }

    /// The storages that were told to operate, and are not ready yet.
    pub(crate) fn starting(&self) -> Vec<NodeId> {
        let mut starting: Vec<_> = self.starting.iter().copied().collect();
        starting.sort_unstable();
        starting
    }

    /// How many times a storage has got ready.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether a storage is ready.
    pub(crate) fn is_ready(&self, storage: NodeId) -> bool {
        self.ready.contains_key(&storage)
    }

    /// Whether a storage was told to operate: clients may have reached it, also before it is ready.
    pub(crate) fn is_started(&self, storage: NodeId) -> bool {
        self.starting.contains(&storage) || self.is_ready(storage)
    }

    /// Whether a storage is ready, and was at a certain count.
    pub(crate) fn was_ready(&self, storage: NodeId, count: u64) -> bool {
        self.ready.get(&storage).is_some_and(|since| *since <= count)
    }

    /// All that are ready.
    pub(crate) fn ready(&self) -> Vec<NodeId> {
        let mut ready: Vec<_> = self.ready.keys().copied().collect();
        ready.sort_unstable();
        ready
    }
}
