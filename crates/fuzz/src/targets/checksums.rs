//! Checksums beside a data file: a modified side file, and a data file damaged by a disk.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::{Disk, MemoryDisk, OpenMode};
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError, OpenOptions};
use zodium_storage::{Access, Load};
use zodium_types::{Oid, Tid};

use super::data_file::{history, read_everything};
use super::{Target, linear};

const DATA: &str = "Data.fs";
const SIDE_FILE: &str = "Data.fs.checksums";
const OBJECTS: u64 = 8;
const REVISIONS_MAX: usize = 20;

pub(super) const SIDE_FILES: Target = Target {
    name: "checksums",
    seeds: || vec![side_file(), Vec::new()],
    check: check_side_file,
    memory_bytes_max: |length| (64 << 20) + 16 * linear(length),
};

pub(super) const DAMAGED_DATA: Target = Target {
    name: "damaged-data",
    seeds: || (0..64_u8).map(|at| [at.wrapping_mul(37), at, at].repeat(2)).collect(),
    check: check_damaged_data,
    memory_bytes_max: |length| (64 << 20) + 16 * linear(length),
};

/// A revision: object, transaction, data.
type Revision = (Oid, Tid, Vec<u8>);

fn disk(data: Vec<u8>, side_file: Option<Vec<u8>>) -> MemoryDisk {
    let disk = MemoryDisk::volatile();
    disk.put(Path::new(DATA), data);
    if let Some(side_file) = side_file {
        disk.put(Path::new(SIDE_FILE), side_file);
    }
    disk
}

fn open(disk: &MemoryDisk) -> Result<FileStorage, FileStorageError> {
    let options = OpenOptions { checksums: ChecksumMode::Full, ..OpenOptions::new(DATA) };
    FileStorage::open(Arc::new(disk.clone()), &options)
}

/// The good file with side files that cover it completely, and its bytes.
fn covered() -> Option<(MemoryDisk, Vec<u8>)> {
    let disk = disk(history(), None);
    let storage = open(&disk).ok()?;
    while storage.cover(1 << 20) > 0 {}
    storage.close().ok()?;
    let data = disk.bytes(Path::new(DATA))?;
    Some((disk, data))
}

/// The checksum side file.
fn side_file() -> Vec<u8> {
    let covered = covered().and_then(|(disk, _)| disk.bytes(Path::new(SIDE_FILE)));
    covered.unwrap_or_default()
}

/// Whatever the side file holds, a good file opens and returns what was stored.
fn check_side_file(input: &[u8]) {
    let Some((disk, _)) = covered() else { return };
    let side_file = disk.open(Path::new(SIDE_FILE), OpenMode::Truncate);
    if !side_file.is_ok_and(|file| file.write_all_at(input, 0).is_ok()) {
        return;
    }
    let storage = open(&disk);
    let error = storage.as_ref().err().map(ToString::to_string);
    assert!(error.is_none(), "a side file makes a good file unreadable: {error:?}");
    let Ok(storage) = storage else { return };
    assert_eq!(revisions(&storage), stored());
    while storage.cover(1 << 20) > 0 {}
    let _ = storage.scrub(Default::default(), 1 << 20);
    read_everything(&storage);
    assert_eq!(revisions(&storage), stored());
}

/// Changes bytes of the data file: two bytes of the input give a position, one the change. A load
/// must return what was stored, or an error.
fn check_damaged_data(input: &[u8]) {
    let Some((disk, mut data)) = covered() else { return };
    for change in input.chunks_exact(3).take(8) {
        let at = usize::from(change[0]) << 8 | usize::from(change[1]);
        let at = at % data.len();
        data[at] ^= change[2];
    }
    let file = disk.open(Path::new(DATA), OpenMode::Write);
    if !file.is_ok_and(|file| file.write_all_at(&data, 0).is_ok()) {
        return;
    }
    let Ok(storage) = open(&disk) else { return };
    let stored = ever_stored();
    for revision in revisions(&storage) {
        assert!(stored.contains(&revision), "never stored: {revision:?}");
    }
    read_everything(&storage);
}

/// All revisions of the good file.
fn stored() -> Vec<Revision> {
    let options = OpenOptions { read_only: true, ..OpenOptions::new(DATA) };
    let disk: Arc<MemoryDisk> = Arc::new(disk(history(), None));
    FileStorage::open(disk, &options).map(|storage| revisions(&storage)).unwrap_or_default()
}

/// Also those before a deletion: they come back when a damaged end is set aside.
fn ever_stored() -> Vec<Revision> {
    let options = OpenOptions { read_only: true, ..OpenOptions::new(DATA) };
    let disk: Arc<MemoryDisk> = Arc::new(disk(history(), None));
    let mut stored = stored();
    let Ok(storage) = FileStorage::open(disk, &options) else { return stored };
    let Ok(mut transactions) = storage.reader().iterate(None, None) else { return stored };
    while let Ok(Some(transaction)) = transactions.step() {
        for oid in (0..OBJECTS).map(Oid) {
            let found = storage.reader().load_before(oid, transaction.tid, Access::Blocking);
            if let Ok(Load::Revision(revision)) = found {
                stored.push((oid, revision.serial, revision.data.to_vec()));
            }
        }
    }
    stored
}

/// The revisions that can be loaded.
fn revisions(storage: &FileStorage) -> Vec<Revision> {
    let mut revisions = Vec::new();
    for oid in (0..OBJECTS).map(Oid) {
        let mut before = Tid::MAX;
        for _ in 0..REVISIONS_MAX {
            let found = storage.reader().load_before(oid, before, Access::Blocking);
            let Ok(Load::Revision(revision)) = found else { break };
            revisions.push((oid, revision.serial, revision.data.to_vec()));
            before = revision.serial;
        }
    }
    revisions
}
