//! A file that another program appends to and packs: what a reader takes in, and what is told.

use crate::support::{
    commit, data_file, data_of, disk_of, open, open_read_only, overwrite, stores, tid, transaction,
};
use zodium_disk::{Disk, MemoryDisk};
use zodium_filestorage::{FileStorage, FileStorageError, LogTail};
use zodium_storage::{Access, Load, NewBody, NewRecord, NewTransaction, Pack, PackOptions, Read};
use zodium_types::{Oid, Tid, TransactionStatus};

fn data(storage: &FileStorage, oid: u64) -> Option<Vec<u8>> {
    match storage.reader().load_before(Oid(oid), Tid::MAX, Access::Blocking).unwrap() {
        Load::Revision(revision) => Some(revision.data.to_vec()),
        _ => None,
    }
}

/// A writer with one transaction, and a reader of the same file.
fn both() -> (MemoryDisk, FileStorage, FileStorage) {
    let disk = MemoryDisk::new();
    let writer = open(disk.clone());
    commit(&writer, stores(tid(1), &[(0, b"root"), (1, b"a")])).unwrap();
    let reader = open_read_only(disk.clone()).unwrap();
    (disk, writer, reader)
}

fn pack(storage: &FileStorage, until: Tid) {
    let cancelled = std::sync::Arc::default();
    assert!(storage.pack(until, &PackOptions::new(&cancelled)).unwrap().is_some());
}

#[test]
fn a_reader_takes_in_what_was_appended_when_it_is_asked_to() {
    let (_, writer, reader) = both();
    assert!(reader.refresh().unwrap(), "there is nothing yet");
    commit(&writer, stores(tid(2), &[(1, b"b"), (7, b"new")])).unwrap();
    commit(&writer, stores(tid(3), &[(2, b"c")])).unwrap();
    assert_eq!(data(&reader, 1).as_deref(), Some(&b"a"[..]));
    assert!(reader.refresh().unwrap());
    for oid in [0, 1, 2, 7, 8] {
        assert_eq!(data(&reader, oid), data(&writer, oid), "object {oid}");
    }
    assert_eq!((reader.last_tid(), reader.size()), (tid(3), writer.size()));
    assert_eq!(reader.last_oid(), Oid(7));
    assert!(reader.refresh().unwrap());
    assert!(writer.refresh().unwrap(), "a writer knows all");
}

#[test]
fn a_reader_waits_for_the_rest_of_a_transaction_and_names_bytes_that_are_none() {
    let (disk, writer, _) = both();
    let before = data_of(&disk);
    commit(&writer, stores(tid(2), &[(1, b"b")])).unwrap();
    let after = data_of(&disk);
    let disk = disk_of(&before);
    let reader = open_read_only(disk.clone()).unwrap();
    for length in [before.len() + 1, before.len() + 30, after.len() - 1] {
        overwrite(&disk, data_file(), &after[..length]);
        assert!(reader.refresh().unwrap(), "{length} bytes");
        assert_eq!(reader.last_tid(), tid(1));
    }
    overwrite(&disk, data_file(), &after);
    assert!(reader.refresh().unwrap());
    assert_eq!((reader.last_tid(), data(&reader, 1).as_deref()), (tid(2), Some(&b"b"[..])));
    // A transaction whose length stands differently at its end.
    let mut third = after[before.len()..].to_vec();
    *third.last_mut().unwrap() ^= 1;
    overwrite(&disk, data_file(), &[&after[..], &third].concat());
    assert!(matches!(reader.refresh(), Err(FileStorageError::Corrupt { .. })));
}

#[test]
fn a_reader_says_that_its_file_has_another_content() {
    let (disk, writer, _) = both();
    let earlier = data_of(&disk);
    commit(&writer, stores(tid(2), &[(1, b"b")])).unwrap();
    let disk = disk_of(&data_of(&disk));
    let reader = open_read_only(disk.clone()).unwrap();
    // An older copy in the same file, with a longer commit.
    let other = disk_of(&earlier);
    commit(&open(other.clone()), stores(tid(3), &[(1, &[1; 1000])])).unwrap();
    overwrite(&disk, data_file(), &data_of(&other));
    assert!(!reader.refresh().unwrap());
}

#[test]
fn a_reader_says_that_its_file_is_another_one_or_shorter() {
    let (disk, writer, reader) = both();
    commit(&writer, stores(tid(2), &[(1, b"b")])).unwrap();
    pack(&writer, tid(2));
    assert!(!reader.refresh().unwrap(), "a pack has put another file there");
    let bytes = data_of(&disk);
    let disk = disk_of(&bytes);
    let reader = open_read_only(disk.clone()).unwrap();
    overwrite(&disk, data_file(), &bytes[..bytes.len() - 1]);
    assert!(!reader.refresh().unwrap(), "it was cut");
    disk.remove(data_file()).unwrap();
    assert!(!reader.refresh().unwrap(), "it is gone");
}

/// The transactions that a tail tells of.
fn told(tail: &mut LogTail) -> Vec<(Tid, Vec<u64>)> {
    let step = || tail.step().unwrap();
    let told = std::iter::from_fn(step);
    told.map(|(tid, oids)| (tid, oids.iter().map(|oid| oid.0).collect())).collect()
}

#[test]
fn a_tail_tells_of_each_transaction_that_comes_once_it_is_whole() {
    let (disk, writer, reader) = both();
    let mut tail = reader.follow().unwrap();
    assert_eq!((told(&mut tail), tail.last_tid()), (vec![], tid(1)));
    commit(&writer, stores(tid(2), &[(1, b"b"), (7, b"new")])).unwrap();
    commit(&writer, stores(tid(3), &[])).unwrap();
    assert_eq!(told(&mut tail), [(tid(2), vec![1, 7]), (tid(3), vec![])]);
    assert_eq!((told(&mut tail), tail.last_tid()), (vec![], tid(3)));
    let before = data_of(&disk).len();
    commit(&writer, stores(tid(4), &[(1, b"c")])).unwrap();
    let whole = data_of(&disk);
    for length in [before + 1, whole.len() - 1] {
        overwrite(&disk, data_file(), &whole[..length]);
        assert_eq!(told(&mut tail), [], "{length} bytes");
    }
    overwrite(&disk, data_file(), &whole);
    assert_eq!(told(&mut tail), [(tid(4), vec![1])]);
}

#[test]
fn a_tail_goes_on_in_the_file_that_a_pack_has_put_there() {
    let (_, writer, reader) = both();
    let mut tail = reader.follow().unwrap();
    commit(&writer, stores(tid(2), &[(1, b"b")])).unwrap();
    assert_eq!(told(&mut tail), [(tid(2), vec![1])]);
    commit(&writer, stores(tid(3), &[(1, b"c"), (2, b"c")])).unwrap();
    pack(&writer, tid(2));
    assert_eq!(told(&mut tail), [(tid(3), vec![1, 2])], "what the old file had");
    commit(&writer, stores(tid(4), &[(2, b"d")])).unwrap();
    assert_eq!(told(&mut tail), [(tid(4), vec![2])]);
    assert_eq!(told(&mut tail), []);
}

#[test]
fn a_tail_goes_on_in_an_older_copy_that_was_written_over_the_file() {
    // Where the tail has read to, the copy has the end of another transaction, or none.
    for data in [&b"b"[..], b"longer data"] {
        let (disk, writer, reader) = both();
        let older = data_of(&disk);
        let mut tail = reader.follow().unwrap();
        commit(&writer, stores(tid(2), &[(1, b"b")])).unwrap();
        assert_eq!(told(&mut tail), [(tid(2), vec![1])]);
        drop((writer, reader));
        overwrite(&disk, data_file(), &older);
        let writer = open(disk.clone());
        commit(&writer, stores(tid(3), &[(1, data)])).unwrap();
        commit(&writer, stores(tid(4), &[(1, data)])).unwrap();
        assert_eq!(told(&mut tail), [(tid(3), vec![1]), (tid(4), vec![1])]);
    }
}

#[test]
fn a_tail_goes_on_in_a_shorter_copy_that_was_written_over_the_file() {
    let (disk, writer, reader) = both();
    let older = data_of(&disk);
    let mut tail = reader.follow().unwrap();
    commit(&writer, stores(tid(2), &[(1, &[7; 1000])])).unwrap();
    assert_eq!(told(&mut tail), [(tid(2), vec![1])]);
    drop((writer, reader));
    overwrite(&disk, data_file(), &older);
    let writer = open(disk.clone());
    commit(&writer, stores(tid(3), &[(1, b"c")])).unwrap();
    assert_eq!(told(&mut tail), [(tid(3), vec![1])]);
}

/// Old versions of ZODB marked transactions as undone in their place.
#[test]
fn a_tail_tells_of_no_objects_of_a_transaction_that_counts_as_undone() {
    let (_, writer, reader) = both();
    let mut tail = reader.follow().unwrap();
    let record = NewRecord { oid: Oid(1), body: NewBody::Data(b"b"[..].into()) };
    let undone = transaction(vec![record]);
    let undone = NewTransaction { status: TransactionStatus::Undone, ..undone };
    commit(&writer, (tid(2), undone)).unwrap();
    commit(&writer, stores(tid(3), &[(2, b"c")])).unwrap();
    assert_eq!(told(&mut tail), [(tid(2), vec![]), (tid(3), vec![2])]);
}

#[test]
fn the_magic_of_a_file_tells_the_python_version_of_its_pickles() {
    for (magic, is_of_python_2) in [(b"FS21", true), (b"FS30", false)] {
        let storage = open(disk_of(magic));
        assert_eq!(storage.is_of_python_2(), is_of_python_2);
    }
}
