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

#[test]
fn a_storage_tells_its_path_and_of_which_python_its_data_are() {
    for (magic, is_of_python_2) in [(&b"FS21"[..], true), (b"FS30", false)] {
        let disk = MemoryDisk::new();
        disk.put(Path::new("Data.fs"), magic.to_vec());
        let storage = open_on(disk, false);
        assert_eq!(storage.name(), "Data.fs");
        assert_eq!(storage.is_of_python_2(), is_of_python_2);
        assert_eq!((storage.size(), storage.object_count()), (4, 0));
    }
}
