//! Moments that a pack has removed are refused; all others are restored exactly.

use std::sync::Arc;

use zodium_backup::repository::{Repository, backup, restored_point};
use zodium_memorystorage::MemoryStorage;
use zodium_storage::{Pack, PackOptions};
use zodium_types::{Oid, Tid, TransactionStatus};

use crate::memory::{Memory, log, plan, repository, restored, write};

fn commit(storage: &MemoryStorage, tid: u64, oid: u64) -> Tid {
    let data = [b"N.B\x01\0\0\0", &[tid as u8][..], b"."].concat();
    write(storage, Tid(tid << 20), TransactionStatus::Normal, &[(Oid(oid), data)]);
    Tid(tid << 20)
}

fn pack(storage: &MemoryStorage, until: Tid) {
    let cancelled = Arc::default();
    storage.pack(until, &PackOptions::new(&cancelled)).unwrap();
}

fn refusal(repository: &Repository, at: Tid) -> String {
    restored_point(repository, Some(at)).unwrap_err().to_string()
}

#[test]
fn a_moment_before_a_pack_is_refused_unless_a_point_ends_with_it() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    let first = commit(&storage, 1, 0);
    let before = log(&storage, Tid::MAX);
    backup(&repository, &plan(&storage)).unwrap();
    let between = commit(&storage, 2, 0);
    let packed = commit(&storage, 3, 0);
    let after = commit(&storage, 4, 0);
    let last = commit(&storage, 5, 1);
    pack(&storage, packed);
    backup(&repository, &plan(&storage)).unwrap();
    for at in [between, first.next()] {
        let text = refusal(&repository, at);
        for part in [&at, &first, &packed].map(Tid::to_string) {
            assert!(text.contains(&part), "{text}");
        }
        assert!(text.contains("point 1"), "{text}");
    }
    assert_eq!(restored(&repository, Some(first)), before);
    for at in [packed, packed.next(), after, last, Tid::MAX] {
        assert_eq!(restored(&repository, Some(at)), log(&storage, at));
    }
}

#[test]
fn the_last_transaction_of_a_point_is_restored_even_if_all_of_it_was_packed() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    let lost = commit(&storage, 1, 0);
    let last = commit(&storage, 2, 0);
    pack(&storage, last);
    backup(&repository, &plan(&storage)).unwrap();
    let text = refusal(&repository, lost);
    assert!(text.contains("packed") && text.contains(&last.to_string()), "{text}");
    assert_eq!(restored(&repository, Some(last)), log(&storage, Tid::MAX));
}

#[test]
fn nothing_is_not_restored() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    backup(&repository, &plan(&storage)).unwrap();
    assert!(refusal(&repository, Tid(1)).contains("nothing would be restored"));
    let first = commit(&storage, 1, 0);
    commit(&storage, 2, 0);
    backup(&repository, &plan(&storage)).unwrap();
    let text = refusal(&repository, Tid(first.0 - 1));
    assert!(text.contains("nothing would be restored"), "{text}");
    assert!(text.contains(&first.to_string()), "{text}");
}
