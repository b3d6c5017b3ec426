//! The thread for the background work of a storage.

use std::sync::Arc;

use tracing::warn;
use zodium_storage::Upkeep;

use crate::Database;

impl Database {
    /// Starts the thread, which ends when the storage is closed.
    pub fn keep_up(self: &Arc<Self>, mut upkeep: Box<dyn Upkeep>) {
        let database = Arc::clone(self);
        let work = move || {
            while !database.commits.is_stopping() {
                let wait = upkeep.step();
                database.commits.sleep(wait);
            }
        };
        match std::thread::Builder::new().name("upkeep".to_owned()).spawn(work) {
            Ok(thread) => *self.upkeep.lock() = Some(thread),
            Err(error) => warn!(file = %self.store.name(), %error,
                "no thread for background work; checksums that are missing stay so"),
        }
    }
}
