//! What a cursor reads from, while packs go on.
//!
//! Key decision: a cursor reads the database as it is, up to the last transaction when the cursor
//! was made. Only a pack takes something away from it. So a pack first gives the cursors a
//! connection that keeps seeing the database of before. A connection of that kind keeps the log
//! from being shortened, so no cursor has one without need. There are only so many of them, and
//! the log has a limit: a client may leave a cursor in the midst, and stay connected.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::driver::{self, Connection};
use crate::{Database, SqlError};

/// Most states of before that are kept, each with a connection: one for the cursors that a pack
/// finds, and one for each cursor that is made beside it.
const SNAPSHOTS_MAX: usize = 16;
/// Those of earlier packs that a pack leaves.
const EARLIER_MAX: usize = 1;
/// A log of more bytes ends the cursors that keep it from being shortened.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// The database for one cursor.
#[derive(Debug)]
pub(super) struct View {
    database: Arc<Database>,
    /// The database as it was before a pack.
    before: Mutex<Option<Arc<Snapshot>>>,
}

/// One state of the database, for all cursors that see it. `None`: it is kept no longer.
#[derive(Debug)]
struct Snapshot(Mutex<Option<Connection>>);

/// The views of all cursors.
#[derive(Debug, Default)]
pub(super) struct Views(Mutex<Live>);

#[derive(Debug, Default)]
struct Live {
    views: Vec<Weak<View>>,
    /// The states that are kept, oldest first.
    snapshots: Vec<Weak<Snapshot>>,
    is_packing: bool,
}

impl View {
    /// Reads. What is read at once belongs to one state of the database.
    pub(super) fn read<T>(
        &self,
        operation: &'static str,
        read: impl FnOnce(&Connection) -> driver::Result<T>,
    ) -> Result<T, SqlError> {
        let before = self.before.lock();
        let Some(snapshot) = &*before else {
            // The lock is kept: no pack begins during the call.
            return self.database.pool.with(operation, read);
        };
        match &*snapshot.0.lock() {
            Some(connection) => read(connection).map_err(self.database.place.cannot(operation)),
            None => Err(SqlError::CursorEnded { path: self.database.path().to_owned() }),
        }
    }

    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }
}

impl Views {
    /// A view for a new cursor.
    pub(super) fn open(&self, database: &Arc<Database>) -> Result<Arc<View>, SqlError> {
        let mut live = self.0.lock();
        let before = if live.is_packing { Some(live.snapshot(database)?) } else { None };
        let view = Arc::new(View { database: Arc::clone(database), before: Mutex::new(before) });
        live.views.retain(|view| view.strong_count() > 0);
        live.views.push(Arc::downgrade(&view));
        Ok(view)
    }

    /// Lets a pack begin: all views stay as they are. Those that see the database as it is now
    /// share a connection.
    pub(super) fn begin_pack(&self, database: &Database) -> Result<(), SqlError> {
        let mut live = self.0.lock();
        live.keep(EARLIER_MAX);
        let mut shared = None;
        let views: Vec<_> = live.views.iter().filter_map(Weak::upgrade).collect();
        for view in views {
            let mut before = view.before.lock();
            if before.is_some() {
                continue;
            }
            if shared.is_none() {
                shared = Some(live.snapshot(database)?);
            }
            before.clone_from(&shared);
        }
        live.is_packing = true;
        Ok(())
    }

    /// Notes the end of a pack.
    pub(super) fn end_pack(&self) {
        self.0.lock().is_packing = false;
    }

    /// Ends the cursors that see a state of before, if the log has grown too much meanwhile.
    pub(super) fn limit_log(&self, database: &Database) {
        // A view that waits for its connection has the lock; the next commit looks again.
        let Some(mut live) = self.0.try_lock() else { return };
        if !live.snapshots.is_empty() && database.log_bytes() > LOG_BYTES_MAX {
            live.keep(0);
        }
    }
}

impl Live {
    /// The database as it is now. The oldest states go.
    fn snapshot(&mut self, database: &Database) -> Result<Arc<Snapshot>, SqlError> {
        self.keep(SNAPSHOTS_MAX - 1);
        let connection = database.pool.snapshot(|| {
            let count = self.snapshots.len();
            self.keep(count.saturating_sub(1));
            count > 0
        })?;
        let snapshot = Arc::new(Snapshot(Mutex::new(Some(connection))));
        self.snapshots.push(Arc::downgrade(&snapshot));
        Ok(snapshot)
    }

    /// Keeps only so many states.
    fn keep(&mut self, count: usize) {
        self.snapshots.retain(|snapshot| snapshot.strong_count() > 0);
        let more = self.snapshots.len().saturating_sub(count);
        for snapshot in self.snapshots.drain(..more).filter_map(|snapshot| snapshot.upgrade()) {
            *snapshot.0.lock() = None;
        }
    }
}
