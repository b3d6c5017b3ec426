//! Returns current revisions straight from memory, which answers nearly every load.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;

use arc_swap::Guard;
use zodium_storage::{LOOKED_UP_TOGETHER, ResidentRevision, ResidentRevisions};
use zodium_types::Oid;

use super::log::LogFile;
use super::reader::Reader;
use super::record::RecordContent;

/// Lends cached current revisions to one thread while it answers a batch of loads. It gives the
/// same answers as [`Reader::load_before`] at less cost: the work that all loads share is done
/// once. What it does not find may be on the disk.
///
/// Do not keep it for long: after a pack it keeps the old file from being freed.
pub(crate) struct CachedRevisions {
    log: Guard<Arc<LogFile>>,
    hits: Cell<u64>,
}

impl Reader {
    /// Makes the lender for a batch of loads.
    pub(crate) fn cached_revisions(&self) -> CachedRevisions {
        CachedRevisions { log: self.log(), hits: Cell::new(0) }
    }
}

impl ResidentRevisions for CachedRevisions {
    /// All objects are looked up at once, which takes little more time than one lookup.
    #[inline]
    fn look_up(
        &self,
        oids: &[Oid],
        visit: &mut dyn FnMut(usize, Option<ResidentRevision<'_>>) -> ControlFlow<()>,
    ) {
        let mut positions = [0; LOOKED_UP_TOGETHER];
        for (position, oid) in positions.iter_mut().zip(oids) {
            *position = self.log.positions.position(*oid).unwrap_or(0);
        }
        let records = self.log.cache.find_each(&positions);
        for (number, borrowed) in records.iter().enumerate().take(oids.len()) {
            let record = borrowed.as_deref().and_then(Option::as_ref);
            let found = record.and_then(|record| Some((record, record.data()?)));
            let flow = match found {
                Some((record, data)) => {
                    self.hits.set(self.hits.get() + 1);
                    let share = &|| record.shared_data().unwrap_or_default();
                    visit(number, Some(ResidentRevision { data, serial: record.head().tid, share }))
                }
                None => visit(number, None),
            };
            if flow.is_break() {
                return;
            }
        }
    }
}

impl Drop for CachedRevisions {
    fn drop(&mut self) {
        self.log.cache.count_hits(self.hits.get());
    }
}
