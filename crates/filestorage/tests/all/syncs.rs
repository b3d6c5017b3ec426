//! How often a file is synced, and what a storage says of it.

use crate::support::{commit, commit_all, open, stores, tid};
use zodium_disk::MemoryDisk;
use zodium_storage::Write;

#[test]
fn a_batch_is_synced_once_however_many_transactions_it_has() {
    let storage = open(MemoryDisk::new());
    assert_eq!(storage.sync_durations().count(), 0);
    commit(&storage, stores(tid(1), &[(1, b"a")])).unwrap();
    assert_eq!(storage.sync_durations().count(), 1);
    let batch = (2..5).map(|n| stores(tid(n), &[(n, b"b")])).collect();
    commit_all(&storage, batch).unwrap();
    assert_eq!(storage.sync_durations().count(), 2);
    assert!(!storage.is_appending(), "no other commit would wait");
}
