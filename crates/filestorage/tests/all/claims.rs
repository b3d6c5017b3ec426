//! FileStorage does what every storage must do.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::MemoryDisk;
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_storage::Storage;
use zodium_storage_kit::Tester;
use zodium_storage_kit::read_only::writes_are_refused;

fn open_on(disk: MemoryDisk, read_only: bool) -> Arc<dyn Storage> {
    let options = OpenOptions {
        cache_bytes: 1 << 20,
        checksums: ChecksumMode::Full,
        read_only,
        ..OpenOptions::new(Path::new("Data.fs"))
    };
    Arc::new(FileStorage::open(Arc::new(disk), &options).unwrap())
}

fn open() -> Arc<dyn Storage> {
    open_on(MemoryDisk::new(), false)
}

zodium_storage_kit::check_storage!(open);

#[test]
fn a_file_that_is_opened_for_reading_refuses_writes() {
    let disk = MemoryDisk::new();
    let tester = Tester::new(open_on(disk.clone(), false));
    tester.store(1, "first");
    tester.store(1, "second");
    drop(tester);
    writes_are_refused(&*open_on(disk, true));
}
