//! Transactions with blobs: each committed revision has its file, and no other file exists, after
//! any failed operation and after a power cut at any time.

pub(crate) mod client;
mod faults;
mod pack;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::mpsc;

use crate::support::{Outcome, assert_idle, transaction};
use bytes::Bytes;
use client::{BLOB_RECORD, Client, blob_paths, open, path_of};
use zodium_blobs::BlobError;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation};
use zodium_engine::Notice;
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

#[test]
fn a_committed_blob_is_one_file_and_one_record() {
    let disk = MemoryDisk::new();
    let mut client = Client::new(&disk);
    let first = client.store_blob(1, b"one");
    let second = client.store_blob(1, b"");
    let other = client.store_blobs(&[(2, b"two"), (300, b"three")]);
    assert_eq!(client.blob(1, first).unwrap(), b"one");
    assert_eq!(client.blob(1, second).unwrap(), b"");
    assert_eq!(client.blob(2, other).unwrap(), b"two");
    assert_eq!(client.blob(300, other).unwrap(), b"three");
    let mut expected = [(1, first), (1, second), (2, other), (300, other)].map(path_of).to_vec();
    expected.sort();
    client.close();
    assert_eq!(blob_paths(&disk), expected);
    assert_eq!(client.records_of(first), [Oid(1)]);
}

#[test]
fn a_blob_that_is_not_there_is_named_as_zodb_does() {
    let client = Client::new(&MemoryDisk::new());
    let error = client.blob(1, Tid(2)).unwrap_err();
    assert!(matches!(
        error,
        StorageError::Blob(BlobError::Missing { oid: Oid(1), tid: Tid(2), .. })
    ));
    let path = "blobs/0x00/0x00/0x00/0x00/0x00/0x00/0x00/0x01/0x02.blob";
    assert_eq!(error.to_string(), format!("No blob file at {path}"));
}

#[test]
fn nothing_stays_of_transactions_that_are_given_up() {
    let disk = MemoryDisk::new();
    let mut client = Client::new(&disk);
    drop(client.temporary(b"never stored"));
    drop(client.storing(&[(1, b"never voted")]));
    let (number, voted) = client.session.vote(client.storing(&[(1, b"aborted")]));
    client.storage().abort(number, Some(voted));
    let tid = client.store_blob(1, b"committed");
    let mut conflicting = transaction();
    conflicting.store_blob(Oid(1), Tid(1), record(), client.temporary(b"conflicting"));
    match client.session.try_vote(&mut conflicting).unwrap() {
        Outcome::Conflicts(number, _) => client.storage().abort(number, None),
        Outcome::Voted(..) => panic!("the serial is an old one"),
    }
    drop(conflicting);
    client.close();
    assert_eq!(blob_paths(&disk), [path_of((1, tid))]);
    assert_idle(client.storage());
}

#[test]
fn of_one_object_stored_twice_the_last_blob_counts() {
    let disk = MemoryDisk::new();
    let mut client = Client::new(&disk);
    let mut twice = client.storing(&[(1, b"first")]);
    twice.store_blob(Oid(1), Tid::ZERO, record(), client.temporary(b"second"));
    let tid = client.session.commit(twice);
    assert_eq!(client.blob(1, tid).unwrap(), b"second");
    assert_eq!(client.records_of(tid), [Oid(1)]);
    client.close();
    assert_eq!(blob_paths(&disk), [path_of((1, tid))]);
}

#[test]
fn a_client_that_shares_the_directory_puts_the_file_there_itself() {
    let disk = MemoryDisk::new();
    let mut client = Client::new(&disk);
    let blobs = client.blobs();
    let folder = blobs.folder_of(Oid(7));
    let name = "0x00ab12cd_x.tmp-";
    disk.put(&folder.join(name), b"shared".to_vec());
    disk.put(&folder.join("other.tmp-"), b"another client's".to_vec());
    let error = blobs.adopt(Oid(7), "missing.tmp-").unwrap_err();
    assert!(matches!(error, BlobError::NotShared { .. }), "{error}");
    for refused in ["../0x07/0x00ab12cd_x.tmp-", "0x01.blob", ""] {
        let error = blobs.adopt(Oid(7), refused).unwrap_err();
        assert!(matches!(error, BlobError::Name { .. }), "{refused}: {error}");
    }
    let mut shared = transaction();
    shared.store(Oid(7), Tid::ZERO, record());
    shared.store_blob(Oid(7), Tid::ZERO, record(), blobs.adopt(Oid(7), name).unwrap());
    let tid = client.session.commit(shared);
    client.close();
    assert_eq!(client.blob(7, tid).unwrap(), b"shared");
    assert_eq!(blob_paths(&disk), [path_of((7, tid)), folder.join("other.tmp-")]);
}

#[test]
fn undo_and_redo_bring_the_blobs_back() {
    let disk = MemoryDisk::new();
    let mut client = Client::new(&disk);
    let created = client.store_blob(1, b"one");
    let changed = client.store_blob(1, b"changed");
    let undone = client.undo(&[changed]).unwrap();
    assert_eq!(client.blob(1, undone).unwrap(), b"one");
    let redone = client.undo(&[undone]).unwrap();
    assert_eq!(client.blob(1, redone).unwrap(), b"changed");
    let both = client.undo(&[redone, undone]).unwrap();
    assert_eq!(client.blob(1, both).unwrap(), b"changed");
    // To before its creation: the object is gone, and there is no blob.
    let gone = client.undo(&[both, redone, undone, changed, created]).unwrap();
    assert!(client.blob(1, gone).is_err());
    let back = client.undo(&[gone]).unwrap();
    assert_eq!(client.blob(1, back).unwrap(), b"changed");
    client.close();
    let tids = [created, changed, undone, redone, both, back];
    assert_eq!(blob_paths(&disk), tids.map(|tid| path_of((1, tid))));
}

#[test]
fn undo_without_the_blob_it_needs_is_refused() {
    let disk = MemoryDisk::new();
    let mut client = Client::new(&disk);
    let created = client.store_blob(1, b"one");
    let changed = client.store_blob(1, b"changed");
    disk.remove(&path_of((1, created))).unwrap();
    assert!(client.undo(&[changed]).is_err());
    client.close();
    assert_eq!(blob_paths(&disk), [path_of((1, changed))]);
    assert_idle(client.storage());
}

#[test]
fn a_blob_that_cannot_be_named_ends_its_own_transaction_only() {
    let disk = zodium_disk::FaultyDisk::new(MemoryDisk::new());
    let mut client = Client::new(&disk);
    let (number, voted) = client.session.vote(client.storing(&[(1, b"one")]));
    client.blobs().settle();
    disk.fail(zodium_disk::Operation::Folder, 1, std::io::ErrorKind::PermissionDenied);
    assert!(client.session.finish(number, voted).is_err());
    assert!(disk.has_failed());
    let tid = client.store_blob(1, b"works");
    client.close();
    assert_eq!(blob_paths(disk.files()), [path_of((1, tid))]);
}

#[test]
fn read_only_directories_are_looked_at_and_left_alone() {
    let disk = MemoryDisk::new();
    let tid = {
        let mut client = Client::new(&disk);
        let tid = client.store_blob(1, b"one");
        client.close();
        tid
    };
    let left = Path::new("blobs/tmp/zodium-left");
    disk.put(left, Vec::new());
    let paths = disk.paths();
    let blobs = zodium_blobs::BlobDirectory::open(
        std::sync::Arc::new(disk.clone()),
        Path::new("blobs"),
        true,
    );
    let blobs = blobs.unwrap();
    assert_eq!(blobs.open_committed(Oid(1), tid).unwrap().length, 3);
    assert!(matches!(blobs.temporary(), Err(BlobError::ReadOnly { .. })));
    assert_eq!(disk.paths(), paths);
    open(&disk).unwrap();
    assert!(disk.open(left, OpenMode::Read).is_err());
}

fn record() -> Bytes {
    Bytes::from_static(BLOB_RECORD)
}

/// Three transactions wait for the writer together, of which one folder cannot be synced.
#[test]
fn the_folders_of_a_batch_are_synced_together_and_one_that_fails_ends_its_transaction_only() {
    for nth in 1..=7 {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let mut client = Client::new(&disk);
        let (all_wait, go_on) = mpsc::channel();
        let (begun, writes) = mpsc::channel();
        disk.before_next(Operation::Sync, move || {
            begun.send(()).unwrap();
            go_on.recv().unwrap();
        });
        let mut first = transaction();
        first.store(Oid(9), Tid::ZERO, record());
        let (first, first_voted) = client.session.vote(first);
        client.storage().finish(first, first_voted).unwrap();
        // Votes on blobs sync too: the log writer has to be there before them.
        writes.recv().unwrap();
        let mut asked = BTreeMap::new();
        for oid in 1..=3 {
            let (number, voted) = client.session.vote(client.storing(&[(oid, b"blob")]));
            client.storage().finish(number, voted).unwrap();
            asked.insert(number.0, oid);
        }
        // Three are renamed, then three folders are synced.
        disk.fail(Operation::Folder, nth, ErrorKind::Other);
        let syncs = disk.count(Operation::Sync);
        all_wait.send(()).unwrap();
        let (mut committed, mut failed) = (Vec::new(), Vec::new());
        while committed.len() + failed.len() < 3 {
            match client.session.next() {
                Notice::Committed(commits) => {
                    committed.extend(commits.iter().filter_map(|commit| {
                        asked.get(&commit.number.0).map(|oid| (*oid, commit.tid))
                    }))
                }
                Notice::Failed(number, _) => failed.push(asked[&number.0]),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(failed.len(), usize::from(nth <= 6), "operation {nth}: {failed:?}");
        assert_eq!(disk.count(Operation::Sync), syncs + 1 + 1, "one for each of two batches");
        client.blobs().settle();
        for (oid, tid) in &committed {
            assert_eq!(client.blob(*oid, *tid).unwrap(), b"blob");
        }
        disk.mend();
        client.close();
        assert_idle(client.storage());
        let crashed = disk.files().after_power_cut();
        Client::new(&crashed).close();
        let mut expected: Vec<_> = committed.into_iter().map(path_of).collect();
        expected.sort();
        assert_eq!(blob_paths(&crashed), expected, "operation {nth}");
    }
}

#[test]
fn a_blob_that_could_not_be_removed_goes_at_the_opening_after_later_commits_too() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let mut client = Client::new(&disk);
    let (number, voted) = client.session.vote(client.storing(&[(1, b"refused")]));
    // The rename succeeds, the sync of the folder and the removals do not.
    disk.fail_from(Operation::Folder, 2, ErrorKind::Other);
    client.session.finish(number, voted).unwrap_err();
    client.blobs().settle();
    disk.mend();
    let kept = client.store_blob(1, b"kept");
    client.close();
    let crashed = disk.files().after_kill();
    assert_eq!(blob_paths(&crashed).len(), 3, "the refused one, its intent, the kept one");
    let client = Client::new(&crashed);
    assert_eq!(blob_paths(&crashed), [path_of((1, kept))]);
    assert_eq!(client.blob(1, kept).unwrap(), b"kept");
}
