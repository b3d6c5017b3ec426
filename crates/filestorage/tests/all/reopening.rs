//! A storage that failed takes commits again only if the device holds what was acknowledged, both
//! before the end of the file is cut and afterwards.

use std::io::ErrorKind;

use crate::support::{commit, damaged_at, data_file, data_of, open, stores, tid};
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation};
use zodium_filestorage::FileStorage;

/// Where the acknowledged transaction begins.
const START: u64 = 4;

/// A storage with one acknowledged transaction, after a failed sync of a second one.
fn failed() -> (FaultyDisk, FileStorage) {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"acknowledged")])).unwrap();
    disk.fail(Operation::Sync, 1, ErrorKind::Other);
    commit(&storage, stores(tid(2), &[(1, b"refused")])).unwrap_err();
    disk.mend();
    (disk, storage)
}

fn damage(disk: &MemoryDisk) {
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(b"lost", START + 70).unwrap();
}

#[test]
fn a_file_that_is_not_what_was_acknowledged_is_left_as_it_is() {
    let (disk, storage) = failed();
    damage(disk.files());
    let before = data_of(disk.files());
    assert_eq!(damaged_at(storage.reopen()), START);
    assert_eq!(data_of(disk.files()), before);
    assert_eq!(damaged_at(storage.reopen()), START);
}

#[test]
fn what_the_device_loses_while_the_file_is_cut_is_seen() {
    let (disk, storage) = failed();
    let files = disk.files().clone();
    disk.before_next(Operation::SetLength, move || damage(&files));
    assert_eq!(damaged_at(storage.reopen()), START);
    commit(&storage, stores(tid(3), &[(1, b"refused too")])).unwrap_err();
}

#[test]
fn commits_go_on_where_the_device_holds_what_was_acknowledged() {
    let (_, storage) = failed();
    storage.reopen().unwrap();
    commit(&storage, stores(tid(3), &[(1, b"acknowledged too")])).unwrap();
    assert_eq!(storage.last_tid(), tid(3));
}
