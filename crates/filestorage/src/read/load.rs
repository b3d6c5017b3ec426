//! Reads revisions of objects. Nothing here takes a lock.

use std::sync::Arc;

use bytes::Bytes;
use zodium_disk::Missed;
use zodium_storage::{Access, HistoryEntry, Load, ObjectStep, Revision, Stamp, StoredRecord};
use zodium_types::{Oid, Tid, TransactionStatus};

use super::iterate::{step_scan, tid_of, transaction_of};
use super::log::{Link, LogFile};
use super::reader::Reader;
use super::record::{Record, RecordContent};
use crate::FileStorageError;
use crate::format::{DATA_HEADER_BYTES, DataHeader, MAGIC_BYTES};
use crate::reading::Reading;
use crate::scan::{DataEntry, Scan, Step, TransactionEntry};

/// Bytes read at once during the search for the transaction of a damaged record.
const LOOK_BYTES: usize = 4 << 10;

/// Most revisions that a load goes back if it may not wait: each step takes microseconds even in
/// memory, and an object may have any number of revisions.
const RESIDENT_STEPS_MAX: usize = 100;

impl Reader {
    /// The latest revision of `oid` written by a transaction before `before`.
    pub fn load_before(
        &self,
        oid: Oid,
        before: Tid,
        access: Access,
    ) -> Result<Load, FileStorageError> {
        self.load(oid, before, access.into())
    }

    /// As [`Reader::load_before`] without waiting; `missed` says what it would wait for.
    pub(crate) fn load_resident(
        &self,
        oid: Oid,
        before: Tid,
        missed: &Missed,
    ) -> Result<Load, FileStorageError> {
        self.load(oid, before, Reading::NonBlocking(Some(missed)))
    }

    fn load(&self, oid: Oid, before: Tid, access: Reading<'_>) -> Result<Load, FileStorageError> {
        let log = self.log();
        let Some(position) = log.positions.position(oid) else { return Ok(Load::Missing) };
        let stamp = Stamp(log.generation, position);
        // Most loads want the current record, so fetch it whole at once.
        let Some(current) = log.record(position, oid, access)? else { return Ok(Load::WouldBlock) };
        let head = current.head();
        if head.tid < before {
            return Ok(revision(&current, None, stamp));
        }
        let mut end = head.tid;
        let mut previous = head.previous;
        let mut steps = 0;
        while previous != 0 {
            if steps == RESIDENT_STEPS_MAX && !access.may_wait() {
                return Ok(Load::WouldBlock);
            }
            steps += 1;
            let Some(link) = log.link(previous, oid, access)? else { return Ok(Load::WouldBlock) };
            if link.tid < before {
                return Ok(match log.record(link.position, oid, access)? {
                    Some(record) => revision(&record, Some(end), stamp),
                    None => Load::WouldBlock,
                });
            }
            end = link.tid;
            previous = link.previous;
        }
        Ok(Load::NoRevision)
    }

    /// Whether a load that was answered as current is still current.
    ///
    /// The caller must check this before it sends the result of a load that waited for the disk.
    /// The client may have received the invalidation of a newer revision in the meantime.
    pub fn is_still_current(&self, oid: Oid, stamp: Stamp) -> bool {
        let log = self.log();
        Stamp(log.generation, log.positions.position(oid).unwrap_or(0)) == stamp
    }

    /// The record that transaction `serial` wrote for `oid`; `None` if it wrote none.
    pub fn record(&self, oid: Oid, serial: Tid) -> Result<Option<StoredRecord>, FileStorageError> {
        let log = self.log();
        let mut position = log.positions.position(oid).unwrap_or(0);
        while let Some(link) = log.link_at(position, oid)? {
            if link.tid != serial {
                position = link.previous;
                continue;
            }
            let gone = || log.damaged(position, "a record that cannot be read");
            let (at, data) = log.data_behind(position, oid, Reading::Blocking)?.ok_or_else(gone)?;
            // A deletion has no data in any record.
            let is_own = at == position || data.is_none();
            let data_tid = if is_own { serial } else { tid_of(&log, at, oid)? };
            return Ok(Some(StoredRecord { data, data_tid }));
        }
        Ok(None)
    }

    /// Position of the record that transaction `tid` wrote for an object.
    ///
    /// # Errors
    /// `NotUndoable` when the transaction wrote no such record, or a pack removed it.
    pub fn position_of(&self, oid: Oid, tid: Tid) -> Result<u64, FileStorageError> {
        let log = self.log();
        let mut position = log.positions.position(oid).unwrap_or(0);
        while position != 0 {
            let Some(link) = log.link(position, oid, Reading::Blocking)? else { break };
            if link.tid == tid {
                return Ok(position);
            }
            position = link.previous;
        }
        Err(FileStorageError::NotUndoable { tid, reason: "it was packed" })
    }

    /// The data that transaction `serial` wrote for `oid`; `None` if it wrote none.
    pub fn load_serial(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, FileStorageError> {
        let log = self.log();
        let mut position = log.positions.position(oid).unwrap_or(0);
        while let Some(link) = log.link_at(position, oid)? {
            if link.tid == serial {
                let record = log.record(position, oid, Reading::Blocking)?;
                return Ok(record.and_then(|record| record.shared_data()));
            }
            position = link.previous;
        }
        Ok(None)
    }

    /// The current serial of `oid`, deletions included. The outer `None` means that the record is
    /// cold, the inner `None` that the object was never stored.
    ///
    /// A damaged record has the serial of the transaction around it, if that transaction is sound.
    /// A client that holds the object can then store it again.
    pub fn current_serial(
        &self,
        oid: Oid,
        access: Access,
    ) -> Result<Option<Option<Tid>>, FileStorageError> {
        let log = self.log();
        let Some(position) = log.positions.position(oid) else { return Ok(Some(None)) };
        if let Some(serial) = log.recent_serials.serial(position) {
            return Ok(Some(Some(serial)));
        }
        let error = match log.link(position, oid, access.into()) {
            Err(error @ FileStorageError::Corrupt { .. }) => error,
            link => return Ok(link?.map(|link| Some(link.tid))),
        };
        match access {
            // The search below needs reads that may wait for the disk.
            Access::NonBlocking => Ok(None),
            Access::Blocking => {
                log.tid_around(position, oid)?.map(|tid| Some(Some(tid))).ok_or(error)
            }
        }
    }

    /// Serial of the current revision; `None` when the object is missing or deleted.
    pub fn serial_of_living(&self, oid: Oid) -> Result<Option<Tid>, FileStorageError> {
        // A broken clock can have made tids beyond `Tid::MAX`.
        match self.load_before(oid, Tid(u64::MAX), Access::Blocking)? {
            Load::Revision(revision) => Ok(Some(revision.serial)),
            Load::NoRevision | Load::Missing | Load::WouldBlock => Ok(None),
        }
    }

    /// The newest `count` revisions of `oid`, newest first; empty for an unknown object.
    pub fn history(&self, oid: Oid, count: usize) -> Result<Vec<HistoryEntry>, FileStorageError> {
        let mut entries = Vec::new();
        self.each_revision(oid, count, |entry| {
            entries.push(entry);
            true
        })?;
        Ok(entries)
    }

    /// Passes the newest `count` revisions of `oid` to `accept`, newest first, until it returns
    /// false; none for an unknown object.
    pub fn each_revision(
        &self,
        oid: Oid,
        count: usize,
        mut accept: impl FnMut(HistoryEntry) -> bool,
    ) -> Result<(), FileStorageError> {
        let log = self.log();
        let mut position = log.positions.position(oid).unwrap_or(0);
        // Made after the index lookup, so that the scan reaches as far as the position found there.
        let mut scan = step_scan(&log);
        for _ in 0..count {
            if position == 0 {
                break;
            }
            let Some(stored) = log.read_stored(position, oid, Reading::Blocking)? else { break };
            let header = stored.header;
            let transaction = transaction_of(&mut scan, &log, position, &header)?;
            if !accept(HistoryEntry { size: header.data_length, transaction }) {
                break;
            }
            position = header.previous;
        }
        Ok(())
    }

    /// The current revision of the first object at or after `from` in oid order, and the oid of the
    /// object after it. Deleted objects are included, without data.
    pub fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, FileStorageError> {
        let log = self.log();
        let Some((oid, position)) = log.positions.next_from(from) else { return Ok(None) };
        let Some(record) = log.record(position, oid, Reading::Blocking)? else { return Ok(None) };
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
    /// Position of the newest record of `oid` before `end`. The search goes backwards from the
    /// record at `position`; 0 when there is none.
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

    /// Tid of the transaction that contains a damaged record; `None` when that transaction cannot
    /// be found for certain.
    fn tid_around(&self, position: u64, oid: Oid) -> Result<Option<Tid>, FileStorageError> {
        let mut bytes = [0; DATA_HEADER_BYTES];
        if self.file.read_exact_at(&mut bytes, position).is_err() {
            return Ok(None);
        }
        let header = DataHeader::parse(&bytes);
        let Some(entry) = self.transaction_around(position, &header)? else { return Ok(None) };
        // An apparently sound record of another object: the index is wrong, so no client may store
        // over this object.
        let is_other = header.oid != oid
            && step_scan(self).verify_record(&DataEntry { position, header }).is_ok();
        let counts = entry.status() != Some(TransactionStatus::Undone);
        Ok((counts && !is_other).then(|| entry.tid()))
    }

    /// Finds the transaction that contains a damaged record. The checksums know where it begins;
    /// without them, the record names it by tid and by position.
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
        // Search by tid first: this search follows the log, so it only finds real transactions.
        match self.first_at_or_after(header.tid) {
            Ok(start) => {
                if let Some(entry) = self.transaction_at(start, position)? {
                    return Ok(Some(entry));
                }
            }
            // Another damaged place stops the search.
            Err(FileStorageError::Corrupt { .. }) => {}
            Err(error) => return Err(error),
        }
        self.transaction_at(header.transaction, position)
    }

    /// The sound transaction that begins at `start`, if one of its records can be at `position`.
    fn transaction_at(
        &self,
        start: u64,
        position: u64,
    ) -> Result<Option<TransactionEntry>, FileStorageError> {
        if !(MAGIC_BYTES..position).contains(&start) {
            return Ok(None);
        }
        let mut found = None;
        // `start` is a guess. A wrong guess is not damage, so the first look does not count
        // damages.
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
        if position == 0 { Ok(None) } else { self.link(position, oid, Reading::Blocking) }
    }
}

fn revision(record: &Record, end: Option<Tid>, stamp: Stamp) -> Load {
    match record.shared_data() {
        Some(data) => Load::Revision(Revision { data, serial: record.head().tid, end, stamp }),
        None => Load::Missing,
    }
}
