//! Returns current revisions straight from memory, which answers nearly every load.

use std::cell::Cell;
use std::sync::Arc;

use arc_swap::Guard;
use bytes::Bytes;
use zodium_storage::LOOKED_UP_TOGETHER;
use zodium_types::{Oid, Tid};

use super::log::LogFile;
use super::record::{Record, RecordContent};
use super::record_cache::Loan;
use crate::FileStorage;

/// Lends cached current revisions to one thread while it answers a batch of loads. It gives the
/// same answers as [`FileStorage::load_before`] at less cost: the work that all loads share is done
/// once.
///
/// Do not keep it for long: after a pack it keeps the old file from being freed.
pub struct CachedRevisions {
    log: Guard<Arc<LogFile>>,
    hits: Cell<u64>,
}

/// The revisions found for several objects, in the order of the objects.
pub struct BorrowedRevisions<'a> {
    loans: [Option<Loan<Record>>; LOOKED_UP_TOGETHER],
    hits: &'a Cell<u64>,
}

/// A current revision in memory.
pub struct BorrowedRevision<'a> {
    record: &'a Record,
    data: &'a [u8],
}

impl FileStorage {
    /// Makes the lender for a batch of loads.
    pub fn cached_revisions(&self) -> CachedRevisions {
        CachedRevisions { log: self.log(), hits: Cell::new(0) }
    }
}

impl CachedRevisions {
    /// Looks up the current revisions of these objects all at once, which takes little more time
    /// than one lookup. Only the first [`LOOKED_UP_TOGETHER`] objects are looked up.
    #[inline]
    pub fn look_up(&self, oids: impl IntoIterator<Item = Oid>) -> BorrowedRevisions<'_> {
        let mut positions = [0; LOOKED_UP_TOGETHER];
        for (position, oid) in positions.iter_mut().zip(oids) {
            *position = self.log.positions.position(oid).unwrap_or(0);
        }
        BorrowedRevisions { loans: self.log.cache.find_each(&positions), hits: &self.hits }
    }
}

impl BorrowedRevisions<'_> {
    /// The revision of object `number` of the lookup, if it is in memory. `None` only means that
    /// the caller must use [`FileStorage::load_before`].
    #[inline]
    pub fn current(&self, number: usize) -> Option<BorrowedRevision<'_>> {
        let record = self.loans.get(number)?.as_deref()?.as_ref()?;
        let data = record.data()?;
        self.hits.set(self.hits.get() + 1);
        Some(BorrowedRevision { record, data })
    }
}

impl BorrowedRevision<'_> {
    /// The data record's pickles.
    #[inline]
    pub fn data(&self) -> &[u8] {
        self.data
    }

    /// The same pickles as an owned value, without a copy.
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
