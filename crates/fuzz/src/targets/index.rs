//! Index files beside a good data file, and the checksum that seals them.

use std::path::Path;

use zodium_disk::MemoryDisk;
use zodium_filestorage::FileStorage;
use zodium_storage::{Access, Load};
use zodium_types::{Oid, Tid};

use super::data_file::{history, open_named, read_everything};
use super::{Target, linear};

const DATA: &str = "Data.fs";
const INDEX_FILE: &str = "Data.fs.index";
const CHECKSUM_FILE: &str = "Data.fs.index.crc32c";

/// Entries may contain distant oids, each of which then needs an index page.
const PAGES_BYTES_MAX: usize = 256 << 20;

pub(super) const INDEX: Target = Target {
    name: "index",
    seeds: || vec![include_bytes!("../../corpus/history.fs.index").to_vec(), saved(INDEX_FILE)],
    check: check_verified,
    memory_bytes_max: |length| PAGES_BYTES_MAX + 16 * linear(length),
};

pub(super) const INDEX_CHECKSUM: Target = Target {
    name: "index-checksum",
    seeds: || vec![saved(CHECKSUM_FILE), b"00000000 0 0000000000000000\n".to_vec()],
    check: check_checksum,
    memory_bytes_max: |length| (64 << 20) + 16 * linear(length),
};

/// A file that the server saves beside the data file.
fn saved(name: &str) -> Vec<u8> {
    let disk = disk();
    if let Ok(storage) = open_named(&disk, DATA, false) {
        let _ = storage.save_index();
    }
    disk.bytes(Path::new(name)).unwrap_or_default()
}

fn disk() -> MemoryDisk {
    let disk = MemoryDisk::volatile();
    disk.put(Path::new(DATA), history());
    disk
}

/// Nothing panics, whatever a correctly sealed index contains.
fn check_verified(input: &[u8]) {
    let disk = disk();
    let plain = open_named(&disk, DATA, true);
    let Ok(plain) = plain else { return };
    disk.put(Path::new(INDEX_FILE), input.to_vec());
    disk.put(Path::new(CHECKSUM_FILE), seal(input, plain.last_tid()).into_bytes());
    if let Ok(storage) = open_named(&disk, DATA, true) {
        read_everything(&storage);
    }
    // Without a valid seal the answers come from the data alone.
    disk.put(Path::new(CHECKSUM_FILE), b"00000000 0 0\n".to_vec());
    assert_same_answers(&disk, &plain);
}

/// The line that the server would write.
fn seal(index: &[u8], last_tid: Tid) -> String {
    let (sum, length) = (crc32c::crc32c(index), index.len());
    let line = format!("{sum:08x} {length} {last_tid} ascending ");
    format!("{line}{:08x}\n", crc32c::crc32c(line.as_bytes()))
}

/// Whatever seals an index without entries, the answers are those of the data.
fn check_checksum(input: &[u8]) {
    let disk = disk();
    let plain = open_named(&disk, DATA, true);
    let Ok(plain) = plain else { return };
    disk.put(Path::new(INDEX_FILE), include_bytes!("../../corpus/history.fs.index").to_vec());
    disk.put(Path::new(CHECKSUM_FILE), input.to_vec());
    assert_same_answers(&disk, &plain);
}

fn assert_same_answers(disk: &MemoryDisk, plain: &FileStorage) {
    let storage = open_named(disk, DATA, true);
    let error = storage.as_ref().err().map(ToString::to_string);
    assert!(error.is_none(), "an index makes a good file unreadable: {error:?}");
    let Ok(storage) = storage else { return };
    assert_eq!(storage.last_tid(), plain.last_tid());
    assert_eq!(storage.reader().object_count(), plain.reader().object_count());
    for oid in (0..20).map(Oid) {
        assert_eq!(current(&storage, oid), current(plain, oid), "object {oid}");
    }
}

/// Serial and data of the current revision.
fn current(storage: &FileStorage, oid: Oid) -> Option<(Tid, Vec<u8>)> {
    match storage.reader().load_before(oid, Tid::MAX, Access::Blocking) {
        Ok(Load::Revision(revision)) => Some((revision.serial, revision.data.to_vec())),
        _ => None,
    }
}
