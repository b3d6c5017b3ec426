//! How often a file is synced, and what a storage says of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use crate::support::{commit, commit_all, open, stores, tid};
use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
use zodium_storage::{Access, Write};

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

#[test]
fn another_commit_would_wait_while_a_batch_is_written() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = Arc::new(open(disk.clone()));
    let (_, new) = stores(tid(1), &[(1, b"a")]);
    let Poll::Ready(prepared) = Write::prepare(&*storage, new, Access::Blocking).unwrap() else {
        panic!("it may wait");
    };
    let seen = Arc::new(AtomicBool::new(false));
    let (storage_then, seen_then) = (Arc::clone(&storage), Arc::clone(&seen));
    disk.before_next(Operation::Sync, move || {
        seen_then.store(storage_then.is_appending(), Ordering::Relaxed);
    });
    assert!(!storage.is_appending());
    Write::commit(&*storage, vec![(tid(1), prepared)]).unwrap();
    assert!(seen.load(Ordering::Relaxed) && !storage.is_appending());
}
