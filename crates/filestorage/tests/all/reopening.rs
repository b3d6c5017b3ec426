//! A storage that failed takes commits again only if the device holds what was acknowledged, both
//! before the end of the file is cut and afterwards.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::support::{
    append, checked, commit, companion, count_warnings, damaged_at, data_file, data_of, file_bytes,
    open, prepare, stores, tid,
};
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation};
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError, OpenOptions};
use zodium_storage::{Access, PackOptions, Write, WriteState};

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

/// It is read back piece by piece.
#[test]
fn a_byte_that_is_lost_anywhere_in_a_large_transaction_is_seen() {
    const DATA_BYTES: u64 = 5 << 19;
    for at in [100, (1 << 20) + 7, DATA_BYTES - 1] {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let storage = open(disk.clone());
        commit(&storage, stores(tid(1), &[(1, &[7; DATA_BYTES as usize])])).unwrap();
        disk.fail(Operation::Sync, 1, ErrorKind::Other);
        commit(&storage, stores(tid(2), &[(1, b"refused")])).unwrap_err();
        disk.mend();
        let file = disk.files().open(data_file(), OpenMode::Write).unwrap();
        file.write_all_at(b"x", START + 65 + at).unwrap();
        assert_eq!(damaged_at(storage.reopen()), START, "byte {at}");
        file.write_all_at(&[7], START + 65 + at).unwrap();
        storage.reopen().unwrap();
    }
}

#[test]
fn commits_go_on_where_the_device_holds_what_was_acknowledged() {
    let (_, storage) = failed();
    storage.reopen().unwrap();
    commit(&storage, stores(tid(3), &[(1, b"acknowledged too")])).unwrap();
    assert_eq!(storage.last_tid(), tid(3));
}

#[test]
fn space_is_reserved_ahead_again() {
    let (disk, storage) = failed();
    storage.reopen().unwrap();
    let reserved = disk.count(Operation::Reserve);
    let vote = storage.prepare(stores(tid(3), &[(1, &[1; 1000])]).1, Access::NonBlocking);
    assert!(vote.unwrap().is_some(), "it need not wait");
    assert_eq!(disk.count(Operation::Reserve), reserved);
}

#[test]
fn what_another_program_appends_after_a_reopening_has_failed_is_not_cut() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"acknowledged")])).unwrap();
    let second = prepare(&storage, stores(tid(2), &[(1, b"second")]).1).unwrap();
    // Nothing of it is written.
    disk.fail(Operation::Read, 1, ErrorKind::Other);
    append(&storage, vec![(tid(2), second)]).unwrap_err();
    disk.fail(Operation::SetLength, 1, ErrorKind::Other);
    storage.reopen().unwrap_err();
    let end = storage.size();
    let file = disk.files().open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(b"of another program", end).unwrap();
    let refused = storage.reopen();
    assert!(matches!(refused, Err(FileStorageError::Changed { .. })), "{refused:?}");
    assert_eq!(data_of(disk.files()).len() as u64, end + 18);
    // A rest of the probe may be there.
    file.set_length(end + 8).unwrap();
    storage.reopen().unwrap();
}

/// Nothing is cut from a file that may be another program's.
#[test]
fn a_file_that_cannot_be_looked_at_and_one_that_was_changed_meanwhile_count_as_changed() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"acknowledged")])).unwrap();
    let second = prepare(&storage, stores(tid(2), &[(1, b"second")]).1).unwrap();
    disk.fail(Operation::Read, 1, ErrorKind::Other);
    append(&storage, vec![(tid(2), second)]).unwrap_err();
    assert_eq!(storage.write_state(), WriteState::Changed);
    storage.reopen().unwrap();
    assert_eq!(storage.write_state(), WriteState::Writable);
    let files = disk.files().clone();
    disk.before_next(Operation::Sync, move || {
        let length = data_of(&files).len() as u64;
        let file = files.open(data_file(), OpenMode::Write).unwrap();
        file.write_all_at(b"of another program", length).unwrap();
    });
    let refused = commit(&storage, stores(tid(3), &[(1, b"third")]));
    assert!(matches!(refused, Err(FileStorageError::Changed { .. })), "{refused:?}");
    assert_eq!(storage.write_state(), WriteState::Changed);
}

#[test]
fn the_engine_can_reopen_it() {
    let (_, storage) = failed();
    let storage: &dyn Write = &storage;
    assert_eq!(storage.write_state(), WriteState::Failed);
    storage.reopen().unwrap();
    assert_eq!(storage.write_state(), WriteState::Writable);
}

#[test]
fn a_file_that_ends_before_what_was_acknowledged_is_damaged() {
    let (disk, storage) = failed();
    let mut syncs = 0;
    disk.after_each(move |operation, files| {
        syncs += u32::from(operation == Operation::Sync);
        // Those of the first cut, of the probe, and of the last cut.
        if syncs == 3 {
            files.open(data_file(), OpenMode::Write).unwrap().set_length(START + 20).unwrap();
        }
    });
    assert_eq!(damaged_at(storage.reopen()), START);
}

#[test]
fn a_device_that_does_not_hold_what_it_has_just_synced_gets_no_commits() {
    let (disk, storage) = failed();
    let end = storage.size();
    let mut syncs = 0;
    disk.after_each(move |operation, files| {
        syncs += u32::from(operation == Operation::Sync);
        // That of the first cut comes before.
        if syncs == 2 {
            files.open(data_file(), OpenMode::Write).unwrap().write_all_at(b"lost", end).unwrap();
        }
    });
    assert_eq!(damaged_at(storage.reopen()), end);
    commit(&storage, stores(tid(3), &[(1, b"refused too")])).unwrap_err();
}

#[test]
fn what_was_promised_has_its_space_after_it_was_reopened_and_nothing_else_gets_it() {
    let new = |n| stores(tid(n), &[(n, &[1; 1000])]);
    let capacity = START + 3 * file_bytes(&new(1));
    let disk = FaultyDisk::new(MemoryDisk::with_capacity(capacity));
    let storage = open(disk.clone());
    commit(&storage, new(1)).unwrap();
    let promised = prepare(&storage, new(2).1).unwrap();
    disk.fail(Operation::Sync, 1, ErrorKind::Other);
    commit(&storage, new(3)).unwrap_err();
    disk.mend();
    storage.reopen().unwrap();
    let third = prepare(&storage, new(3).1).unwrap();
    let refused = prepare(&storage, new(4).1);
    assert!(matches!(refused, Err(FileStorageError::Full { .. })), "{refused:?}");
    append(&storage, vec![(tid(2), promised), (tid(3), third)]).unwrap();
}

/// The name may be that of the old file again after a power cut: nothing is committed until it
/// cannot.
#[test]
fn commits_go_on_after_a_pack_once_the_name_of_the_packed_file_lasts() {
    let mut names_in_doubt = 0;
    for nth in 1.. {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let storage = open(disk.clone());
        for n in 1..=3 {
            commit(&storage, stores(tid(n), &[(0, b"root")])).unwrap();
        }
        let before = data_of(disk.files()).len();
        disk.fail(Operation::Folder, nth, ErrorKind::Other);
        let cancelled = Arc::default();
        let options = PackOptions { keep_old: false, ..PackOptions::new(&cancelled) };
        let mut pack = match storage.packer().begin(tid(3), &options) {
            Ok(pack) => pack.unwrap(),
            Err(_) => continue,
        };
        let packed = storage.packer().finish(&mut pack);
        if !disk.has_failed() {
            break;
        }
        if packed.is_ok() || data_of(disk.files()).len() == before {
            continue;
        }
        names_in_doubt += 1;
        let refused = commit(&storage, stores(tid(4), &[(0, b"refused")]));
        assert!(matches!(refused, Err(FileStorageError::Failed { .. })), "{refused:?}");
        storage.reopen().unwrap();
        assert_eq!(disk.files().bytes(&companion(".reopening")), None);
        commit(&storage, stores(tid(5), &[(0, b"acknowledged")])).unwrap();
        let after = disk.files().after_power_cut_with_names_lost();
        let storage = open(after.clone());
        assert!(data_of(&after).len() < before);
        assert_eq!(storage.last_tid(), tid(5));
    }
    assert!(names_in_doubt > 0);
}

/// The refused transaction stays in the file as a whole: no other program has written it.
#[test]
fn a_close_that_cannot_cut_what_was_refused_does_not_say_that_the_session_ended_in_order() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let options = OpenOptions { checksums: ChecksumMode::Full, ..OpenOptions::new(data_file()) };
    let open = |disk| FileStorage::open(Arc::new(disk), &options).unwrap();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"acknowledged")])).unwrap();
    let acknowledged = storage.size();
    disk.fail(Operation::Sync, 1, ErrorKind::Other);
    commit(&storage, stores(tid(2), &[(1, b"refused")])).unwrap_err();
    disk.fail_from(Operation::SetLength, 1, ErrorKind::Other);
    let (closed, warnings) = count_warnings(|| storage.close());
    closed.unwrap();
    assert!(warnings.iter().any(|line| line.contains("was not cut")), "{warnings:?}");
    drop(storage);
    disk.mend();
    assert!(data_of(disk.files()).len() as u64 > acknowledged);
    assert_eq!(checked(disk.files()).0.distrust, None);
    let metrics = open(disk).checksum_metrics().unwrap();
    assert_eq!(metrics.covered_bytes, acknowledged);
}
