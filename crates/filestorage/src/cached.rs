//! Current revisions straight from memory: the answer to nearly every load.

use std::cell::Cell;
use std::sync::Arc;

use arc_swap::Guard;
use bytes::Bytes;
use zodium_storage::LOOKED_UP_TOGETHER;
use zodium_types::{Oid, Tid};

use crate::FileStorage;
use crate::log::LogFile;
use crate::record::{Record, RecordContent};
use crate::record_cache::Loan;

/// Lends cached current revisions to one thread, for as long as it answers a batch of loads. What
/// it finds is what [`FileStorage::load_before`] would, at less cost: what they have in common is
/// done once.
///
/// It keeps the file of before a pack from being given up, so it is not for keeping.
pub struct CachedRevisions {
    log: Guard<Arc<LogFile>>,
    hits: Cell<u64>,
}

/// What was found of several objects, in their order.
pub struct LentRevisions<'a> {
    loans: [Option<Loan<Record>>; LOOKED_UP_TOGETHER],
    hits: &'a Cell<u64>,
}

/// A current revision in memory.
pub struct LentRevision<'a> {
    record: &'a Record,
    data: &'a [u8],
}

impl FileStorage {
    /// For a batch of loads.
    pub fn cached_revisions(&self) -> CachedRevisions {
        CachedRevisions { log: self.log(), hits: Cell::new(0) }
    }
}

impl CachedRevisions {
    /// Looks for the current revisions of these objects: all at once, which takes little more
    /// time than one of them. Of more than [`LOOKED_UP_TOGETHER`] only the first ones are.
    #[inline]
    pub fn look_up(&self, oids: impl IntoIterator<Item = Oid>) -> LentRevisions<'_> {
        let mut positions = [0; LOOKED_UP_TOGETHER];
        for (position, oid) in positions.iter_mut().zip(oids) {
            *position = self.log.positions.position(oid).unwrap_or(0);
        }
        LentRevisions { loans: self.log.cache.find_each(&positions), hits: &self.hits }
    }
}

impl LentRevisions<'_> {
    /// That of the object with this number among those looked up, if it is in memory. `None` only
    /// means that [`FileStorage::load_before`] has to be asked.
    #[inline]
    pub fn current(&self, number: usize) -> Option<LentRevision<'_>> {
        let record = self.loans.get(number)?.as_deref()?.as_ref()?;
        let data = record.data()?;
        self.hits.set(self.hits.get() + 1);
        Some(LentRevision { record, data })
    }
}

impl LentRevision<'_> {
    /// The data record's pickles.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.data
    }

    /// The same, to keep, without a copy.
    pub fn shared_data(&self) -> Bytes {
        self.record.shared_data().unwrap_or_default()
    }

    /// The transaction that wrote it.
    #[inline]
    pub fn serial(&self) -> Tid {
        self.record.head().tid
    }
}

impl Drop for CachedRevisions {
    fn drop(&mut self) {
        self.log.cache.count_hits(self.hits.get());
    }
}
