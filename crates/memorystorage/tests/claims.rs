//! The storage in memory does what every storage must do.

use std::sync::Arc;

use zodium_memorystorage::MemoryStorage;
use zodium_storage::Storage;

fn open() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

zodium_storage_kit::check_storage!(open);
