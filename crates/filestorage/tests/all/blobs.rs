//! Blobs of transactions of which it is not known at once whether they are in the log: the next
//! opening asks the log, and removes no blob that the log may have.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::support::{
    commit, copied_body, data_file, data_of, overwrite, stores, tid, transaction,
};
use bytes::Bytes;
use zodium_blobs::{BlobError, NewBlob, PackedBlobs, StagedBlobs};
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation, RealDisk};
use zodium_filestorage::{ChecksumMode, FileStorage, FileStorageError, OpenOptions};
use zodium_storage::{NewBody, NewRecord, PackOptions};
use zodium_types::{Oid, Tid};

const BLOBS: &str = "Blobs";
const OID: Oid = Oid(3);
/// `ZODB.blob.Blob` without a state.
const RECORD: &[u8] = b"cZODB.blob\nBlob\nq\x01.N.";

fn open(disk: impl Disk + 'static) -> FileStorage {
    let options = OpenOptions {
        checksums: ChecksumMode::Full,
        blob_directory: Some(BLOBS.into()),
        ..OpenOptions::new(data_file())
    };
    FileStorage::open(Arc::new(disk), &options).expect("it opens")
}

fn disk() -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.create_folder(Path::new(BLOBS)).unwrap();
    disk
}

fn stage(storage: &FileStorage) -> StagedBlobs {
    stage_after(storage, Tid::ZERO)
}

fn stage_after(storage: &FileStorage, after: Tid) -> StagedBlobs {
    let blobs = storage.blobs().unwrap();
    let mut sent = blobs.temporary().unwrap();
    sent.append(b"large").unwrap();
    blobs.stage(after, &[(OID, NewBlob::Sent(&sent))]).unwrap()
}

fn intents(disk: &MemoryDisk) -> usize {
    let is_intent = |path: &&std::path::PathBuf| path.to_string_lossy().ends_with(".intent");
    disk.paths().iter().filter(is_intent).count()
}

/// Commits a blob and leaves it to the next opening to find that out.
fn committed_and_left(disk: &MemoryDisk) -> std::path::PathBuf {
    let storage = open(disk.clone());
    let mut staged = stage(&storage);
    staged.commit(tid(1)).unwrap();
    commit(&storage, stores(tid(1), &[(OID.0, RECORD)])).unwrap();
    staged.leave();
    let path = storage.blobs().unwrap().path_of(OID, tid(1));
    assert_eq!(intents(disk), 1);
    path
}

/// An opening removes voted blobs that its own data file does not have.
#[test]
fn a_directory_is_written_for_one_data_file_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, read_only: bool| {
        let blob_directory = Some(folder.path().join(BLOBS));
        let options =
            OpenOptions { blob_directory, read_only, ..OpenOptions::new(folder.path().join(name)) };
        FileStorage::open(Arc::new(RealDisk), &options)
    };
    let storage = open("Data.fs", false).unwrap();
    std::fs::copy(folder.path().join("Data.fs"), folder.path().join("copy.fs")).unwrap();
    let mut staged = stage(&storage);
    let error = open("copy.fs", false).map(drop).unwrap_err();
    assert!(
        matches!(error, FileStorageError::Blob(BlobError::InUse { owner: Some(owner), .. })
            if owner == std::process::id()),
        "{error}"
    );
    open("copy.fs", true).unwrap();
    staged.commit(tid(1)).unwrap();
    drop(staged);
    storage.blobs().unwrap().settle();
    drop(storage);
    open("copy.fs", false).unwrap();
}

/// A pack would replace it by the blobs that it drops.
#[test]
fn the_old_folder_of_a_pack_is_no_directory_that_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str, blobs: &str| {
        let blob_directory = Some(folder.path().join(blobs));
        let options = OpenOptions { blob_directory, ..OpenOptions::new(folder.path().join(name)) };
        FileStorage::open(Arc::new(RealDisk), &options).unwrap()
    };
    let (storage, other) = (open("Data.fs", BLOBS), open("other.fs", "Blobs.old"));
    let blobs = storage.blobs().unwrap();
    let error = blobs.remove_old().unwrap_err();
    assert!(matches!(error, BlobError::InUse { .. }), "{error}");
    assert!(folder.path().join("Blobs.old/tmp").exists());
    drop(other);
    blobs.remove_old().unwrap();
    assert!(!folder.path().join("Blobs.old").exists());
}

#[test]
fn a_blob_that_the_log_has_stays() {
    let disk = disk();
    let path = committed_and_left(&disk);
    drop(open(disk.clone()));
    assert_eq!(disk.bytes(&path).as_deref(), Some(&b"large"[..]));
    assert_eq!(intents(&disk), 0);
}

/// A vote was under way when the server was killed; then the operator looked at an older copy.
#[test]
fn blobs_that_are_later_than_an_older_data_file_stay() {
    let disk = disk();
    let storage = open(disk.clone());
    let mut older = Vec::new();
    for number in [1, 2] {
        let mut staged = stage_after(&storage, tid(number - 1));
        staged.commit(tid(number)).unwrap();
        commit(&storage, stores(tid(number), &[(OID.0, RECORD)])).unwrap();
        staged.keep();
        older = if number == 1 { data_of(&disk) } else { older };
    }
    stage_after(&storage, tid(2)).leave();
    let path = storage.blobs().unwrap().path_of(OID, tid(2));
    drop(storage);
    let newer = data_of(&disk);
    for data in [older, newer] {
        overwrite(&disk, data_file(), &data);
        drop(open(disk.clone()));
        assert_eq!(disk.bytes(&path).as_deref(), Some(&b"large"[..]));
        assert_eq!(intents(&disk), 0);
    }
}

#[test]
fn a_blob_whose_record_cannot_be_read_stays() {
    let disk = disk();
    let path = committed_and_left(&disk);
    let bytes = data_of(&disk);
    let at = bytes.windows(RECORD.len()).position(|window| window == RECORD).unwrap();
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
    file.sync().unwrap();
    let storage = open(disk.clone());
    storage.reader().load_serial(OID, tid(1)).unwrap_err();
    assert_eq!(disk.bytes(&path).as_deref(), Some(&b"large"[..]));
}

/// The failed sync proves nothing: the name may come back.
#[test]
fn a_blob_whose_folder_was_not_synced_is_looked_for_at_the_next_opening() {
    let disk = FaultyDisk::new(disk());
    let storage = open(disk.clone());
    let mut staged = stage(&storage);
    let path = storage.blobs().unwrap().path_of(OID, tid(1));
    // The renaming, then the sync of the folder.
    disk.fail(Operation::Folder, 2, ErrorKind::Other);
    staged.commit(tid(1)).unwrap_err();
    assert!(disk.has_failed());
    drop(staged);
    storage.blobs().unwrap().settle();
    drop(storage);
    assert_eq!(intents(disk.files()), 1, "the next opening must find it");
    disk.files().put(&path, b"large".to_vec());
    drop(open(disk.files().clone()));
    assert_eq!(disk.files().bytes(&path), None);
    assert_eq!(intents(disk.files()), 0);
}

#[test]
fn a_blob_that_was_given_up_leaves_nothing() {
    let disk = disk();
    let storage = open(disk.clone());
    let mut staged = stage(&storage);
    staged.commit(tid(1)).unwrap();
    let path = storage.blobs().unwrap().path_of(OID, tid(1));
    assert!(disk.exists(&path).unwrap());
    drop(staged);
    storage.blobs().unwrap().settle();
    assert_eq!((disk.bytes(&path), intents(&disk)), (None, 0));
}

/// As programs that clean up do, and restores of the directory.
#[test]
fn the_folder_of_temporary_files_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let blob_directory = Some(folder.path().join(BLOBS));
        let options = OpenOptions { blob_directory, ..OpenOptions::new(folder.path().join(name)) };
        FileStorage::open(Arc::new(RealDisk), &options)
    };
    let remove = || std::fs::remove_dir_all(folder.path().join(BLOBS).join("tmp")).unwrap();
    let storage = open("Data.fs").unwrap();
    remove();
    let blobs = storage.blobs().unwrap();
    let mut staged = stage(&storage);
    staged.commit(tid(1)).unwrap();
    commit(&storage, stores(tid(1), &[(OID.0, RECORD)])).unwrap();
    staged.keep();
    assert!(blobs.has(OID, tid(1)).unwrap());

    remove();
    blobs.write_packed(&PackedBlobs::default()).unwrap();
    let error = open("other.fs").map(drop).unwrap_err();
    assert!(matches!(error, FileStorageError::Blob(BlobError::InUse { .. })), "{error}");
}

/// Where nothing before the pack time takes less space than before, the list of dropped blobs would
/// fit the file from before as well: a crash before the renaming would take blobs of that file.
#[test]
fn a_blob_stays_when_a_pack_without_damage_frees_nothing_and_does_not_end() {
    /// A damaged record of one byte of data becomes a deletion, which takes 7 bytes more. So many
    /// of them take the place of the record of the blob.
    const SMALL: u64 = (42 + RECORD.len() as u64) / 7;
    assert_eq!(SMALL * 7, 42 + RECORD.len() as u64);
    let disk = disk();
    let storage = open(disk.clone());
    let small = (10..10 + SMALL).map(|oid| (oid, &b"N"[..]));
    let objects: Vec<_> = [(0, RECORD), (OID.0, RECORD)].into_iter().chain(small).collect();
    commit(&storage, stores(tid(1), &[(0, RECORD)])).unwrap();
    commit_blob(&storage, tid(2), &objects);
    commit_blob(&storage, tid(3), &[(OID.0, RECORD)]);
    // As an undo: this alone is why a pack keeps the first revision of the blob.
    let data = Bytes::from_static(RECORD);
    let body = copied_body(&storage, OID, Some(data), Some(tid(2))).unwrap();
    let records = vec![NewRecord { oid: OID, body }];
    commit(&storage, (tid(4), transaction(records))).unwrap();
    let cancelled = Arc::default();
    let options = PackOptions::new(&cancelled);
    let mut pack = storage.packer().begin(tid(3), &options).unwrap().unwrap();
    storage.packer().finish(&mut pack).unwrap();
    storage.packer().remove_blobs(&pack, &AtomicBool::new(false)).unwrap();
    drop(pack);
    let path = storage.blobs().unwrap().path_of(OID, tid(2));
    storage.close().unwrap();
    drop(storage);
    for (oid, tid) in (10..10 + SMALL).map(|oid| (Oid(oid), tid(2))).chain([(OID, tid(4))]) {
        damage(&disk, oid, tid);
    }

    let damaged = disk.after_kill();
    let storage = open(disk.clone());
    let mut pack = storage.packer().begin_without_damaged(tid(3), &options).unwrap().unwrap();
    assert_eq!(pack.dropped().count() as u64, SMALL + 1);
    let crashed = disk.after_kill();
    let packed = storage.packer().finish(&mut pack).unwrap();
    assert_eq!(packed.size_after, packed.size_before);

    assert_eq!(data_of(&crashed), data_of(&damaged));
    drop(open(crashed.clone()));
    assert_eq!(crashed.bytes(&path).as_deref(), Some(&b"large"[..]));
}

#[test]
fn the_list_of_a_pack_has_the_dropped_blobs_and_no_other_objects() {
    let disk = disk();
    let storage = open(disk.clone());
    let others: [(u64, &[u8]); 3] = [(0, b"root"), (7, b"no blob"), (8, &[b'N'; 1000])];
    commit_blob(&storage, tid(1), &[&others[..], &[(OID.0, RECORD)]].concat());
    // A blob too, whose data are in the record before, and a deletion.
    let records = [(OID, NewBody::SameAs(tid(1))), (Oid(7), NewBody::Deleted)];
    let records = records.into_iter().map(|(oid, body)| NewRecord { oid, body });
    commit(&storage, (tid(2), transaction(records.collect()))).unwrap();
    commit_blob(&storage, tid(3), &[&others[..], &[(OID.0, RECORD)]].concat());
    let cancelled = Arc::default();
    for keep_old in [false, true] {
        let options = PackOptions { gc: false, keep_old, ..PackOptions::new(&cancelled) };
        let begun = storage.packer().begin(tid(3), &options).unwrap().unwrap();
        let is_list = |path: &std::path::PathBuf| path.ends_with("zodium-packed");
        let list = disk.paths().into_iter().find(is_list).unwrap();
        let list = String::from_utf8(disk.bytes(&list).unwrap()).unwrap();
        let mut lines = list.lines();
        let boundary = disk.bytes(Path::new("Data.fs.pack")).unwrap().len();
        let first = format!("{} {boundary} {keep_old}", tid(3));
        assert_eq!(lines.next(), Some(&first[..]));
        let expected = [tid(1), tid(2)].map(|tid| format!("{OID} {tid}"));
        assert_eq!(lines.collect::<Vec<_>>(), expected);
        drop(begun);
    }
}

#[test]
fn blobs_that_a_pack_has_left_are_removed_by_the_next_one() {
    let storage = open(disk());
    let tids = [tid(1), tid(2), tid(3)];
    for tid in tids {
        commit_blob(&storage, tid, &[(OID.0, RECORD)]);
    }
    let cancelled = Arc::default();
    let options = PackOptions { gc: false, ..PackOptions::new(&cancelled) };
    for (until, is_stopped) in [(tid(2), true), (tid(3), false)] {
        let mut pack = storage.packer().begin(until, &options).unwrap().unwrap();
        storage.packer().finish(&mut pack).unwrap();
        storage.packer().remove_blobs(&pack, &AtomicBool::new(is_stopped)).unwrap();
        let has = |tid| storage.blobs().unwrap().has(OID, tid).unwrap();
        assert_eq!(tids.map(has), [is_stopped, is_stopped, true]);
    }
}

#[test]
fn blobs_that_a_pack_has_kept_stay_until_the_next_one_has_succeeded() {
    let disk = disk();
    let storage = open(disk.clone());
    let tids = [tid(1), tid(2), tid(3)];
    for tid in tids {
        commit_blob(&storage, tid, &[(OID.0, RECORD)]);
    }
    let are_kept = || {
        tids.map(|tid| {
            let path = storage.blobs().unwrap().path_of(OID, tid);
            disk.exists(&Path::new("Blobs.old").join(path.strip_prefix(BLOBS).unwrap())).unwrap()
        })
    };
    let cancelled = Arc::default();
    let options = PackOptions { gc: false, keep_old: true, ..PackOptions::new(&cancelled) };
    let pack = |until| {
        let mut pack = storage.packer().begin(until, &options).unwrap().unwrap();
        storage.packer().finish(&mut pack).unwrap();
        storage.packer().remove_blobs(&pack, &AtomicBool::new(false)).unwrap();
    };
    pack(tid(2));
    assert_eq!(are_kept(), [true, true, true]);
    drop(storage.packer().begin(tid(3), &options).unwrap().expect("given up"));
    assert_eq!(are_kept(), [true, true, true]);
    pack(tid(3));
    assert_eq!(are_kept(), [false, true, true]);
}

/// Commits objects, of which one has a blob.
fn commit_blob(storage: &FileStorage, tid: Tid, objects: &[(u64, &[u8])]) {
    let mut staged = stage(storage);
    staged.commit(tid).unwrap();
    commit(storage, stores(tid, objects)).unwrap();
    staged.keep();
}

/// Flips a bit of the data, or back pointer, of the record of a revision.
fn damage(disk: &MemoryDisk, oid: Oid, tid: Tid) {
    let start = [oid.to_bytes(), tid.to_bytes()].concat();
    let bytes = data_of(disk);
    let at = bytes.windows(start.len()).position(|window| window == start).unwrap() + 42;
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
    file.sync().unwrap();
}
