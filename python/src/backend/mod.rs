//! What the Python classes ask of a storage, wherever it is.
//!
//! Key decision: one trait for all kinds of storage, in the terms of the ZEO client. So Python's
//! storages share their methods, and differ in what only one of them can do.

mod neo;
mod server;

use bytes::Bytes;
use zodium_client::{
    ClientError, CommittedRecord, CurrentObject, Outcome, Revision, TransactionHead,
    TransactionOptions, Unfinished, Voted,
};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

pub(crate) use neo::NeoBackend;

/// The answers of [`Backend::load_many`], in the order of the oids.
pub(crate) type Loads = Vec<Result<Option<Revision>, ClientError>>;
/// Is called with the tid of a commit.
pub(crate) type Then = Box<dyn FnOnce(Tid) -> Result<(), ClientError> + Send>;

/// A storage.
pub(crate) trait Backend: Send + Sync {
    /// Waits until the storage can be used.
    fn wait(&self) -> Result<(), ClientError>;
    /// Ends its use.
    fn close(&self);
    /// Begins anew in a forked child, without anything of the parent's.
    fn after_fork_in_child(&self) -> Result<(), ClientError>;
    /// Whether the storage can be used now.
    fn is_connected(&self) -> bool;
    /// Whether commits are refused.
    fn is_read_only(&self) -> bool;
    /// Forgets the revisions in memory.
    fn clear_cache(&self);
    /// The last transaction that Python was told of. Waits for the first connection, and while
    /// Python is being told of another one.
    fn last_tid(&self) -> Result<Tid, ClientError>;
    /// Like [`Backend::last_tid`], but `None` instead of waiting.
    fn last_tid_at_once(&self) -> Option<Tid>;
    /// Loads from memory. Does not wait, whichever locks other threads hold.
    fn load_cached(&self, oid: Oid, before: Tid) -> Option<Revision>;
    /// Loads what is not in memory.
    fn load_uncached(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError>;
    /// Starts loading objects, if the storage can.
    fn prefetch(&self, oids: &[Oid], before: Tid);
    /// Loads many objects.
    fn load_many(&self, oids: &[Oid], before: Tid) -> Result<Loads, ClientError>;
    /// The first object from an oid on.
    fn next_object(&self, from: Option<Oid>) -> Result<CurrentObject, ClientError>;
    /// Reads the log.
    fn read_log(&self, start: Option<Tid>, stop: Option<Tid>) -> Result<Box<dyn Log>, ClientError>;
    /// An oid for a new object.
    fn new_oid(&self) -> Result<Oid, ClientError>;
    /// The outcome of a transaction whose finish was not waited for.
    fn outcome(&self, unfinished: &Unfinished) -> Result<Outcome, ClientError>;
    /// Calls a method of the server by its name, or what stands for it.
    fn call(&self, method: &str, arguments: Value<'_>) -> Result<Value<'static>, ClientError>;
    /// Begins a transaction.
    fn begin(&self, options: &TransactionOptions) -> Result<Box<dyn OpenTransaction>, ClientError>;
}

/// A place in the log of a storage.
pub(crate) trait Log: Send {
    /// The number of the server's iterator; -1 without a server.
    fn number(&self) -> i128;
    /// The next transaction.
    fn next_transaction(&mut self) -> Result<Option<TransactionHead>, ClientError>;
    /// Some of the next records; none at the end of the transaction.
    fn next_records(&mut self, count: usize) -> Result<Vec<CommittedRecord>, ClientError>;
    /// The transaction, and how many of its records were taken.
    fn position(&self) -> Option<(Tid, usize)>;
}

/// A transaction before its end. It is aborted when it is dropped.
pub(crate) trait OpenTransaction: Send {
    /// Stores a revision.
    fn store(&mut self, oid: Oid, serial: Tid, data: Bytes) -> Result<(), ClientError>;
    /// Stores a revision with a blob.
    fn store_blob(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Bytes,
        blob: &mut std::fs::File,
    ) -> Result<(), ClientError> {
        let _ = (oid, serial, data, blob);
        Err(no_blobs())
    }
    /// Stores a revision with a blob that is in the server's directory.
    fn store_shared_blob(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Bytes,
        name: &str,
    ) -> Result<(), ClientError> {
        let _ = (oid, serial, data, name);
        Err(no_blobs())
    }
    /// Deletes an object.
    fn delete(&mut self, oid: Oid, serial: Tid) -> Result<(), ClientError>;
    /// Has the vote fail if the revision is not current any more.
    fn check_current(&mut self, oid: Oid, serial: Tid) -> Result<(), ClientError>;
    /// Undoes a transaction.
    fn undo(&mut self, undo_id: &[u8]) -> Result<(), ClientError>;
    /// Copies a record.
    fn restore(
        &mut self,
        oid: Oid,
        serial: Tid,
        data: Option<&[u8]>,
        previous: Option<Tid>,
    ) -> Result<(), ClientError>;
    /// Votes.
    fn vote(&mut self) -> Result<Voted, ClientError>;
    /// Commits.
    fn finish(self: Box<Self>, then: Then) -> Result<Tid, ClientError>;
    /// Aborts.
    fn abort(self: Box<Self>) -> Result<(), ClientError>;
}

fn no_blobs() -> ClientError {
    unsupported("this kind of storage has no blobs")
}

/// The exception for what a kind of storage does not offer.
fn unsupported(what: &str) -> ClientError {
    let (name, payload) =
        ("ZODB.POSException.Unsupported".to_owned(), Value::tuple([what.to_owned().into()]));
    ClientError::Raised(std::sync::Arc::new(zodium_client::Exception { name, payload }))
}
