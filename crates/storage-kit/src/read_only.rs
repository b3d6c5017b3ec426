//! Storages that were opened for reading only. A kind of storage that can be opened so calls
//! [`writes_are_refused`] in a test of its own: the storages of the other claims are empty, and
//! writable.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use zodium_storage::{
    Access, NewBody, NewRecord, NewTransaction, PackOptions, Storage, StorageError, WriteState,
};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

/// Such a storage says what it is, and refuses transactions and packs. It has an object with two
/// revisions, so that a pack would free something.
pub fn writes_are_refused(storage: &dyn Storage) {
    assert!(storage.is_read_only());
    assert_eq!(storage.write_state(), WriteState::ReadOnly);
    let last = storage.last_tid();
    let records = vec![NewRecord { oid: Oid(1), body: NewBody::Data(Bytes::from_static(b"new")) }];
    let (status, metadata) = (TransactionStatus::Normal, TransactionMetadata::default());
    let new = NewTransaction { status, metadata, records };
    let prepared = storage.prepare(new, Access::Blocking).map(|_| ());
    assert!(matches!(prepared, Err(StorageError::ReadOnly(_))), "{prepared:?}");
    if let Some(packing) = storage.packing() {
        let packed = packing.pack(Tid::MAX, &PackOptions::new(&Arc::new(AtomicBool::new(false))));
        assert!(matches!(packed, Err(StorageError::ReadOnly(_))), "{packed:?}");
    }
    assert_eq!(storage.last_tid(), last);
}
