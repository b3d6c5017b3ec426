//! Finding what an undo has to write, the undo log, and the sources of copied records.
//!
//! Undoing transaction T means: for each object it changed, a new record that points back to the
//! record before T's. That is only right while T's data are still the current data, be it in T's
//! own record or in a later one that points back to it or was stored with the same bytes. Else
//! going back is a change like any other, and is merged with the later ones if they can be.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use zodium_pickle::class_of_record;
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::append::NewBody;
use crate::format::{DataHeader, MAGIC_BYTES};
use crate::iterate::{self, Transaction, step_scan, transaction_of};
use crate::log::LogFile;
use crate::log_bytes::Access;
use crate::scan::Step;
use crate::{FileStorage, StorageError};

/// A record to be undone.
#[derive(Clone, Copy, Debug)]
pub struct UndoRecord {
    /// The object.
    pub oid: Oid,
    tid: Tid,
    position: u64,
    previous: u64,
    /// That of the log which the positions are of.
    generation: u64,
}

/// An undo that only the object's class can merge with what was changed later.
#[derive(Clone, Debug)]
pub struct UndoConflict {
    /// The object.
    pub oid: Oid,
    /// Its current revision.
    pub committed: Tid,
    /// The newest revision to be undone.
    pub undone: Tid,
    /// The data from before all that is to be undone.
    pub before: Bytes,
    /// The class of the object, as `module.Class`.
    pub class: String,
}

/// Merges conflicting changes of one object.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Merges what `new` made of `old` with what `committed` did, all data records.
    fn resolve(&self, old: &[u8], committed: &[u8], new: &[u8], access: Access) -> Merge;
}

/// What a [`Resolver`] makes of a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The data record to write.
    Resolved(Vec<u8>),
    /// The changes are not merged here.
    Unresolved,
    /// To tell takes a while: ask again with [`Access::Blocking`], off the worker.
    Cold,
}

/// What several undos within one transaction have made of each object so far.
#[derive(Debug, Default)]
pub struct Undoing {
    done: rustc_hash::FxHashMap<Oid, Current>,
    resolver: Option<Arc<dyn Resolver>>,
    resolved: usize,
}

/// Where the data of an object are that an undo finds.
#[derive(Clone, Debug)]
enum Current {
    At(u64),
    /// Made by an undo of the same transaction.
    Merged(Bytes),
}

impl Undoing {
    /// Nothing yet; what was changed later is given to `resolver`.
    pub fn new(resolver: Option<Arc<dyn Resolver>>) -> Undoing {
        Undoing { resolver, ..Undoing::default() }
    }

    /// How many records were merged with later changes.
    pub fn resolved(&self) -> usize {
        self.resolved
    }
}

impl FileStorage {
    /// The records of transaction `tid`, for an undo.
    pub fn records_to_undo(&self, tid: Tid) -> Result<Vec<UndoRecord>, StorageError> {
        let refused = |reason| Err(StorageError::NotUndoable { tid, reason });
        let log = self.log();
        let position = log.first_at_or_after(tid)?;
        let mut scan = step_scan(&log);
        let Step::Transaction(entry) = scan.transaction(position)? else {
            return refused("there is no such transaction");
        };
        match entry.status() {
            Some(TransactionStatus::Packed) => return refused("it was packed"),
            _ if entry.tid() != tid => return refused("there is no such transaction"),
            Some(TransactionStatus::Undone) => return refused("it was undone"),
            Some(TransactionStatus::Normal) | None => {}
        }
        let mut records = Vec::new();
        scan.each_record(&entry, |record| {
            records.push(UndoRecord {
                oid: record.header.oid,
                tid,
                position: record.position,
                previous: record.header.previous,
                generation: log.generation,
            });
        })?;
        Ok(last_of_each_object(records))
    }

    /// The record that undoes `record`; `None` when a later transaction changed the data and the
    /// two cannot be merged.
    ///
    /// The object and the positions must be locked, or the answer may be old when it is used.
    pub fn undo_record(
        &self,
        record: UndoRecord,
        undoing: &mut Undoing,
    ) -> Result<Option<NewBody>, StorageError> {
        let log = self.log();
        let record = find_again(&log, record)?;
        let oid = record.oid;
        let current = match undoing.done.get(&oid) {
            Some(current) => current.clone(),
            None => Current::At(log.positions.position(oid).unwrap_or(0)),
        };
        if !same_data(&log, &current, record.position, oid)? {
            let Some(merged) = merge(&log, &current, record, undoing.resolver.as_deref())? else {
                return Ok(None);
            };
            undoing.done.insert(oid, Current::Merged(merged.clone()));
            undoing.resolved += 1;
            return Ok(Some(NewBody::Data(merged)));
        }
        // Going back to what is damaged would lose what can be read.
        log.data_behind(record.previous, oid, Access::Blocking)?;
        undoing.done.insert(oid, Current::At(record.previous));
        Ok(Some(match record.previous {
            0 => NewBody::Deleted,
            previous => NewBody::SameAs(previous),
        }))
    }

    /// What a class would have to merge so that `records` of one object, of several undos perhaps,
    /// can be undone together: going back from the newest to before the oldest of them. `None`
    /// when they are not one run of revisions, or when there is nothing to go back to.
    pub fn undo_conflict(
        &self,
        records: &[UndoRecord],
    ) -> Result<Option<UndoConflict>, StorageError> {
        let log = self.log();
        let mut run = Vec::with_capacity(records.len());
        for record in records {
            run.push(find_again(&log, *record)?);
        }
        run.sort_unstable_by_key(|record| std::cmp::Reverse(record.position));
        let is_one_run = run.windows(2).all(|pair| pair[0].previous == pair[1].position);
        let (Some(newest), Some(oldest), true) = (run.first(), run.last(), is_one_run) else {
            return Ok(None);
        };
        let oid = newest.oid;
        let position = log.positions.position(oid).unwrap_or(0);
        let Some(current) = log.link(position, oid, Access::Blocking)? else { return Ok(None) };
        let Some(before) = log.data_at(oldest.previous, oid)? else { return Ok(None) };
        // A deleted object has no data to merge anything into.
        if log.data_at(position, oid)?.is_none() {
            return Ok(None);
        }
        let class = class_of_record(&before).map(|class| class.to_string());
        Ok(class.map(|class| UndoConflict {
            oid,
            committed: current.tid,
            undone: newest.tid,
            before,
            class,
        }))
    }

    /// Transactions that can be undone, newest first, as long as `accept` returns true.
    pub fn undo_log(
        &self,
        mut accept: impl FnMut(&Transaction) -> bool,
    ) -> Result<(), StorageError> {
        let log = self.log();
        let mut scan = step_scan(&log);
        let mut end = scan.end();
        while let Some(entry) = scan.transaction_before(end)? {
            match entry.status() {
                Some(TransactionStatus::Normal) => {
                    if !accept(&iterate::transaction(&mut scan, entry)?) {
                        break;
                    }
                }
                Some(TransactionStatus::Packed) => break,
                Some(TransactionStatus::Undone) | None => {}
            }
            end = entry.position;
        }
        Ok(())
    }

    /// What to write for a copied record: a pointer back when transaction `source` holds the
    /// same data for the object here, else the data themselves.
    pub fn copied_body(
        &self,
        oid: Oid,
        data: Option<Bytes>,
        source: Option<Tid>,
    ) -> Result<NewBody, StorageError> {
        let Some(data) = data else { return Ok(NewBody::Deleted) };
        let Some(source) = source else { return Ok(NewBody::Data(data)) };
        let log = self.log();
        let mut position = log.positions.position(oid).unwrap_or(0);
        while position >= MAGIC_BYTES {
            let Some(link) = log.link(position, oid, Access::Blocking)? else { break };
            if link.tid <= source {
                if link.tid == source && holds(&log, position, oid, &data)? {
                    return Ok(NewBody::SameAs(position));
                }
                break;
            }
            position = link.previous;
        }
        Ok(NewBody::Data(data))
    }
}

/// Of several records of one object in a transaction only the last one counts.
fn last_of_each_object(mut records: Vec<UndoRecord>) -> Vec<UndoRecord> {
    let mut seen = rustc_hash::FxHashSet::default();
    records.reverse();
    records.retain(|record| seen.insert(record.oid));
    records.reverse();
    records
}

/// A record where it stands now: since it was looked up a pack may have moved it, or put it out
/// of reach of an undo.
fn find_again(log: &LogFile, record: UndoRecord) -> Result<UndoRecord, StorageError> {
    if record.generation == log.generation {
        return Ok(record);
    }
    let UndoRecord { oid, tid, .. } = record;
    let packed = StorageError::NotUndoable { tid, reason: "it was packed" };
    let mut position = log.positions.position(oid).unwrap_or(0);
    while position != 0 {
        let Some(stored) = log.read_stored(position, oid, Access::Blocking)? else { break };
        let DataHeader { tid: found, previous, .. } = stored.header;
        if found == tid {
            let transaction = transaction_of(&mut step_scan(log), log, position, &stored.header)?;
            if transaction.status == TransactionStatus::Packed {
                return Err(packed);
            }
            return Ok(UndoRecord { oid, tid, position, previous, generation: log.generation });
        }
        position = previous;
    }
    Err(packed)
}

/// Whether an object's current data are those of a record: by being them, by pointing to them,
/// or by having been stored twice.
fn same_data(
    log: &LogFile,
    current: &Current,
    position: u64,
    oid: Oid,
) -> Result<bool, StorageError> {
    let current = match current {
        Current::At(current) if *current == position => return Ok(true),
        Current::At(current) => log.data_behind(*current, oid, Access::Blocking)?,
        Current::Merged(data) => Some((0, Some(data.clone()))),
    };
    let other = log.data_behind(position, oid, Access::Blocking)?;
    Ok(match (current, other) {
        (Some((_, current)), Some((_, other))) => current == other,
        _ => false,
    })
}

/// Goes back from the data of a record to those before it, and keeps what was done since.
fn merge(
    log: &LogFile,
    current: &Current,
    record: UndoRecord,
    resolver: Option<&dyn Resolver>,
) -> Result<Option<Bytes>, StorageError> {
    let Some(resolver) = resolver else { return Ok(None) };
    let oid = record.oid;
    let committed = match current {
        Current::At(position) => log.data_at(*position, oid)?,
        Current::Merged(data) => Some(data.clone()),
    };
    let undone = log.data_at(record.position, oid)?;
    let before = log.data_at(record.previous, oid)?;
    let (Some(committed), Some(undone), Some(before)) = (committed, undone, before) else {
        return Ok(None);
    };
    Ok(match resolver.resolve(&undone, &committed, &before, Access::Blocking) {
        Merge::Resolved(merged) => Some(Bytes::from(merged)),
        Merge::Unresolved | Merge::Cold => None,
    })
}

fn holds(log: &LogFile, position: u64, oid: Oid, data: &Bytes) -> Result<bool, StorageError> {
    let found = log.data_behind(position, oid, Access::Blocking)?;
    Ok(found.is_some_and(|(_, found)| found.as_ref() == Some(data)))
}
