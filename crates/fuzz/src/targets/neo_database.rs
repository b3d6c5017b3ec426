//! A database of a NEO storage node in memory: just enough for the node to go on.

use std::collections::BTreeMap;

use zodium_neo::messages::HistoryRecord;
use zodium_neo::{NodeId, Partition, PartitionTable};
use zodium_neo_storage::{
    CellProgress, Data, Found, LastIds, Loaded, NewRecord, NewTransaction, PackObjects, PackRow,
    ReadResult, Reads, Record, Spool, Spooled, TableChange, TransactionRecord, Undone, Voted,
    Writes,
};
use zodium_types::{Oid, Tid};

/// The rows.
#[derive(Debug, Default)]
pub(super) struct Model {
    records: BTreeMap<(Oid, Tid), Option<Data>>,
    transactions: BTreeMap<Tid, TransactionRecord>,
    voted: BTreeMap<Tid, Vote>,
    table: Option<PartitionTable>,
    backup_tid: Option<Tid>,
    truncate_tid: Option<Tid>,
}

#[derive(Debug, Default)]
struct Vote {
    tid: Option<Tid>,
    records: Vec<NewRecord>,
    transaction: Option<NewTransaction>,
}

impl Model {
    fn partition_of(&self, oid: Oid) -> Option<Partition> {
        self.table.as_ref().and_then(|table| table.partition_of_oid(oid))
    }

    fn partition_of_tid(&self, tid: Tid) -> Option<Partition> {
        self.table.as_ref().and_then(|table| table.partition_of_tid(tid))
    }

    fn serials(&self, oid: Oid) -> impl Iterator<Item = (Tid, &Option<Data>)> {
        let of_object = self.records.range((oid, Tid(0))..=(oid, Tid(u64::MAX)));
        of_object.map(|((_, tid), data)| (*tid, data))
    }
}

/// A spool in memory.
#[derive(Debug)]
struct ModelSpool;

/// Data in it.
#[derive(Debug)]
struct ModelSpooled(Data);

impl Spool for ModelSpool {
    fn put(&mut self, data: &Data) -> ReadResult<Box<dyn Spooled>> {
        Ok(Box::new(ModelSpooled(data.clone())))
    }

    fn flush(&mut self) -> ReadResult<()> {
        Ok(())
    }
}

impl Spooled for ModelSpooled {
    fn read(&self) -> ReadResult<Data> {
        Ok(self.0.clone())
    }
}

impl Reads for Model {
    fn new_spool(&self) -> ReadResult<Box<dyn Spool>> {
        Ok(Box::new(ModelSpool))
    }

    fn load(&self, oid: Oid, at: Option<Tid>, before: Option<Tid>) -> ReadResult<Loaded> {
        let is_asked = |tid: Tid| match (at, before) {
            (Some(at), _) => tid == at,
            (None, Some(before)) => tid < before,
            (None, None) => true,
        };
        let Some((serial, data)) = self.serials(oid).filter(|(tid, _)| is_asked(*tid)).last()
        else {
            let is_known = self.serials(oid).next().is_some();
            return Ok(if is_known { Loaded::NotThen } else { Loaded::Never });
        };
        let next = self.serials(oid).map(|(tid, _)| tid).find(|tid| *tid > serial);
        Ok(Loaded::Found(Record { serial, next, data: data.clone(), data_serial: None }))
    }

    fn record(&self, tid: Tid, oid: Oid) -> ReadResult<Option<Record>> {
        match self.load(oid, Some(tid), None)? {
            Loaded::Found(record) => Ok(Some(record)),
            Loaded::NotThen | Loaded::Never => Ok(None),
        }
    }

    fn current(&self, oid: Oid, undo: Option<Tid>) -> ReadResult<Found> {
        let serial = self.serials(oid).last().map(|(tid, _)| tid);
        let has_undo_record = undo.is_some_and(|tid| self.records.contains_key(&(oid, tid)));
        Ok(Found { serial, has_undo_record })
    }

    fn transaction(&self, tid: Tid) -> ReadResult<Option<TransactionRecord>> {
        Ok(self.transactions.get(&tid).cloned())
    }

    fn final_tid(&self, ttid: Tid) -> ReadResult<Option<Tid>> {
        Ok(self.transactions.values().find(|one| one.ttid == ttid).map(|one| one.tid))
    }

    fn history(&self, oid: Oid, skip: u64, count: u64) -> ReadResult<Vec<HistoryRecord>> {
        let record = |(serial, data): (Tid, &Option<Data>)| HistoryRecord {
            serial,
            size: data.as_ref().map_or(0, |data| data.bytes.len() as u64),
        };
        let all: Vec<_> = self.serials(oid).map(record).collect();
        Ok(all.into_iter().rev().skip(skip as usize).take(count as usize).collect())
    }

    fn undone(&self, oid: Oid, _: Tid, undone: Tid, _: Option<Tid>) -> ReadResult<Undone> {
        let Some((current, _)) = self.serials(oid).last() else { return Ok(Undone::Nothing) };
        match undone.0 % 3 {
            0 => Ok(Undone::Invisible),
            1 => Ok(Undone::Nothing),
            _ => Ok(Undone::Serials { current, undo: Some(undone), is_current: true }),
        }
    }

    fn newest_tids(
        &self,
        of: &[Partition],
        last: Tid,
        (skip, count): (u64, u64),
    ) -> ReadResult<Vec<Tid>> {
        let is_asked = |tid: &Tid| {
            *tid <= last && self.partition_of_tid(*tid).is_some_and(|one| of.contains(&one))
        };
        let all = self.transactions.keys().rev().copied().filter(is_asked);
        Ok(all.skip(skip as usize).take(count as usize).collect())
    }

    fn tids(&self, partition: Partition, range: (Tid, Tid), count: u32) -> ReadResult<Vec<Tid>> {
        let is_asked = |tid: &Tid| {
            *tid >= range.0 && *tid <= range.1 && self.partition_of_tid(*tid) == Some(partition)
        };
        Ok(self.transactions.keys().copied().filter(is_asked).take(count as usize).collect())
    }

    fn oids(
        &self,
        partition: Partition,
        from: Oid,
        tid: Tid,
        count: u32,
    ) -> ReadResult<(Option<Oid>, Vec<Oid>)> {
        let rows = self.records(partition, (Tid(0), tid), from, count)?;
        Ok((None, rows.into_iter().map(|(_, oid)| oid).collect()))
    }

    fn records(
        &self,
        partition: Partition,
        range: (Tid, Tid),
        from: Oid,
        count: u32,
    ) -> ReadResult<Vec<(Tid, Oid)>> {
        let here =
            self.records.keys().filter(|(oid, _)| self.partition_of(*oid) == Some(partition));
        let mut rows: Vec<_> = here.map(|(oid, tid)| (*tid, *oid)).collect();
        rows.sort_unstable();
        rows.retain(|row| *row >= (range.0, from) && row.0 <= range.1);
        rows.truncate(count as usize);
        Ok(rows)
    }

    fn packed(&self, _: NodeId, _: Partition) -> ReadResult<Tid> {
        Ok(Tid::ZERO)
    }

    fn pack_orders(&self, from: Tid, _: &[Partition]) -> ReadResult<Vec<PackRow>> {
        let later = self.transactions.range(from..);
        Ok(later.filter_map(|(_, transaction)| transaction.pack.clone()).collect())
    }
}

impl Writes for Model {
    fn reads(&self) -> &dyn Reads {
        self
    }

    fn set_node(&mut self, _: NodeId) -> ReadResult<()> {
        Ok(())
    }

    fn set_table(&mut self, change: &TableChange) -> ReadResult<()> {
        self.table = Some(change.table.clone());
        Ok(())
    }

    fn pending(&mut self) -> ReadResult<(Option<Tid>, Option<Tid>)> {
        Ok((self.backup_tid, self.truncate_tid))
    }

    fn set_backup_tid(&mut self, tid: Option<Tid>) -> ReadResult<()> {
        self.backup_tid = tid;
        Ok(())
    }

    fn set_truncate_tid(&mut self, tid: Option<Tid>) -> ReadResult<()> {
        self.truncate_tid = tid;
        Ok(())
    }

    fn truncate(&mut self, _: NodeId, after: Tid) -> ReadResult<()> {
        self.transactions.retain(|tid, _| *tid <= after);
        self.records.retain(|(_, tid), _| *tid <= after);
        self.truncate_tid = None;
        Ok(())
    }

    fn last_ids(&mut self, _: &[Partition]) -> ReadResult<LastIds> {
        Ok(LastIds {
            tid: self.transactions.keys().last().copied(),
            oid: self.records.keys().last().map(|(oid, _)| *oid),
            first_tid: self.transactions.keys().next().copied(),
        })
    }

    fn cells(&mut self, node: NodeId) -> ReadResult<Vec<CellProgress>> {
        let cells = self.table.iter().flat_map(|table| table.cells_of(node));
        let progress = |(partition, state): (Partition, zodium_neo::CellState)| CellProgress {
            partition,
            replicated: (!state.is_readable()).then_some(Tid(0)),
            last_transaction: None,
            last_record: None,
            packed: Tid(0),
        };
        Ok(cells.map(progress).collect())
    }

    fn unfinished(&mut self) -> ReadResult<BTreeMap<Tid, Option<Tid>>> {
        Ok(self.voted.iter().map(|(ttid, voted)| (*ttid, voted.tid)).collect())
    }

    fn drop_unfinished(&mut self, partitions: Option<&[Partition]>) -> ReadResult<()> {
        if partitions.is_none() {
            self.voted.clear();
        }
        Ok(())
    }

    fn vote(
        &mut self,
        ttid: Tid,
        records: &mut dyn Iterator<Item = ReadResult<NewRecord>>,
        transaction: Option<NewTransaction>,
    ) -> ReadResult<Voted> {
        let records = records.collect::<ReadResult<_>>()?;
        self.voted.insert(ttid, Vote { tid: None, records, transaction });
        Ok(Voted::Done)
    }

    fn has_room(&self) -> bool {
        self.transactions.len().is_multiple_of(2)
    }

    fn commit(
        &mut self,
        (ttid, tid): (Tid, Tid),
        records: &mut dyn Iterator<Item = ReadResult<NewRecord>>,
        transaction: Option<NewTransaction>,
    ) -> ReadResult<()> {
        self.vote(ttid, records, transaction)?;
        self.unlock(ttid, tid)
    }

    fn lock(&mut self, ttid: Tid, tid: Tid, _: bool) -> ReadResult<()> {
        self.voted.entry(ttid).or_default().tid = Some(tid);
        Ok(())
    }

    fn unlock(&mut self, ttid: Tid, tid: Tid) -> ReadResult<()> {
        let Some(Vote { records, transaction, .. }) = self.voted.remove(&ttid) else {
            return Ok(());
        };
        for record in records {
            self.records.insert((record.oid, tid), record.data);
        }
        if let Some(NewTransaction { metadata, oids, pack }) = transaction {
            let is_packed = false;
            let row = TransactionRecord { tid, ttid, oids, metadata, is_packed, pack };
            self.transactions.insert(tid, row);
        }
        Ok(())
    }

    fn abort(&mut self, ttid: Tid) -> ReadResult<()> {
        self.voted.remove(&ttid);
        Ok(())
    }

    fn sign_packs(&mut self, _: &[Tid], _: &[Tid]) -> ReadResult<()> {
        Ok(())
    }

    fn pack(&mut self, _: Partition, _: Tid, _: PackObjects<'_>) -> ReadResult<Option<Oid>> {
        Ok(None)
    }

    fn set_packed(&mut self, _: NodeId, _: Partition, _: Tid) -> ReadResult<()> {
        Ok(())
    }

    fn drop_partition(&mut self, _: Partition, _: u32) -> ReadResult<bool> {
        Ok(false)
    }

    fn add_transaction(&mut self, transaction: &TransactionRecord) -> ReadResult<()> {
        self.transactions.insert(transaction.tid, transaction.clone());
        Ok(())
    }

    fn add_record(&mut self, tid: Tid, record: NewRecord) -> ReadResult<()> {
        self.records.insert((record.oid, tid), record.data);
        Ok(())
    }

    fn delete_transaction(&mut self, tid: Tid) -> ReadResult<()> {
        self.transactions.remove(&tid);
        Ok(())
    }

    fn delete_record(&mut self, oid: Oid, tid: Tid) -> ReadResult<()> {
        self.records.remove(&(oid, tid));
        Ok(())
    }

    fn set_replicated(&mut self, _: NodeId, _: Partition, _: Tid) -> ReadResult<()> {
        Ok(())
    }

    fn prune_orphans(&mut self, _: bool) -> ReadResult<u64> {
        Ok(0)
    }
}
