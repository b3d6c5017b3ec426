//! Rows of table `data` that a prepared transaction refers to. A pack spares them.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;

use crate::SqlError;

/// The rows that are held.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Taken by a change that prunes, until its end, and by each that holds a row.
    counts: Mutex<FxHashMap<i64, u32>>,
    /// Holds that ended. A lock of its own, so that the end of a hold never waits for a pack.
    ended: Mutex<Vec<i64>>,
}

/// Keeps one row of `data` from being pruned.
#[derive(Debug)]
pub(crate) struct Hold {
    held: Arc<Held>,
    id: i64,
}

impl Held {
    /// How often each row is held. While the guard lives, no further row is.
    pub(crate) fn counts(&self) -> MutexGuard<'_, FxHashMap<i64, u32>> {
        let mut counts = self.counts.lock();
        for id in std::mem::take(&mut *self.ended.lock()) {
            if let Some(count) = counts.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&id);
                }
            }
        }
        counts
    }

    /// Finds a row and holds it, before it can be pruned.
    pub(crate) fn hold(
        held: &Arc<Held>,
        find: impl FnOnce() -> Result<Option<i64>, SqlError>,
    ) -> Result<Option<Hold>, SqlError> {
        let mut counts = held.counts();
        let Some(id) = find()? else { return Ok(None) };
        *counts.entry(id).or_default() += 1;
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
