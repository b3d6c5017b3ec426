//! Reading revisions of objects. Nothing here takes a lock.

use bytes::Bytes;
use zodium_types::{Oid, Tid};

use crate::iterate::{Transaction, step_scan, transaction_of};
use crate::log::{Access, Link, LogFile};
use crate::record::{Record, RecordContent};
use crate::{FileStorage, StorageError};

/// The answer to [`FileStorage::load_before`].
#[derive(Debug)]
pub enum Load {
    /// The revision asked for.
    Revision(Revision),
    /// The object exists, but had no revision before that tid.
    NoRevision,
    /// No such object, or the revision is a deletion.
    Missing,
    /// The bytes are not in memory: ask again with [`Access::Blocking`] off the worker.
    Cold,
}

/// One revision of an object.
#[derive(Debug)]
pub struct Revision {
    /// The data record's pickles.
    pub data: Bytes,
    /// The transaction that wrote it.
    pub serial: Tid,
    /// The transaction that wrote the next one; `None` when this one is current.
    pub end: Option<Tid>,
    /// What "current" was judged by.
    pub basis: Basis,
}

/// The state of the index that an answer was computed from; see
/// [`FileStorage::is_still_current`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    generation: u64,
    position: u64,
}

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
    pub fn load_before(&self, oid: Oid, before: Tid, access: Access) -> Result<Load, StorageError> {
        let log = self.log();
        let Some(position) = log.positions.position(oid) else { return Ok(Load::Missing) };
        let basis = Basis { generation: log.generation, position };
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
            previous = log.older(link)?;
        }
        Ok(Load::NoRevision)
    }

    /// Whether an answer that was computed a while ago may still say that it is current.
    ///
    /// A load that waited for the disk must ask this before it is sent: meanwhile a newer
    /// revision may have been announced to the client.
    pub fn is_still_current(&self, oid: Oid, basis: Basis) -> bool {
        let log = self.log();
        log.generation == basis.generation && log.positions.position(oid) == Some(basis.position)
    }

    /// The data that transaction `serial` wrote for `oid`. `None`: it wrote none.
    pub fn load_serial(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, StorageError> {
        let log = self.log();
        let mut position = log.positions.position(oid).unwrap_or(0);
        while let Some(link) = log.link_at(position, oid)? {
            if link.tid == serial {
                let record = log.record(position, oid, Access::Blocking)?;
                return Ok(record.and_then(|record| record.shared_data()));
            }
            position = log.older(link)?;
        }
        Ok(None)
    }

    /// The current serial of `oid`, deletions included. The outer `None` means cold, the inner
    /// one that the object was never stored.
    pub fn current_serial(
        &self,
        oid: Oid,
        access: Access,
    ) -> Result<Option<Option<Tid>>, StorageError> {
        let log = self.log();
        let Some(position) = log.positions.position(oid) else { return Ok(Some(None)) };
        Ok(log.link(position, oid, access)?.map(|link| Some(link.tid)))
    }

    /// The serial of the current revision; `None` when there is no object or it is deleted.
    pub fn serial_of_living(&self, oid: Oid) -> Result<Option<Tid>, StorageError> {
        match self.load_before(oid, Tid::MAX, Access::Blocking)? {
            Load::Revision(revision) => Ok(Some(revision.serial)),
            Load::NoRevision | Load::Missing | Load::Cold => Ok(None),
        }
    }

    /// The newest `count` revisions of `oid`, newest first; empty for an unknown object.
    pub fn history(&self, oid: Oid, count: usize) -> Result<Vec<HistoryEntry>, StorageError> {
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
            let link = Link { position, tid: header.tid, previous: header.previous };
            position = log.older(link)?;
        }
        Ok(entries)
    }

    /// The current revision of the first object at or after `from` in oid order, and the oid of
    /// the one that follows it. Deleted objects are there too, without data.
    pub fn next_object(&self, from: Oid) -> Result<Option<ObjectStep>, StorageError> {
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

/// One step of a walk over all current objects.
#[derive(Debug)]
pub struct ObjectStep {
    /// The object.
    pub oid: Oid,
    /// Its current serial.
    pub serial: Tid,
    /// Its data, `None` when deleted.
    pub data: Option<Bytes>,
    /// The next object in oid order.
    pub following: Option<Oid>,
}

impl LogFile {
    /// The next older position in a history; an error if the chain does not go back in time,
    /// which a damaged file could use to keep us in a circle.
    pub(crate) fn older(&self, link: Link) -> Result<u64, StorageError> {
        if link.previous < link.position {
            Ok(link.previous)
        } else {
            Err(self.damaged(link.position, "a history that runs in a circle"))
        }
    }

    /// The newest record of `oid` before `end`, looked for from the one at `position` backwards;
    /// 0 when there is none.
    pub(crate) fn position_before(
        &self,
        oid: Oid,
        mut position: u64,
        end: u64,
    ) -> Result<u64, StorageError> {
        while position >= end {
            let Some(link) = self.link_at(position, oid)? else { break };
            position = self.older(link)?;
        }
        Ok(position)
    }

    fn link_at(&self, position: u64, oid: Oid) -> Result<Option<Link>, StorageError> {
        if position == 0 { Ok(None) } else { self.link(position, oid, Access::Blocking) }
    }
}

fn revision(record: &Record, end: Option<Tid>, basis: Basis) -> Load {
    match record.shared_data() {
        Some(data) => Load::Revision(Revision { data, serial: record.head().tid, end, basis }),
        None => Load::Missing,
    }
}
