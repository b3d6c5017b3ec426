//! Whole data files: opened, read in every way, checked, recovered, packed.
//!
//! Nothing panics, loops for ever, or allocates by a length field, and the result of a recovery is
//! a good file.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::MemoryDisk;
use zodium_filestorage::{
    CheckOptions, FileStorage, FileStorageError, OpenOptions, Reader, RecordIterator,
    RecoverOptions, check, recover,
};
use zodium_storage::{Access, Load, PackOptions};
use zodium_types::{Oid, Tid};

use super::{Target, linear};

/// Most steps of an iteration: a file of 64 KiB has fewer transactions, records and revisions.
const STEPS_MAX: usize = 100_000;
const DATA: &str = "Data.fs";

pub(super) const DATA_FILE: Target = Target {
    name: "data-file",
    seeds: || vec![history(), b"FS30".to_vec(), b"FS21".to_vec(), Vec::new()],
    check: check_file,
    // The index allocates pages, and reads use windows; many of both may be in use.
    memory_bytes_max: |length| (64 << 20) + 16 * linear(length),
};

/// A file written by FileStorage.
pub(super) fn history() -> Vec<u8> {
    include_bytes!("../../corpus/history.fs").to_vec()
}

fn check_file(input: &[u8]) {
    let disk = MemoryDisk::volatile();
    disk.put(Path::new(DATA), input.to_vec());
    let damages = count_damages(&disk, DATA);
    read_only(&disk);
    recovered(&disk, damages);
    if let Ok(storage) = open(&disk, false) {
        read_everything(&storage);
        pack(&storage);
        read_everything(&storage);
    }
}

/// `None` if it is no FileStorage at all.
fn count_damages(disk: &MemoryDisk, path: &str) -> Option<u64> {
    let options = CheckOptions { references: true, pickles: true, ..CheckOptions::new(path) };
    let mut reported = 0;
    let checked = check(disk, &options, &mut |_| reported += 1).ok()?;
    assert_eq!(checked.damages, reported);
    Some(checked.damages)
}

fn read_only(disk: &MemoryDisk) {
    let before = disk.bytes(Path::new(DATA));
    if let Ok(storage) = open(disk, true) {
        read_everything(&storage);
    }
    assert!(disk.bytes(Path::new(DATA)) == before, "reading has changed the file");
}

/// A recovered file can be opened and read without an error.
fn recovered(disk: &MemoryDisk, damages: Option<u64>) {
    for (name, partial, drop_mismatches) in
        [("whole.fs", false, false), ("partial.fs", true, false), ("fitting.fs", true, true)]
    {
        let options = RecoverOptions {
            from: DATA.into(),
            to: name.into(),
            partial,
            drop_mismatches,
            progress: &|_, _| (),
        };
        let Ok(summary) = recover(disk, &options, &mut |_| ()) else {
            continue;
        };
        assert!(damages.is_some(), "recovered from what is no file");
        assert!(summary.bytes_after <= 2 * summary.bytes_before + 4);
        let storage = open_named(disk, name, true);
        let error = storage.as_ref().err().map(ToString::to_string);
        assert!(error.is_none(), "what was recovered cannot be opened: {error:?}");
        if damages == Some(0) {
            let same = disk.bytes(Path::new(name)) == disk.bytes(Path::new(DATA));
            assert!(same, "a file without damage was changed by recovery");
        }
    }
}

fn open(disk: &MemoryDisk, read_only: bool) -> Result<FileStorage, FileStorageError> {
    open_named(disk, DATA, read_only)
}

pub(super) fn open_named(
    disk: &MemoryDisk,
    name: &str,
    read_only: bool,
) -> Result<FileStorage, FileStorageError> {
    let options =
        OpenOptions { read_only, create: false, cache_bytes: 64 << 10, ..OpenOptions::new(name) };
    FileStorage::open(Arc::new(disk.clone()), &options)
}

/// Reads in every way; errors are fine.
pub(super) fn read_everything(storage: &FileStorage) {
    let storage = storage.reader();
    let mut oids: Vec<Oid> = (0..6).map(Oid).collect();
    let mut from = Oid(0);
    for _ in 0..50 {
        match storage.next_object(from) {
            Ok(Some(step)) => {
                oids.push(step.oid);
                let Some(next) = step.following else { break };
                assert!(next > from, "objects are not in order");
                from = next;
            }
            _ => break,
        }
    }
    for oid in oids {
        read_object(storage, oid);
    }
    let _ = storage.undo_log(|_| true);
    let _ = storage.recent(20);
    if let Ok(mut transactions) = storage.iterate(None, None) {
        let mut steps = 0;
        while let Ok(Some(transaction)) = transactions.step() {
            let _ = storage.records_to_undo(transaction.tid);
            let mut records = transactions.records();
            while let Some(Ok(Some(_))) = records.as_mut().map(RecordIterator::step) {
                steps += 1;
                assert!(steps < STEPS_MAX, "iteration does not end");
            }
            steps += 1;
            assert!(steps < STEPS_MAX, "iteration does not end");
        }
    }
}

fn read_object(storage: &Reader, oid: Oid) {
    let _ = storage.current_serial(oid, Access::Blocking);
    let _ = storage.serial_of_living(oid);
    let mut before = Tid::MAX;
    for _ in 0..20 {
        let Ok(Load::Revision(revision)) = storage.load_before(oid, before, Access::Blocking)
        else {
            break;
        };
        assert!(revision.serial < before, "a load gives what was not asked for");
        let _ = storage.load_serial(oid, revision.serial);
        before = revision.serial;
    }
    if let Ok(history) = storage.history(oid, 30) {
        assert!(history.len() <= 30);
    }
}

fn pack(storage: &FileStorage) {
    let cancelled = Arc::default();
    let options = PackOptions { gc: true, ..PackOptions::new(&cancelled) };
    if let Ok(Some(mut pack)) = storage.packer().begin(Tid::MAX, &options)
        && storage.packer().catch_up(&mut pack).is_ok()
    {
        let _ = storage.packer().finish(&mut pack);
    }
}
