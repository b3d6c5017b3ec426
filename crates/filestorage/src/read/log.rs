//! One generation of the data file: its bytes, the index into them, and the cached records.
//!
//! Committed bytes never change, and positions are valid for the whole generation. So a record that
//! was read once can be cached and shared. A pack makes a new generation. Iterators of the old
//! generation keep only its bytes; its index and cache are freed.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zodium_disk::DiskFile;
use zodium_types::{Oid, Tid};

use super::log_bytes::{Body, LogBytes};
use super::old_logs::PinnedLog;
use super::positions::Positions;
use super::recent_serials::RecentSerials;
use super::record::{Record, RecordContent, RecordHead, new_record};
use super::record_cache::RecordCache;
use super::sparse_tid_index::SparseTidIndex;
use super::tids::Tids;
use crate::FileStorageError;
use crate::checksums::Checksums;
use crate::format::{DATA_HEADER_BYTES, DataHeader};
use crate::reading::Reading;
use crate::scan::Damages;

pub(crate) struct LogFile {
    bytes: Arc<LogBytes>,
    pub(crate) positions: Positions,
    pub(crate) cache: RecordCache<Record>,
    pub(crate) recent_serials: RecentSerials,
    pub(crate) tid_index: SparseTidIndex,
    /// Number of packs since the opening. It tells positions of one file from those of another.
    pub(crate) generation: u64,
    /// The part that iterators hold.
    pinned: Arc<PinnedLog>,
    /// `positions` has every record before this that counts. Stored with Release by the log writer
    /// after it entered the records. Loaded with Acquire by readers that need the index of the
    /// whole file.
    indexed_end: AtomicU64,
}

impl Deref for LogFile {
    type Target = LogBytes;

    fn deref(&self) -> &LogBytes {
        &self.bytes
    }
}

impl LogFile {
    pub(crate) fn new(
        path: &Path,
        file: Arc<dyn DiskFile>,
        positions: Positions,
        cache_bytes: usize,
        (end, tids): (u64, Tids),
        generation: u64,
    ) -> LogFile {
        let damages = Arc::new(Damages::new(path));
        let bytes = Arc::new(LogBytes::new(path.to_owned(), file, None, damages, (end, tids)));
        LogFile {
            pinned: Arc::new(PinnedLog::new(&bytes)),
            bytes,
            positions,
            cache: RecordCache::new(cache_bytes),
            recent_serials: RecentSerials::new(cache_bytes > 0),
            tid_index: SparseTidIndex::default(),
            generation,
            indexed_end: AtomicU64::new(end),
        }
    }

    /// The same log, whose reads are verified with checksums.
    pub(crate) fn with_checksums(mut self, checksums: Option<Arc<Checksums>>) -> LogFile {
        let LogBytes { path, file, damages, .. } = &*self.bytes;
        let (path, file, known) = (path.clone(), Arc::clone(file), (self.end(), self.tids()));
        let damages = Arc::clone(checksums.as_ref().map_or(damages, |sums| sums.damages()));
        self.bytes = Arc::new(LogBytes::new(path, file, checksums, damages, known));
        self.pinned = Arc::new(PinnedLog::new(&self.bytes));
        self
    }

    /// The part that an iterator holds, to continue after a pack made a new generation.
    pub(crate) fn pinned(&self) -> &Arc<PinnedLog> {
        &self.pinned
    }

    /// Notes that the index has all transactions before `end`, the end of the log.
    pub(crate) fn note_indexed(&self, end: u64) {
        self.indexed_end.store(end, Ordering::Release);
    }

    /// Waits until the index has all transactions before `end`. The log may already end there while
    /// the writer still enters its last transaction. That takes a moment only, so this spins.
    pub(crate) fn wait_indexed(&self, end: u64) {
        assert!(end <= self.end(), "only what is committed will be in the index");
        while self.indexed_end.load(Ordering::Acquire) < end {
            std::thread::yield_now();
        }
    }

    /// The end of the log, which the index covers, and the tids up to there. Commits may go on.
    pub(crate) fn settled(&self) -> (u64, Tids) {
        loop {
            let end = self.end();
            self.wait_indexed(end);
            let tids = self.tids();
            // A transaction extends the log before its tid is noted.
            if self.end() == end {
                return (end, tids);
            }
        }
    }

    /// The record of `oid` at `position`; `None` when it is not in memory and access is
    /// non-blocking.
    pub(crate) fn record(
        &self,
        position: u64,
        oid: Oid,
        access: Reading<'_>,
    ) -> Result<Option<Record>, FileStorageError> {
        if let Some(record) = self.cache.lookup(position) {
            return Ok(Some(record));
        }
        let Some(stored) = self.read_stored(position, oid, access)? else { return Ok(None) };
        let data = match stored.body {
            Body::Data(data) => Some(data),
            Body::Back(back) => match self.data_behind(back, oid, access)? {
                Some((_, data)) => data,
                None => return Ok(None),
            },
        };
        self.cache.count_miss();
        let DataHeader { tid, previous, .. } = stored.header;
        let record = new_record(position, tid, previous, data);
        // Its object is written and loaded in turns: the next revision will be loaded too.
        match self.recent_serials.serial(position) {
            Some(_) => self.cache.insert_hit(record.clone()),
            None => self.cache.insert(record.clone()),
        }
        Ok(Some(record))
    }

    /// Serial and previous position of a record, without its data.
    pub(crate) fn link(
        &self,
        position: u64,
        oid: Oid,
        access: Reading<'_>,
    ) -> Result<Option<Link>, FileStorageError> {
        let cached = self.cache.with(position, |record| {
            let RecordHead { tid, previous, .. } = *record.head();
            Link { position, tid, previous }
        });
        if cached.is_some() {
            return Ok(cached);
        }
        let header = if self.verifies() {
            // A checksum covers a whole record, so read the whole record.
            self.read_stored(position, oid, access)?.map(|stored| stored.header)
        } else {
            let mut bytes = [0; DATA_HEADER_BYTES];
            if !self.read(&mut bytes, position, access)? {
                return Ok(None);
            }
            Some(self.check_header(DataHeader::parse(&bytes), position, oid)?)
        };
        Ok(header.map(|DataHeader { tid, previous, .. }| {
            self.cache.count_miss();
            Link { position, tid, previous }
        }))
    }
}

/// Serial and positions of a record in its object's history. `previous` is less than `position`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) position: u64,
    pub(crate) tid: Tid,
    pub(crate) previous: u64,
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use zodium_disk::MemoryDisk;

    use super::*;
    use crate::testing::{commit, open, stores};

    /// A writer extends the log first, and then enters the records.
    #[test]
    fn a_reader_of_the_whole_index_waits_until_the_log_is_in_it() {
        let storage = open(MemoryDisk::new());
        commit(&storage, 1, stores("", &["data"]));
        let guard = storage.reader().log();
        let log: &LogFile = &guard;
        let end = log.end();
        assert_eq!((log.settled().0, log.settled().1.last), (end, Tid(1)));
        log.extend_to(end + 10);
        log.wait_indexed(end);
        let is_noted = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for settles in [false, true] {
                let is_noted = &is_noted;
                scope.spawn(move || {
                    match settles {
                        true => assert_eq!(log.settled().0, end + 10),
                        false => log.wait_indexed(end + 10),
                    }
                    assert!(is_noted.load(Ordering::Acquire));
                });
            }
            // Time for them to begin.
            std::thread::sleep(std::time::Duration::from_millis(5));
            is_noted.store(true, Ordering::Release);
            log.note_indexed(end + 10);
        });
    }
}
