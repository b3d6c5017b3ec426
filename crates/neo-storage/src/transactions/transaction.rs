//! One transaction in progress.

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};
use zodium_neo::NodeId;
use zodium_types::{Oid, Tid};

use crate::database::Data;

/// A transaction in progress.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// The client that commits it.
    pub(crate) client: NodeId,
    /// Objects stored, deleted or checked.
    pub(crate) objects: BTreeMap<Oid, Object>,
    /// Objects whose serial the database is being asked for, with the number of the question.
    pub(crate) checking: FxHashMap<Oid, u64>,
    /// Objects that are stored without a lock.
    pub(crate) lockless: FxHashSet<Oid>,
    /// Objects whose lock the client was asked to give back.
    pub(crate) deadlocks: FxHashSet<Oid>,
    pub(crate) vote: Vote,
    /// Whether this node has its metadata.
    pub(crate) has_metadata: bool,
    /// The tid, from the lock on.
    pub(crate) tid: Option<Tid>,
}

/// How far the vote is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Not asked for.
    No,
    /// Being written.
    Asked,
    /// Durable.
    Done,
}

/// An object of a transaction.
#[derive(Debug)]
pub(crate) struct Object {
    /// The serial that the client read.
    pub(crate) serial: Tid,
    /// What was stored; `None`: the serial was checked only.
    pub(crate) stored: Option<Stored>,
}

/// What was stored.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The data; `None` for a deletion, and after the vote.
    pub(crate) data: Option<Data>,
    /// Of an undo: the transaction that has the same data.
    pub(crate) data_serial: Option<Tid>,
}

impl Transaction {
    pub(super) fn new(client: NodeId) -> Transaction {
        Transaction {
            client,
            objects: BTreeMap::new(),
            checking: FxHashMap::default(),
            lockless: FxHashSet::default(),
            deadlocks: FxHashSet::default(),
            vote: Vote::No,
            has_metadata: false,
            tid: None,
        }
    }
}
