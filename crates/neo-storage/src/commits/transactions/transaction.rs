//! One transaction in progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use zodium_neo::NodeId;
use zodium_types::{Oid, Tid};

use super::rows::Rows;
use super::unvoted::{Kept, Moved, Moving, Unvoted};
use crate::ConnectionId;

/// A transaction in progress.
#[derive(Debug)]
pub(crate) struct Transaction {
    /// The client that commits it.
    pub(crate) client: NodeId,
    /// The connection that it began on: what came on it may be lost with it.
    pub(super) connection: ConnectionId,
    /// Objects stored, deleted or checked.
    pub(crate) objects: BTreeMap<Oid, Object>,
    /// Objects whose serial the database is being asked for, with the number of the question.
    pub(crate) checking: FxHashMap<Oid, u64>,
    /// Objects that are stored without a lock.
    pub(crate) lockless: FxHashSet<Oid>,
    /// Objects that were stored without a lock and have it since, unchecked: what is stored next is
    /// compared with the database.
    pub(crate) unchecked: FxHashSet<Oid>,
    /// Objects whose lock the client was asked to give back.
    pub(crate) deadlocks: FxHashSet<Oid>,
    pub(crate) vote: Vote,
    /// Whether this node has its metadata.
    pub(crate) has_metadata: bool,
    /// The tid, from the lock on.
    pub(crate) tid: Option<Tid>,
    /// The data until they are written.
    pub(crate) unvoted: Unvoted,
    /// From the vote on.
    pub(crate) rows: Rows,
}

/// How far the vote is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    /// Not asked for.
    No,
    /// Being written.
    Asked,
    /// Answered.
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
    pub(crate) data: Option<Kept>,
    /// Whether the object is deleted.
    pub(crate) is_deletion: bool,
    /// Of an undo: the transaction that has the same data.
    pub(crate) data_serial: Option<Tid>,
}

impl Transaction {
    pub(super) fn new(client: NodeId, connection: ConnectionId) -> Transaction {
        Transaction {
            client,
            connection,
            objects: BTreeMap::new(),
            checking: FxHashMap::default(),
            lockless: FxHashSet::default(),
            unchecked: FxHashSet::default(),
            deadlocks: FxHashSet::default(),
            vote: Vote::No,
            has_metadata: false,
            tid: None,
            unvoted: Unvoted::default(),
            rows: Rows::default(),
        }
    }

    /// Whether everything is in memory, checked here, and independent of records that may go.
    pub(crate) fn is_plain(&self) -> bool {
        let refers = |object: &Object| {
            object.stored.as_ref().is_some_and(|stored| stored.data_serial.is_some())
        };
        let is_checked = self.lockless.is_empty() && self.unchecked.is_empty();
        is_checked && self.unvoted.is_in_memory() && !self.objects.values().any(refers)
    }

    /// Keeps an object; data that were stored for it before go.
    pub(crate) fn keep(&mut self, oid: Oid, object: Object) {
        if let Some(data) = object.stored.as_ref().and_then(|stored| stored.data.as_ref()) {
            self.unvoted.add(data);
        }
        self.objects.insert(oid, object);
    }

    /// Begins to move all data that are in memory to the spool. They stay until they are there.
    pub(crate) fn begin_move(&mut self, number: u64) -> Moving {
        let in_memory = |(oid, object): (&Oid, &Object)| match object
            .stored
            .as_ref()
            .and_then(|stored| stored.data.as_ref())
        {
            Some(Kept::Memory(data)) => Some((*oid, Arc::clone(data))),
            Some(Kept::Spooled(_)) | None => None,
        };
        let data = self.objects.iter().filter_map(in_memory).collect();
        self.unvoted.begin(number, data)
    }

    /// Takes data out of memory that are in the spool, unless others were stored meanwhile.
    pub(crate) fn end_move(&mut self, moved: Moved) {
        let Moved { spool, data } = moved;
        for (oid, data, spooled) in data {
            let stored = self.objects.get_mut(&oid).and_then(|object| object.stored.as_mut());
            let Some(kept) = stored.and_then(|stored| stored.data.as_mut()) else { continue };
            if matches!(kept, Kept::Memory(own) if Arc::ptr_eq(own, &data)) {
                *kept = Kept::Spooled(spooled);
            }
        }
        self.unvoted.keep_spool(spool);
    }
}
