//! A storage in memory, for tests of the parts of a session.

use std::sync::Arc;

use zodium_disk::SystemClock;
use zodium_engine::{Config, Database};
use zodium_memorystorage::MemoryStorage;

/// A new storage in memory.
pub(crate) fn storage() -> Arc<Database> {
    let kept = Arc::new(MemoryStorage::new());
    Database::start(kept, Arc::new(SystemClock::new()), &Config::default()).unwrap()
}
