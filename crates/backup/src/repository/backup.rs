//! Backs a storage up: what is not in the repository yet.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use zodium_storage::{LogItem, Read};
use zodium_types::{Oid, Tid};

use super::blob_files::{BlobFiles, BlobName};
use super::chunk_store::ChunkStore;
use super::cutter;
use super::items::encode;
use super::point::{Chunk, Point, points, prepare, tid_of};
use crate::BackupError;
use crate::files::lock;

/// Where blobs are.
pub trait BlobSource {
    /// Whether a record is that of a blob.
    fn is_blob(&self, data: &[u8]) -> bool;

    /// The blob that a transaction wrote for an object; `None` if there is none.
    fn open(&self, oid: Oid, tid: Tid) -> Result<Option<Box<dyn io::Read>>, BackupError>;
}

/// What is backed up, and how.
pub struct Backup<'s> {
    /// The storage.
    pub storage: &'s dyn Read,
    /// Its blobs, if it has any.
    pub blobs: Option<&'s dyn BlobSource>,
    /// Read only what comes after the last point, if the storage agrees with it there.
    pub quick: bool,
    /// The time, in seconds since 1970.
    pub seconds: i64,
    /// Is called with numbers of bytes that were read.
    pub progress: &'s dyn Fn(usize),
}

/// What a backup did.
#[derive(Clone, Debug)]
pub struct BackupSummary {
    /// The restore point.
    pub point: Point,
    /// Whether it is a new one.
    pub is_new: bool,
    /// Bytes of new chunks and blobs, as they are stored.
    pub stored_bytes: u64,
}

/// Backs a storage up as it is now.
///
/// # Errors
/// Those of the storage and of the files. What was stored before an error is found by the next
/// backup.
pub fn backup(repository: &Path, backup: &Backup<'_>) -> Result<BackupSummary, BackupError> {
    prepare(repository)?;
    let _lock = lock(repository)?;
    let store = ChunkStore::new(repository);
    let points = points(repository)?;
    let newest = points.last();
    let last = backup.storage.last_tid();
    let known = match newest {
        Some(point) => point.chunks(&store)?,
        None => Vec::new(),
    };
    let mut writer = Writer::new(backup, &store, BlobFiles::open(repository)?, last);
    let kept = if backup.quick { writer.agreed(&known)? } else { &[] };
    writer.chunks = kept.to_vec();
    let start = kept.last().map(|chunk| tid_of(&chunk.last).next());
    writer.read(start)?;
    let Writer { chunks, stored_bytes, .. } = writer;
    if let Some(point) = newest.filter(|_| chunks == known) {
        return Ok(BackupSummary { point: point.clone(), is_new: false, stored_bytes });
    }
    let number = newest.map_or(1, |point| point.number + 1);
    let point = Point::of(&store, number, backup.seconds, &chunks)?;
    point.write(repository)?;
    Ok(BackupSummary { point, is_new: true, stored_bytes })
}

struct Writer<'b, 's> {
    backup: &'b Backup<'s>,
    store: &'b ChunkStore,
    blob_files: BlobFiles,
    last: Tid,
    chunks: Vec<Chunk>,
    stored_bytes: u64,
    /// The chunk that is being filled.
    content: Vec<u8>,
    first: Option<Tid>,
    transactions: u64,
    blobs: Vec<BlobName>,
    /// The transaction that is being read, and where it begins.
    current: Tid,
    start: usize,
}

impl<'b, 's> Writer<'b, 's> {
    fn new(
        backup: &'b Backup<'s>,
        store: &'b ChunkStore,
        blob_files: BlobFiles,
        last: Tid,
    ) -> Writer<'b, 's> {
        let (chunks, content, blobs) = (Vec::new(), Vec::new(), Vec::new());
        let (stored_bytes, first, transactions, start) = (0, None, 0, 0);
        let current = Tid::ZERO;
        Writer {
            backup,
            store,
            blob_files,
            last,
            chunks,
            stored_bytes,
            content,
            first,
            transactions,
            blobs,
            current,
            start,
        }
    }

    /// The chunks that need not be read again. The last one of a point may go on; the one before it
    /// shows whether the storage still agrees.
    fn agreed<'k>(&mut self, known: &'k [Chunk]) -> Result<&'k [Chunk], BackupError> {
        let Some(([.., probe], _)) = known.split_last().map(|(last, kept)| (kept, last)) else {
            return Ok(&[]);
        };
        let kept = &known[..known.len() - 1];
        let (first, last) = (tid_of(&probe.first), tid_of(&probe.last));
        if last > self.last {
            return Ok(&[]);
        }
        self.walk(Some(first), last)?;
        self.end_transaction()?;
        self.end_chunk()?;
        let is_same = self.chunks.len() == 1 && self.chunks[0] == *probe;
        self.chunks.clear();
        Ok(if is_same { kept } else { &[] })
    }

    /// Reads the storage from a transaction to its end.
    fn read(&mut self, start: Option<Tid>) -> Result<(), BackupError> {
        if start.is_none_or(|start| start <= self.last) {
            self.walk(start, self.last)?;
        }
        self.end_transaction()?;
        self.end_chunk()
    }

    fn walk(&mut self, start: Option<Tid>, last: Tid) -> Result<(), BackupError> {
        let mut cursor = self.backup.storage.iterate(start, Some(last))?;
        let mut failure = None;
        loop {
            let is_over = cursor.read(true, &mut |item| match self.take(item) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            })?;
            match failure.take() {
                Some(error) => return Err(error),
                None if is_over => return Ok(()),
                // A storage may pause before the end.
                None => {}
            }
        }
    }

    fn take(&mut self, item: LogItem<'_>) -> Result<(), BackupError> {
        let mut is_copy = false;
        match item {
            LogItem::Transaction { tid, .. } => {
                self.end_transaction()?;
                self.first.get_or_insert(tid);
                (self.current, self.start) = (tid, self.content.len());
                self.transactions += 1;
            }
            LogItem::Record { oid, data, data_tid } => {
                if let Some(earlier) = data_tid {
                    is_copy = self.backup.storage.record(oid, earlier)?.is_some();
                }
                if let Some(data) = data {
                    self.take_blob(oid, data)?;
                    (self.backup.progress)(data.len());
                }
            }
            LogItem::Skipped => {}
        }
        encode(item, is_copy, &mut self.content);
        Ok(())
    }

    fn take_blob(&mut self, oid: Oid, data: &[u8]) -> Result<(), BackupError> {
        let Some(source) = self.backup.blobs.filter(|source| source.is_blob(data)) else {
            return Ok(());
        };
        if let Some(name) = self.blob_files.find(oid, self.current) {
            self.blobs.push(name.clone());
        } else if let Some(mut input) = source.open(oid, self.current)? {
            let (name, bytes) = self.blob_files.put(oid, self.current, &mut *input)?;
            self.stored_bytes += bytes;
            self.blobs.push(name);
        }
        Ok(())
    }

    /// Ends the chunk, if it ends with the transaction that was read.
    fn end_transaction(&mut self) -> Result<(), BackupError> {
        let bytes = self.content.len() - self.start;
        match bytes > 0 && cutter::is_end(self.current, bytes, self.content.len()) {
            true => self.end_chunk(),
            false => Ok(()),
        }
    }

    fn end_chunk(&mut self) -> Result<(), BackupError> {
        let Some(first) = self.first.take() else { return Ok(()) };
        let (hash, stored) = self.store.put(&self.content)?;
        self.stored_bytes += stored;
        self.chunks.push(Chunk {
            hash,
            bytes: self.content.len() as u64,
            first: first.to_string(),
            last: self.current.to_string(),
            transactions: std::mem::take(&mut self.transactions),
            blobs: std::mem::take(&mut self.blobs),
        });
        self.content.clear();
        self.start = 0;
        Ok(())
    }
}
