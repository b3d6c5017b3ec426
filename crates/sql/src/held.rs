//! Rows of table `data` that a prepared transaction refers to. A pack spares them, and the objects
//! that they refer to.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use zodium_types::{Oid, Tid};

use crate::SqlError;

/// The rows that are held.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Taken by a change that prunes, until its end, and by each that holds a row.
    rows: Mutex<FxHashMap<i64, HeldRow>>,
    /// Holds that ended. A lock of its own, so that the end of a hold never waits for a pack.
    ended: Mutex<Vec<i64>>,
}

/// A row that is held.
#[derive(Debug)]
pub(crate) struct HeldRow {
    count: u32,
    /// A record that had it. A pack may have dropped the record meanwhile.
    pub(crate) record: (Oid, Tid),
}

/// Keeps one row of `data` from being pruned.
#[derive(Debug)]
pub(crate) struct Hold {
    held: Arc<Held>,
    id: i64,
}

impl Held {
    /// The rows that are held. While the guard lives, no further row is.
    pub(crate) fn rows(&self) -> MutexGuard<'_, FxHashMap<i64, HeldRow>> {
        let mut rows = self.rows.lock();
        for id in std::mem::take(&mut *self.ended.lock()) {
            if let Some(row) = rows.get_mut(&id) {
                row.count -= 1;
                if row.count == 0 {
                    rows.remove(&id);
                }
            }
        }
        rows
    }

    /// Finds the row of a record and holds it, before it can be pruned.
    pub(crate) fn hold(
        held: &Arc<Held>,
        record: (Oid, Tid),
        find: impl FnOnce() -> Result<Option<i64>, SqlError>,
    ) -> Result<Option<Hold>, SqlError> {
        let mut rows = held.rows();
        let Some(id) = find()? else { return Ok(None) };
        rows.entry(id).or_insert(HeldRow { count: 0, record }).count += 1;
        Ok(Some(Hold { held: Arc::clone(held), id }))
    }
}

impl Hold {
    pub(crate) fn id(&self) -> i64 {
        self.id
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.held.ended.lock().push(self.id);
    }
}
