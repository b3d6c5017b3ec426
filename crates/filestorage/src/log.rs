//! One generation of the data file: its bytes, the index into them, and the cached records.
//!
//! Committed bytes never change and positions stay valid as long as the generation does, so a
//! record once read can be kept and shared. A pack makes a new generation. Iterators of the old
//! one go on with its bytes alone: its index and cache are let go.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use zodium_disk::DiskFile;
use zodium_storage::Access;
use zodium_types::{Oid, Tid};

use crate::FileStorageError;
use crate::checksums::{Checksums, Damages};
use crate::format::{DATA_HEADER_BYTES, DataHeader};
use crate::landmarks::Landmarks;
use crate::log_bytes::{Body, LogBytes};
use crate::old_logs::PinnedLog;
use crate::positions::Positions;
use crate::record::{Record, RecordContent, RecordHead, new_record};
use crate::record_cache::RecordCache;

pub(crate) struct LogFile {
    bytes: Arc<LogBytes>,
    pub(crate) positions: Positions,
    pub(crate) cache: RecordCache<Record>,
    pub(crate) landmarks: Landmarks,
    /// Grows by one with each pack; tells positions of one file from those of another.
    pub(crate) generation: u64,
    /// What iterators hold.
    pinned: Arc<PinnedLog>,
    /// Up to here every record that counts is in `positions`. Release by the log writer after
    /// them, Acquire by those who take the index for that of the whole file.
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
        end: u64,
        generation: u64,
    ) -> LogFile {
        let damages = Arc::new(Damages::new(path));
        let bytes = Arc::new(LogBytes::new(path.to_owned(), file, None, damages, end));
        LogFile {
            pinned: Arc::new(PinnedLog::new(&bytes)),
            bytes,
            positions,
            cache: RecordCache::new(cache_bytes),
            landmarks: Landmarks::default(),
            generation,
            indexed_end: AtomicU64::new(end),
        }
    }

    /// The same log, held against checksums.
    pub(crate) fn with_checksums(mut self, checksums: Option<Arc<Checksums>>) -> LogFile {
        let LogBytes { path, file, damages, .. } = &*self.bytes;
        let (path, file) = (path.clone(), Arc::clone(file));
        let damages = Arc::clone(checksums.as_ref().map_or(damages, |sums| sums.damages()));
        self.bytes = Arc::new(LogBytes::new(path, file, checksums, damages, self.end()));
        self.pinned = Arc::new(PinnedLog::new(&self.bytes));
        self
    }

    /// What an iterator holds, which reads on when a pack has made a new generation.
    pub(crate) fn pinned(&self) -> &Arc<PinnedLog> {
        &self.pinned
    }

    /// Tells that all transactions before `end`, which the log ends with, are in the index.
    pub(crate) fn note_indexed(&self, end: u64) {
        self.indexed_end.store(end, Ordering::Release);
    }

    /// Returns when all transactions before `end` are in the index. The log may end there
    /// already while the writer is still entering its last one: not for long, so this spins.
    pub(crate) fn wait_indexed(&self, end: u64) {
        assert!(end <= self.end(), "only what is committed will be in the index");
        while self.indexed_end.load(Ordering::Acquire) < end {
            std::thread::yield_now();
        }
    }

    /// The record of `oid` at `position`; `None` when it is cold and access is resident only.
    pub(crate) fn record(
        &self,
        position: u64,
        oid: Oid,
        access: Access,
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
        let DataHeader { tid, previous, .. } = stored.header;
        let record = new_record(position, tid, previous, data);
        self.cache.insert(record.clone());
        Ok(Some(record))
    }

    /// Serial and previous position of a record without its data.
    pub(crate) fn link(
        &self,
        position: u64,
        oid: Oid,
        access: Access,
    ) -> Result<Option<Link>, FileStorageError> {
        let cached = self.cache.with(position, |record| {
            let RecordHead { tid, previous, .. } = *record.head();
            Link { position, tid, previous }
        });
        if cached.is_some() {
            return Ok(cached);
        }
        if self.verifies() {
            // A sum is of the record as a whole.
            let stored = self.read_stored(position, oid, access)?;
            let header = stored.map(|stored| stored.header);
            return Ok(header.map(|DataHeader { tid, previous, .. }| Link {
                position,
                tid,
                previous,
            }));
        }
        let mut bytes = [0; DATA_HEADER_BYTES];
        if !self.read(&mut bytes, position, access)? {
            return Ok(None);
        }
        let header = self.check_header(DataHeader::parse(&bytes), position, oid)?;
        Ok(Some(Link { position, tid: header.tid, previous: header.previous }))
    }
}

/// Where a record stands in the history of its object; `previous` lies before `position`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) position: u64,
    pub(crate) tid: Tid,
    pub(crate) previous: u64,
}
