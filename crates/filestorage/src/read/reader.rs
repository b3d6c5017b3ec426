//! The log that is read now, and those from before packs.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use zodium_blobs::CommittedRecords;
use zodium_types::{Oid, Tid};

use super::log::LogFile;
use super::old_logs::OldLogs;
use super::record_cache::RecordCacheStatistics;

/// Reads what is committed. From any number of threads; the only lock is taken by a pack.
pub struct Reader {
    log: ArcSwap<LogFile>,
    old_logs: Mutex<OldLogs>,
}

impl Reader {
    pub(crate) fn new(log: LogFile) -> Reader {
        Reader { log: ArcSwap::from_pointee(log), old_logs: Mutex::default() }
    }

    /// The present generation.
    pub(crate) fn log(&self) -> Guard<Arc<LogFile>> {
        self.log.load()
    }

    /// Lets new reads use another generation. Iterators continue with theirs.
    pub(crate) fn replace_log(&self, log: LogFile) {
        let old = self.log.swap(Arc::new(log));
        self.old_logs.lock().add(old.pinned());
    }

    /// Number of objects in the index. Deleted objects count until a pack.
    pub fn object_count(&self) -> u64 {
        self.log().positions.len()
    }

    /// Statistics of the record cache. They start at zero when the file is opened, and when a pack
    /// replaces it: the cache is then empty.
    pub fn cache_statistics(&self) -> RecordCacheStatistics {
        self.log().cache.statistics()
    }
}

impl CommittedRecords for Reader {
    fn has_written(&self, oid: Oid, tid: Tid) -> Option<bool> {
        self.load_serial(oid, tid).ok().map(|data| data.is_some())
    }
}
