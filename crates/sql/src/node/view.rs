//! Reads of committed rows, as the node asks for them.

use zodium_neo::messages::HistoryRecord;
use zodium_neo::{Checksum, NodeId, Partition};
use zodium_neo_storage::{
    Data, DatabaseError, Found, Loaded, PackRow, ReadResult, Reads, Record, Spool,
    TransactionRecord, Undone,
};
use zodium_types::{Oid, Tid};

use super::{failure, reading, rows, spool};
use crate::driver::{self, Connection, params};
use crate::partitions::{Partitions, number};
use crate::place::Place;
use crate::revisions::{self, RevisionRow};
use crate::transactions;

/// The rows that a connection sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct View<'a> {
    pub(super) connection: &'a Connection,
    pub(super) place: &'a Place,
    pub(super) partitions: Partitions,
}

impl View<'_> {
    /// For `map_err`: the error of an operation, in words that follow "cannot".
    pub(super) fn cannot(
        &self,
        operation: &'static str,
    ) -> impl Fn(driver::Error) -> DatabaseError + '_ {
        move |source| failure(self.place.error(operation, 0, source))
    }
}

fn record(row: RevisionRow) -> Record {
    let data = row.data.map(|data| Data {
        compression: data.compression,
        checksum: Checksum(data.hash),
        bytes: data.value,
    });
    Record { serial: row.serial, next: row.next, data, data_serial: row.value_tid }
}

impl Reads for View<'_> {
    fn new_spool(&self) -> ReadResult<Box<dyn Spool>> {
        spool::new_spool(self.place)
    }

    fn load(&self, oid: Oid, at: Option<Tid>, before: Option<Tid>) -> ReadResult<Loaded> {
        let (connection, partition) = (self.connection, self.partitions.of_oid(oid));
        let failed = self.cannot("load an object");
        let found = match at {
            Some(at) => revisions::at(connection, partition, oid, at),
            None => revisions::before(connection, partition, oid, before.unwrap_or(Tid(u64::MAX))),
        };
        if let Some(row) = found.map_err(&failed)? {
            return Ok(Loaded::Found(record(row)));
        }
        let other = revisions::current_serial(connection, partition, oid).map_err(&failed)?;
        Ok(if other.is_some() { Loaded::NotThen } else { Loaded::Never })
    }

    fn record(&self, tid: Tid, oid: Oid) -> ReadResult<Option<Record>> {
        let partition = self.partitions.of_oid(oid);
        let found = revisions::at_alone(self.connection, partition, oid, tid);
        Ok(found.map_err(self.cannot("read a record"))?.map(record))
    }

    fn current(&self, oid: Oid, undo: Option<Tid>) -> ReadResult<Found> {
        let (connection, partition) = (self.connection, self.partitions.of_oid(oid));
        let failed = self.cannot("look for an object");
        let serial = revisions::current_serial(connection, partition, oid).map_err(&failed)?;
        let has_undo_record = match undo {
            Some(undo) => {
                let found = revisions::data_id(connection, partition, oid, undo);
                found.map_err(&failed)?.is_some()
            }
            None => false,
        };
        Ok(Found { serial, has_undo_record })
    }

    fn transaction(&self, tid: Tid) -> ReadResult<Option<TransactionRecord>> {
        let failed = self.cannot("read a transaction");
        let partition = self.partitions.of_tid(tid);
        let found = transactions::read(self.connection, partition, tid).map_err(&failed)?;
        let Some(found) = found else { return Ok(None) };
        let pack = reading::pack_order(self.connection, tid).map_err(&failed)?;
        Ok(Some(TransactionRecord {
            tid,
            ttid: found.ttid,
            oids: found.oids,
            metadata: found.metadata,
            is_packed: found.is_packed,
            pack,
        }))
    }

    fn final_tid(&self, ttid: Tid) -> ReadResult<Option<Tid>> {
        let partition = self.partitions.of_tid(ttid);
        transactions::final_tid(self.connection, partition, ttid)
            .map_err(self.cannot("look for a transaction"))
    }

    fn history(&self, oid: Oid, skip: u64, count: u64) -> ReadResult<Vec<HistoryRecord>> {
        reading::history(self.connection, self.partitions.of_oid(oid), oid, (skip, count))
            .map_err(self.cannot("read the history of an object"))
    }

    fn undone(&self, oid: Oid, end: Tid, undone: Tid, own: Option<Tid>) -> ReadResult<Undone> {
        let partition = self.partitions.of_oid(oid);
        reading::undone(self.connection, (partition, oid), end, undone, own)
            .map_err(self.cannot("look for what an undo needs"))
    }

    fn newest_tids(
        &self,
        partitions: &[Partition],
        last: Tid,
        (skip, count): (u64, u64),
    ) -> ReadResult<Vec<Tid>> {
        let partitions = rows::list(partitions.iter().map(|partition| partition.0));
        let find = format!(
            "SELECT tid FROM trans WHERE partition IN ({partitions}) AND tid <= ?1 \
             ORDER BY tid DESC LIMIT ?3 OFFSET ?2"
        );
        let failed = self.cannot("list transactions");
        let mut find = self.connection.prepare(&find).map_err(&failed)?;
        let values = params![number(last.0), number(skip), number(count)];
        rows::tids(&mut find, values).map_err(&failed)
    }

    fn tids(&self, partition: Partition, range: (Tid, Tid), count: u32) -> ReadResult<Vec<Tid>> {
        transactions::tids(self.connection, partition.0, range, false, count as usize)
            .map_err(self.cannot("list transactions"))
    }

    fn oids(
        &self,
        partition: Partition,
        from: Oid,
        tid: Tid,
        count: u32,
    ) -> ReadResult<(Option<Oid>, Vec<Oid>)> {
        let found = reading::oids(self.connection, partition.0, from, tid, count)
            .map_err(self.cannot("list objects"))?;
        let step = u64::from(self.partitions.count());
        let is_full = found.len() == count as usize;
        let next = found.last().filter(|_| is_full).map(|(oid, _)| Oid(oid.0 + step));
        Ok((next, found.into_iter().filter(|(_, lives)| *lives).map(|(oid, _)| oid).collect()))
    }

    fn records(
        &self,
        partition: Partition,
        range: (Tid, Tid),
        from: Oid,
        count: u32,
    ) -> ReadResult<Vec<(Tid, Oid)>> {
        reading::records(self.connection, partition.0, range, from, count)
            .map_err(self.cannot("list records"))
    }

    fn packed(&self, node: NodeId, partition: Partition) -> ReadResult<Tid> {
        let found = reading::packed(self.connection, node, partition);
        found.map_err(self.cannot("look for the last pack of a cell"))
    }

    fn pack_orders(&self, from: Tid, partitions: &[Partition]) -> ReadResult<Vec<PackRow>> {
        let count = self.partitions.count();
        let partitions = rows::list(partitions.iter().map(|partition| partition.0));
        let find = format!(
            "SELECT tid, approved, partial, oids, pack_tid FROM pack \
             WHERE tid >= ?1 AND tid % {count} IN ({partitions}) \
             AND tid NOT IN (SELECT ttid FROM ttrans) ORDER BY tid"
        );
        let failed = self.cannot("read the orders to pack");
        let mut find = self.connection.prepare(&find).map_err(&failed)?;
        let found = find.query_map([number(from.0)], rows::pack_row).and_then(Iterator::collect);
        found.map_err(&failed)
    }
}
