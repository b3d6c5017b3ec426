//! What one transaction of SQLite can change in a NEO database.

use parking_lot::MutexGuard;
use rustc_hash::{FxHashMap, FxHashSet};
use zodium_types::{Oid, Tid, TransactionMetadata};

use crate::StoredData;
use crate::cluster::set_setting;
use crate::data::DataTable;
use crate::driver::{self, Connection};
use crate::held::HeldRow;
use crate::packing::{self, Dropped, Packable};
use crate::place::Place;
use crate::votes::{self, VotedRecord};
use crate::{Database, SqlError, insertion, revisions, truncation};

/// A row of `config` that no transaction leaves there.
const REOPENED: &str = "zodium_reopened";

/// One transaction of SQLite. What it writes is durable, and visible, when the closure that has it
/// has returned.
#[derive(Debug)]
pub struct Writer<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) database: &'a Database,
    pub(crate) data: &'a mut DataTable,
    /// Rows of `data` that no record may refer to any more.
    pub(crate) freed: FxHashSet<i64>,
    /// The rows of `data` that are held, if the change has asked for them.
    pub(crate) held: Option<MutexGuard<'a, FxHashMap<i64, HeldRow>>>,
}

impl Writer<'_> {
    fn cannot(&self, operation: &'static str) -> impl Fn(driver::Error) -> SqlError + '_ {
        self.database.place.cannot(operation)
    }

    /// Writes the data of an object; the id of their row.
    pub fn store(&mut self, oid: Oid, data: &StoredData) -> Result<i64, SqlError> {
        let partition = self.database.partitions().of_oid(oid);
        self.data.store(self.connection, &self.database.place, (partition, oid), data)
    }

    /// Votes: keeps the records of a transaction until it is unlocked or aborted. `metadata`, with
    /// all objects of the transaction, where the partition of the transaction is kept.
    pub fn vote(
        &mut self,
        ttid: Tid,
        records: &[VotedRecord],
        metadata: Option<(&[Oid], &TransactionMetadata)>,
    ) -> Result<(), SqlError> {
        let partitions = self.database.partitions();
        votes::records(self.connection, partitions, ttid, records)
            .map_err(self.cannot("write voted records"))?;
        let Some((oids, metadata)) = metadata else { return Ok(()) };
        votes::metadata(self.connection, partitions, ttid, oids, metadata)
            .map_err(self.cannot("write a voted transaction"))
    }

    /// Gives a voted transaction its final tid.
    pub fn lock(&mut self, ttid: Tid, tid: Tid) -> Result<(), SqlError> {
        votes::lock(self.connection, ttid, tid).map_err(self.cannot("lock a transaction"))
    }

    /// Commits a voted transaction.
    pub fn unlock(&mut self, ttid: Tid, tid: Tid) -> Result<(), SqlError> {
        votes::unlock(self.connection, ttid, tid).map_err(self.cannot("unlock a transaction"))
    }

    /// Gives up a voted transaction.
    pub fn abort(&mut self, ttid: Tid) -> Result<(), SqlError> {
        let data = votes::abort(self.connection, ttid);
        self.freed.extend(data.map_err(self.cannot("abort a transaction"))?);
        Ok(())
    }

    /// Writes a committed transaction without its records.
    pub fn insert_transaction(
        &mut self,
        (tid, ttid): (Tid, Tid),
        oids: impl Iterator<Item = Oid>,
        metadata: &TransactionMetadata,
        is_packed: bool,
    ) -> Result<(), SqlError> {
        self.check_range("a tid", tid.0)?;
        let partition = self.database.partitions().of_tid(tid);
        insertion::transaction(self.connection, partition, (tid, ttid), oids, metadata, is_packed)
            .map_err(self.cannot("write a transaction"))
    }

    /// Writes a record of a committed transaction; whether it is the first one of its object.
    pub fn insert_record(
        &mut self,
        tid: Tid,
        VotedRecord { oid, data_id, value_tid }: VotedRecord,
    ) -> Result<bool, SqlError> {
        self.check_range("an oid", oid.0)?;
        let failed = self.cannot("write a record");
        let partition = self.database.partitions().of_oid(oid);
        let is_known = insertion::is_known(self.connection, partition, oid).map_err(&failed)?;
        insertion::record(self.connection, partition, oid, tid, data_id, value_tid)
            .map_err(&failed)?;
        Ok(!is_known)
    }

    /// The last record that is the same as a transaction's; `None` when that one is gone.
    pub(crate) fn last_same(&mut self, oid: Oid, tid: Tid) -> Result<Option<Tid>, SqlError> {
        let failed = self.cannot("look for a record");
        let partition = self.database.partitions().of_oid(oid);
        let found = revisions::data_id(self.connection, partition, oid, tid).map_err(&failed)?;
        let last = |_| revisions::last_same(self.connection, partition, oid, tid);
        found.map(last).transpose().map_err(&failed)
    }

    /// Drops revisions of objects of one partition.
    pub(crate) fn drop_revisions(
        &mut self,
        partition: u32,
        objects: &[Packable],
    ) -> Result<Dropped, SqlError> {
        let mut all = Dropped::default();
        for object in objects {
            let dropped =
                packing::drop_revisions(self.connection, partition, *object, &mut self.freed);
            let dropped = dropped.map_err(self.database.place.cannot("drop old revisions"))?;
            all.records += dropped.records;
            all.objects += dropped.objects;
        }
        Ok(all)
    }

    /// The rows of `data` that are held. No further row is, until the change is done.
    pub(crate) fn held(&mut self) -> &FxHashMap<i64, HeldRow> {
        let database = self.database;
        self.held.get_or_insert_with(|| database.held.rows())
    }

    /// Notes an order to pack.
    pub(crate) fn note_order(&mut self, tid: Tid, until: Tid) -> Result<(), SqlError> {
        packing::note_order(self.connection, tid, until).map_err(self.cannot("note the pack"))
    }

    /// Notes that an order to pack is done.
    pub(crate) fn note_packed(&mut self, tid: Tid) -> Result<(), SqlError> {
        packing::note_packed(self.connection, self.database.node, tid)
            .map_err(self.cannot("note the end of the pack"))
    }

    /// Writes a page and keeps what is on it: after a commit of which it is not known how much has
    /// reached the log, this takes its place there.
    ///
    /// A row comes and goes. An UPDATE that leaves a row as it is would write no page.
    pub(crate) fn write_anything(&mut self) -> Result<(), SqlError> {
        let failed = self.cannot("write to the log");
        set_setting(self.connection, REOPENED, "").map_err(&failed)?;
        let delete = "DELETE FROM config WHERE name = ?1";
        self.connection.execute(delete, [REOPENED]).map(|_| ()).map_err(&failed)
    }

    /// Deletes what is after a transaction.
    pub(crate) fn truncate(&mut self, after: Tid) -> Result<(), SqlError> {
        truncation::truncate(self.connection, self.database.node, after, &mut self.freed)
            .map_err(self.cannot("delete refused transactions"))
    }

    fn check_range(&self, what: &str, value: u64) -> Result<(), SqlError> {
        check_range(&self.database.place, what, value)
    }
}

/// Refuses a number that no column holds.
pub(crate) fn check_range(place: &Place, what: &str, value: u64) -> Result<(), SqlError> {
    if i64::try_from(value).is_ok() {
        return Ok(());
    }
    let path = place.path().to_owned();
    Err(SqlError::OutOfRange { path, what: format!("{what}, {value:016x},") })
}
