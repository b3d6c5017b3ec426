//! Changes of a node's database: votes and commits here, the rest in the other files of the room.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use rustc_hash::FxHashSet;
use zodium_neo::{NodeId, Partition, PartitionTable};
use zodium_neo_storage::{
    CellProgress, Data, DatabaseError, LastIds, NewRecord, NewTransaction, PackObjects, ReadResult,
    Reads, TableChange, TransactionRecord, Voted, Writes,
};
use zodium_types::{Oid, Tid};

use super::view::View;
use super::{failure, replication, rows, table, trimming};
use crate::StoredData;
use crate::cluster::set_setting;
use crate::data::DataTable;
use crate::driver::{self, params};
use crate::partitions::number;
use crate::votes::{self, VotedRecord};
use crate::{SqlError, insertion, revisions, truncation};

/// One transaction of SQLite.
#[derive(Debug)]
pub(super) struct NodeWriter<'a> {
    pub(super) view: View<'a>,
    pub(super) data: &'a mut DataTable,
    /// Rows of `data` that no record may refer to any more.
    pub(super) freed: FxHashSet<i64>,
    pub(super) partitions: &'a AtomicU32,
    pub(super) room_bytes: u64,
    /// Whether the disk has room: the system is asked once.
    pub(super) room: OnceCell<bool>,
}

impl NodeWriter<'_> {
    fn cannot(&self, operation: &'static str) -> impl Fn(driver::Error) -> DatabaseError + '_ {
        self.view.cannot(operation)
    }

    /// Writes the data of a record, or finds those that it says it shares.
    fn data_id(&mut self, record: NewRecord) -> Result<VotedRecord, SqlError> {
        let NewRecord { oid, data, data_serial: value_tid } = record;
        let (connection, partition) = (self.view.connection, self.view.partitions.of_oid(oid));
        if let Some(serial) = value_tid {
            let found = revisions::data_id(connection, partition, oid, serial);
            let failed = |source| self.view.place.error("look for a record", 0, source);
            if let Some(data_id) = found.map_err(failed)? {
                return Ok(VotedRecord { oid, data_id, value_tid });
            }
        }
        let Some(Data { compression, checksum, bytes }) = data else {
            return Ok(VotedRecord { oid, data_id: None, value_tid });
        };
        let stored = StoredData { compression, hash: checksum.0, value: bytes };
        let place = self.view.place;
        let data_id = self.data.store(connection, place, (partition, oid), &stored)?;
        Ok(VotedRecord { oid, data_id: Some(data_id), value_tid })
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> ReadResult<()> {
        let connection = self.view.connection;
        let done = match value {
            Some(value) => set_setting(connection, name, value),
            None => connection.execute("DELETE FROM config WHERE name = ?1", [name]).map(|_| ()),
        };
        done.map_err(self.cannot("write the configuration"))
    }

    fn vote_transaction(&self, ttid: Tid, transaction: &NewTransaction) -> driver::Result<()> {
        let NewTransaction { metadata, oids, pack } = transaction;
        let (connection, partitions) = (self.view.connection, self.view.partitions);
        votes::metadata(connection, partitions, ttid, oids, metadata)?;
        match pack {
            Some(pack) => rows::insert_pack(connection, ttid, pack),
            None => Ok(()),
        }
    }
}

impl Writes for NodeWriter<'_> {
    fn reads(&self) -> &dyn Reads {
        &self.view
    }

    fn set_node(&mut self, node: NodeId) -> ReadResult<()> {
        table::move_cells(self.view.connection, node).map_err(self.cannot("write the node id"))?;
        self.set("nid", Some(&node.value().to_string()))
    }

    fn set_table(&mut self, change: &TableChange) -> ReadResult<()> {
        table::save(&self.view, change).map_err(self.cannot("write the partition table"))?;
        let table = &change.table;
        self.set("ptid", Some(&table.id().to_string()))?;
        self.set("replicas", Some(&table.replicas().to_string()))?;
        let count = PartitionTable::partitions(table);
        if self.partitions.swap(count, Ordering::Relaxed) != count {
            *self.data = DataTable::open(self.view.connection, count)
                .map_err(self.cannot("read the ids of data"))?;
            self.view.partitions = crate::Partitions::new(count);
        }
        Ok(())
    }

    fn pending(&mut self) -> ReadResult<(Option<Tid>, Option<Tid>)> {
        table::pending(self.view.connection).map_err(self.cannot("read the configuration"))
    }

    fn set_backup_tid(&mut self, tid: Option<Tid>) -> ReadResult<()> {
        self.set("backup_tid", tid.map(|tid| tid.to_string()).as_deref())
    }

    fn set_truncate_tid(&mut self, tid: Option<Tid>) -> ReadResult<()> {
        self.set("truncate_tid", tid.map(|tid| tid.to_string()).as_deref())
    }

    fn truncate(&mut self, node: NodeId, after: Tid) -> ReadResult<()> {
        truncation::truncate(self.view.connection, node.value().into(), after, &mut self.freed)
            .map_err(self.view.cannot("truncate the database"))?;
        self.set_truncate_tid(None)
    }

    fn last_ids(&mut self, partitions: &[Partition]) -> ReadResult<LastIds> {
        table::last_ids(self.view.connection, partitions)
            .map_err(self.cannot("read the last transaction"))
    }

    fn cells(&mut self, node: NodeId) -> ReadResult<Vec<CellProgress>> {
        table::cells(self.view.connection, node).map_err(self.cannot("read the cells"))
    }

    fn unfinished(&mut self) -> ReadResult<BTreeMap<Tid, Option<Tid>>> {
        votes::unfinished(self.view.connection).map_err(self.cannot("read unfinished transactions"))
    }

    fn drop_unfinished(&mut self, partitions: Option<&[Partition]>) -> ReadResult<()> {
        trimming::drop_unfinished(self.view.connection, partitions, &mut self.freed)
            .map_err(self.view.cannot("drop unfinished transactions"))
    }

    fn vote(
        &mut self,
        ttid: Tid,
        records: &mut dyn Iterator<Item = ReadResult<NewRecord>>,
        transaction: Option<NewTransaction>,
    ) -> ReadResult<Voted> {
        let mut voted = Vec::new();
        for record in records {
            match self.data_id(record?) {
                Ok(record) => voted.push(record),
                Err(error @ (SqlError::Collision { .. } | SqlError::TooLarge { .. })) => {
                    // The data that are written go with the change.
                    self.freed.extend(voted.iter().filter_map(|record| record.data_id));
                    return Ok(Voted::Refused(error.to_string()));
                }
                Err(error) => return Err(failure(error)),
            }
        }
        votes::records(self.view.connection, self.view.partitions, ttid, &voted)
            .map_err(self.cannot("write voted records"))?;
        if let Some(transaction) = transaction {
            let written = self.vote_transaction(ttid, &transaction);
            written.map_err(self.cannot("write a vote"))?;
        }
        Ok(Voted::Done)
    }

    fn has_room(&self) -> bool {
        let look = || self.room_bytes == 0 || self.view.place.free_bytes() >= self.room_bytes;
        *self.room.get_or_init(look)
    }

    fn commit(
        &mut self,
        (ttid, tid): (Tid, Tid),
        records: &mut dyn Iterator<Item = ReadResult<NewRecord>>,
        transaction: Option<NewTransaction>,
    ) -> ReadResult<()> {
        let (connection, partitions) = (self.view.connection, self.view.partitions);
        for record in records {
            let VotedRecord { oid, data_id, value_tid } = self.data_id(record?).map_err(failure)?;
            let partition = partitions.of_oid(oid);
            insertion::record(connection, partition, oid, tid, data_id, value_tid)
                .map_err(self.cannot("commit a record"))?;
        }
        let Some(NewTransaction { metadata, oids, .. }) = transaction else { return Ok(()) };
        let (partition, oids) = (partitions.of_tid(tid), oids.into_iter());
        insertion::transaction(connection, partition, (tid, ttid), oids, &metadata, false)
            .map_err(self.cannot("commit a transaction"))
    }

    fn lock(&mut self, ttid: Tid, tid: Tid, approves_pack: bool) -> ReadResult<()> {
        let failed = self.cannot("lock a transaction");
        votes::lock(self.view.connection, ttid, tid).map_err(&failed)?;
        if approves_pack {
            let set = "UPDATE pack SET approved = 1 WHERE tid = ?1";
            self.view.connection.execute(set, [number(ttid.0)]).map_err(&failed)?;
        }
        Ok(())
    }

    fn unlock(&mut self, ttid: Tid, tid: Tid) -> ReadResult<()> {
        votes::unlock(self.view.connection, ttid, tid).map_err(self.cannot("commit a transaction"))
    }

    fn abort(&mut self, ttid: Tid) -> ReadResult<()> {
        let data = votes::abort(self.view.connection, ttid);
        self.freed.extend(data.map_err(self.view.cannot("abort a transaction"))?);
        Ok(())
    }

    fn sign_packs(&mut self, approved: &[Tid], rejected: &[Tid]) -> ReadResult<()> {
        table::sign_packs(self.view.connection, approved, rejected)
            .map_err(self.cannot("sign orders to pack"))
    }

    fn pack(
        &mut self,
        partition: Partition,
        until: Tid,
        objects: PackObjects<'_>,
    ) -> ReadResult<Option<Oid>> {
        trimming::pack(self.view.connection, partition.0, until, objects, &mut self.freed)
            .map_err(self.view.cannot("pack"))
    }

    fn set_packed(&mut self, node: NodeId, partition: Partition, id: Tid) -> ReadResult<()> {
        let set = "UPDATE pt SET pack = ?1 WHERE partition = ?2 AND nid = ?3";
        let row = params![number(id.0), partition.0, node.value()];
        let done = self.view.connection.execute(set, row).map(|_| ());
        done.map_err(self.cannot("note a pack"))
    }

    fn drop_partition(&mut self, partition: Partition, count: u32) -> ReadResult<bool> {
        trimming::drop_partition(self.view.connection, partition.0, count, &mut self.freed)
            .map_err(self.view.cannot("drop a partition"))
    }

    fn add_transaction(&mut self, transaction: &TransactionRecord) -> ReadResult<()> {
        let partition = self.view.partitions.of_tid(transaction.tid);
        replication::add_transaction(self.view.connection, partition, transaction)
            .map_err(self.cannot("write a replicated transaction"))
    }

    fn add_record(&mut self, tid: Tid, record: NewRecord) -> ReadResult<()> {
        let connection = self.view.connection;
        let partition = self.view.partitions.of_oid(record.oid);
        let found = revisions::data_id(connection, partition, record.oid, tid);
        if found.map_err(self.cannot("look for a record"))?.is_some() {
            return Ok(());
        }
        let VotedRecord { oid, data_id, value_tid } = self.data_id(record).map_err(failure)?;
        insertion::record(connection, partition, oid, tid, data_id, value_tid)
            .map_err(self.cannot("write a replicated record"))
    }

    fn delete_transaction(&mut self, tid: Tid) -> ReadResult<()> {
        let partition = self.view.partitions.of_tid(tid);
        replication::delete_transaction(self.view.connection, partition, tid)
            .map_err(self.cannot("delete a transaction"))
    }

    fn delete_record(&mut self, oid: Oid, tid: Tid) -> ReadResult<()> {
        let partition = self.view.partitions.of_oid(oid);
        replication::delete_record(self.view.connection, (partition, oid), tid, &mut self.freed)
            .map_err(self.view.cannot("delete a record"))
    }

    fn set_replicated(&mut self, node: NodeId, partition: Partition, tid: Tid) -> ReadResult<()> {
        let set = "UPDATE pt SET tid = ?1 WHERE partition = ?2 AND nid = ?3 AND tid >= 0";
        let row = params![number(tid.0), partition.0, node.value()];
        let done = self.view.connection.execute(set, row).map(|_| ());
        done.map_err(self.cannot("note a replication"))
    }

    fn prune_orphans(&mut self, dry_run: bool) -> ReadResult<u64> {
        let found = trimming::orphans(self.view.connection);
        let found = found.map_err(self.view.cannot("look for orphans"))?;
        let count = found.len() as u64;
        if !dry_run {
            self.freed.extend(found);
        }
        Ok(count)
    }
}
