//! Reads a storage, and stores its transactions as chunks.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;

use rustc_hash::FxHashMap;
use zodium_storage::{LogItem, Read};
use zodium_types::{Oid, Tid};

use super::blobs::Blob;
use super::chunk_store::{ChunkStore, tid_of};
use super::filling::Filling;
use super::items::encode;
use super::known::Known;
use super::point::Chunk;
use super::transaction::Transaction;
use crate::BackupError;

/// Where blobs are.
pub trait BlobSource {
    /// Whether a record is that of a blob.
    fn is_blob(&self, data: &[u8]) -> bool;

    /// The blob that a transaction wrote for an object; `None` if there is none that is sound.
    /// When it is found to be damaged only then, reading it fails with `InvalidData`.
    fn open(&self, oid: Oid, tid: Tid) -> Result<Option<Box<dyn io::Read + '_>>, BackupError>;
}

/// What is backed up.
pub struct Source<'s> {
    /// The storage.
    pub storage: &'s dyn Read,
    /// Its blobs.
    pub blobs: &'s dyn BlobSource,
    /// Is called with numbers of bytes that were read.
    pub progress: &'s dyn Fn(usize),
}

/// Cuts transactions into chunks, and stores these.
pub(super) struct Writer<'r> {
    store: ChunkStore<'r>,
    /// Chunks that are stored already.
    known: Known,
    /// Blobs that are stored already.
    known_blobs: FxHashMap<(Oid, Tid), Blob>,
    /// The chunks that are whole.
    pub(super) chunks: Vec<Chunk>,
    /// The last transaction that the newest point has.
    pub(super) archived: Tid,
    /// Transactions after that one.
    pub(super) new_transactions: u64,
    pub(super) stored_bytes: u64,
    /// Records of blobs whose blobs were not found, or are damaged.
    pub(super) missing_blobs: u64,
    /// Chunks that have their end, and are to be stored.
    full: VecDeque<Filling>,
    /// The chunk that is being filled.
    open: Filling,
    /// The transaction that is being read.
    current: Transaction,
    /// What was read since the last restore point, if the storage is followed.
    fresh: Option<Filling>,
}

impl<'r> Writer<'r> {
    /// Begins behind the chunks `kept`. `known`: chunks of before, whose blobs are stored.
    pub(super) fn new(store: ChunkStore<'r>, kept: &[Chunk], known: &[Chunk]) -> Writer<'r> {
        let blobs = known.iter().flat_map(|chunk| &chunk.blobs);
        Writer {
            store,
            known: Known::new(known),
            known_blobs: blobs.map(|blob| (blob.place(), blob.clone())).collect(),
            chunks: kept.to_vec(),
            archived: Tid::ZERO,
            new_transactions: 0,
            stored_bytes: 0,
            missing_blobs: 0,
            full: VecDeque::new(),
            open: Filling::default(),
            current: Transaction::default(),
            fresh: None,
        }
    }

    /// Forgets what is not stored any more, so that it is stored again when it is read.
    pub(super) fn forget_lost(&mut self) -> Result<(), BackupError> {
        let there = self.store.names()?;
        self.known.forget_others(&there);
        self.known_blobs.retain(|_, blob| blob.pieces.iter().all(|hash| there.contains(hash)));
        Ok(())
    }

    /// The chunks that need not be read again. The last one of a point may go on; the one before it
    /// shows whether the storage still agrees.
    pub(super) fn agreed<'k>(
        store: ChunkStore<'r>,
        source: &Source<'_>,
        known: &'k [Chunk],
    ) -> Result<&'k [Chunk], BackupError> {
        let (kept, probe) = kept_and_probe(known);
        let ([first, ..], [.., last]) = (probe, probe) else { return Ok(&[]) };
        let (first, last) = (tid_of(&first.first), tid_of(&last.last));
        if last > source.storage.last_tid() {
            return Ok(&[]);
        }
        let mut writer = Writer::new(store, &[], known);
        writer.read(source, Some(first), last)?;
        Ok(if writer.all_chunks()? == probe { kept } else { &[] })
    }

    /// Another one, that reads the storage from its beginning.
    pub(super) fn starting_over(&self, store: ChunkStore<'r>) -> Writer<'r> {
        let known_blobs = self.known_blobs.clone();
        let fresh = Some(Filling::default());
        Writer { known_blobs, fresh, ..Writer::new(store, &[], &self.chunks) }
    }

    /// The first transaction that is missing; `None` for the first one there is.
    pub(super) fn next_tid(&self) -> Option<Tid> {
        let filled = self.full.iter().chain([&self.open]).filter_map(Filling::last).next_back();
        let last = filled.or_else(|| self.chunks.last().map(|last| tid_of(&last.last)));
        last.map(Tid::next)
    }

    /// Reads the storage from a transaction to another one, or until `fresh` has enough: `false`
    /// then. After an error what was read of the last transaction is forgotten.
    pub(super) fn read(
        &mut self,
        source: &Source<'_>,
        start: Option<Tid>,
        last: Tid,
    ) -> Result<bool, BackupError> {
        if start.is_some_and(|start| start > last) {
            return Ok(true);
        }
        let read = self.walk(source, start, last);
        let ended = read.and_then(|is_over| self.end_transaction().map(|()| is_over));
        // After an error; it is read again.
        self.current.clear();
        ended
    }

    fn walk(
        &mut self,
        source: &Source<'_>,
        start: Option<Tid>,
        last: Tid,
    ) -> Result<bool, BackupError> {
        let mut cursor = source.storage.iterate(start, Some(last))?;
        let mut outcome = Ok(true);
        loop {
            let is_over = cursor.read(true, &mut |item| match self.take(source, item) {
                Ok(true) => ControlFlow::Continue(()),
                stopped => {
                    outcome = stopped;
                    ControlFlow::Break(())
                }
            })?;
            // A storage may pause before the end.
            if is_over || !matches!(outcome, Ok(true)) {
                return outcome;
            }
        }
    }

    /// Takes an item; `false` if it is left for the next time.
    fn take(&mut self, source: &Source<'_>, item: LogItem<'_>) -> Result<bool, BackupError> {
        let mut is_copy = false;
        match item {
            LogItem::Transaction { tid, .. } => {
                self.end_transaction()?;
                self.check_is_later(tid)?;
                if self.fresh.as_ref().is_some_and(|fresh| fresh.content.len() >= FRESH_BYTES_MAX) {
                    return Ok(false);
                }
                self.current.begin(tid);
            }
            LogItem::Record { oid, data, data_tid } => {
                self.current.begin_record(oid);
                if let Some(earlier) = data_tid {
                    is_copy = source.storage.record(oid, earlier)?.is_some();
                }
                if let Some(data) = data {
                    self.take_blob(source, oid, data)?;
                    (source.progress)(data.len());
                }
            }
            LogItem::Skipped => {}
        }
        encode(item, is_copy, &mut self.current.content);
        Ok(true)
    }

    /// Refuses a transaction that no storage takes back: it stands behind a later one.
    fn check_is_later(&self, tid: Tid) -> Result<(), BackupError> {
        match self.next_tid().filter(|next| tid < *next) {
            None => Ok(()),
            Some(_) => Err(BackupError::Refused(format!(
                "transaction {tid} stands behind one that is not earlier, and could not be \
                 restored: back up with --format repozo, or first write a file with `zodium \
                 recover`, in which such transactions have later tids"
            ))),
        }
    }

    fn take_blob(&mut self, source: &Source<'_>, oid: Oid, data: &[u8]) -> Result<(), BackupError> {
        let Some(tid) = self.current.tid().filter(|_| source.blobs.is_blob(data)) else {
            return Ok(());
        };
        if let Some(blob) = self.known_blobs.get(&(oid, tid)) {
            self.current.add_blob(blob.clone());
            return Ok(());
        }
        let stored = match source.blobs.open(oid, tid)? {
            Some(mut input) => Blob::store(&self.store, oid, tid, &mut *input)?,
            None => None,
        };
        let Some((blob, stored)) = stored else {
            self.missing_blobs += 1;
            return Ok(());
        };
        self.stored_bytes += stored;
        self.known_blobs.insert((oid, tid), blob.clone());
        self.current.add_blob(blob);
        Ok(())
    }

    /// Adds the transaction that was read to chunks, and stores those that have their end.
    fn end_transaction(&mut self) -> Result<(), BackupError> {
        let Some(tid) = self.current.tid() else { return Ok(()) };
        self.store_full()?;
        self.new_transactions += u64::from(tid > self.archived);
        self.current.distribute(&mut self.open, &mut self.full);
        if let Some(fresh) = &mut self.fresh {
            self.current.append_to(fresh);
        }
        self.current.clear();
        self.store_full()
    }

    /// Stores the chunks that have their end. After an error they are stored the next time.
    fn store_full(&mut self) -> Result<(), BackupError> {
        while let Some(filling) = self.full.front() {
            if let Some((chunk, stored)) = filling.store(&self.store, &self.known)? {
                self.stored_bytes += stored;
                self.chunks.push(chunk);
            }
            self.full.pop_front();
        }
        Ok(())
    }

    /// Stores the chunk that is being filled as it is; all chunks.
    pub(super) fn all_chunks(&mut self) -> Result<Vec<Chunk>, BackupError> {
        self.store_full()?;
        let mut chunks = self.chunks.clone();
        if let Some((chunk, stored)) = self.open.store(&self.store, &self.known)? {
            self.stored_bytes += stored;
            chunks.push(chunk);
        }
        Ok(chunks)
    }

    /// From now on keeps what is read, for [`Writer::store_fresh`].
    pub(super) fn follow(&mut self) {
        self.fresh = Some(Filling::default());
    }

    /// Stores what was read since the last time as a chunk of its own; the bytes that were written.
    pub(super) fn store_fresh(&mut self) -> Result<Option<(Chunk, u64)>, BackupError> {
        match &self.fresh {
            Some(fresh) => fresh.store(&self.store, &Known::default()),
            None => Ok(None),
        }
    }

    /// Forgets what was read since the last time, as a restore point has it; its transactions.
    pub(super) fn forget_fresh(&mut self) -> u64 {
        self.fresh.as_mut().map_or(0, |fresh| std::mem::take(fresh).transactions())
    }
}

/// Bytes after which what is followed becomes a restore point, even if there is more to read.
const FRESH_BYTES_MAX: usize = 4 << 20;

/// The chunks that need not be read again, and the last of them, from where a transaction begins.
/// Never the last chunk: it may go on.
fn kept_and_probe(chunks: &[Chunk]) -> (&[Chunk], &[Chunk]) {
    let end_of = |chunks: &[Chunk]| {
        chunks.iter().rposition(|chunk| chunk.cut.is_none()).map_or(0, |place| place + 1)
    };
    let kept = &chunks[..chunks.len().saturating_sub(1)];
    let kept = &kept[..end_of(kept)];
    let start = end_of(&kept[..kept.len().saturating_sub(1)]);
    (kept, &kept[start..])
}
