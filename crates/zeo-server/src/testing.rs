//! A storage in memory, for tests of the parts of a session.

use std::sync::Arc;

use zodium_disk::ManualClock;
use zodium_engine::{Config, Database};
use zodium_memorystorage::MemoryStorage;

/// A new storage in memory. Its clock stands still, so nothing ends by itself.
pub(crate) fn storage() -> Arc<Database> {
    let kept = Arc::new(MemoryStorage::new());
    Database::start(kept, Arc::new(ManualClock::default()), &Config::default()).unwrap()
}
