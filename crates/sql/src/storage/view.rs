//! What a cursor reads from, while packs go on.
//!
//! Key decision: a cursor reads the database as it is, up to the last transaction when the cursor
//! was made. Only a pack takes something away from it. So a pack first gives each cursor a
//! connection that keeps seeing the database of before. A connection of that kind keeps the log
//! from being shortened, so no cursor has one without need.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::driver::{self, Connection};
use crate::{Database, SqlError};

/// The database for one cursor.
#[derive(Debug)]
pub(super) struct View {
    database: Arc<Database>,
    /// The database as it was before a pack.
    before: Mutex<Option<Connection>>,
}

/// The views of all cursors.
#[derive(Debug, Default)]
pub(super) struct Views(Mutex<Live>);

#[derive(Debug, Default)]
struct Live {
    views: Vec<Weak<View>>,
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
        match &*before {
            Some(connection) => read(connection).map_err(self.database.place.cannot(operation)),
            // The lock is kept: no pack begins during the call.
            None => self.database.pool.with(operation, read),
        }
    }

    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    fn pin(&self) -> Result<(), SqlError> {
        let mut before = self.before.lock();
        if before.is_none() {
            *before = Some(self.database.pool.snapshot()?);
        }
        Ok(())
    }
}

impl Views {
    /// A view for a new cursor.
    pub(super) fn open(&self, database: &Arc<Database>) -> Result<Arc<View>, SqlError> {
        let mut live = self.0.lock();
        let view = View { database: Arc::clone(database), before: Mutex::default() };
        let view = Arc::new(view);
        if live.is_packing {
            view.pin()?;
        }
        live.views.retain(|view| view.strong_count() > 0);
        live.views.push(Arc::downgrade(&view));
        Ok(view)
    }

    /// Lets a pack begin: all views stay as they are.
    pub(super) fn begin_pack(&self) -> Result<(), SqlError> {
        let mut live = self.0.lock();
        for view in live.views.iter().filter_map(Weak::upgrade) {
            view.pin()?;
        }
        live.is_packing = true;
        Ok(())
    }

    /// Notes the end of a pack.
    pub(super) fn end_pack(&self) {
        self.0.lock().is_packing = false;
    }
}
