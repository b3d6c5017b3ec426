//! FileStorage does what every storage must do.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::MemoryDisk;
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_storage::Storage;

fn open() -> Arc<dyn Storage> {
    let options = OpenOptions {
        cache_bytes: 1 << 20,
        checksums: ChecksumMode::Full,
        ..OpenOptions::new(Path::new("Data.fs"))
    };
    Arc::new(FileStorage::open(Arc::new(MemoryDisk::new()), &options).unwrap())
}

zodium_storage_kit::check_storage!(open);
