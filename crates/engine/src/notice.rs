//! What the engine tells the workers, in the order in which it happened.

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
    /// Whose finish it was; only the session that asked for it knows this number.
    pub number: TransactionNumber,
}

/// Commits of one sync, in tid order; at least one.
pub type Commits = Arc<[Arc<Commit>]>;

/// Something a worker has to know.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Committed, durable and visible: what one sync has made so, in tid order. Posted to every
    /// mailbox, in tid order. Together, so that a worker is woken once for all of them, and each
    /// client written to once.
    Committed(Commits),
    /// A transaction that waited has its locks now: check it.
    Granted(TransactionNumber),
    /// A finish that could not be written; the transaction is over.
    Failed(TransactionNumber, Arc<StorageError>),
    /// Voted longer ago than the transaction timeout allows: close its connection.
    Expired(TransactionNumber),
    /// The storage was packed: size and number of objects have changed.
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
    /// Puts a notice behind those posted before.
    fn post(&self, notice: Notice);
}
