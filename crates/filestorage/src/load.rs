//! Reading revisions of objects. Nothing here takes a lock.

use std::sync::Arc;

use bytes::Bytes;
use zodium_storage::{Access, Basis, Load, ObjectStep, Revision, StoredRecord};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::format::{DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES};
use crate::iterate::{Transaction, step_scan, tid_of, transaction_of};
use crate::log::{Link, LogFile};
use crate::record::{Record, RecordContent};
use crate::scan::{DataEntry, Scan, Step, TransactionEntry};
use crate::{FileStorage, FileStorageError};

/// Bytes read at once to find the transaction of a damaged record.
const LOOK_BYTES: usize = 4 << 10;

/// One line of an object's history.
#[derive(Clone, Debug)]
pub struct HistoryEntry {
    /// Bytes of data in the record itself; 0 for a back pointer.
    pub size: u64,
    /// The transaction that wrote it.
    pub transaction: Transaction,
}

impl FileStorage {
    /// The latest revision of `oid` written by a transaction before `before`.
    pub fn load_before(
        &self,
        oid: Oid,
        before: Tid,
        access: Access,
    ) -> Result<Load, FileStorageError> {
        let log = self.log();
        let Some(position) = log.positions.position(oid) else { return Ok(Load::Missing) };
        let basis = Basis(log.generation, position);
        // The current record is nearly always the one: fetch it whole at once.
        let Some(current) = log.record(position, oid, access)? else { return Ok(Load::Cold) };
        let head = current.head();
        if head.tid < before {
            return Ok(revision(&current, None, basis));
        }
        let mut end = head.tid;
        let mut previous = head.previous;
        while previous != 0 {
            let Some(link) = log.link(previous, oid, access)? else { return Ok(Load::Cold) };
            if link.tid < before {
                return Ok(match log.record(link.position, oid, access)? {
                    Some(record) => revision(&record, Some(end), basis),
                    None => Load::Cold,
                });
            }
            end = link.tid;
            previous = link.previous;
        }
        Ok(Load::NoRevision)
    }

    /// Whether an answer that was computed a while ago may still say that it is current.
    ///
    /// A load that waited for the disk must ask this before it is sent: meanwhile a newer
    /// revision may have been announced to the client.
    pub fn is_still_current(&self, oid: Oid, basis: Basis) -> bool {
        let log = self.log();
        Basis(log.generation, log.positions.position(oid).unwrap_or(0)) == basis
    }

    /// The record that transaction `serial` wrote for `oid`. `None`: it wrote none.
    pub fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, FileStorageError> {
        let log = self.log();
        let mut position = log.positions.position(oid).unwrap_or(0);
        while let Some(link) = log.link_at(position, oid)? {
            if link.tid != serial {
                position = link.previous;
                continue;
            }
            let gone = || log.damaged(position, "a record that cannot be read");
            let (at, data) = log.data_behind(position, oid, Access::Blocking)?.ok_or_else(gone)?;
            // A deletion has no data anywhere.
            let is_own = at == position || data.is_none();
            let data_tid = if is_own { serial } else { tid_of(&log, at, oid)? };
            return Ok(Some(StoredRecord { data, data_tid }));
        }
        Ok(None)
    }

    /// Where the record stands that transaction `tid` wrote for an object.
    ///
    /// # Errors
    /// `NotUndoable` when it wrote none, or when that was packed away.
    pub fn position_of(&self, oid: Oid, tid: Tid) -> Result<u64, FileStorageError> {
        let log = self.log();
        let mut position = log.positions.position(oid).unwrap_or(0);
        while position != 0 {
            let Some(link) = log.link(position, oid, Access::Blocking)? else { break };
            if link.tid == tid {
                return Ok(position);
            }
            position = link.previous;
        }
        Err(FileStorageError::NotUndoable { tid, reason: "it was packed" })
    }

    /// The data that transaction `serial` wrote for `oid`. `None`: it wrote none.
    pub fn load_serial(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, FileStorageError> {
        let log = self.log();
        let mut position = log.positions.position(oid).unwrap_or(0);
        while let Some(link) = log.link_at(position, oid)? {
            if link.tid == serial {
                let record = log.record(position, oid, Access::Blocking)?;
                return Ok(record.and_then(|record| record.shared_data()));
            }
            position = link.previous;
        }
        Ok(None)
    }

    /// The current serial of `oid`, deletions included. The outer `None` means cold, the inner
    /// one that the object was never stored.
    ///
    /// A damaged record has the serial of the transaction around it, if that is sound, so that a
    /// client that has the object can store it again.
    pub fn current_serial(
        &self,
        oid: Oid,
        access: Access,
    ) -> Result<Option<Option<Tid>>, FileStorageError> {
        let log = self.log();
        let Some(position) = log.positions.position(oid) else { return Ok(Some(None)) };
        let error = match log.link(position, oid, access) {
            Err(error @ FileStorageError::Corrupt { .. }) => error,
            link => return Ok(link?.map(|link| Some(link.tid))),
        };
        match access {
            // More has to be read.
            Access::Resident => Ok(None),
            Access::Blocking => {
                log.tid_around(position, oid)?.map(|tid| Some(Some(tid))).ok_or(error)
            }
        }
    }

    /// The serial of the current revision; `None` when there is no object or it is deleted.
    pub fn serial_of_living(&self, oid: Oid) -> Result<Option<Tid>, FileStorageError> {
        match self.load_before(oid, Tid::MAX, Access::Blocking)? {
            Load::Revision(revision) => Ok(Some(revision.serial)),
            Load::NoRevision | Load::Missing | Load::Cold => Ok(None),
        }
    }

    /// The newest `count` revisions of `oid`, newest first; empty for an unknown object.
    pub fn history(&self, oid: Oid, count: usize) -> Result<Vec<HistoryEntry>, FileStorageError> {
        let log = self.log();
        let mut entries = Vec::new();
        let mut position = log.positions.position(oid).unwrap_or(0);
        // After the look at the index: the walk must reach as far as what was found there.
        let mut scan = step_scan(&log);
        while position != 0 && entries.len() < count {
            let Some(stored) = log.read_stored(position, oid, Access::Blocking)? else { break };
            let header = stored.header;
            entries.push(HistoryEntry {
                size: header.data_length,
                transaction: transaction_of(&mut scan, &log, position, &header)?,
            });
            position = header.previous;
        }
        Ok(entries)
    }

    /// The current revision of the first object at or after `from` in oid order, and the oid of
    /// the one that follows it. Deleted objects are there too, without data.
    pub fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, FileStorageError> {
        let log = self.log();
        let Some((oid, position)) = log.positions.next_from(from) else { return Ok(None) };
        let Some(record) = log.record(position, oid, Access::Blocking)? else { return Ok(None) };
        let following = oid.0.checked_add(1).and_then(|next| log.positions.next_from(Oid(next)));
        Ok(Some(ObjectStep {
            oid,
            serial: record.head().tid,
            data: record.shared_data(),
            following: following.map(|(oid, _)| oid),
        }))
    }
}

impl LogFile {
    /// The newest record of `oid` before `end`, looked for from the one at `position` backwards;
    /// 0 when there is none.
    pub(crate) fn position_before(
        &self,
        oid: Oid,
        mut position: u64,
        end: u64,
    ) -> Result<u64, FileStorageError> {
        while position >= end {
            let Some(link) = self.link_at(position, oid)? else { break };
            position = link.previous;
        }
        Ok(position)
    }

    /// The tid of the transaction that a damaged record stands in; `None` when that cannot be found
    /// out for certain.
    fn tid_around(&self, position: u64, oid: Oid) -> Result<Option<Tid>, FileStorageError> {
        let mut bytes = [0; DATA_HEADER_BYTES];
        if self.file.read_exact_at(&mut bytes, position).is_err() {
            return Ok(None);
        }
        let header = DataHeader::parse(&bytes);
        let Some(entry) = self.transaction_around(position, &header)? else { return Ok(None) };
        // A record of another object that is not shown to be damaged: the index is wrong, and
        // nothing may be written over what it says.
        let is_other = header.oid != oid
            && step_scan(self).verify_record(&DataEntry { position, header }).is_ok();
        let counts = entry.status() != Some(TransactionStatus::Undone);
        Ok((counts && !is_other).then(|| entry.tid()))
    }

    /// The transaction around a damaged record: the checksums know where it begins. Where there
    /// are none, the record names it twice.
    fn transaction_around(
        &self,
        position: u64,
        header: &DataHeader,
    ) -> Result<Option<TransactionEntry>, FileStorageError> {
        let checksums = self.checksums.as_ref();
        if let Some(start) = checksums.and_then(|sums| sums.transaction_around(position))
            && let Some(entry) = self.transaction_at(start, position)?
        {
            return Ok(Some(entry));
        }
        // By its tid first: that way leads along the log, so it leads to transactions only.
        match self.first_at_or_after(header.tid) {
            Ok(start) => {
                if let Some(entry) = self.transaction_at(start, position)? {
                    return Ok(Some(entry));
                }
            }
            // Another damage is in the way.
            Err(FileStorageError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        self.transaction_at(header.transaction, position)
    }

    /// The sound transaction that begins at `start`, if a record within it can stand at `position`.
    fn transaction_at(
        &self,
        start: u64,
        position: u64,
    ) -> Result<Option<TransactionEntry>, FileStorageError> {
        if !(MAGIC_BYTES..position).contains(&start) {
            return Ok(None);
        }
        let mut found = None;
        // The place is a guess. A wrong guess is no damage, so the first look counts none.
        let look = Scan::with_window(&self.path, Arc::clone(&self.file), self.end(), LOOK_BYTES);
        for mut scan in [look, step_scan(self)] {
            found = match scan.transaction(start) {
                Ok(Step::Transaction(entry)) => Some(entry),
                Ok(_) | Err(FileStorageError::Corrupt { .. }) => None,
                Err(error) => return Err(error),
            };
            let records = found.map(|entry| entry.records_start()..entry.records_end());
            if !records.is_some_and(|records| records.contains(&position)) {
                return Ok(None);
            }
        }
        Ok(found)
    }

    fn link_at(&self, position: u64, oid: Oid) -> Result<Option<Link>, FileStorageError> {
        if position == 0 { Ok(None) } else { self.link(position, oid, Access::Blocking) }
    }
}

fn revision(record: &Record, end: Option<Tid>, basis: Basis) -> Load {
    match record.shared_data() {
        Some(data) => Load::Revision(Revision { data, serial: record.head().tid, end, basis }),
        None => Load::Missing,
    }
}
