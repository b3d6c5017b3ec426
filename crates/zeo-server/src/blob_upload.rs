//! Receives blobs from a client into its transaction.
//!
//! Key decision: chunks are collected and written on a blocking thread while the next ones arrive.
//! A client that sends faster than the disk writes is not read from until the disk has caught up;
//! other clients are not affected. The transaction gets only whole blobs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use zodium_blobs::TemporaryBlob;
use zodium_engine::Database;
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_types::{Held, Memory, Oid, Tid};

use crate::blobs::blobs_of;
use crate::call::Arguments;
use crate::exception::Exception;
use crate::peer::Peer;
use crate::replies::Reply;
use crate::stores::Stores;
use crate::transaction::{Phase, SharedSlot};

/// Least bytes of a write, except for the last one.
const WRITE_BYTES_MIN: usize = 256 << 10;
/// Bytes waiting to be written from which on the client is not read from. The limit falls to the
/// second value while memory is short.
const WAITING_BYTES_MAX: usize = 2 << 20;
const WAITING_BYTES_LOW: usize = 256 << 10;

/// Receives the blobs of a session, one after the other.
pub(crate) struct BlobUploads {
    peer: Rc<Peer>,
    slot: SharedSlot,
    stores: Stores,
    upload: RefCell<Option<Upload>>,
    /// The number of blobs received so far.
    uploads: Cell<u64>,
}

/// The blob that a client is sending.
struct Upload {
    /// Distinguishes it from abandoned uploads, for which a write may still be in progress.
    number: u64,
    /// The file; created by the first write, and `None` during a write.
    blob: Option<TemporaryBlob>,
    is_writing: bool,
    /// Chunks to be written next.
    chunks: Vec<Bytes>,
    chunk_bytes: usize,
    /// Bytes being written.
    writing_bytes: usize,
    /// The memory of both.
    held: Held,
    /// The record of the blob, which arrives after all chunks.
    record: Option<BlobRecord>,
}

/// The record of a blob.
struct BlobRecord {
    oid: Oid,
    serial: Tid,
    data: Bytes,
}

impl Upload {
    /// Whether the client may send more. After the record it may not, until the blob is in the
    /// transaction.
    fn is_ready(&self, memory: &Memory) -> bool {
        self.record.is_none()
            && self.chunk_bytes < memory.share(WAITING_BYTES_LOW, WAITING_BYTES_MAX)
    }

    fn new(number: u64, held: Held) -> Upload {
        Upload {
            number,
            blob: None,
            is_writing: false,
            chunks: Vec::new(),
            chunk_bytes: 0,
            writing_bytes: 0,
            held,
            record: None,
        }
    }

    fn hold(&mut self) {
        self.held.set(self.chunk_bytes + self.writing_bytes);
    }
}

impl BlobUploads {
    pub(crate) fn new(peer: Rc<Peer>, slot: SharedSlot, stores: Stores) -> Rc<BlobUploads> {
        let (upload, uploads) = (RefCell::default(), Cell::new(0));
        Rc::new(BlobUploads { peer, slot, stores, upload, uploads })
    }

    /// Whether the client may send more.
    pub(crate) fn is_ready(&self) -> bool {
        let memory = self.peer.memory();
        self.upload.borrow().as_ref().is_none_or(|upload| upload.is_ready(memory))
    }

    /// Gives up the blob that is being received; false if there is none.
    pub(crate) fn abandon(&self) -> bool {
        self.upload.take().is_some()
    }

    pub(crate) fn start(&self) -> Result<Reply, Exception> {
        let mut slot = self.slot.borrow_mut();
        if self.abandon() {
            // Chunks do not name their blob.
            slot.doom(Exception::transaction_error("two blobs were sent at once"));
        }
        match (slot.phase(), blobs_of(self.peer.storage())) {
            (Phase::Collecting, Ok(_)) => {
                let number = self.uploads.get() + 1;
                self.uploads.set(number);
                self.upload.replace(Some(Upload::new(number, self.peer.memory().holder())));
            }
            (Phase::Collecting, Err(error)) => slot.doom(error.into()),
            // The transaction will not be committed anyway.
            (Phase::Closed, _) => {}
            (Phase::Absent, _) => {
                return Err(Exception::transaction_error("a blob outside of a transaction"));
            }
        }
        Ok(Reply::Value(Value::None))
    }

    pub(crate) fn chunk(
        self: &Rc<Self>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let chunk = arguments.data()?;
        self.take_part(|upload| {
            upload.chunk_bytes += chunk.len();
            upload.chunks.push(chunk);
            upload.hold();
        })
    }

    pub(crate) fn end(self: &Rc<Self>, arguments: &mut Arguments<'_>) -> Result<Reply, Exception> {
        let record = BlobRecord::take(arguments)?;
        self.slot.borrow_mut().check_id(&arguments.owned())?;
        self.take_part(|upload| upload.record = Some(record))
    }

    /// Adds a part to the blob that is being received.
    fn take_part(self: &Rc<Self>, take: impl FnOnce(&mut Upload)) -> Result<Reply, Exception> {
        match &mut *self.upload.borrow_mut() {
            Some(upload) => take(upload),
            // The blob was never begun, or its transaction is doomed.
            None if self.slot.borrow().phase() != Phase::Closed => {
                return Err(Exception::transaction_error("a part of a blob that was not begun"));
            }
            None => {}
        }
        self.write();
        Ok(Reply::Value(Value::None))
    }

    /// Adds a blob that a client has put into the shared blob directory. No request is read until
    /// the blob is in the transaction.
    pub(crate) fn share(
        self: &Rc<Self>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let record = BlobRecord::take(arguments)?;
        let name = String::from_utf8_lossy(&arguments.text_bytes()?).into_owned();
        self.slot.borrow_mut().check_id(&arguments.owned())?;
        let (uploads, storage) = (Rc::clone(self), Arc::clone(self.peer.storage()));
        let oid = record.oid;
        let job = move || Ok(blobs_of(&storage)?.adopt(oid, &name)?);
        self.peer.jobs.spawn_pausing(job, move |blob| uploads.add(Some(record), blob));
        Ok(Reply::Value(Value::None))
    }

    /// Writes the collected chunks if they are enough, or the last ones.
    fn write(self: &Rc<Self>) {
        let mut upload = self.upload.borrow_mut();
        let Some(upload) = upload.as_mut() else { return };
        let is_last = upload.record.is_some();
        if upload.is_writing || (upload.chunk_bytes < WRITE_BYTES_MIN && !is_last) {
            return;
        }
        upload.is_writing = true;
        upload.writing_bytes = std::mem::take(&mut upload.chunk_bytes);
        let (number, blob) = (upload.number, upload.blob.take());
        let chunks = std::mem::take(&mut upload.chunks);
        let (uploads, storage) = (Rc::clone(self), Arc::clone(self.peer.storage()));
        let job = move || write(&storage, blob, &chunks, is_last);
        self.peer.jobs.spawn(job, move |written| uploads.written(number, is_last, written));
    }

    fn written(
        self: &Rc<Self>,
        number: u64,
        was_last: bool,
        written: Result<TemporaryBlob, StorageError>,
    ) {
        let mut current = self.upload.borrow_mut();
        // Otherwise the upload was abandoned, and its file is dropped here.
        let Some(upload) = current.as_mut().filter(|upload| upload.number == number) else {
            return;
        };
        match written {
            Ok(blob) if !was_last => {
                upload.is_writing = false;
                upload.blob = Some(blob);
                upload.writing_bytes = 0;
                upload.hold();
                drop(current);
                self.write();
            }
            // The last write, or a failed one, after which further chunks are ignored.
            written => {
                let record = current.take().and_then(|upload| upload.record);
                drop(current);
                self.add(record, written);
            }
        }
    }

    /// Adds a complete blob to the transaction.
    fn add(&self, record: Option<BlobRecord>, blob: Result<TemporaryBlob, StorageError>) {
        let mut slot = self.slot.borrow_mut();
        let Some(transaction) = slot.collecting() else { return };
        match (record, blob) {
            (Some(BlobRecord { oid, serial, data }), Ok(blob)) => {
                let statistics = self.peer.statistics();
                statistics.blobs_received.add(1);
                statistics.blob_bytes_received.add(blob.length());
                transaction.store_blob(oid, serial, data, blob);
                slot.hold();
                drop(slot);
                self.stores.spill();
            }
            (_, Err(error)) => slot.doom(error.into()),
            (None, Ok(_)) => {}
        }
    }
}

impl BlobRecord {
    fn take(arguments: &mut Arguments<'_>) -> Result<BlobRecord, Exception> {
        let (oid, serial) = (arguments.oid()?, arguments.serial()?);
        Ok(BlobRecord { oid, serial, data: arguments.data()? })
    }
}

/// Appends chunks to a blob file, and creates it if it is `None`. The last ones complete it.
/// Blocking.
fn write(
    storage: &Database,
    blob: Option<TemporaryBlob>,
    chunks: &[Bytes],
    are_last: bool,
) -> Result<TemporaryBlob, StorageError> {
    let mut blob = match blob {
        Some(blob) => blob,
        None => blobs_of(storage)?.temporary()?,
    };
    for chunk in chunks {
        blob.append(chunk)?;
    }
    if are_last {
        blob.complete()?;
    }
    Ok(blob)
}
