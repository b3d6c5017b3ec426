//! Follows back pointers to the records that hold the data.

use rustc_hash::FxHashMap;
use zodium_storage::Read;
use zodium_types::{Oid, Tid};

use crate::ToolError;

/// The back pointers of a log that is read from its beginning, or from a transaction.
pub(crate) struct BackPointers<'s> {
    storage: &'s dyn Read,
    /// The first transaction that is read.
    first: Option<Tid>,
    /// The transactions that hold the data of records that were read and have none of their own.
    sources: FxHashMap<(Oid, Tid), Tid>,
}

impl<'s> BackPointers<'s> {
    pub(crate) fn new(storage: &'s dyn Read, first: Option<Tid>) -> BackPointers<'s> {
        BackPointers { storage, first, sources: FxHashMap::default() }
    }

    /// The transaction that holds the data of the record that `tid` wrote for `oid`, and whose back
    /// pointer leads to the record of `leads_to`. To be called in the order of the log.
    ///
    /// # Errors
    /// The storage cannot be read.
    pub(crate) fn follow(&mut self, oid: Oid, tid: Tid, leads_to: Tid) -> Result<Tid, ToolError> {
        let source = match self.sources.get(&(oid, leads_to)) {
            Some(source) => *source,
            None if self.first.is_some_and(|first| leads_to < first) => {
                self.storage.record(oid, leads_to)?.map_or(leads_to, |record| record.data_tid)
            }
            None => leads_to,
        };
        self.sources.insert((oid, tid), source);
        Ok(source)
    }
}
