//! Recorded lengths and sums of blobs: a shortened or changed blob is found, and no sound blob is
//! called damaged, whatever other programs and crashes did meanwhile.

mod model;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::{commit, count_warnings, data_file, overwrite, stores, tid};
use zodium_blobs::BlobError;
use zodium_blobs::{BlobDirectory, BlobReading, NewBlob};
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation};
use zodium_filestorage::{
    BlobsToCheck, CheckOptions, CheckedBlobs, Damage, DamageKind, FileStorage, FileStorageError,
    OpenOptions, check_with_blobs,
};
use zodium_types::{Oid, Tid};

const BLOBS: &str = "Blobs";
const SUMS: &str = "Blobs/.zodium-sums";
/// `ZODB.blob.Blob` without a state.
const RECORD: &[u8] = b"cZODB.blob\nBlob\nq\x01.N.";

fn open(disk: &(impl Disk + Clone + 'static)) -> FileStorage {
    let options =
        OpenOptions { blob_directory: Some(BLOBS.into()), ..OpenOptions::new(data_file()) };
    FileStorage::open(Arc::new(disk.clone()), &options).expect("it opens")
}

/// Where the data of a new blob come from.
#[derive(Clone, Copy, Debug)]
enum New<'a> {
    /// A client sends them.
    Sent(&'a [u8]),
    /// A client that shares the directory has put them there.
    Put(&'a [u8]),
    /// Of an earlier transaction, as an undo does it.
    SameAs(Tid),
}

fn commit_blobs(storage: &FileStorage, disk: &MemoryDisk, tid: Tid, new: &[(u64, New<'_>)]) {
    let directory = storage.blobs().unwrap();
    let temporary = |(oid, new): &(u64, New<'_>)| match new {
        New::Sent(data) => {
            let mut blob = directory.temporary().unwrap();
            data.chunks(7).for_each(|chunk| blob.append(chunk).unwrap());
            Some(blob)
        }
        New::Put(data) => {
            let path = directory.folder_of(Oid(*oid)).join("new.tmp-");
            disk.put(&path, data.to_vec());
            Some(directory.adopt(Oid(*oid), "new.tmp-").unwrap())
        }
        New::SameAs(_) => None,
    };
    let temporary: Vec<_> = new.iter().map(temporary).collect();
    let blobs = new.iter().zip(&temporary).map(|((oid, new), sent)| match (new, sent) {
        (New::SameAs(tid), _) => (Oid(*oid), NewBlob::SameAs(*tid)),
        (_, sent) => (Oid(*oid), NewBlob::Sent(sent.as_ref().unwrap())),
    });
    let mut staged = directory.stage(Tid::ZERO, &blobs.collect::<Vec<_>>()).unwrap();
    staged.commit(tid).unwrap();
    let records: Vec<_> = new.iter().map(|(oid, _)| (*oid, RECORD)).collect();
    commit(storage, stores(tid, &records)).unwrap();
    staged.keep();
}

fn load(directory: &BlobDirectory, oid: u64, tid: Tid) -> Result<Vec<u8>, FileStorageError> {
    let mut reading = BlobReading::new(directory.open_committed(Oid(oid), tid)?);
    let mut data = directory.read_on(&mut reading, 11)?;
    while reading.left() > 0 {
        data.extend(directory.read_on(&mut reading, 11)?);
    }
    Ok(data)
}

/// What a check of the whole finds that is about blobs.
fn check(disk: &MemoryDisk, data: bool) -> (Vec<Damage>, CheckedBlobs) {
    check_while(disk, data, &|| ())
}

/// The same, while `meanwhile` is called at each step.
fn check_while(disk: &MemoryDisk, data: bool, meanwhile: &dyn Fn()) -> (Vec<Damage>, CheckedBlobs) {
    let directory = BlobDirectory::open(Arc::new(disk.clone()), Path::new(BLOBS), true).unwrap();
    check_directory(disk, &directory, data, meanwhile)
}

fn check_directory(
    disk: &dyn Disk,
    directory: &BlobDirectory,
    data: bool,
    meanwhile: &dyn Fn(),
) -> (Vec<Damage>, CheckedBlobs) {
    check_patiently(disk, directory, data, (Duration::ZERO, meanwhile))
}

fn check_patiently(
    disk: &dyn Disk,
    directory: &BlobDirectory,
    data: bool,
    (patience, meanwhile): (Duration, &dyn Fn()),
) -> (Vec<Damage>, CheckedBlobs) {
    let options =
        CheckOptions { patience, progress: &|_, _| meanwhile(), ..CheckOptions::new(data_file()) };
    let mut found = Vec::new();
    let blobs = Some(BlobsToCheck { directory, data });
    let checked = check_with_blobs(disk, &options, blobs, &mut |damage| found.push(damage.clone()));
    (found, checked.unwrap().blobs.unwrap())
}

/// Objects 1 to 3 sent, put there and undone.
fn written() -> (MemoryDisk, FileStorage) {
    let disk = MemoryDisk::new();
    let storage = open(&disk);
    commit_blobs(&storage, &disk, tid(1), &[(1, New::Sent(b"one")), (2, New::Put(b"two two"))]);
    commit_blobs(&storage, &disk, tid(2), &[(1, New::Sent(b"")), (3, New::Sent(&[3; 100]))]);
    commit_blobs(&storage, &disk, tid(3), &[(1, New::SameAs(tid(1))), (2, New::SameAs(tid(1)))]);
    (disk, storage)
}

const ALL: [(u64, u64, &[u8]); 6] = [
    (1, 1, b"one"),
    (2, 1, b"two two"),
    (1, 2, b""),
    (3, 2, &[3; 100]),
    (1, 3, b"one"),
    (2, 3, b"two two"),
];

#[test]
fn blobs_of_a_file_that_is_replaced_during_the_check_are_not_compared() {
    let (disk, storage) = written();
    disk.remove(&storage.blobs().unwrap().path_of(Oid(1), tid(1))).unwrap();
    drop(storage);
    let (damages, found) = check(&disk, false);
    assert_eq!((damages.len(), found.missing, found.is_replaced), (1, 1, false));
    let bytes = disk.bytes(data_file()).unwrap();
    let replace = || disk.put(data_file(), bytes.clone());
    let (damages, found) = check_while(&disk, false, &replace);
    assert_eq!((damages.len(), found.missing, found.is_replaced), (0, 0, true));
}

#[test]
fn a_blob_whose_length_cannot_be_told_is_not_missing() {
    let disk = MemoryDisk::new();
    let storage = open(&disk);
    commit_blobs(&storage, &disk, tid(1), &[(1, New::Sent(b"one")), (2, New::Sent(b"two"))]);
    commit_blobs(&storage, &disk, tid(2), &[(1, New::Sent(b"more"))]);
    disk.remove(&storage.blobs().unwrap().path_of(Oid(2), tid(1))).unwrap();
    drop(storage);
    let failing = FaultyDisk::new(disk.clone());
    let directory = BlobDirectory::open(Arc::new(failing.clone()), Path::new(BLOBS), true).unwrap();
    failing.fail_from(Operation::Read, 1, ErrorKind::PermissionDenied);
    let (damages, found) = check_directory(&disk, &directory, false, &|| ());
    assert_eq!((damages.len(), found.missing, found.records), (1, 1, 3), "{damages:?}");
    assert_eq!(damages[0].oid, Some(Oid(2)));
}

#[test]
fn a_check_of_the_bytes_tells_both_sums_of_a_blob_that_was_changed() {
    let (disk, storage) = written();
    let path = storage.blobs().unwrap().path_of(Oid(3), tid(2));
    overwrite(&disk, &path, &[4; 100]);
    let (found, blobs) = check(&disk, true);
    let [damage] = &found[..] else { panic!("{found:?}") };
    let [is, was] = [[4; 100], [3; 100]].map(|data| crc32c::crc32c(&data));
    assert_eq!((damage.kind, damage.oid), (DamageKind::BlobSum, Some(Oid(3))));
    assert_eq!(
        damage.what,
        format!(
            "{}: other bytes than were committed (CRC-32C {is:08x}, it was {was:08x})",
            path.display()
        )
    );
    assert_eq!(blobs.damaged, 1);
}

#[test]
fn a_blob_of_another_length_is_an_error_that_names_it_and_all_others_load() {
    for (oid, number, data) in ALL {
        for bytes in [&data[..data.len() / 2], &[data, b"more"].concat()] {
            if bytes == data {
                continue;
            }
            let (disk, storage) = written();
            let directory = storage.blobs().unwrap();
            let path = directory.path_of(Oid(oid), tid(number));
            // Not through the file itself: an undone one has two names.
            disk.put(&path, bytes.to_vec());
            assert_eq!(storage.damaged_places(), 0);
            for _ in 0..3 {
                let error = load(directory, oid, tid(number)).unwrap_err();
                let (found, recorded) = (bytes.len(), data.len());
                let FileStorageError::Blob(BlobError::Length { .. }) = error else {
                    panic!("{error}")
                };
                let text = error.to_string();
                assert!(text.contains(&format!("{found} bytes, {recorded} were")), "{text}");
                assert!(text.contains(path.to_str().unwrap()), "{text}");
                assert_eq!(storage.damaged_places(), 1);
            }
            for (other, of, data) in ALL.iter().filter(|(o, n, _)| (*o, *n) != (oid, number)) {
                assert_eq!(load(directory, *other, tid(*of)).unwrap(), *data);
            }
            // An undo must not bring it back.
            directory.stage(Tid::ZERO, &[(Oid(oid), NewBlob::SameAs(tid(number)))]).unwrap_err();
            let (found, blobs) = check(&disk, false);
            let [damage] = &found[..] else { panic!("{found:?}") };
            assert_eq!(damage.kind, DamageKind::BlobLength);
            assert_eq!((damage.oid, damage.tid), (Some(Oid(oid)), Some(tid(number))));
            assert_eq!((blobs.records, blobs.damaged, blobs.missing), (6, 1, 0));
            disk.put(&path, data.to_vec());
            assert_eq!(load(directory, oid, tid(number)).unwrap(), data);
            assert_eq!(storage.damaged_places(), 0, "it was put back");
        }
    }
}

#[test]
fn damaged_blobs_count_beside_damaged_places_of_the_file() {
    let (disk, storage) = written();
    let directory = storage.blobs().unwrap();
    for (number, (oid, of, data)) in (1..).zip(ALL.into_iter().filter(|(oid, ..)| *oid != 3)) {
        disk.put(&directory.path_of(Oid(oid), tid(of)), [data, b"more"].concat());
        load(directory, oid, tid(of)).unwrap_err();
        assert_eq!(storage.damaged_places(), number);
    }
    let (blobs, end) = (storage.damaged_places(), storage.size());
    // The copy of the length of the last transaction.
    crate::support::flip(&disk, end - 4, 0);
    let mut transactions = storage.reader().iterate(None, None).unwrap();
    assert!((0..3).any(|_| transactions.step().is_err()));
    assert_eq!(storage.damaged_places(), blobs + 1);
}

#[test]
fn a_changed_byte_is_an_error_before_the_last_piece_and_found_by_a_check() {
    for (oid, number, data) in ALL.into_iter().filter(|(.., data)| !data.is_empty()) {
        let (disk, storage) = written();
        let directory = storage.blobs().unwrap();
        let path = directory.path_of(Oid(oid), tid(number));
        let mut changed = data.to_vec();
        changed[data.len() / 2] ^= 0x10;
        disk.put(&path, changed);
        let error = load(directory, oid, tid(number)).unwrap_err();
        assert!(matches!(error, FileStorageError::Blob(BlobError::Sum { .. })), "{error}");
        // Now that it is known, at once.
        let error = directory.open_committed(Oid(oid), tid(number)).unwrap_err();
        assert!(matches!(error, BlobError::Sum { .. }), "{error}");
        assert_eq!(storage.damaged_places(), 1);
        assert_eq!(check(&disk, false).0, []);
        let (found, blobs) = check(&disk, true);
        let [damage] = &found[..] else { panic!("{found:?}") };
        assert_eq!(damage.kind, DamageKind::BlobSum);
        assert_eq!((damage.oid, damage.tid), (Some(Oid(oid)), Some(tid(number))));
        assert_eq!(blobs.damaged, 1);
        disk.put(&path, data.to_vec());
        assert_eq!(load(directory, oid, tid(number)).unwrap(), data);
        assert_eq!(storage.damaged_places(), 0, "it was put back");
    }
}

#[test]
fn a_blob_that_cannot_be_read_is_found_by_a_check_of_the_bytes() {
    let (disk, storage) = written();
    let failing = FaultyDisk::new(disk);
    let fail = || failing.fail_from(Operation::Open, 1, ErrorKind::PermissionDenied);
    let (found, blobs) = check_directory(&failing, storage.blobs().unwrap(), true, &fail);
    assert_eq!(blobs.damaged, ALL.len() as u64);
    assert!(found.iter().all(|damage| damage.kind == DamageKind::BlobSum), "{found:?}");
    assert!(found[0].what.contains("cannot be read"), "{found:?}");
}

#[test]
fn what_is_recorded_is_known_to_the_next_session() {
    let (disk, storage) = written();
    storage.close().unwrap();
    drop(storage);
    // After an orderly stop also without power.
    for disk in [disk.after_power_cut(), disk.after_power_cut_with_names_lost()] {
        assert_eq!(check(&disk, true).1.unrecorded, 0);
        let storage = open(&disk);
        let directory = storage.blobs().unwrap();
        disk.put(&directory.path_of(Oid(3), tid(2)), vec![3; 99]);
        load(directory, 3, tid(2)).unwrap_err();
    }
}

#[test]
fn sums_that_cannot_be_written_fail_no_commit_and_are_told_once() {
    let files = MemoryDisk::new();
    let disk = FaultyDisk::new(files.clone());
    let storage = open(&disk);
    commit_blobs(&storage, &files, tid(1), &[(1, New::Sent(b"first"))]);
    let ((), warnings) = count_warnings(|| {
        for number in 2..=5 {
            let directory = storage.blobs().unwrap();
            let mut blob = directory.temporary().unwrap();
            blob.append(b"unrecorded").unwrap();
            let mut staged = directory.stage(Tid::ZERO, &[(Oid(1), NewBlob::Sent(&blob))]).unwrap();
            staged.commit(tid(number)).unwrap();
            commit(&storage, stores(tid(number), &[(1, RECORD)])).unwrap();
            disk.fail(Operation::Write, 1, ErrorKind::StorageFull);
            staged.keep();
            assert!(disk.has_failed());
            disk.mend();
        }
    });
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    commit_blobs(&storage, &files, tid(6), &[(1, New::Sent(b"last"))]);
    let directory = storage.blobs().unwrap();
    for number in 2..=5 {
        assert_eq!(load(directory, 1, tid(number)).unwrap(), b"unrecorded");
    }
    let (found, blobs) = check(&files, true);
    assert_eq!((found, blobs.unrecorded), (Vec::new(), 4));
    for number in [1, 6] {
        files.put(&directory.path_of(Oid(1), tid(number)), b"x".to_vec());
        load(directory, 1, tid(number)).unwrap_err();
    }
}

/// An older file was put back, and the same tid comes again: whatever was recorded of it before is
/// gone before the log has it.
#[test]
fn a_crash_before_a_blob_is_recorded_leaves_nothing_recorded_of_its_tid() {
    let (old, storage) = written();
    storage.close().unwrap();
    let disk = MemoryDisk::new();
    disk.create_folder(Path::new(BLOBS)).unwrap();
    disk.put(Path::new(SUMS), old.bytes(Path::new(SUMS)).unwrap());
    let storage = open(&disk);
    let directory = storage.blobs().unwrap();
    let mut blob = directory.temporary().unwrap();
    blob.append(b"of another history").unwrap();
    let mut staged = directory.stage(Tid::ZERO, &[(Oid(1), NewBlob::Sent(&blob))]).unwrap();
    staged.commit(tid(1)).unwrap();
    commit(&storage, stores(tid(1), &[(1, RECORD)])).unwrap();
    for crashed in [disk.after_kill(), disk.after_power_cut()] {
        let storage = open(&crashed);
        let found = load(storage.blobs().unwrap(), 1, tid(1)).unwrap();
        assert_eq!(found, b"of another history");
        let (found, blobs) = check(&crashed, true);
        assert_eq!((found, blobs.unrecorded), (Vec::new(), 1));
    }
    staged.leave();
}

#[test]
fn no_flipped_bit_of_the_sums_calls_a_blob_damaged() {
    let (disk, storage) = written();
    storage.close().unwrap();
    drop(storage);
    let bytes = disk.bytes(Path::new(SUMS)).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        overwrite(&disk, Path::new(SUMS), &flipped);
        let (found, blobs) = check(&disk, true);
        assert_eq!(found, [], "bit {bit}");
        assert!(blobs.unrecorded <= 1, "bit {bit}");
        let storage = open(&disk.after_kill());
        for (oid, number, data) in ALL {
            assert_eq!(load(storage.blobs().unwrap(), oid, tid(number)).unwrap(), data);
        }
    }
}

#[test]
fn nothing_is_recorded_where_nothing_may_be_written() {
    let (disk, storage) = written();
    storage.close().unwrap();
    drop(storage);
    disk.remove(Path::new(SUMS)).unwrap();
    let paths = disk.paths();
    let (found, blobs) = check(&disk, true);
    assert_eq!((found, blobs.unrecorded), (Vec::new(), 6));
    let options = OpenOptions {
        read_only: true,
        blob_directory: Some(BLOBS.into()),
        ..OpenOptions::new(data_file())
    };
    let storage = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
    assert_eq!(load(storage.blobs().unwrap(), 1, tid(1)).unwrap(), b"one");
    assert_eq!(disk.paths(), paths);
    assert!(disk.open(Path::new(SUMS), OpenMode::Read).is_err());
}

/// A commit puts its blobs in their places before its record comes.
#[test]
fn a_check_waits_for_the_record_of_a_younger_blob_as_long_as_it_is_told_to() {
    let (disk, storage) = written();
    let directory = storage.blobs().unwrap();
    let young = directory.path_of(Oid(3), tid(9));
    disk.put(&young, b"young".to_vec());
    let patience = Duration::from_millis(120);
    let started = Instant::now();
    let (found, _) = check_patiently(&disk, directory, false, (patience, &|| ()));
    assert!(started.elapsed() >= patience);
    let [orphan] = &found[..] else { panic!("{found:?}") };
    assert_eq!((orphan.oid, orphan.tid), (Some(Oid(3)), Some(tid(9))));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(patience / 2);
            commit(&storage, stores(tid(9), &[(3, RECORD)])).unwrap();
        });
        let long = Duration::from_secs(20);
        let started = Instant::now();
        let (found, _) = check_patiently(&disk, directory, false, (long, &|| ()));
        assert!(started.elapsed() < long);
        assert_eq!(found, []);
    });
}

#[test]
fn a_blob_that_is_removed_while_bytes_are_compared_is_no_damage() {
    let (disk, storage) = written();
    let directory = storage.blobs().unwrap();
    let path = directory.path_of(Oid(3), tid(2));
    // Progress is told when the files have been listed and their lengths compared.
    let remove = || drop(disk.remove(&path));
    let (found, blobs) = check_directory(&disk, directory, true, &remove);
    assert_eq!((found, blobs.damaged), (vec![], 0));
    assert!(disk.bytes(&path).is_none());
}

#[test]
fn only_records_of_blobs_are_counted_and_compared_with_files() {
    let (disk, storage) = written();
    commit(&storage, stores(tid(4), &[(9, b"no blob")])).unwrap();
    let (found, blobs) = check(&disk, true);
    assert_eq!((found, blobs.records), (vec![], ALL.len() as u64));
}

#[test]
fn the_progress_of_a_comparison_of_bytes_ends_with_all_of_them() {
    let (disk, storage) = written();
    let told = std::cell::RefCell::new(Vec::new());
    let progress = |done, total| told.borrow_mut().push((done, total));
    let options = CheckOptions { progress: &progress, ..CheckOptions::new(data_file()) };
    let blobs = BlobsToCheck { directory: storage.blobs().unwrap(), data: true };
    check_with_blobs(&disk, &options, Some(blobs), &mut |damage| panic!("{damage}")).unwrap();
    let all = ALL.iter().map(|(.., data)| data.len() as u64).sum::<u64>();
    assert_eq!(told.take().last(), Some(&(all, all)));
}

/// Its transaction has come already.
#[test]
fn a_check_does_not_wait_for_the_record_of_a_blob_of_the_last_transaction() {
    let (disk, storage) = written();
    let directory = storage.blobs().unwrap();
    disk.put(&directory.path_of(Oid(3), tid(3)), b"orphan".to_vec());
    let long = Duration::from_secs(20);
    let started = Instant::now();
    let (found, blobs) = check_patiently(&disk, directory, false, (long, &|| ()));
    assert!(started.elapsed() < long);
    let [orphan] = &found[..] else { panic!("{found:?}") };
    assert_eq!((orphan.oid, orphan.tid), (Some(Oid(3)), Some(tid(3))));
    assert_eq!((blobs.orphaned, blobs.missing, blobs.damaged), (1, 0, 0));
}
