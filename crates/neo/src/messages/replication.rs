//! Replication: a storage fetches what it lacks from another one, of its cluster or upstream.

use zodium_types::{Oid, Tid};

use crate::values::{Address, Checksum, Partition};
use crate::wire::{Map, record};

record! {
    /// Makes a storage of a backup cluster replicate partitions. M to S.
    pub struct Replicate<'a> {
        /// Up to this transaction.
        tid: Tid,
        /// The name of the upstream cluster; empty for the own one.
        upstream: &'a str,
        /// By partition, the storage to fetch from; `None` if nothing is new up to `tid`.
        sources: Map<Partition, Option<Address>>,
    }

    /// A partition is replicated. S to M.
    pub struct NotifyReplicationDone {
        /// The partition.
        partition: Partition,
        /// Up to this transaction.
        tid: Tid,
    }

    /// Asks for transactions, each of which comes as [`AddTransaction`]. S to S.
    pub struct AskFetchTransactions {
        /// The partition.
        partition: Partition,
        /// Most transactions.
        length: u32,
        /// The first transaction.
        min_tid: Tid,
        /// The last transaction.
        max_tid: Tid,
        /// Transactions of the range that the storage has.
        tids: Vec<Tid>,
        /// Whether the answer shall say up to which pack the partition is packed.
        ask_pack_info: bool,
    }

    /// All transactions have been sent.
    pub struct AnswerFetchTransactions {
        /// Where to go on; `None` at the end.
        next_tid: Option<Tid>,
        /// Transactions that the storage must delete.
        deleted: Vec<Tid>,
        /// The last pack of the partition.
        completed_pack: Option<Tid>,
    }

    /// Asks for records, each of which comes as [`AddObject`]. S to S.
    pub struct AskFetchObjects {
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
        /// By serial, records of the range that the storage has.
        records: Map<Tid, Vec<Oid>>,
    }

    /// All records have been sent.
    pub struct AnswerFetchObjects {
        /// The transaction where to go on; `None` at the end.
        next_tid: Option<Tid>,
        /// The object of it where to go on.
        next_oid: Option<Oid>,
        /// By serial, records that the storage must delete.
        deleted: Map<Tid, Vec<Oid>>,
    }

    /// The metadata of a transaction. It has the id of the [`AskFetchTransactions`]. S to S.
    pub struct AddTransaction<'a> {
        /// The transaction.
        tid: Tid,
        /// The user.
        user: &'a [u8],
        /// The description.
        description: &'a [u8],
        /// The extension: a pickle, or nothing.
        extension: &'a [u8],
        /// Whether records of it may have been packed.
        packed: bool,
        /// Its temporary tid.
        ttid: Tid,
        /// All objects of the transaction.
        oids: Vec<Oid>,
        /// The pack that it orders.
        pack: Option<AddedPack>,
    }

    /// The order of a pack in the metadata of a transaction.
    #[derive(Eq)]
    pub struct AddedPack {
        /// Whether it is approved; `None` while that is open.
        approved: Option<bool>,
        /// Whether only some objects are packed.
        partial: bool,
        /// These objects; `None` for all.
        oids: Option<Vec<Oid>>,
        /// Records that a later one, up to this transaction, replaces are removed.
        tid: Tid,
    }

    /// A record. It has the id of the [`AskFetchObjects`]. S to S.
    ///
    /// A deletion has no data, and [`Checksum::ZERO`].
    pub struct AddObject<'a> {
        /// The object.
        oid: Oid,
        /// The serial of the record.
        serial: Tid,
        /// How the data are compressed: 0 not, 1 with zlib.
        compression: u8,
        /// The SHA-1 of the data as they are here.
        checksum: Checksum,
        /// The data, compressed.
        data: &'a [u8],
        /// Of an undo: the transaction that stored the data, which the receiver may lack.
        data_serial: Option<Tid>,
    }
}
