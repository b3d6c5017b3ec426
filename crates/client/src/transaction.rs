//! Commits: stores are sent as they come, vote waits for the server, and finish updates the cache
//! before any watcher is called.

use std::io::Read;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::encode_oneway;

use crate::commit_turns::CommitTurn;
use crate::connection::Connection;
use crate::outcome::SentStores;
use crate::shared::Shared;
use crate::standing::Established;
use crate::{Client, ClientError, Unfinished};

/// Stores are buffered up to this size before they are sent.
const BATCH_BYTES: usize = 256 << 10;
/// Size of a blob chunk, as stock clients use it.
const BLOB_CHUNK_BYTES: usize = 59_000;

/// Metadata of a transaction.
#[derive(Clone, Debug)]
pub struct TransactionOptions {
    /// The user that commits; UTF-8 by convention.
    pub user: Vec<u8>,
    /// A description; UTF-8 by convention.
    pub description: Vec<u8>,
    /// The extension: a dict.
    pub extension: Value<'static>,
    /// For copied transactions: the original tid.
    pub tid: Option<Tid>,
    /// For copied transactions: `p` if the transaction was packed.
    pub status: char,
}

impl Default for TransactionOptions {
    fn default() -> TransactionOptions {
        let extension = Value::Dict(Vec::new());
        let (user, description) = (Vec::new(), Vec::new());
        TransactionOptions { user, description, extension, tid: None, status: ' ' }
    }
}

/// The server's answer to a vote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Voted {
    /// Objects whose stored data the server has changed, by resolving a conflict or by an undo.
    pub changed: Vec<Oid>,
    /// Conflicts for the client to resolve. It stores each object again upon the committed serial
    /// and votes again, or it aborts.
    pub conflicts: Vec<StoreConflict>,
}

/// Another transaction has changed an object meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreConflict {
    /// The object.
    pub oid: Oid,
    /// The current serial.
    pub committed: Tid,
    /// The base serial of the store.
    pub stored_upon: Tid,
    /// The stored data.
    pub data: Bytes,
}

/// An open transaction. Dropping it unfinished aborts it.
pub struct Transaction {
    shared: Arc<Shared>,
    current: Arc<Established>,
    id: u64,
    /// Encoded messages that are not sent yet.
    output: BytesMut,
    /// The written objects, with their data if these will be cached.
    written: FxHashMap<Oid, Option<Bytes>>,
    written_bytes: usize,
    stores: SentStores,
    stage: Stage,
    /// Released when the transaction is over, or when its finish is answered.
    turn: Arc<Mutex<Option<CommitTurn>>>,
}

/// How far a transaction is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The server has not agreed to all that was told.
    Open,
    /// The server has agreed.
    Voted,
    /// Only an abort is left, for this reason.
    Broken(&'static str),
    Over,
}

impl Client {
    /// Begins a transaction. A client has one at a time; further callers wait until it is over, for
    /// longer than [`crate::Options::wait_timeout`] too. A thread that has one open must not begin
    /// another: it would wait for itself.
    ///
    /// # Errors
    /// [`ClientError::Nested`] from a watcher, and from the function given to
    /// [`Transaction::finish`]: that transaction is over when the function returns.
    pub fn begin(&self, options: &TransactionOptions) -> Result<Transaction, ClientError> {
        let shared = self.shared();
        let current = shared.established()?;
        if shared.is_read_only() {
            return Err(ClientError::ReadOnly);
        }
        if current.connection.is_read_here() {
            return Err(ClientError::Nested);
        }
        let turn = shared.begin_commit()?;
        let id = turn.transaction;
        let mut transaction = Transaction {
            shared,
            current,
            id,
            output: BytesMut::new(),
            written: FxHashMap::default(),
            written_bytes: 0,
            stores: SentStores::default(),
            stage: Stage::Open,
            turn: Arc::new(Mutex::new(Some(turn))),
        };
        // The connection may have changed while this thread waited.
        transaction.current = transaction.shared.established()?;
        let TransactionOptions { user, description, extension, tid, status } = options;
        let status = status.to_string();
        transaction.tell(
            "tpc_begin",
            &Value::tuple([
                id.into(),
                user.as_slice().into(),
                description.as_slice().into(),
                extension.clone(),
                (*tid).into(),
                status.as_str().into(),
            ]),
        )?;
        Ok(transaction)
    }
}

impl Transaction {
    /// Stores a new revision of an object. `serial` is that of the loaded revision, or
    /// [`Tid::ZERO`] for a new object. Conflicts are reported at vote.
    pub fn store(&mut self, oid: Oid, serial: Tid, data: Bytes) -> Result<(), ClientError> {
        let arguments =
            Value::tuple([oid.into(), serial.into(), (&data[..]).into(), self.id.into()]);
        self.tell("storea", &arguments)?;
        self.stores.add(oid, serial, data.clone());
        self.written_bytes += data.len();
        // Data that would evict most of the cache are not cached.
        let is_kept = self.written_bytes <= self.shared.options.cache_bytes / 2;
        self.written.insert(oid, is_kept.then_some(data));
        Ok(())
    }

    /// Stores a new revision of an object with a blob, whose content follows.
    pub fn store_blob(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Bytes,
        blob: &mut dyn Read,
    ) -> Result<(), ClientError> {
        self.store(oid, serial, data.clone())?;
        self.tell("storeBlobStart", &Value::tuple([]))?;
        let sent = self.send_blob(blob);
        let arguments =
            Value::tuple([oid.into(), serial.into(), (&data[..]).into(), self.id.into()]);
        self.tell("storeBlobEnd", &arguments)?;
        if sent.is_err() {
            self.stage = Stage::Broken("a blob could not be read to its end");
            // An abort drops what is not sent yet. A stock server keeps a blob without an end, and
            // ends the connection when the next one begins.
            self.send_told()?;
        }
        sent
    }

    fn send_blob(&mut self, blob: &mut dyn Read) -> Result<(), ClientError> {
        let mut chunk = Vec::with_capacity(BLOB_CHUNK_BYTES);
        loop {
            chunk.clear();
            let read = blob.take(BLOB_CHUNK_BYTES as u64).read_to_end(&mut chunk);
            let count = read.map_err(|error| ClientError::File {
                path: "the blob".into(),
                reason: error.to_string().into(),
                code: error.raw_os_error(),
            })?;
            if count == 0 {
                return Ok(());
            }
            self.tell("storeBlobChunk", &Value::tuple([chunk.as_slice().into()]))?;
        }
    }

    /// Like [`Transaction::store_blob`], for a blob file in the directory shared by client and
    /// server. `name` is its name beside the object's other blobs.
    pub fn store_shared_blob(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Bytes,
        name: &str,
    ) -> Result<(), ClientError> {
        let blob = [oid.into(), serial.into(), (&data[..]).into(), name.into(), self.id.into()];
        let arguments = Value::tuple(blob);
        self.store(oid, serial, data.clone())?;
        self.tell("storeBlobShared", &arguments)
    }

    /// Deletes an object.
    pub fn delete(&mut self, oid: Oid, serial: Tid) -> Result<(), ClientError> {
        self.written.insert(oid, None);
        let arguments = Value::tuple([oid.into(), serial.into(), self.id.into()]);
        self.tell("deleteObject", &arguments)
    }

    /// Makes the transaction fail if this is no longer the object's current revision when it is
    /// finished.
    pub fn check_current(&mut self, oid: Oid, serial: Tid) -> Result<(), ClientError> {
        let arguments = Value::tuple([oid.into(), serial.into(), self.id.into()]);
        self.tell("checkCurrentSerialInTransaction", &arguments)
    }

    /// Undoes a transaction; `undo_id` is its id in the answer to `undoLog`.
    pub fn undo(&mut self, undo_id: &[u8]) -> Result<(), ClientError> {
        self.tell("undoa", &Value::tuple([undo_id.into(), self.id.into()]))
    }

    /// Copies a record with its serial. Data of `None` delete the object.
    pub fn restore(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Option<&[u8]>,
        previous: Option<Tid>,
    ) -> Result<(), ClientError> {
        self.written.insert(oid, None);
        let data = Value::from(data.map(<[u8]>::to_vec));
        let record = [oid.into(), serial.into(), data, previous.into(), self.id.into()];
        self.tell("restorea", &Value::tuple(record))
    }

    /// Asks the server whether the transaction can be committed. Abort it after an error raised by
    /// the server, after an interrupt, or after a conflict that cannot be resolved.
    pub fn vote(&mut self) -> Result<Voted, ClientError> {
        if let Stage::Broken(reason) = self.stage {
            return Err(ClientError::NotVoted(reason));
        }
        let connection = Arc::clone(&self.current.connection);
        let arguments = Value::tuple([self.id.into()]);
        let mut output = std::mem::take(&mut self.output);
        let promise = connection.add_request(&mut output, "vote", &arguments, None)?;
        connection.send(&output)?;
        // The objects that the server has changed are in the answer to this vote, and in no later
        // one.
        self.stage = Stage::Broken("the answer to a vote was not waited for");
        connection.wait(&promise)?;
        self.stage = Stage::Open;
        let voted = Voted::from_answer(connection.taken(&promise)?)?;
        for oid in &voted.changed {
            self.written.insert(*oid, None);
            self.stores.remove(*oid);
        }
        if voted.conflicts.is_empty() {
            self.stage = Stage::Voted;
        }
        Ok(voted)
    }

    /// Commits. The reading thread runs `then` with the tid, before any later transaction is
    /// reported and before [`Client::last_tid`] includes it. If the caller has stopped waiting, the
    /// watcher is called instead, as for another client's transaction.
    ///
    /// Any error other than [`ClientError::OutcomeUnknown`] means that nothing was committed, and
    /// that the transaction is aborted: also [`ClientError::NotVoted`], when the last vote had
    /// conflicts, or when something was stored after it.
    pub fn finish(self, then: impl FnOnce(Tid) + Send + 'static) -> Result<Tid, ClientError> {
        self.finish_or_tell_again(|tid| {
            then(tid);
            Ok(())
        })
    }

    /// Like [`Transaction::finish`], with a function that may fail to tell the application. The
    /// transaction is committed all the same. But the connection ends, and the watcher is told of
    /// the transaction with the next one.
    pub fn finish_or_tell_again(
        mut self,
        then: impl FnOnce(Tid) -> Result<(), ClientError> + Send + 'static,
    ) -> Result<Tid, ClientError> {
        self.check_voted()?;
        let connection = Arc::clone(&self.current.connection);
        let has_left = Arc::new(Mutex::new(false));
        let committed = self.committed(Arc::clone(&has_left), then);
        let mut message = BytesMut::new();
        let arguments = Value::tuple([self.id.into()]);
        let then = Box::new(committed);
        let promise = connection.add_request(&mut message, "tpc_finish", &arguments, Some(then))?;
        // From here on the server may have received it, whatever fails.
        let sent = connection.send(&message);
        let waited = connection.wait(&promise);
        let stores = std::mem::take(&mut self.stores);
        let unknown = |error: &ClientError, transaction| ClientError::OutcomeUnknown {
            reason: error.to_string().into(),
            transaction: Arc::new(transaction),
        };
        let finished = match waited.map(|()| sent.and_then(|()| connection.taken(&promise))) {
            Ok(Ok(answer)) => answer.as_tid().ok_or(ClientError::Unexpected {
                method: "tpc_finish",
                expected: "the tid of the transaction",
            }),
            Ok(Err(error)) if is_end(&error) => Err(unknown(&error, Unfinished::lost(stores))),
            Ok(Err(error)) => Err(error),
            Err(error) => {
                *has_left.lock() = true;
                Err(unknown(&error, Unfinished::left(stores, connection, promise)))
            }
        };
        // The server keeps a transaction open whose finish it refuses: it is aborted when dropped.
        if matches!(finished, Ok(_) | Err(ClientError::OutcomeUnknown { .. })) {
            self.stage = Stage::Over;
        }
        finished
    }

    fn check_voted(&self) -> Result<(), ClientError> {
        match self.stage {
            Stage::Voted => Ok(()),
            Stage::Broken(reason) => Err(ClientError::NotVoted(reason)),
            Stage::Open | Stage::Over => Err(ClientError::NotVoted(
                "the last vote was refused, or something was told to the server after it",
            )),
        }
    }

    /// Handles the server's confirmation. The next transaction waits for it too, since a connection
    /// has one transaction at a time.
    fn committed(
        &mut self,
        has_left: Arc<Mutex<bool>>,
        then: impl FnOnce(Tid) -> Result<(), ClientError> + Send + 'static,
    ) -> impl FnOnce(&Value<'_>) -> Result<(), ClientError> + Send + 'static {
        let written = std::mem::take(&mut self.written);
        let (shared, stream) = (Arc::clone(&self.shared), self.current.stream);
        let turn = Arc::clone(&self.turn);
        move |answer| {
            let Some(tid) = answer.as_tid() else { return Ok(()) };
            let kept = written.iter().map(|(oid, data)| (*oid, data.as_deref()));
            shared.cache.finish(stream, tid, kept);
            // Locked during delivery, so that a caller that stops waiting sees the commit reported
            // exactly once.
            let has_left = has_left.lock();
            let told = shared.told.tell(tid, || match &shared.options.watcher {
                _ if !*has_left => then(tid),
                Some(watcher) => {
                    watcher.invalidated(tid, &written.keys().copied().collect::<Vec<_>>())
                }
                None => Ok(()),
            });
            drop(has_left);
            // The next transaction need not wait until the thread that finishes is scheduled.
            drop(turn.lock().take());
            told
        }
    }

    /// Aborts the transaction.
    pub fn abort(mut self) -> Result<(), ClientError> {
        self.stage = Stage::Over;
        let aborted = self.current.connection.call("tpc_abort", &Value::tuple([self.id.into()]));
        match aborted {
            // The end of the connection has aborted it.
            Err(error) if is_end(&error) => Ok(()),
            aborted => aborted.map(drop),
        }
    }

    fn tell(&mut self, method: &str, arguments: &Value<'_>) -> Result<(), ClientError> {
        if self.stage == Stage::Voted {
            self.stage = Stage::Open;
        }
        let connection: &Connection = &self.current.connection;
        if let Some(reason) = connection.end_reason() {
            return Err(reason.clone());
        }
        encode_oneway(connection.encoding, &mut self.output, method, arguments)?;
        if self.output.len() >= BATCH_BYTES {
            return self.send_told();
        }
        Ok(())
    }

    fn send_told(&mut self) -> Result<(), ClientError> {
        let sent = self.current.connection.send(&self.output);
        self.output.clear();
        sent
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.stage != Stage::Over {
            // Needs no wait: the next request comes after it.
            let arguments = Value::tuple([self.id.into()]);
            let _ = self.current.connection.request("tpc_abort", &arguments, None);
        }
    }
}

impl Voted {
    fn from_answer(answer: Value<'static>) -> Result<Voted, ClientError> {
        let mut voted = Voted::default();
        for item in answer.into_sequence().unwrap_or_default() {
            match item.as_oid() {
                Some(oid) => voted.changed.push(oid),
                None => voted.conflicts.push(StoreConflict::from_answer(&item)?),
            }
        }
        Ok(voted)
    }
}

impl StoreConflict {
    fn from_answer(item: &Value<'_>) -> Result<StoreConflict, ClientError> {
        let tids = item.entry("serials").and_then(Value::as_sequence);
        let tids = tids.and_then(|tids| match tids {
            [committed, stored_upon] => committed.as_tid().zip(stored_upon.as_tid()),
            _ => None,
        });
        let oid = item.entry("oid").and_then(Value::as_oid);
        let data = item.entry("data").and_then(Value::as_bytes);
        if let (Some(oid), Some((committed, stored_upon)), Some(data)) = (oid, tids, data) {
            let data = Bytes::copy_from_slice(data);
            return Ok(StoreConflict { oid, committed, stored_upon, data });
        }
        Err(ClientError::Unexpected { method: "vote", expected: "oids or conflicts" })
    }
}

/// Whether the connection ended.
fn is_end(error: &ClientError) -> bool {
    matches!(error, ClientError::Disconnected(_) | ClientError::Closed)
}
