//! Finds out, by reading only, which record the undo of a record writes.
//!
//! To undo transaction T is to write, for each object that T changed, a record with the data from
//! before T. That is correct only while T's data are still current. They are in T's own record, or
//! in a later record that points back to it or was stored with the same bytes. Otherwise the undo
//! is a change like any other, and is merged with the later ones if possible.

use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::FxHashMap;
use zodium_pickle::class_of_record;
use zodium_storage::{Access, NewBody, Read, StorageError, UndoneRecord};
use zodium_types::{Oid, Tid};

use crate::conflict_room::ConflictRoom;
use crate::{Merge, Resolver};

/// One record that a transaction undoes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Undone {
    /// The transaction that is undone.
    pub(crate) tid: Tid,
    pub(crate) record: UndoneRecord,
}

/// An undo that only the object's class can merge with later changes.
#[derive(Clone, Debug)]
pub(crate) struct UndoConflict {
    pub(crate) oid: Oid,
    /// Its current revision.
    pub(crate) committed: Tid,
    /// The newest revision to undo.
    pub(crate) undone: Tid,
    /// The data from before all revisions to undo.
    pub(crate) before: Bytes,
    /// The class of the object, as `module.Class`.
    pub(crate) class: String,
}

/// The results of several undos within one transaction so far, by object.
pub(crate) struct Undoing<'a> {
    store: &'a dyn Read,
    resolver: Option<Arc<dyn Resolver>>,
    /// Where merged data, and those that a client is to merge, are counted.
    room: ConflictRoom<'a>,
    done: FxHashMap<Oid, Current>,
    resolved: usize,
}

/// The current data of an object, as an undo finds them.
#[derive(Clone, Debug)]
enum Current {
    /// The object has no data: it was never stored.
    Nothing,
    /// The data of this revision.
    Revision(Tid),
    /// The data that an undo of the same transaction merged.
    Merged(Bytes),
}

impl<'a> Undoing<'a> {
    /// No results yet; `resolver` merges undos with later changes.
    pub(crate) fn new(
        store: &'a dyn Read,
        resolver: Option<Arc<dyn Resolver>>,
        room: ConflictRoom<'a>,
    ) -> Undoing<'a> {
        Undoing { store, resolver, room, done: FxHashMap::default(), resolved: 0 }
    }

    /// What was counted for merged data, and for those that a client is to merge.
    pub(crate) fn into_room(self) -> ConflictRoom<'a> {
        self.room
    }

    /// Number of records merged with later changes.
    pub(crate) fn resolved(&self) -> usize {
        self.resolved
    }

    /// The body that undoes a record; `None` when a later transaction changed the data and the
    /// changes cannot be merged, or have no room.
    ///
    /// The object must be locked, or the answer may be stale when it is used.
    pub(crate) fn undo(&mut self, undone: Undone) -> Result<Option<NewBody>, StorageError> {
        let Undone { tid, record: UndoneRecord { oid, previous } } = undone;
        let current = match self.done.get(&oid) {
            Some(current) => current.clone(),
            None => self.committed(oid)?,
        };
        if !self.is_same(oid, &current, tid)? {
            let Some(merged) = self.merge(oid, &current, tid, previous)? else { return Ok(None) };
            if !self.room.take(merged.len()) {
                return Ok(None);
            }
            self.done.insert(oid, Current::Merged(merged.clone()));
            self.resolved += 1;
            return Ok(Some(NewBody::Data(merged)));
        }
        let Some(previous) = previous else {
            self.done.insert(oid, Current::Nothing);
            return Ok(Some(NewBody::Deleted));
        };
        self.done.insert(oid, Current::Revision(previous));
        Ok(Some(NewBody::SameAs(previous)))
    }

    fn committed(&self, oid: Oid) -> Result<Current, StorageError> {
        let serial = self.store.current_serial(oid)?;
        Ok(serial.map_or(Current::Nothing, Current::Revision))
    }

    /// Whether an object's current data are those of a revision: the revision is current, the
    /// current record points back to it, or the same bytes were stored twice.
    fn is_same(&self, oid: Oid, current: &Current, tid: Tid) -> Result<bool, StorageError> {
        let current = match current {
            Current::Revision(current) if *current == tid => return Ok(true),
            Current::Revision(current) => self.data_of(oid, *current)?,
            Current::Merged(data) => Some(data.clone()),
            Current::Nothing => None,
        };
        Ok(current == self.data_of(oid, tid)?)
    }

    /// Merges the data from before a revision with the changes made since that revision.
    fn merge(
        &self,
        oid: Oid,
        current: &Current,
        tid: Tid,
        previous: Option<Tid>,
    ) -> Result<Option<Bytes>, StorageError> {
        let Some(resolver) = &self.resolver else { return Ok(None) };
        let committed = match current {
            Current::Nothing => None,
            Current::Revision(serial) => self.data_of(oid, *serial)?,
            Current::Merged(data) => Some(data.clone()),
        };
        let before = match previous {
            Some(previous) => self.data_before(oid, previous, tid)?,
            None => None,
        };
        let (Some(committed), Some(undone), Some(before)) =
            (committed, self.data_of(oid, tid)?, before)
        else {
            return Ok(None);
        };
        Ok(match resolver.resolve(&undone, &committed, &before, Access::Blocking) {
            Merge::Resolved(merged) => Some(Bytes::from(merged)),
            Merge::Unresolved | Merge::WouldBlock => None,
        })
    }

    /// The data of a revision; `None` for a deletion.
    fn data_of(&self, oid: Oid, tid: Tid) -> Result<Option<Bytes>, StorageError> {
        self.data_before(oid, tid, tid)
    }

    /// The data of revision `serial`, to which an undo of `tid` goes back. A pack may have dropped
    /// them meanwhile.
    fn data_before(&self, oid: Oid, serial: Tid, tid: Tid) -> Result<Option<Bytes>, StorageError> {
        let packed = StorageError::NotUndoable { tid, reason: "it was packed" };
        Ok(self.store.record(oid, serial)?.ok_or(packed)?.data)
    }

    /// The conflict that a class must merge to undo `records` of one object together, perhaps of
    /// several undos. It goes back from the newest record to the data before the oldest one. `None`
    /// when they are not one run of revisions, when no older data exist, or these have no room.
    pub(crate) fn conflict(
        &mut self,
        mut records: Vec<Undone>,
    ) -> Result<Option<UndoConflict>, StorageError> {
        records.sort_unstable_by_key(|undone| std::cmp::Reverse(undone.tid));
        let is_one_run =
            records.windows(2).all(|pair| pair[0].record.previous == Some(pair[1].tid));
        let (Some(newest), Some(oldest), true) = (records.first(), records.last(), is_one_run)
        else {
            return Ok(None);
        };
        let oid = newest.record.oid;
        let Current::Revision(committed) = self.committed(oid)? else { return Ok(None) };
        let Some(previous) = oldest.record.previous else { return Ok(None) };
        let Some(before) = self.data_before(oid, previous, oldest.tid)? else { return Ok(None) };
        // A deleted object has no data to merge with.
        if self.data_of(oid, committed)?.is_none() {
            return Ok(None);
        }
        if !self.room.take(before.len()) {
            return Ok(None);
        }
        let class = class_of_record(&before).map(|class| class.to_string());
        let undone = newest.tid;
        Ok(class.map(|class| UndoConflict { oid, committed, undone, before, class }))
    }
}
