//! Reads, as they wait for transactions to be unlocked.

use zodium_neo::Partition;
use zodium_neo::messages::{AskCheckTIDRange, AskFetchTransactions, AskObjectUndoSerial};
use zodium_types::{Oid, Tid};

use crate::ConnectionId;

/// A read that waits for an unlock.
#[derive(Clone, Debug)]
pub(crate) struct DelayedRead {
    /// Connection and id of the message.
    pub(crate) from: (ConnectionId, u32),
    pub(crate) read: Read,
}

/// A read.
#[derive(Clone, Debug)]
pub(crate) enum Read {
    Object {
        oid: Oid,
        at: Option<Tid>,
        before: Option<Tid>,
    },
    History {
        oid: Oid,
        skip: u64,
        count: u64,
    },
    Tids {
        partition: Partition,
        min: Tid,
        max: Tid,
        count: u32,
    },
    Oids {
        partition: Partition,
        from: Oid,
        tid: Tid,
        count: u32,
    },
    Transaction {
        tid: Tid,
    },
    /// `locked_until` is the last transaction that was locked when the request came.
    Newest {
        partitions: Vec<Partition>,
        skip: u64,
        count: u64,
        locked_until: Option<Tid>,
    },
    Undo(AskObjectUndoSerial),
    /// Of a storage that replicates.
    Transactions(AskFetchTransactions),
    /// Of a storage that compares replicas.
    Sum(AskCheckTIDRange),
}
