//! An object whose current record is damaged: a client that has the object can store it again, but
//! only over the serial that it read.

use std::path::Path;
use std::sync::Arc;

use crate::support::{CONFIG, Outcome, Session, text, transaction};
use bytes::Bytes;
use zodium_disk::{Disk, MemoryDisk, OpenMode, SystemClock};
use zodium_engine::{Config, Database, Transaction};
use zodium_engine::{Merge, Resolver};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_storage::StorageError;
use zodium_storage::{Access, PackOptions};
use zodium_types::{Oid, Tid};

/// Merges whatever it is given.
#[derive(Debug)]
struct Eager;

impl Resolver for Eager {
    fn resolve(&self, _: &[u8], _: &[u8], _: &[u8], _: Access) -> Merge {
        Merge::Resolved(b"merged".to_vec())
    }
}

fn start(disk: &MemoryDisk) -> Arc<Database> {
    start_with_file(disk).0
}

fn start_with_file(disk: &MemoryDisk) -> (Arc<Database>, Arc<FileStorage>) {
    let checksums = ChecksumMode::Full;
    let options = OpenOptions { checksums, ..OpenOptions::new(Path::new("Data.fs")) };
    let file = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
    let config = Config { resolver: Some(Arc::new(Eager)), ..CONFIG };
    let file = Arc::new(file);
    let kept = Arc::<FileStorage>::clone(&file);
    let storage = Database::start(kept, Arc::new(SystemClock::new()), &config).unwrap();
    (storage, file)
}

/// Flips a bit of these bytes, which are in the file once.
fn damage(disk: &MemoryDisk, text: &[u8]) {
    let bytes = disk.bytes(Path::new("Data.fs")).unwrap();
    let at = bytes.windows(text.len()).position(|data| data == text).unwrap();
    let file = disk.open(Path::new("Data.fs"), OpenMode::Write).unwrap();
    file.write_all_at(&[bytes[at] ^ 1], at as u64).unwrap();
}

fn store(serial: Tid, data: &'static str) -> Transaction {
    let mut stored = transaction();
    stored.store(Oid(1), serial, Bytes::from_static(data.as_bytes()));
    stored
}

/// The conflict that a vote must end with.
fn conflict(storage: &Database, session: &mut Session, serial: Tid) -> (Tid, Tid) {
    match session.try_vote(&mut store(serial, "a conflict")).unwrap() {
        Outcome::Conflicts(number, found) => {
            storage.abort(number, None);
            (found[0].conflict.committed, found[0].conflict.sent)
        }
        Outcome::Voted(..) => panic!("stored over another revision than the current one"),
    }
}

fn undo(tid: Tid) -> Transaction {
    let mut undoing = transaction();
    undoing.undo(tid);
    undoing
}

#[test]
fn damaged_object_is_stored_again_over_the_serial_that_the_client_read() {
    let disk = MemoryDisk::new();
    let (storage, file) = start_with_file(&disk);
    let mut session = Session::new(&storage);
    let first = session.store(&[(1, "first of it")]);
    let second = session.store(&[(1, "second of it"), (2, "beside it")]);
    damage(&disk, b"second of it");

    let load = |before| storage.reader().load_before(Oid(1), before, Access::Blocking);
    assert!(matches!(load(Tid::MAX), Err(StorageError::Corrupt { .. })));
    // Over an older revision it is a conflict, as with a sound object, and nothing is merged with
    // what is damaged.
    assert_eq!(conflict(&storage, &mut session, first), (second, first));
    let third = session.commit(store(second, "third of it"));
    assert_eq!(text(&storage, 1).as_deref(), Some("third of it"));
    assert_eq!(text(&storage, 2).as_deref(), Some("beside it"));
    let current = storage.reader().current_serial(Oid(1)).unwrap();
    assert_eq!(current, Some(third));
    // A client that still has the damaged revision: a conflict, which its application tries again.
    assert_eq!(conflict(&storage, &mut session, second), (third, second));

    // The revision before the new one is an error, and no older one in its place.
    assert!(matches!(load(third), Err(StorageError::Corrupt { .. })));
    // So an undo of the new one would have nothing to go back to.
    let error = session.try_vote(&mut undo(third)).err().unwrap();
    assert!(error.to_string().contains("does not fit its checksum"), "{error}");
    assert_eq!(text(&storage, 1).as_deref(), Some("third of it"));
    let fourth = session.store(&[(1, "fourth of it")]);
    session.commit(undo(fourth));
    assert_eq!(text(&storage, 1).as_deref(), Some("third of it"));
    assert_eq!(file.damaged_places(), 1);
    storage.close().unwrap();
}

#[test]
fn object_that_a_pack_has_dropped_is_stored_again_over_the_same_serial() {
    let disk = MemoryDisk::new();
    let storage = start(&disk);
    let mut session = Session::new(&storage);
    session.store(&[(1, "first of it")]);
    let second = session.store(&[(1, "second of it")]);
    let third = session.store(&[(2, "another")]);
    damage(&disk, b"second of it");
    let cancelled = Arc::default();
    let options = PackOptions { gc: true, ..PackOptions::new(&cancelled) };
    for pack_tid in [Tid::ZERO, third] {
        let disk = disk.after_kill();
        let checksums = ChecksumMode::Full;
        let opened = OpenOptions { checksums, ..OpenOptions::new(Path::new("Data.fs")) };
        let file = FileStorage::open(Arc::new(disk.clone()), &opened).unwrap();
        let mut pack = file.packer().begin_without_damaged(pack_tid, &options).unwrap().unwrap();
        file.packer().finish(&mut pack).unwrap();
        drop((pack, file));
        let storage = start(&disk);
        let mut session = Session::new(&storage);
        assert_eq!(text(&storage, 1), None);
        session.commit(store(second, "second of it"));
        assert_eq!(text(&storage, 1).as_deref(), Some("second of it"));
        storage.close().unwrap();
    }
}

#[test]
fn older_revision_that_is_damaged_makes_a_conflict_and_no_error() {
    let disk = MemoryDisk::new();
    let storage = start(&disk);
    let mut session = Session::new(&storage);
    let first = session.store(&[(1, "first of it")]);
    let second = session.store(&[(1, "second of it")]);
    damage(&disk, b"first of it");
    assert_eq!(conflict(&storage, &mut session, first), (second, first));
    session.commit(store(second, "third of it"));
    assert_eq!(text(&storage, 1).as_deref(), Some("third of it"));
    storage.close().unwrap();
}
