//! Receives blobs from a client into its transaction.
//!
//! Key decision: chunks are collected and written on a blocking thread while the next ones arrive.
//! A client that sends faster than the disk writes is not read from until the disk has caught up;
//! other clients are not affected. The transaction gets only whole blobs.

use bytes::Bytes;
use zodium_blobs::{BlobDirectory, TemporaryBlob};
use zodium_engine::Storage;
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_types::{Held, Memory, Oid, Tid};

use super::call::Arguments;
use super::exception::Exception;
use super::session::{Context, Reply, Session, SessionHandle};
use super::transaction::TransactionState;

/// Least bytes of a write, except for the last one.
const WRITE_BYTES_MIN: usize = 256 << 10;
/// Bytes waiting to be written from which on the client is not read from. The limit falls to the
/// second value while memory is short.
const WAITING_BYTES_MAX: usize = 2 << 20;
const WAITING_BYTES_LOW: usize = 256 << 10;

/// The blob that a client is sending.
pub(crate) struct Upload {
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
    pub(crate) fn is_ready(&self, memory: &Memory) -> bool {
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

impl Session {
    pub(crate) fn blob_start(&mut self) -> Result<Reply, Exception> {
        let Some(storage) = self.storage() else { return Ok(Reply::Later) };
        if self.upload.take().is_some() {
            // Chunks do not name their blob.
            self.doom(Exception::transaction_error("two blobs were sent at once"));
        }
        match (self.transaction_state(), blobs_of(&storage)) {
            (Some(TransactionState::Open { .. }), Ok(_)) => {
                self.uploads += 1;
                self.upload = Some(Upload::new(self.uploads, self.link.memory().holder()));
            }
            (Some(TransactionState::Open { .. }), Err(error)) => self.doom(error.into()),
            // The transaction will not be committed anyway.
            (Some(_), _) => {}
            (None, _) => {
                return Err(Exception::transaction_error("a blob outside of a transaction"));
            }
        }
        Ok(Reply::Value(Value::None))
    }

    pub(crate) fn blob_chunk(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let chunk = arguments.data(context.frame)?;
        let Some(upload) = &mut self.upload else { return self.ignore_part_of_blob() };
        upload.chunk_bytes += chunk.len();
        upload.chunks.push(chunk);
        upload.hold();
        self.write_upload(context.handle);
        Ok(Reply::Value(Value::None))
    }

    pub(crate) fn blob_end(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let record = BlobRecord::take(context, arguments)?;
        self.own_transaction(&arguments.owned())?;
        let Some(upload) = &mut self.upload else { return self.ignore_part_of_blob() };
        upload.record = Some(record);
        self.write_upload(context.handle);
        Ok(Reply::Value(Value::None))
    }

    /// Adds a blob that a client has put into the shared blob directory.
    pub(crate) fn blob_shared(
        &mut self,
        context: &Context<'_>,
        arguments: &mut Arguments<'_>,
    ) -> Result<Reply, Exception> {
        let record = BlobRecord::take(context, arguments)?;
        let name = String::from_utf8_lossy(&arguments.text_bytes()?).into_owned();
        self.own_transaction(&arguments.owned())?;
        let Some(storage) = self.storage() else { return Ok(Reply::Later) };
        // No request is read until the blob is in the transaction.
        self.spilling = true;
        let oid = record.oid;
        let job = move || Ok(blobs_of(&storage)?.adopt(oid, &name)?);
        context.handle.spawn(self, job, move |handle, session, blob| {
            session.spilling = false;
            session.add_blob(handle, Some(record), blob);
        });
        Ok(Reply::Value(Value::None))
    }

    /// Whether an abort of the transaction may have to remove files.
    pub(crate) fn may_have_blobs(&self) -> bool {
        let has_directory =
            self.subscriber().is_some_and(|subscriber| subscriber.storage.blobs().is_some());
        let state = self.transaction.as_ref().map(|open| &open.state);
        has_directory
            && match state {
                Some(
                    TransactionState::Open { transaction, .. }
                    | TransactionState::Waiting { transaction, .. },
                ) => transaction.has_blobs() || self.upload.is_some(),
                Some(TransactionState::Voted { .. }) => true,
                _ => false,
            }
    }

    /// Answers an abort after its files are removed.
    pub(crate) fn settle_blobs(&mut self, context: &Context<'_>) -> Result<Reply, Exception> {
        self.ask(context, |storage| {
            blobs_of(storage)?.settle();
            Ok(Value::None)
        })
    }

    /// Writes the collected chunks if they are enough, or the last ones.
    fn write_upload(&mut self, handle: &SessionHandle) {
        let Some(storage) = self.storage() else { return };
        let Some(upload) = &mut self.upload else { return };
        let is_last = upload.record.is_some();
        if upload.is_writing || (upload.chunk_bytes < WRITE_BYTES_MIN && !is_last) {
            return;
        }
        upload.is_writing = true;
        upload.writing_bytes = std::mem::take(&mut upload.chunk_bytes);
        let (number, blob) = (upload.number, upload.blob.take());
        let chunks = std::mem::take(&mut upload.chunks);
        let job = move || write(&storage, blob, &chunks);
        handle.spawn(self, job, move |handle, session, written| {
            session.upload_written(handle, number, is_last, written);
        });
    }

    fn upload_written(
        &mut self,
        handle: &SessionHandle,
        number: u64,
        was_last: bool,
        written: Result<TemporaryBlob, StorageError>,
    ) {
        let current = self.upload.as_mut().filter(|upload| upload.number == number);
        // Otherwise the upload was abandoned, and its file is dropped here.
        let Some(upload) = current else { return };
        match written {
            Ok(blob) if !was_last => {
                upload.is_writing = false;
                upload.blob = Some(blob);
                upload.writing_bytes = 0;
                upload.hold();
                self.write_upload(handle);
            }
            // The last write, or a failed one, after which further chunks are ignored.
            written => {
                let record = self.upload.take().and_then(|upload| upload.record);
                self.add_blob(handle, record, written);
            }
        }
    }

    /// Adds a complete blob to the transaction.
    fn add_blob(
        &mut self,
        handle: &SessionHandle,
        record: Option<BlobRecord>,
        blob: Result<TemporaryBlob, StorageError>,
    ) {
        match (self.transaction_state(), record, blob) {
            (Some(TransactionState::Open { transaction, .. }), Some(record), Ok(blob)) => {
                let BlobRecord { oid, serial, data } = record;
                transaction.store_blob(oid, serial, data, blob);
                self.hold_transaction();
                self.spill(handle);
            }
            (Some(TransactionState::Open { .. }), _, Err(error)) => self.doom(error.into()),
            (..) => {}
        }
    }

    /// Handles a part of a blob that was never begun, or whose transaction is doomed.
    fn ignore_part_of_blob(&mut self) -> Result<Reply, Exception> {
        match self.transaction_state() {
            None | Some(TransactionState::Open { .. }) => {
                Err(Exception::transaction_error("a part of a blob that was not begun"))
            }
            Some(_) => Ok(Reply::Value(Value::None)),
        }
    }
}

impl BlobRecord {
    fn take(context: &Context<'_>, arguments: &mut Arguments<'_>) -> Result<BlobRecord, Exception> {
        let (oid, serial) = (arguments.oid()?, arguments.serial()?);
        Ok(BlobRecord { oid, serial, data: arguments.data(context.frame)? })
    }
}

/// The blob directory of a storage, or the error if there is none.
pub(crate) fn blobs_of(storage: &Storage) -> Result<&BlobDirectory, StorageError> {
    storage.blobs().ok_or_else(|| {
        let what = format!("{}: served without a blob directory", storage.reader().name());
        StorageError::Unsupported { what }
    })
}

/// Appends chunks to a blob file, and creates it if it is `None`. Blocking.
fn write(
    storage: &Storage,
    blob: Option<TemporaryBlob>,
    chunks: &[Bytes],
) -> Result<TemporaryBlob, StorageError> {
    let mut blob = match blob {
        Some(blob) => blob,
        None => blobs_of(storage)?.temporary()?,
    };
    for chunk in chunks {
        blob.append(chunk)?;
    }
    Ok(blob)
}
