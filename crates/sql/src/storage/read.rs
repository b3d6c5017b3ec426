//! The reading trait of the seam.

use std::sync::atomic::Ordering;
use std::task::Poll;

use zodium_storage::{
    Access, HistoryEntry, Load, ObjectStep, Read, Revision, Stamp, SteppingCursor, StorageError,
    StoredRecord, TransactionCursor,
};
use zodium_types::{Oid, Tid};

use super::SqlStorage;
use super::cursor::Transactions;
use super::reading::{self, Packs};
use super::tids::Tids;
use crate::driver::{self, Connection};
use crate::{RevisionRow, SqlError, TransactionRow, revisions, transactions};

/// Whether a database may have an object of that oid.
fn is_possible(oid: Oid) -> bool {
    i64::try_from(oid.0).is_ok()
}

impl SqlStorage {
    fn pooled<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> driver::Result<T>,
    ) -> Result<T, SqlError> {
        self.database.pool.with(operation, read)
    }

    fn load(&self, oid: Oid, before: Tid) -> Result<Load, SqlError> {
        // First, so that a commit during the read makes the answer stale.
        let stamp = Stamp(self.freshness.now(), 0);
        let Some(row) = self.database.load_before(oid, before)? else {
            let partition = self.database.partitions().of_oid(oid);
            let serial = self.pooled("look for an object", |connection| {
                revisions::current_serial(connection, partition, oid)
            })?;
            return Ok(serial.map_or(Load::Missing, |_| Load::NoRevision));
        };
        let (serial, end) = (row.serial, row.next);
        let data = reading::data_of(&self.database.place, oid, row)?;
        let revision = |data| Load::Revision(Revision { data, serial, end, stamp });
        Ok(data.map_or(Load::Missing, revision))
    }

    /// A record, and the one that has its data.
    fn find_record(
        &self,
        connection: &Connection,
        oid: Oid,
        serial: Tid,
    ) -> driver::Result<Option<(RevisionRow, Tid)>> {
        let partitions = self.database.partitions();
        let partition = partitions.of_oid(oid);
        let Some(row) = revisions::at(connection, partition, oid, serial)? else {
            return Ok(None);
        };
        let (mut data_tid, mut points_to) = (serial, row.value_tid);
        while let Some(source) = reading::source(connection, partitions, oid, points_to)?
            && source < data_tid
        {
            data_tid = source;
            points_to = revisions::value_tid(connection, partition, oid, source)?.flatten();
        }
        Ok(Some((row, data_tid)))
    }

    fn entry(
        &self,
        oid: Oid,
        serial: Tid,
        packs: &Packs,
    ) -> Result<Option<HistoryEntry>, SqlError> {
        let partitions = self.database.partitions();
        let found = self.pooled("read a history", |connection| {
            let found = self.find_record(connection, oid, serial)?;
            let row = transactions::read(connection, partitions.of_tid(serial), serial)?;
            Ok((found, row))
        })?;
        let (Some((row, data_tid)), transaction) = found else { return Ok(None) };
        let transaction = transaction.unwrap_or_else(|| TransactionRow {
            // A transaction that is only a record is damage; its history can still be told.
            tid: serial,
            ttid: serial,
            oids: vec![oid],
            metadata: Default::default(),
            is_packed: false,
        });
        let size = match data_tid == serial {
            true => reading::data_of(&self.database.place, oid, row)?.map_or(0, |data| data.len()),
            false => 0,
        };
        let transaction = packs.transaction(transaction);
        Ok(Some(HistoryEntry { size: size as u64, transaction }))
    }

    /// The first object at or after `from`.
    fn first_object(&self, from: Oid) -> Result<Option<Oid>, SqlError> {
        let partitions = self.database.partitions();
        self.pooled("walk over the objects", |connection| {
            let mut first = None;
            for partition in partitions.all() {
                let found = revisions::first_oid(connection, partition, from)?;
                first = first.into_iter().chain(found).min();
            }
            Ok(first)
        })
    }
}

impl Read for SqlStorage {
    fn name(&self) -> String {
        let scheme = if self.database.place.server().is_some() { "" } else { "sqlite://" };
        format!("{scheme}{}", self.database.path().display())
    }

    fn is_read_only(&self) -> bool {
        self.database.is_read_only()
    }

    /// NEO keeps records with equal data in a chain by age.
    fn keeps_back_pointers(&self) -> bool {
        false
    }

    fn size(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn object_count(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    fn last_tid(&self) -> Tid {
        Tid(self.last_tid.load(Ordering::Acquire))
    }

    fn last_oid(&self) -> Oid {
        Oid(self.last_oid.load(Ordering::Relaxed))
    }

    fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        if !is_possible(oid) {
            return Ok(Load::Missing);
        }
        match access {
            Access::NonBlocking => Ok(Load::WouldBlock),
            Access::Blocking => Ok(self.load(oid, before)?),
        }
    }

    fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        self.freshness.is_current(oid, stamp.0)
    }

    fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, StorageError> {
        if !is_possible(oid) {
            return Ok(None);
        }
        let found =
            self.pooled("read a record", |connection| self.find_record(connection, oid, serial))?;
        let Some((row, data_tid)) = found else { return Ok(None) };
        let data = reading::data_of(&self.database.place, oid, row)?;
        Ok(Some(StoredRecord { data, data_tid }))
    }

    fn poll_serial(&self, oid: Oid, access: Access) -> Result<Poll<Option<Tid>>, StorageError> {
        if !is_possible(oid) {
            return Ok(Poll::Ready(None));
        }
        if access == Access::NonBlocking {
            return Ok(Poll::Pending);
        }
        let partition = self.database.partitions().of_oid(oid);
        let serial = self.pooled("look for an object", |connection| {
            revisions::current_serial(connection, partition, oid)
        })?;
        Ok(Poll::Ready(serial))
    }

    fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        accept: &mut dyn FnMut(HistoryEntry) -> bool,
    ) -> Result<(), StorageError> {
        if !is_possible(oid) {
            return Ok(());
        }
        let partition = self.database.partitions().of_oid(oid);
        let (serials, packs) = self.pooled("read a history", |connection| {
            let serials = revisions::serials(connection, partition, oid, count)?;
            Ok((serials, Packs::read(connection)?))
        })?;
        for serial in serials {
            if let Some(entry) = self.entry(oid, serial, &packs)?
                && !accept(entry)
            {
                break;
            }
        }
        Ok(())
    }

    fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
        let mut from = from;
        while let Some(oid) = self.first_object(from)? {
            let following = Oid(oid.0 + 1);
            // The largest number is no tid.
            let Some(row) = self.database.load_before(oid, Tid::MAX)? else {
                // It was packed meanwhile.
                from = following;
                continue;
            };
            let serial = row.serial;
            let data = reading::data_of(&self.database.place, oid, row)?;
            let following = self.first_object(following)?;
            return Ok(Some(ObjectStep { oid, serial, data, following }));
        }
        Ok(None)
    }

    fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<Box<dyn TransactionCursor>, StorageError> {
        let range = (start.unwrap_or(Tid::ZERO), stop.unwrap_or(Tid::MAX).min(self.last_tid()));
        let view = self.views.open(&self.database)?;
        Ok(Box::new(SteppingCursor::new(Transactions::new(view, range)?)))
    }

    fn recent(&self, count: usize) -> Result<Vec<(Tid, Vec<Oid>)>, StorageError> {
        let partitions = self.database.partitions();
        let view = self.views.open(&self.database)?;
        let mut tids = Tids::new(partitions, (Tid::ZERO, self.last_tid()), true);
        let mut recent = Vec::new();
        while recent.len() < count {
            let Some(tid) = tids.peek(&view)? else { break };
            tids.take(tid);
            let row = view.read("read a transaction", |connection| {
                transactions::read(connection, partitions.of_tid(tid), tid)
            })?;
            recent.extend(row.map(|row| (tid, row.oids)));
        }
        recent.reverse();
        Ok(recent)
    }
}
