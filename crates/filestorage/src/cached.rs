//! Current revisions straight from memory: the answer to nearly every load.

use std::cell::Cell;
use std::sync::Arc;

use arc_swap::Guard;
use bytes::Bytes;
use zodium_types::{Oid, Tid};

use crate::FileStorage;
use crate::log::LogFile;

/// Lends cached current revisions to one thread, for as long as it answers a batch of loads. What
/// it finds is what [`FileStorage::load_before`] would, at less cost: what they have in common is
/// done once.
///
/// It keeps the file of before a pack from being given up, so it is not for keeping.
pub struct CachedRevisions {
    log: Guard<Arc<LogFile>>,
    hits: Cell<u64>,
}

impl FileStorage {
    /// For a batch of loads.
    pub fn cached_revisions(&self) -> CachedRevisions {
        CachedRevisions { log: self.log(), hits: Cell::new(0) }
    }
}

impl CachedRevisions {
    /// Gives the data of the current revision and the transaction that wrote it to `read`, if that
    /// revision is in memory and was written before `before`. `None` only means that
    /// [`FileStorage::load_before`] has to be asked.
    #[inline]
    pub fn with_current<R>(
        &self,
        oid: Oid,
        before: Tid,
        read: impl FnOnce(&Bytes, Tid) -> R,
    ) -> Option<R> {
        let position = self.log.positions.position(oid)?;
        let found = self.log.cache.with_uncounted(position, |record| {
            let data = record.data.as_ref().filter(|_| record.tid < before)?;
            Some(read(data, record.tid))
        });
        let found = found.flatten();
        self.hits.set(self.hits.get() + u64::from(found.is_some()));
        found
    }
}

impl Drop for CachedRevisions {
    fn drop(&mut self) {
        self.log.cache.count_hits(self.hits.get());
    }
}
