//! The notices that the engine posts to the workers, in the order of the events.

use std::sync::Arc;

use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

use crate::commit::TransactionNumber;

/// A committed transaction.
#[derive(Debug)]
pub struct Commit {
    /// Its tid.
    pub tid: Tid,
    /// The objects it wrote, each once, in the order of their records.
    pub oids: Vec<Oid>,
    /// The number of the transaction; only the session that asked for its finish knows it.
    pub number: TransactionNumber,
}

/// Commits of one sync, in tid order; at least one.
pub type Commits = Arc<[Arc<Commit>]>;

/// An event that a worker must know of.
#[derive(Clone, Debug)]
pub enum Notice {
    /// The transactions that one sync made durable and visible. Posted to every mailbox, in tid
    /// order. One notice for all of them wakes a worker once, and it writes to each client once.
    Committed(Commits),
    /// A waiting transaction got its locks: its session must check it.
    Granted(TransactionNumber),
    /// The write of a finished transaction failed; the transaction is over.
    Failed(TransactionNumber, Arc<StorageError>),
    /// The transaction held its locks past the timeout: its session must close the connection.
    Expired(TransactionNumber),
    /// The storage was packed: its size and its number of objects have changed.
    Packed,
}

impl Notice {
    /// The tid of this transaction, if the notice says that it is committed.
    pub fn tid_of(&self, number: TransactionNumber) -> Option<Tid> {
        let Notice::Committed(commits) = self else { return None };
        commits.iter().find(|commit| commit.number == number).map(|commit| commit.tid)
    }
}

/// An ordered inbox of a worker. `post` must not block.
pub trait Mailbox: Send + Sync {
    /// Appends a notice.
    fn post(&self, notice: Notice);
}
