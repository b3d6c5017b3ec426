//! What a reader finds while a commit becomes visible, and after a pack.

use std::sync::{Arc, Mutex};

use crate::support::{commit, open, prepare, stores, tid};
use bytes::Bytes;
use zodium_disk::MemoryDisk;
use zodium_filestorage::FileStorage;
use zodium_storage::{Access, Load, NewBody, NewRecord, PackOptions};
use zodium_types::{Oid, Tid};

/// Data of a record. When the storage lets go of them, which it does while it publishes that
/// record, they load the record published before it.
struct LoadsWhenDropped {
    storage: Arc<FileStorage>,
    oid: Oid,
    found: Arc<Mutex<Vec<Result<Tid, String>>>>,
}

impl AsRef<[u8]> for LoadsWhenDropped {
    fn as_ref(&self) -> &[u8] {
        b"data"
    }
}

impl Drop for LoadsWhenDropped {
    fn drop(&mut self) {
        let found = match self.storage.reader().load_before(self.oid, Tid::MAX, Access::Blocking) {
            Ok(Load::Revision(revision)) => Ok(revision.serial),
            other => Err(format!("{other:?}")),
        };
        self.found.lock().unwrap().push(found);
    }
}

/// The readers' end of the log comes before the positions: a reader looks up a position and must
/// then be allowed to read there.
#[test]
fn a_record_can_be_read_as_soon_as_its_position_is_published() {
    let storage = Arc::new(open(MemoryDisk::new()));
    commit(&storage, stores(tid(1), &[(1, b"before"), (2, b"before")])).unwrap();
    let found = Arc::default();
    let data =
        LoadsWhenDropped { storage: Arc::clone(&storage), oid: Oid(1), found: Arc::clone(&found) };
    let (_, mut new) = stores(tid(2), &[(1, b"after")]);
    new.records.push(NewRecord { oid: Oid(2), body: NewBody::Data(Bytes::from_owner(data)) });
    let prepared = prepare(&storage, new).unwrap();
    let appended = storage.append(vec![(tid(2), prepared)]).unwrap();
    for appended in appended {
        assert_eq!(*found.lock().unwrap(), [], "only while it is published");
        storage.publish(appended);
    }
    assert_eq!(*found.lock().unwrap(), [Ok(tid(2))]);
}

/// The packed file has the newer revision where the old file had the older one.
#[test]
fn an_answer_from_before_a_pack_is_not_taken_for_current_after_it() {
    let storage = open(MemoryDisk::new());
    commit(&storage, stores(tid(1), &[(1, b"older")])).unwrap();
    let found = storage.reader().load_before(Oid(1), Tid::MAX, Access::Blocking).unwrap();
    let Load::Revision(older) = found else { panic!("{found:?}") };
    assert!(storage.reader().is_still_current(Oid(1), older.stamp));
    commit(&storage, stores(tid(2), &[(1, b"newer")])).unwrap();
    assert!(!storage.reader().is_still_current(Oid(1), older.stamp));

    let cancelled = Arc::default();
    let options = PackOptions::new(&cancelled);
    let mut pack = storage.packer().begin(tid(2), &options).unwrap().unwrap();
    storage.packer().finish(&mut pack).unwrap();
    assert!(!storage.reader().is_still_current(Oid(1), older.stamp));
    let found = storage.reader().load_before(Oid(1), Tid::MAX, Access::Blocking).unwrap();
    let Load::Revision(newer) = found else { panic!("{found:?}") };
    assert_eq!(newer.serial, tid(2));
    assert!(storage.reader().is_still_current(Oid(1), newer.stamp));
}
