//! What a node asks of its database.
//!
//! The database keeps rows and knows the number of partitions. What is readable, locked or
//! replicating, the node decides.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use zodium_neo::messages::HistoryRecord;
use zodium_neo::{Checksum, NodeId, Partition, PartitionTable};
use zodium_types::{Oid, Tid, TransactionMetadata};

/// Why the database failed; the text says what to do.
#[derive(Debug)]
pub struct DatabaseError(pub Box<dyn Error + Send + Sync>);

/// The outcome of a call.
pub type ReadResult<T> = Result<T, DatabaseError>;

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for DatabaseError {}

/// Data as they are stored: compressed if that made them smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// 0: as they are. 1: compressed by zlib.
    pub compression: u8,
    /// SHA-1 of `bytes`.
    pub checksum: Checksum,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A committed record of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The transaction that wrote it.
    pub serial: Tid,
    /// The transaction that wrote the next one.
    pub next: Option<Tid>,
    /// The data; `None` for a deletion.
    pub data: Option<Data>,
    /// Of an undo: the transaction that has the same data.
    pub data_serial: Option<Tid>,
}

/// The outcome of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// The record.
    Found(Record),
    /// The object has other records.
    NotThen,
    /// The object has no record at all.
    Never,
}

/// What a store has to be checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The last transaction that wrote the object.
    pub serial: Option<Tid>,
    /// Whether the record that an undo refers to is there.
    pub has_undo_record: bool,
}

/// A committed transaction without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionRecord {
    /// Its tid.
    pub tid: Tid,
    /// The tid that it had before it was locked.
    pub ttid: Tid,
    /// Its objects, packed ones included.
    pub oids: Vec<Oid>,
    /// User, description, extension.
    pub metadata: TransactionMetadata,
    /// Records of it may have been packed elsewhere.
    pub is_packed: bool,
    /// The pack that it orders.
    pub pack: Option<PackRow>,
}

/// An order to pack. Its id is the tid of the transaction that orders it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRow {
    /// The id.
    pub id: Tid,
    /// Whether it is approved; `None` while that is open.
    pub approved: Option<bool>,
    /// Only these objects; `None` for all.
    pub oids: Option<Vec<Oid>>,
    /// The pack time.
    pub until: Tid,
}

/// What an undo of a record needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The transaction has no record of the object, or it was packed.
    Nothing,
    /// The undone record is not visible yet.
    Invisible,
    /// The serials.
    Serials {
        /// The last serial that the undoing transaction sees.
        current: Tid,
        /// The serial with the data from before; `None` if the object did not exist.
        undo: Option<Tid>,
        /// Whether the current data are those that the undone transaction wrote.
        is_current: bool,
    },
}

/// A record of a transaction that is voted.
#[derive(Clone, Debug)]
pub struct NewRecord {
    /// The object.
    pub oid: Oid,
    /// The data; `None` deletes the object, unless `data_serial` says where the data are.
    pub data: Option<Data>,
    /// Of an undo: the transaction that has the same data.
    pub data_serial: Option<Tid>,
}

/// The metadata of a transaction that is voted.
#[derive(Clone, Debug)]
pub struct NewTransaction {
    /// User, description, extension.
    pub metadata: TransactionMetadata,
    /// All objects of the transaction.
    pub oids: Vec<Oid>,
    /// The pack that it orders.
    pub pack: Option<PackRow>,
}

/// The outcome of a vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Voted {
    /// Everything is written.
    Done,
    /// Nothing is written: the database cannot hold the data. The text says why, and what to do.
    Refused(String),
}

/// The last and first ids of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastIds {
    /// The last transaction.
    pub tid: Option<Tid>,
    /// The last object.
    pub oid: Option<Oid>,
    /// The first transaction.
    pub first_tid: Option<Tid>,
}

/// A change of the partition table, as it is to be saved.
#[derive(Clone, Debug)]
pub struct TableChange {
    /// The whole table after the change.
    pub table: PartitionTable,
    /// This node.
    pub node: NodeId,
    /// The last transaction that a replica of this node has, if it must not be told from the
    /// records: in a backup cluster the last records may be incomplete.
    pub backup_tid: Option<Tid>,
    /// The last approved pack: what an empty cell need not carry out.
    pub last_pack: Tid,
    /// The partitions whose cells changed; `None`: all.
    pub changed: Option<Vec<Partition>>,
}

/// How far a cell of this node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellProgress {
    /// The partition.
    pub partition: Partition,
    /// Of a cell that is out of date: the last replicated transaction, 0 for nothing.
    pub replicated: Option<Tid>,
    /// The last transaction whose metadata are there.
    pub last_transaction: Option<Tid>,
    /// The last transaction of which a record is there.
    pub last_record: Option<Tid>,
    /// The last pack that was carried out.
    pub packed: Tid,
}

/// Where data of a large transaction are until its vote: a nameless file, which is gone when its
/// last user is.
pub trait Spool: Send + fmt::Debug {
    /// Puts data behind those that are there. They can be read after [`Spool::flush`]. Blocking.
    fn put(&mut self, data: &Data) -> ReadResult<Box<dyn Spooled>>;
    /// Writes what is still in memory. Blocking.
    fn flush(&mut self) -> ReadResult<()>;
}

/// Data that are in a spool.
pub trait Spooled: Send + fmt::Debug {
    /// The data, in memory again. Blocking.
    fn read(&self) -> ReadResult<Data>;
}

/// Reads of committed rows.
pub trait Reads {
    /// An empty spool, on the disk of the database. Blocking.
    fn new_spool(&self) -> ReadResult<Box<dyn Spool>>;
    /// The record at `at`, or the last one before `before`, or the last one.
    fn load(&self, oid: Oid, at: Option<Tid>, before: Option<Tid>) -> ReadResult<Loaded>;
    /// The record that a transaction wrote, without the next one.
    fn record(&self, tid: Tid, oid: Oid) -> ReadResult<Option<Record>>;
    /// What a store has to be checked against; `undo` is the record that it refers to.
    fn current(&self, oid: Oid, undo: Option<Tid>) -> ReadResult<Found>;
    /// A transaction.
    fn transaction(&self, tid: Tid) -> ReadResult<Option<TransactionRecord>>;
    /// The tid with which a transaction was committed.
    fn final_tid(&self, ttid: Tid) -> ReadResult<Option<Tid>>;
    /// Serials and lengths of the records of an object, newest first.
    fn history(&self, oid: Oid, skip: u64, count: u64) -> ReadResult<Vec<HistoryRecord>>;
    /// What an undo of a record needs. `own` is the serial of the undoing transaction's record.
    fn undone(&self, oid: Oid, end: Tid, undone: Tid, own: Option<Tid>) -> ReadResult<Undone>;
    /// Tids of partitions up to the last one, newest first: some are skipped, then so many follow.
    fn newest_tids(
        &self,
        partitions: &[Partition],
        last: Tid,
        range: (u64, u64),
    ) -> ReadResult<Vec<Tid>>;
    /// Tids of a partition, oldest first.
    fn tids(&self, partition: Partition, range: (Tid, Tid), count: u32) -> ReadResult<Vec<Tid>>;
    /// Living objects of a partition at a tid, and where to go on.
    fn oids(
        &self,
        partition: Partition,
        from: Oid,
        tid: Tid,
        count: u32,
    ) -> ReadResult<(Option<Oid>, Vec<Oid>)>;
    /// Serials and oids of records of a partition, by age, from an object of the first serial on.
    fn records(
        &self,
        partition: Partition,
        range: (Tid, Tid),
        from: Oid,
        count: u32,
    ) -> ReadResult<Vec<(Tid, Oid)>>;
    /// The last pack that was carried out in a cell of a node.
    fn packed(&self, node: NodeId, partition: Partition) -> ReadResult<Tid>;
    /// Orders to pack from this id on, of these partitions. Those of transactions that are only
    /// voted are none yet.
    fn pack_orders(&self, from: Tid, partitions: &[Partition]) -> ReadResult<Vec<PackRow>>;
}

/// Changes, and reads of what was changed before.
pub trait Writes {
    /// Reads, which see all changes so far.
    fn reads(&self) -> &dyn Reads;
    /// Saves the id of this node.
    fn set_node(&mut self, node: NodeId) -> ReadResult<()>;
    /// Saves the partition table.
    fn set_table(&mut self, change: &TableChange) -> ReadResult<()>;
    /// The state of a backup, and an order to cut the database.
    fn pending(&mut self) -> ReadResult<(Option<Tid>, Option<Tid>)>;
    /// Saves the state of a backup.
    fn set_backup_tid(&mut self, tid: Option<Tid>) -> ReadResult<()>;
    /// Saves an order to cut the database.
    fn set_truncate_tid(&mut self, tid: Option<Tid>) -> ReadResult<()>;
    /// Deletes what is after a transaction.
    fn truncate(&mut self, node: NodeId, after: Tid) -> ReadResult<()>;
    /// The last and first ids of partitions.
    fn last_ids(&mut self, partitions: &[Partition]) -> ReadResult<LastIds>;
    /// The cells of a node.
    fn cells(&mut self, node: NodeId) -> ReadResult<Vec<CellProgress>>;
    /// The voted transactions, with the final tid of those that are locked.
    fn unfinished(&mut self) -> ReadResult<BTreeMap<Tid, Option<Tid>>>;
    /// Drops all voted transactions; or their parts in these partitions.
    fn drop_unfinished(&mut self, partitions: Option<&[Partition]>) -> ReadResult<()>;
    /// Votes a transaction. Its records come one by one, some from a spool.
    fn vote(
        &mut self,
        ttid: Tid,
        records: &mut dyn Iterator<Item = ReadResult<NewRecord>>,
        transaction: Option<NewTransaction>,
    ) -> ReadResult<Voted>;
    /// Whether the disk has room for what transactions keep in memory until their lock.
    fn has_room(&self) -> bool;
    /// Commits a transaction, by ttid and tid, that was not voted before. It orders no pack. Its
    /// records come one by one; none refers to an earlier one.
    fn commit(
        &mut self,
        tids: (Tid, Tid),
        records: &mut dyn Iterator<Item = ReadResult<NewRecord>>,
        transaction: Option<NewTransaction>,
    ) -> ReadResult<()>;
    /// Gives a voted transaction its tid.
    fn lock(&mut self, ttid: Tid, tid: Tid, approves_pack: bool) -> ReadResult<()>;
    /// Commits a voted transaction.
    fn unlock(&mut self, ttid: Tid, tid: Tid) -> ReadResult<()>;
    /// Drops a voted transaction.
    fn abort(&mut self, ttid: Tid) -> ReadResult<()>;
    /// Notes decisions on orders to pack. Orders of partitions that are elsewhere are not there.
    fn sign_packs(&mut self, approved: &[Tid], rejected: &[Tid]) -> ReadResult<()>;
    /// Packs some objects of a partition: `oids`, or `count` ones from `from` on. Where to go on.
    fn pack(
        &mut self,
        partition: Partition,
        until: Tid,
        objects: PackObjects<'_>,
    ) -> ReadResult<Option<Oid>>;
    /// Notes the last pack that was carried out in a cell of a node.
    fn set_packed(&mut self, node: NodeId, partition: Partition, id: Tid) -> ReadResult<()>;
    /// Deletes about `count` rows of a partition; whether some are left.
    fn drop_partition(&mut self, partition: Partition, count: u32) -> ReadResult<bool>;
    /// Writes a replicated transaction, which may be there already.
    fn add_transaction(&mut self, transaction: &TransactionRecord) -> ReadResult<()>;
    /// Writes a replicated record, which may be there already.
    fn add_record(&mut self, tid: Tid, record: NewRecord) -> ReadResult<()>;
    /// Deletes a transaction without its records.
    fn delete_transaction(&mut self, tid: Tid) -> ReadResult<()>;
    /// Deletes a record.
    fn delete_record(&mut self, oid: Oid, tid: Tid) -> ReadResult<()>;
    /// Notes how far a cell that is out of date is replicated.
    fn set_replicated(&mut self, node: NodeId, partition: Partition, tid: Tid) -> ReadResult<()>;
    /// Deletes the data that no record refers to; how many there were.
    fn prune_orphans(&mut self, dry_run: bool) -> ReadResult<u64>;
}

/// The objects of one step of a pack.
#[derive(Clone, Copy, Debug)]
pub enum PackObjects<'a> {
    /// These.
    These(&'a [Oid]),
    /// So many, from this one on.
    From(Oid, u32),
}
