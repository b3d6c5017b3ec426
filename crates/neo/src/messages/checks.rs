//! Checks that the replicas of a partition have the same transactions and records.

use zodium_types::{Oid, Tid};

use crate::values::{Address, Checksum, NodeId, Partition};
use crate::wire::{Map, record};

record! {
    /// Checks partitions. ctl to A to M.
    pub struct CheckReplicas {
        /// By partition, the storage that is right; `None` if none is known to be.
        references: Map<Partition, Option<NodeId>>,
        /// The first transaction.
        min_tid: Tid,
        /// The last transaction; `None` for the last one of the cluster.
        max_tid: Option<Tid>,
    }

    /// Makes a storage compare a partition with the others. M to S.
    pub struct CheckPartition<'a> {
        /// The partition.
        partition: Partition,
        /// The storage that is right.
        source: CheckSource<'a>,
        /// The first transaction.
        min_tid: Tid,
        /// The last transaction.
        max_tid: Tid,
    }

    /// A storage to compare with.
    pub struct CheckSource<'a> {
        /// The name of the upstream cluster; empty for the own one.
        upstream: &'a str,
        /// Where the storage listens; `None` if none is known to be right.
        address: Option<Address>,
    }

    /// Asks for a sum over transactions. S to S.
    pub struct AskCheckTIDRange {
        /// The partition.
        partition: Partition,
        /// Most transactions.
        length: u32,
        /// The first transaction.
        min_tid: Tid,
        /// The last transaction.
        max_tid: Tid,
    }

    /// A sum over transactions.
    pub struct AnswerCheckTIDRange {
        /// How many they are.
        count: u32,
        /// The SHA-1 of their tids as decimal numbers, separated by commas.
        checksum: Checksum,
        /// The last one.
        max_tid: Tid,
    }

    /// Asks for sums over records. S to S.
    pub struct AskCheckSerialRange {
        /// The partition.
        partition: Partition,
        /// Most records.
        length: u32,
        /// The first transaction.
        min_tid: Tid,
        /// The last transaction.
        max_tid: Tid,
        /// In the first transaction: the first object.
        min_oid: Oid,
    }

    /// Sums over records.
    pub struct AnswerCheckSerialRange {
        /// How many they are.
        count: u32,
        /// The SHA-1 of their serials as decimal numbers, separated by commas.
        tid_checksum: Checksum,
        /// The serial of the last one.
        max_tid: Tid,
        /// The SHA-1 of their oids as decimal numbers, separated by commas.
        oid_checksum: Checksum,
        /// The object of the last one.
        max_oid: Oid,
    }

    /// A check found a difference. S to M.
    pub struct NotifyPartitionCorrupted {
        /// The partition.
        partition: Partition,
        /// The storages whose cells are wrong.
        nodes: Vec<NodeId>,
    }
}
