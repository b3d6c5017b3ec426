//! What a storage tells about transactions that wait for each other.

use crate::support::{Session, assert_idle, start, transaction};
use bytes::Bytes;
use zodium_disk::MemoryDisk;
use zodium_engine::VoteStart;
use zodium_engine::commit::LockKey;
use zodium_types::{Oid, Tid};

#[test]
fn the_waiting_transactions_are_named_with_what_they_wait_for() {
    let storage = start(MemoryDisk::volatile());
    let storing = |oids: &[u64]| {
        let mut transaction = transaction();
        oids.iter().for_each(|oid| {
            transaction.store(Oid(*oid), Tid::ZERO, Bytes::from_static(b"data"));
        });
        transaction
    };
    let sessions = [(); 3].map(|()| Session::new(&storage));
    let (holder, granted) = sessions[0].begin(&storing(&[1, 2])).unwrap();
    assert_ne!(granted, VoteStart::Waiting);
    assert!(storage.lock_waits().is_empty());
    let waiters = [(&sessions[1], 2), (&sessions[2], 1)].map(|(session, oid)| {
        let (number, start) = session.begin(&storing(&[oid, oid + 10])).unwrap();
        assert_eq!(start, VoteStart::Waiting);
        (number, LockKey::Object(Oid(oid)), holder)
    });
    let mut waits: Vec<_> =
        storage.lock_waits().iter().map(|wait| (wait.owner, wait.key, wait.behind)).collect();
    waits.sort_by_key(|(owner, ..)| *owner);
    assert_eq!(waits, waiters);
    for number in [holder, waiters[0].0, waiters[1].0] {
        storage.abort(number, None);
    }
    assert!(storage.lock_waits().is_empty());
    assert_idle(&storage);
    storage.close().unwrap();
}
