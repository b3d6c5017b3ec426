//! Packs of random histories against a model, and packs that are disturbed.
//!
//! `ZODIUM_PACKS` says how many histories (300), `ZODIUM_SEED` the seed of the first (1); each
//! further one has the next seed. A failure prints its seed and the command that replays it.

pub(crate) mod history;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{self, Undoing, append, prepare, stores, transaction, undo_record};
use bytes::Bytes;
use history::{History, Transaction, read_all, revision};
use rand::RngExt;
use rand::seq::IndexedRandom;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, Operation, RealDisk};
use zodium_filestorage::{FileStorage, FileStorageError, OpenOptions, Pack};
use zodium_storage::{
    Access, Load, NewBody, NewRecord, NewTransaction, PackOptions, Packed, Revision,
};
use zodium_types::{Oid, Tid, TransactionStatus};

const PATH: &str = "Data.fs";

#[test]
fn a_pack_keeps_what_can_be_seen_and_nothing_else() {
    let first = from_environment("ZODIUM_SEED", 1);
    for seed in first..first + from_environment("ZODIUM_PACKS", 300) {
        println!(
            "replay: ZODIUM_PACKS=1 ZODIUM_SEED={seed} \
             cargo test -p zodium-filestorage --test all can_be_seen"
        );
        pack_random_history(seed);
    }
}

#[test]
fn a_full_disk_leaves_the_file_as_it_was() {
    let (bytes, history) = written(7, 60);
    for free in [0, 100, 500, 1000] {
        let disk = MemoryDisk::new();
        disk.put(Path::new(PATH), bytes.clone());
        disk.set_capacity(bytes.len() as u64 + free);
        let storage = open(&disk);
        let error = pack(&storage, history.last_tid(), true).unwrap_err();
        assert!(matches!(error, FileStorageError::Io { .. }), "{error}");
        assert_eq!(disk.bytes(Path::new(PATH)), Some(bytes.clone()));
        assert_eq!(disk.bytes(Path::new("Data.fs.pack")), None);
        assert_loads(&storage, &history);
    }
}

#[test]
fn a_failure_at_any_step_leaves_the_old_file_or_the_new_one() {
    use Operation::{Folder, Open, Read, Reserve, SetLength, Sync, Write};
    let (bytes, history) = written(8, 60);
    let mut failures = 0;
    for operation in [Open, Read, Write, Sync, SetLength, Reserve, Folder] {
        for nth in 1.. {
            let disk = FaultyDisk::new(MemoryDisk::new());
            disk.files().put(Path::new(PATH), bytes.clone());
            let storage = open(&disk);
            disk.fail(operation, nth, std::io::ErrorKind::Other);
            let result = pack(&storage, history.transactions[40].tid, true);
            if !disk.has_failed() {
                break;
            }
            // Reads that follow are not to meet a fault any more.
            disk.fail(operation, 1 << 40, std::io::ErrorKind::Other);
            failures += u32::from(result.is_err());
            assert_whole(&disk, &storage, &history, result.is_ok());
        }
    }
    assert!(failures > 20, "{failures}");
}

/// The storage and its file are as they were, or as they ought to be after the pack.
fn assert_whole(disk: &FaultyDisk, storage: &FileStorage, history: &History, is_packed: bool) {
    let pack_tid = history.transactions[40].tid;
    let packed = history.packed(pack_tid, history.last_tid(), true);
    let in_file = read(&open(&disk.files().after_kill()));
    let next = Tid(history.last_tid().0 + 1);
    if is_packed {
        assert_same(&read(storage), &packed);
        assert_same(&in_file, &packed);
    } else if in_file == history.transactions {
        assert_same(&read(storage), &history.transactions);
        commit(storage, next).unwrap();
        assert_eq!(disk.files().bytes(Path::new("Data.fs.pack")), None);
        assert_eq!(disk.files().bytes(Path::new("Data.fs.old")), None);
    } else {
        // The folder could not be synced after the renaming, so which file it has is unknown. Until
        // that is known the new one is read, and nothing is committed.
        assert_same(&read(storage), &packed);
        assert_same(&in_file, &packed);
        assert!(matches!(commit(storage, next), Err(FileStorageError::Failed { .. })));
    }
}

#[test]
fn a_crash_at_any_step_leaves_the_old_file_or_the_new_one() {
    let (bytes, mut history) = written(9, 60);
    let pack_tid = history.transactions[50].tid;
    let disk = FaultyDisk::new(MemoryDisk::new());
    disk.files().put(Path::new(PATH), bytes);
    let storage = open(&disk);
    storage.save_index().unwrap();
    let (seen, cancelled) = (history.last_tid(), Arc::default());
    let mut pack = storage.packer().begin(pack_tid, &options(true, &cancelled)).unwrap().unwrap();
    history.store(&storage, &[Oid::ROOT]);
    disk.keep_images();
    storage.packer().finish(&mut pack).unwrap();

    let packed = history.packed(pack_tid, seen, true);
    let (mut old, mut new) = (0, 0);
    for image in disk.images().iter().flat_map(|image| [&image.power_cut, &image.kill]) {
        // An index of the old file must not be believed for the new one.
        assert_eq!(image.bytes(Path::new("Data.fs.index")), None);
        let found = read(&open(image));
        if found == history.transactions {
            old += 1;
        } else {
            assert_same(&found, &packed);
            new += 1;
        }
    }
    assert!(old > 3 && new > 1, "{old} {new}");
}

/// It would be that of another file once the copy has taken the name, which it may have after a
/// power cut that brings back what was removed without a sync.
#[test]
fn the_removal_of_the_index_is_durable_before_the_copy_takes_its_place() {
    let (disk, storage, history) = storage_with_history(14, 60);
    storage.save_index().unwrap();
    let indexes = [Path::new("Data.fs.index"), Path::new("Data.fs.index.crc32c")];
    assert!(indexes.iter().all(|index| disk.bytes(index).is_some()));
    let cancelled = Arc::default();
    let pack_tid = history.transactions[40].tid;
    let pack = storage.packer().begin(pack_tid, &options(true, &cancelled)).unwrap();
    assert!(pack.is_some());
    let crashed = disk.after_power_cut_with_names_lost();
    assert!(crashed.bytes(Path::new(PATH)).is_some());
    for index in indexes {
        assert_eq!(crashed.bytes(index), None);
    }
}

#[test]
fn packing_again_to_the_same_time_or_an_earlier_one_changes_nothing() {
    let (disk, storage, history) = storage_with_history(10, 60);
    let times = [30, 40, 50].map(|number: usize| history.transactions[number].tid);
    assert!(pack(&storage, times[2], true).unwrap().is_some());
    let bytes = disk.bytes(Path::new(PATH));
    for time in times {
        assert_eq!(pack(&storage, time, true).unwrap(), None);
        assert_eq!(pack(&storage, time, false).unwrap(), None);
    }
    assert_eq!(disk.bytes(Path::new(PATH)), bytes);
}

#[test]
fn the_old_file_is_kept_if_wanted_and_only_then() {
    let (bytes, history) = written(11, 60);
    for keep_old in [true, false] {
        let disk = MemoryDisk::new();
        disk.put(Path::new(PATH), bytes.clone());
        disk.put(Path::new("Data.fs.old"), b"stale".to_vec());
        let storage = open(&disk);
        let cancelled = Arc::default();
        let options = PackOptions { keep_old, ..options(true, &cancelled) };
        let mut pack = storage.packer().begin(history.last_tid(), &options).unwrap().unwrap();
        let packed = storage.packer().finish(&mut pack).unwrap();
        let old = disk.bytes(Path::new("Data.fs.old"));
        assert_eq!(old, keep_old.then(|| bytes.clone()));
        assert_eq!(packed.size_before, bytes.len() as u64);
        assert_eq!(packed.size_after, disk.bytes(Path::new(PATH)).unwrap().len() as u64);
        assert_eq!(storage.size(), packed.size_after);
        assert_eq!(storage.reader().object_count(), packed.objects_after);
    }
}

#[test]
fn a_file_system_without_hard_links_keeps_no_old_file_and_can_be_packed() {
    use std::io::ErrorKind::{Other, PermissionDenied, Unsupported};
    let (bytes, history) = written(11, 60);
    let packed_with = |error| {
        let mut outcomes = Vec::new();
        for nth in 1.. {
            let disk = FaultyDisk::new(MemoryDisk::new());
            disk.files().put(Path::new(PATH), bytes.clone());
            let storage = open(&disk);
            disk.fail(Operation::Folder, nth, error);
            let packed = pack(&storage, history.last_tid(), true);
            if !disk.has_failed() {
                break;
            }
            let old = disk.files().bytes(Path::new("Data.fs.old"));
            outcomes.push(packed.is_ok() && old.is_none());
        }
        outcomes
    };
    let is_packed_without_old = |error| packed_with(error).contains(&true);
    assert!(is_packed_without_old(Unsupported));
    assert!(is_packed_without_old(PermissionDenied));
    assert!(!is_packed_without_old(Other));
}

#[test]
fn a_pack_that_is_given_up_leaves_the_space_that_is_reserved() {
    let (disk, storage, history) = storage_with_history(11, 60);
    let used = disk.used_bytes();
    let cancelled = Arc::default();
    let begun = storage.packer().begin(history.last_tid(), &options(true, &cancelled));
    drop(begun.unwrap().unwrap());
    assert_eq!(disk.used_bytes(), used);
}

#[test]
fn the_old_file_keeps_no_space_behind_its_end() {
    let (disk, storage, history) = storage_with_history(11, 60);
    assert!(disk.used_bytes() > 1 << 20);
    assert!(pack(&storage, history.last_tid(), true).unwrap().is_some());
    storage.close().unwrap();
    assert!(disk.bytes(Path::new("Data.fs.old")).is_some());
    let length = |path| disk.bytes(path).unwrap().len() as u64;
    assert_eq!(disk.used_bytes(), disk.paths().iter().map(|path| length(path)).sum::<u64>());
}

/// It may be all that is sound.
#[test]
fn the_old_file_stays_until_a_pack_succeeds_where_there_is_room_for_it() {
    let (bytes, history) = written(11, 60);
    let length = bytes.len() as u64;
    for (free, stays) in [(None, true), (Some(length), true), (Some(length - 1), false)] {
        let disk = FaultyDisk::new(MemoryDisk::new());
        disk.files().put(Path::new(PATH), bytes.clone());
        let old = Path::new("Data.fs.old");
        disk.files().put(old, b"kept".to_vec());
        let storage = open(&disk);
        free.into_iter().for_each(|bytes| disk.claim_free(bytes));
        let cancelled = Arc::default();
        let begun = storage.packer().begin(history.last_tid(), &options(true, &cancelled));
        drop(begun.unwrap().unwrap());
        assert_eq!(disk.files().bytes(old), stays.then(|| b"kept".to_vec()), "{free:?}");
        pack(&storage, history.last_tid(), true).unwrap().unwrap();
        assert_eq!(disk.files().bytes(old).as_ref(), Some(&bytes));
    }
}

#[test]
fn who_reads_the_old_file_goes_on_with_it() {
    let (_, storage, history) = storage_with_history(12, 60);
    let mut iterator = storage.reader().iterate(None, None).unwrap();
    let first = iterator.step().unwrap().unwrap();
    let revision = current(&storage, Oid::ROOT).unwrap();
    assert!(storage.reader().is_still_current(Oid::ROOT, revision.stamp));
    assert!(pack(&storage, history.last_tid(), true).unwrap().is_some());
    assert!(!storage.reader().is_still_current(Oid::ROOT, revision.stamp));
    assert_eq!(first.tid, history.transactions[0].tid);
    assert_same(&read_all(iterator), &history.transactions[1..]);
}

#[test]
fn an_object_that_comes_into_use_during_the_pack_is_not_lost() {
    let lost = Oid(1);
    for undoes in [false, true] {
        let (_, storage, mut history) = storage_with_history(0, 0);
        history.store_references(&storage, Oid::ROOT, &[lost]);
        history.store_references(&storage, lost, &[]);
        history.store_references(&storage, Oid::ROOT, &[]);
        let unlinked = history.last_tid();
        let cancelled = Arc::default();
        let mut pack =
            storage.packer().begin(unlinked, &options(true, &cancelled)).unwrap().unwrap();
        if undoes {
            assert!(history.undo_transaction(&storage, unlinked));
        } else {
            history.store_references(&storage, Oid(2), &[lost]);
        }
        let error = storage.packer().finish(&mut pack).unwrap_err();
        assert!(matches!(error, FileStorageError::PackOvertaken { oid } if oid == lost), "{error}");
        drop(pack);
        assert_same(&read(&storage), &history.transactions);

        let packed = history.packed(unlinked, history.last_tid(), true);
        match self::pack(&storage, unlinked, true).unwrap() {
            Some(_) => assert_same(&read(&storage), &packed),
            None => assert_eq!(packed.len(), history.transactions.len()),
        }
        assert!(current(&storage, lost).is_some());
    }
}

#[test]
fn an_object_that_is_written_again_when_it_comes_into_use_does_not_stop_the_pack() {
    let (_, storage, mut history) = storage_with_history(0, 0);
    let object = Oid(1);
    history.store_references(&storage, Oid::ROOT, &[]);
    history.store_references(&storage, object, &[]);
    let (seen, cancelled) = (history.last_tid(), Arc::default());
    let mut pack = storage.packer().begin(seen, &options(true, &cancelled)).unwrap().unwrap();
    history.store_all_references(&storage, &[(Oid::ROOT, &[object]), (object, &[])]);
    storage.packer().finish(&mut pack).unwrap();
    assert_same(&read(&storage), &history.packed(seen, seen, true));
}

#[test]
fn back_pointers_behind_one_that_became_data_point_to_the_right_record() {
    let (_, storage, mut history) = storage_with_history(0, 0);
    let (one, two) = (Oid(1), Oid(2));
    history.store_all_references(&storage, &[(Oid::ROOT, &[one, two]), (one, &[]), (two, &[])]);
    history.store_all_references(&storage, &[(one, &[]), (two, &[])]);
    let (seen, cancelled) = (history.last_tid(), Arc::default());
    let mut pack = storage.packer().begin(seen, &options(true, &cancelled)).unwrap().unwrap();
    // What it points back to is not in the copy any more.
    assert!(history.undo_transaction(&storage, seen));
    let undo = history.last_tid();
    history.restore_from(&storage, two, undo);
    storage.packer().finish(&mut pack).unwrap();
    let found = read(&storage);
    assert_same_but_sources(&found, &history.packed(seen, seen, true), seen, seen);
    assert_eq!(found.last().unwrap().records[0].source, Some(undo));
}

/// Only files that old versions of ZODB wrote have such transactions.
#[test]
fn a_transaction_marked_as_undone_does_not_count_after_a_pack_either() {
    let (disk, storage, _) = storage_with_history(0, 0);
    let stored = |text: &'static [u8]| NewBody::Data(Bytes::from_static(text));
    commit_body(&storage, Tid(1), stored(b"old")).unwrap();
    commit_body(&storage, Tid(2), stored(b"current")).unwrap();
    let status = TransactionStatus::Undone;
    let undone = NewTransaction { status, ..transaction(vec![root(stored(b"undone"))]) };
    support::commit(&storage, (Tid(3), undone)).unwrap();
    assert!(pack(&storage, Tid(2), false).unwrap().is_some());
    for storage in [storage, open(&disk.after_kill())] {
        assert_eq!(current(&storage, Oid::ROOT).unwrap().data, b"current"[..]);
    }
}

/// Also where a copy of a packed storage was added to transactions that were not packed.
#[test]
fn the_undo_log_ends_where_a_pack_has_been() {
    let (_, storage, _) = storage_with_history(0, 0);
    commit(&storage, Tid(1)).unwrap();
    commit_packed(&storage, Tid(2));
    commit(&storage, Tid(3)).unwrap();
    let mut listed = Vec::new();
    storage
        .reader()
        .undo_log(|transaction| {
            listed.push(transaction.tid);
            true
        })
        .unwrap();
    assert_eq!(listed, [Tid(3)]);
}

#[test]
fn a_pack_frees_what_stands_before_transactions_of_a_packed_storage() {
    let (_, storage, _) = storage_with_history(0, 0);
    commit(&storage, Tid(1)).unwrap();
    commit(&storage, Tid(2)).unwrap();
    commit_packed(&storage, Tid(3));
    let packed = pack(&storage, Tid(2), false).unwrap().unwrap();
    assert!(packed.size_after < packed.size_before, "{packed:?}");
    assert_eq!(read(&storage).iter().map(|t| t.tid).collect::<Vec<_>>(), [Tid(2), Tid(3)]);
}

/// As copyTransactionsFrom makes it of two storages, one after the other.
#[test]
fn a_pack_where_tids_go_back_drops_nothing_that_is_later() {
    let tids = [10, 20, 30, 40, 15, 25, 35, 45].map(Tid);
    let mut refused = Vec::new();
    for pack_tid in (9..46).map(Tid) {
        let disk = MemoryDisk::new();
        let storage = open(&disk);
        tids.into_iter().for_each(|tid| commit(&storage, tid).unwrap());
        let before = disk.bytes(Path::new(PATH));
        let packed = pack(&storage, pack_tid, false);
        let left: Vec<_> = read(&storage).into_iter().map(|transaction| transaction.tid).collect();
        let is_later = |tid: &&Tid| **tid > pack_tid;
        let later: Vec<_> = left.iter().filter(is_later).collect();
        assert_eq!(later, tids.iter().filter(is_later).collect::<Vec<_>>(), "{pack_tid}");
        if let Err(error) = packed {
            assert!(matches!(error, FileStorageError::PackDisordered { .. }), "{error}");
            assert_eq!(disk.bytes(Path::new(PATH)), before);
            assert_eq!(disk.bytes(Path::new("Data.fs.pack")), None);
            refused.push(pack_tid.0);
        }
    }
    assert!(refused.contains(&30), "{refused:?}");
    assert!(!refused.contains(&45), "{refused:?}");
}

#[test]
fn an_undo_that_was_prepared_before_the_pack_finds_its_records_again() {
    let (_, storage, mut history) = storage_with_history(0, 0);
    for _ in 0..4 {
        history.store_references(&storage, Oid::ROOT, &[]);
    }
    let [_, before, packed, last] = [0, 1, 2, 3].map(|number: usize| &history.transactions[number]);
    assert_eq!(storage.reader().records_to_undo(packed.tid).unwrap().len(), 1);
    let found = storage.reader().records_to_undo(last.tid).unwrap()[0];
    assert!(pack(&storage, packed.tid, true).unwrap().is_some());
    let refused = storage.reader().records_to_undo(packed.tid);
    assert!(matches!(refused, Err(FileStorageError::NotUndoable { tid, .. }) if tid == packed.tid));
    let body = undo_record(&storage, last.tid, found, &mut Undoing::default()).unwrap().unwrap();
    commit_body(&storage, Tid(last.tid.0 + 1), body).unwrap();
    assert_eq!(current(&storage, Oid::ROOT).unwrap().data, data(packed).unwrap());
    assert_ne!(data(before), data(packed));
}

#[test]
fn one_pack_at_a_time_and_a_dropped_one_is_over() {
    let (disk, storage, history) = storage_with_history(13, 60);
    let cancelled = Arc::default();
    let options = options(true, &cancelled);
    let pack = storage.packer().begin(history.last_tid(), &options).unwrap().unwrap();
    assert!(disk.exists(Path::new("Data.fs.pack")).unwrap());
    let second = storage.packer().begin(history.last_tid(), &options);
    assert!(matches!(second, Err(FileStorageError::AlreadyPacking { .. })));
    drop(pack);
    assert!(!disk.exists(Path::new("Data.fs.pack")).unwrap());
    let mut pack = storage.packer().begin(history.last_tid(), &options).unwrap().unwrap();
    storage.packer().finish(&mut pack).unwrap();
}

#[test]
fn an_old_file_that_is_served_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let [path, old] = ["Data.fs", "Data.fs.old"].map(|name| folder.path().join(name));
    let (bytes, history) = written(15, 60);
    std::fs::write(&path, bytes).unwrap();
    let open = |path: &Path| FileStorage::open(Arc::new(RealDisk), &OpenOptions::new(path));
    let storage = open(&path).unwrap();
    let served = open(&old).unwrap();
    let refused = pack(&storage, history.transactions[20].tid, true);
    let Err(FileStorageError::OldLocked { path, owner }) = refused else { panic!("it is served") };
    assert_eq!((&path, owner), (&old, Some(std::process::id())));
    assert_eq!(std::fs::read(&old).unwrap(), b"FS30");
    drop(served);
    // The lock file stays behind, and so does the lock of the file that a pack has replaced.
    assert!(pack(&storage, history.transactions[20].tid, true).unwrap().is_some());
    assert!(pack(&storage, history.last_tid(), true).unwrap().is_some());
}

#[test]
fn a_cancelled_pack_leaves_the_file_as_it_was() {
    let (disk, storage, history) = storage_with_history(14, 60);
    let bytes = disk.bytes(Path::new(PATH));
    let cancelled = Arc::new(AtomicBool::new(true));
    let options = options(true, &cancelled);
    let pack = storage.packer().begin(history.last_tid(), &options);
    assert!(matches!(pack, Err(FileStorageError::PackCancelled { .. })));
    assert_eq!(disk.bytes(Path::new(PATH)), bytes);
    assert!(!disk.exists(Path::new("Data.fs.pack")).unwrap());
}

#[test]
fn space_promised_before_the_pack_is_there_after_it() {
    let (_, storage, history) = storage_with_history(15, 60);
    let new = transaction(vec![root(NewBody::Data(Bytes::from_static(b"x")))]);
    let prepared = prepare(&storage, new).unwrap();
    assert!(pack(&storage, history.last_tid(), true).unwrap().is_some());
    append(&storage, vec![(Tid(history.last_tid().0 + 1), prepared)]).unwrap();
    assert_eq!(current(&storage, Oid::ROOT).unwrap().data, "x");
}

/// Votes need not ask the file system then.
#[test]
fn space_is_reserved_ahead_in_the_packed_file() {
    let (_, storage, history) = storage_with_history(13, 60);
    assert!(pack(&storage, history.last_tid(), true).unwrap().is_some());
    let new = stores(history.last_tid().next(), &[(0, b"data")]).1;
    let prepared = storage.prepare(new, Access::NonBlocking).unwrap();
    storage.release(prepared.expect("there is space for it"));
}

#[test]
fn a_vote_after_a_pack_is_refused_what_the_disk_has_no_room_for() {
    let (disk, storage, history) = storage_with_history(13, 60);
    assert!(pack(&storage, history.last_tid(), true).unwrap().is_some());
    disk.set_capacity(disk.used_bytes());
    let large = stores(history.last_tid().next(), &[(0, &[0; 2 << 20])]).1;
    let refused = prepare(&storage, large);
    assert!(matches!(refused, Err(FileStorageError::Full { .. })), "{refused:?}");
}

#[test]
fn without_a_root_only_a_pack_without_gc_is_possible() {
    let (_, storage, mut history) = storage_with_history(0, 0);
    history.store_references(&storage, Oid(1), &[]);
    history.store_references(&storage, Oid(1), &[]);
    let refused = pack(&storage, history.last_tid(), true);
    assert!(matches!(refused, Err(FileStorageError::RootMissing { .. })));
    assert!(pack(&storage, history.last_tid(), false).unwrap().is_some());
    assert_eq!(read(&storage).len(), 1);
}

#[test]
fn references_that_cannot_be_read_stop_a_gc_and_name_the_object() {
    let (_, storage, mut history) = storage_with_history(0, 0);
    history.store_references(&storage, Oid(1), &[]);
    history.store_references(&storage, Oid::ROOT, &[Oid(1)]);
    let tid = Tid(history.last_tid().0 + 1);
    support::commit(&storage, stores(tid, &[(1, b"no")])).unwrap();
    let refused = pack(&storage, tid, true);
    assert!(matches!(refused, Err(FileStorageError::References { oid: Oid(1), .. })));
    assert!(refused.unwrap_err().to_string().contains("Mend the object"));
    assert!(pack(&storage, tid, false).unwrap().is_some());
}

#[test]
fn compressed_data_stop_a_gc_and_are_said_to_be_sound() {
    let (_, storage, history) = storage_with_history(0, 0);
    let tid = Tid(history.last_tid().0 + 1);
    support::commit(&storage, stores(tid, &[(0, b".zx\x9c")])).unwrap();
    let refused = pack(&storage, tid, true).unwrap_err().to_string();
    assert!(refused.contains("compressed by zc.zlibstorage. That is no damage"), "{refused}");
    assert!(refused.contains("`pack-gc off`") && !refused.contains("Mend"), "{refused}");
}

#[test]
fn dangling_references_are_counted_and_stop_a_pack_only_when_asked() {
    let (disk, storage, mut history) = storage_with_history(0, 0);
    history.store_references(&storage, Oid::ROOT, &[Oid(1)]);
    // One that was never there, one that is garbage with what it lacks, one that is deleted.
    history.store_references(&storage, Oid(1), &[Oid(2), Oid(3), Oid(66)]);
    history.store_references(&storage, Oid(9), &[Oid(67)]);
    history.store_references(&storage, Oid(2), &[]);
    history.store_references(&storage, Oid(3), &[Oid(1)]);
    let deleted = NewRecord { oid: Oid(3), body: NewBody::Deleted };
    let pack_tid = Tid(history.last_tid().0 + 1);
    support::commit(&storage, (pack_tid, transaction(vec![deleted]))).unwrap();
    let before = disk.bytes(Path::new(PATH));

    let cancelled = Arc::default();
    let strict = PackOptions { abort_on_dangling: true, ..options(true, &cancelled) };
    let refused = storage.packer().begin(pack_tid, &strict).map(drop).unwrap_err();
    let FileStorageError::Dangling { references: 2, .. } = refused else { panic!("{refused}") };
    let text = refused.to_string();
    let first = "object 0000000000000001 (persistent.list.PersistentList) refers to object \
        0000000000000042, which does not exist";
    assert!(text.contains(first), "{text}");
    assert_eq!(disk.bytes(Path::new(PATH)), before);
    assert_eq!(disk.bytes(Path::new("Data.fs.pack")), None);

    let packed = pack(&storage, pack_tid, true).unwrap().unwrap();
    assert_eq!((packed.dangling, packed.objects_after), (2, 3));
    assert!(current(&storage, Oid(2)).is_some());
    // Without gc references are not followed.
    let lax = PackOptions { gc: false, ..strict };
    assert!(storage.packer().begin(pack_tid, &lax).unwrap().is_none());
}

#[test]
fn the_first_100_dangling_references_are_told_one_by_one_and_all_are_counted() {
    for count in [1, 99, 100, 101, 102, 150] {
        let (_, storage, mut history) = storage_with_history(0, 0);
        history.store_references(&storage, Oid::ROOT, &[]);
        let missing: Vec<Oid> = (1000..1000 + count).map(Oid).collect();
        history.store_references(&storage, Oid::ROOT, &missing);
        let (packed, warnings) =
            support::count_warnings(|| pack(&storage, history.last_tid(), true).unwrap().unwrap());
        assert_eq!(packed.dangling, count);
        let (told, rest) = warnings.split_at(warnings.len() - 1);
        assert_eq!(told.len() as u64, count.min(100));
        for (line, oid) in told.iter().zip(missing) {
            assert!(line.contains(&format!("refers to object {oid}")), "{line}");
        }
        let [summary] = rest else { panic!("{rest:?}") };
        assert!(summary.contains(&format!("references={count} ")), "{summary}");
        assert!(summary.contains(&format!("logged={} ", count.min(100))), "{summary}");
    }
}

#[test]
fn a_root_that_is_deleted_is_missing() {
    let (_, storage, mut history) = storage_with_history(0, 0);
    history.store_references(&storage, Oid::ROOT, &[]);
    let deleted = Tid(history.last_tid().0 + 1);
    commit_body(&storage, deleted, NewBody::Deleted).unwrap();
    let refused = pack(&storage, deleted, true);
    assert!(matches!(refused, Err(FileStorageError::RootMissing { .. })), "{refused:?}");
    // At that time it was there.
    assert!(pack(&storage, history.last_tid(), true).unwrap().is_none());
}

#[test]
fn a_new_reference_to_a_deleted_object_does_not_stop_a_pack() {
    let (_, storage, mut history) = storage_with_history(0, 0);
    let gone = Oid(1);
    history.store_references(&storage, Oid::ROOT, &[gone]);
    history.store_references(&storage, gone, &[]);
    let deleted = Tid(history.last_tid().0 + 1);
    let record = NewRecord { oid: gone, body: NewBody::Deleted };
    support::commit(&storage, (deleted, transaction(vec![record]))).unwrap();
    let cancelled = Arc::default();
    let mut pack = storage.packer().begin(deleted, &options(true, &cancelled)).unwrap().unwrap();
    let data = support::referring([gone.0]);
    let later = Tid(deleted.0 + 1);
    support::commit(&storage, stores(later, &[(2, &data)])).unwrap();
    let packed = storage.packer().finish(&mut pack).unwrap();
    assert_eq!((packed.dangling, packed.objects_after), (1, 2));
    assert!(current(&storage, Oid(2)).is_some() && current(&storage, gone).is_none());
}

/// The pack keeps the deletion, and the record before it for the one that points back to it.
#[test]
fn an_object_that_comes_back_is_not_missing() {
    let (_, storage, _) = storage_with_history(0, 0);
    let oid = Oid(1);
    let [first, stored, deleted, restored] = [1, 2, 3, 4].map(support::tid);
    let (refers, leaf) = (support::referring([oid.0]), support::referring([]));
    support::commit(&storage, stores(first, &[(0, &leaf)])).unwrap();
    support::commit(&storage, stores(stored, &[(0, &refers), (1, &leaf)])).unwrap();
    let record = |oid, body| NewRecord { oid, body };
    let root = |data: &[u8]| root(NewBody::Data(Bytes::copy_from_slice(data)));
    let records = vec![root(&leaf), record(oid, NewBody::Deleted)];
    support::commit(&storage, (deleted, transaction(records))).unwrap();
    let records = vec![record(oid, NewBody::SameAs(stored)), root(&refers)];
    support::commit(&storage, (restored, transaction(records))).unwrap();
    let packed = pack(&storage, deleted, true).unwrap().unwrap();
    assert_eq!((packed.dangling, packed.objects_after), (0, 2));
    assert!(current(&storage, oid).is_some());
}

#[test]
fn a_reference_to_an_object_that_is_newer_than_the_pack_time_is_not_dangling() {
    let (_, storage, mut history) = storage_with_history(0, 0);
    history.store_references(&storage, Oid::ROOT, &[]);
    history.store_references(&storage, Oid::ROOT, &[]);
    let until = history.last_tid();
    history.store_all_references(&storage, &[(Oid::ROOT, &[Oid(5)]), (Oid(5), &[Oid(6)])]);
    history.store_references(&storage, Oid(6), &[]);
    let packed = pack(&storage, until, true).unwrap().unwrap();
    assert_eq!((packed.dangling, packed.objects_after), (0, 3));
}

/// The revision before it is kept, for one that points back to it.
#[test]
fn an_object_that_comes_back_stays_deleted_at_the_pack_time() {
    let (_, storage, _) = storage_with_history(0, 0);
    let oid = Oid(1);
    let [first, stored, deleted, restored] = [1, 2, 3, 4].map(support::tid);
    support::commit(&storage, stores(first, &[(0, b"freed by the pack")])).unwrap();
    support::commit(&storage, stores(stored, &[(0, b"root"), (1, b"data")])).unwrap();
    for (tid, body) in [(deleted, NewBody::Deleted), (restored, NewBody::SameAs(stored))] {
        let records = vec![NewRecord { oid, body }];
        support::commit(&storage, (tid, transaction(records))).unwrap();
    }
    let check = || {
        let before = |tid| storage.reader().load_before(oid, tid, Access::Blocking).unwrap();
        assert!(!matches!(before(restored), Load::Revision(_)), "{:?}", before(restored));
        let Load::Revision(found) = before(Tid::MAX) else { panic!("it is back") };
        assert_eq!((&found.data[..], found.serial), (&b"data"[..], restored));
    };
    check();
    assert!(pack(&storage, deleted, false).unwrap().is_some());
    check();
}

#[test]
fn a_pack_that_would_free_nothing_writes_nothing() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(&disk);
    support::commit(&storage, stores(support::tid(1), &[(0, b"root")])).unwrap();
    let done = || [Operation::Open, Operation::Write].map(|operation| disk.count(operation));
    let before = done();
    assert!(pack(&storage, support::tid(1), false).unwrap().is_none());
    assert_eq!(done(), before);
    // A transaction without records is freed.
    support::commit(&storage, stores(support::tid(2), &[])).unwrap();
    assert!(pack(&storage, support::tid(2), false).unwrap().is_some());
    assert_eq!(read(&storage).len(), 1);
}

#[test]
fn a_pack_catches_up_until_less_than_a_mib_is_left() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = Arc::new(open(&disk));
    let large = vec![7; 3 << 19];
    for n in 1..=2 {
        support::commit(&storage, stores(support::tid(n), &[(0, &large)])).unwrap();
    }
    let cancelled = Arc::default();
    let begun = storage.packer().begin(support::tid(2), &options(false, &cancelled));
    let mut pack = begun.unwrap().unwrap();
    let syncs = disk.count(Operation::Sync);
    storage.packer().catch_up(&mut pack).unwrap();
    assert_eq!(disk.count(Operation::Sync), syncs + 1, "nothing was left");
    for (n, bytes, is_copied) in [(3, 1 << 21, true), (4, 100_000, false)] {
        let copied = || disk.files().bytes(Path::new("Data.fs.pack")).unwrap().len();
        let (before, storage_then) = (copied(), Arc::clone(&storage));
        disk.before_next(Operation::Sync, move || {
            let data = vec![8; bytes];
            support::commit(&storage_then, stores(support::tid(n), &[(n, &data)])).unwrap();
        });
        storage.packer().catch_up(&mut pack).unwrap();
        assert_eq!(copied() > before + bytes, is_copied, "{bytes} bytes");
    }
    storage.packer().finish(&mut pack).unwrap();
    let lengths = read(&storage).into_iter().map(|it| data(&it).unwrap().len());
    assert_eq!(lengths.collect::<Vec<_>>(), [3 << 19, 1 << 21, 100_000]);
}

#[test]
fn a_pack_of_many_small_transactions_writes_few_times_and_its_checksums_too() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let checksums = zodium_filestorage::ChecksumMode::Full;
    let options_full = OpenOptions { checksums, ..OpenOptions::new(PATH) };
    let storage = FileStorage::open(Arc::new(disk.clone()), &options_full).unwrap();
    for n in 1..=500 {
        support::commit(&storage, stores(support::tid(n), &[(n % 400, b"data")])).unwrap();
    }
    let writes = disk.count(Operation::Write);
    let cancelled = Arc::default();
    let options = options(false, &cancelled);
    let mut pack = storage.packer().begin(support::tid(450), &options).unwrap().unwrap();
    // Two for each transaction, as each has one record. 50 were later.
    let entries = (400 + 50) * 2 * 16;
    let side = disk.files().after_power_cut().bytes(Path::new("Data.fs.pack.checksums"));
    assert_eq!(side.unwrap().len(), 4096 + entries, "they last before the copy takes its place");
    storage.packer().finish(&mut pack).unwrap();
    let writes = disk.count(Operation::Write) - writes;
    assert!(writes < 40, "{writes} writes");
    assert_eq!(storage.uncovered_bytes(), 0);
}

/// More than is copied at once, and as much.
#[test]
fn records_of_any_size_are_copied_whole() {
    let (_, storage, _) = storage_with_history(0, 0);
    let data = |length: usize| -> Vec<u8> { (0..length).map(|at| (at % 251) as u8).collect() };
    let lengths = [5 << 19, 1 << 20, (1 << 20) + 1, 5 << 19, 1];
    for (n, length) in (1..).zip(lengths) {
        support::commit(&storage, stores(support::tid(2 * n), &[(n, &data(length))])).unwrap();
        support::commit(&storage, stores(support::tid(2 * n + 1), &[(0, b"root")])).unwrap();
    }
    // The last two are later, and are copied with their whole transactions.
    assert!(pack(&storage, support::tid(7), false).unwrap().is_some());
    for (n, length) in (1..).zip(lengths) {
        let found = current(&storage, Oid(n)).unwrap();
        assert!(found.data == data(length), "{length} bytes");
    }
}

/// Writes a history, packs it at some time, perhaps while it goes on, and packs it again.
fn pack_random_history(seed: u64) {
    let (disk, storage, mut history) = storage_with_history(seed, 0);
    history.write(&storage, 5);
    for _ in 0..3 {
        let count = history.random.random_range(0..40);
        history.write(&storage, count);
        let gc = history.random.random_range(0..3) > 0;
        let transactions = history.transactions.clone();
        let pack_tid = match history.random.random_range(0..4) {
            0 => Tid(history.last_tid().0 + 10),
            _ => transactions.choose(&mut history.random).unwrap().tid,
        };
        pack_and_check(&disk, &storage, &mut history, pack_tid, gc);
    }
    let recovered = disk.after_power_cut();
    recovered.remove(Path::new("Data.fs.index")).unwrap();
    assert_same(&read(&open(&recovered)), &history.transactions);
}

fn pack_and_check(
    disk: &MemoryDisk,
    storage: &FileStorage,
    history: &mut History,
    pack_tid: Tid,
    gc: bool,
) {
    let cancelled = Arc::default();
    let before = disk.bytes(Path::new(PATH)).unwrap();
    let later = history.transactions.iter().find(|transaction| transaction.tid > pack_tid);
    let is_repeated = later.is_some_and(|later| later.status == TransactionStatus::Packed);
    let (seen, begun) =
        (history.last_tid(), storage.packer().begin(pack_tid, &options(gc, &cancelled)));
    // What is committed during the pack is not "at the pack time" even when that lies ahead.
    let pack_tid = pack_tid.min(seen);
    let expected = history.packed(pack_tid, seen, gc);
    let Some(pack) = begun.unwrap() else {
        assert_eq!(disk.bytes(Path::new(PATH)).unwrap(), before);
        let records = |transactions: &[Transaction]| {
            transactions.iter().map(|transaction| transaction.records.len()).sum::<usize>()
        };
        let old = history.transactions.iter().filter(|t| t.tid <= pack_tid);
        // Data in the place of back pointers may take what the pack would free.
        let grows = old.flat_map(|t| &t.records).any(|record| record.source.is_some());
        let same = expected.len() == history.transactions.len()
            && records(&expected) == records(&history.transactions);
        assert!(same || grows || is_repeated);
        return;
    };
    assert!(!is_repeated);
    let Some(mut pack) = commit_meanwhile(storage, history, pack) else { return };
    let packed = storage.packer().finish(&mut pack).unwrap();
    assert!(packed.size_after < packed.size_before || history.last_tid() > seen);

    let expected: Vec<_> = expected
        .into_iter()
        .chain(history.transactions.iter().filter(|t| t.tid > seen).cloned())
        .collect();
    if gc {
        assert_views(&history.transactions, &expected, pack_tid, history);
    }
    let found = read(storage);
    assert_same_but_sources(&found, &expected, pack_tid, seen);
    history.transactions = found;
    history.packed_to = history.packed_to.max(pack_tid);
    assert_loads(storage, history);
    // Without an index, and with the one that was saved.
    assert_same(&read(&open(&disk.after_power_cut())), &history.transactions);
    storage.save_index().unwrap();
    assert_loads(&open(&disk.after_power_cut()), history);
}

/// Commits some, and catches up some; `None` when the pack has to be given up for that.
fn commit_meanwhile(storage: &FileStorage, history: &mut History, mut pack: Pack) -> Option<Pack> {
    for _ in 0..history.random.random_range(0..4) {
        let count = history.random.random_range(0..4);
        history.write(storage, count);
        match storage.packer().catch_up(&mut pack) {
            Err(FileStorageError::PackOvertaken { .. }) => {
                assert_loads(storage, history);
                return None;
            }
            result => result.unwrap(),
        }
    }
    Some(pack)
}

/// A reader at the pack time or later sees no difference, in any object that it reaches from the
/// root.
fn assert_views(old: &[Transaction], new: &[Transaction], pack_tid: Tid, history: &History) {
    let later = old.iter().map(|transaction| transaction.tid).filter(|tid| *tid > pack_tid);
    for tid in later.chain([pack_tid]) {
        let mut seen = BTreeSet::new();
        let mut pending = vec![Oid::ROOT];
        while let Some(oid) = pending.pop() {
            let Some((serial, Some(data))) = revision(old, oid, tid) else { continue };
            if seen.insert(oid) {
                pending.extend(history.references(&data));
                let found = revision(new, oid, tid);
                assert_eq!(found, Some((serial, Some(data))), "{oid:?} at {tid:?}");
            }
        }
    }
}

/// Every load at every time since the last pack is answered as the transactions say.
fn assert_loads(storage: &FileStorage, history: &History) {
    let transactions = history.transactions.as_slice();
    let oids: BTreeSet<_> =
        transactions.iter().flat_map(|t| t.records.iter().map(|record| record.oid)).collect();
    let tids: Vec<_> = transactions.iter().map(|transaction| transaction.tid).collect();
    for &oid in &oids {
        let times = tids.iter().flat_map(|tid| [*tid, tid.next()]).chain([Tid::MAX]);
        for before in times.filter(|before| *before > history.packed_to) {
            let found = storage.reader().load_before(oid, before, Access::Blocking).unwrap();
            let expected = revision(transactions, oid, Tid(before.0 - 1));
            match (found, expected) {
                (Load::Revision(found), Some((serial, Some(data)))) => {
                    let next = transactions.iter().find(|transaction| {
                        transaction.tid > serial && transaction.records.iter().any(|r| r.oid == oid)
                    });
                    assert_eq!((found.serial, found.data), (serial, data), "{oid:?}");
                    assert_eq!(found.end, next.map(|next| next.tid), "{oid:?}");
                }
                (Load::Missing, Some((_, None))) | (Load::NoRevision, None) => {}
                (found, expected) => panic!("{oid:?} before {before:?}: {found:?} {expected:?}"),
            }
        }
    }
    let mut walked = BTreeSet::new();
    let mut next = Some(Oid(0));
    while let Some(step) = next.and_then(|oid| storage.reader().next_object(oid).unwrap()) {
        walked.insert(step.oid);
        next = step.following;
    }
    assert_eq!(walked, oids);
}

/// Back pointers of transactions that came during the pack may have become data.
fn assert_same_but_sources(
    found: &[Transaction],
    expected: &[Transaction],
    pack_tid: Tid,
    seen: Tid,
) {
    let mut expected = expected.to_vec();
    for (found, expected) in found.iter().zip(&mut expected).filter(|(_, e)| e.tid > seen) {
        for (found, expected) in found.records.iter().zip(&mut expected.records) {
            if found.source.is_none() && expected.source.is_some_and(|tid| tid <= pack_tid) {
                expected.source = None;
            }
        }
    }
    assert_same(found, &expected);
}

fn assert_same(found: &[Transaction], expected: &[Transaction]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

fn storage_with_history(seed: u64, count: usize) -> (MemoryDisk, FileStorage, History) {
    let disk = MemoryDisk::new();
    let (storage, mut history) = (open(&disk), History::new(seed));
    history.write(&storage, count);
    (disk, storage, history)
}

/// The bytes of a history's file.
fn written(seed: u64, count: usize) -> (Vec<u8>, History) {
    let (disk, _, history) = storage_with_history(seed, count);
    (disk.bytes(Path::new(PATH)).unwrap(), history)
}

fn open(disk: &(impl Disk + Clone + 'static)) -> FileStorage {
    let options = OpenOptions { cache_bytes: 1 << 16, ..OpenOptions::new(PATH) };
    FileStorage::open(Arc::new(disk.clone()), &options).unwrap()
}

fn options<'a>(gc: bool, cancelled: &'a Arc<AtomicBool>) -> PackOptions<'a> {
    assert!(!cancelled.load(Ordering::Relaxed) || gc);
    PackOptions { gc, keep_old: true, ..PackOptions::new(cancelled) }
}

fn pack(storage: &FileStorage, tid: Tid, gc: bool) -> Result<Option<Packed>, FileStorageError> {
    let cancelled = Arc::default();
    match storage.packer().begin(tid, &options(gc, &cancelled))? {
        Some(mut pack) => storage.packer().finish(&mut pack).map(Some),
        None => Ok(None),
    }
}

fn read(storage: &FileStorage) -> Vec<Transaction> {
    read_all(storage.reader().iterate(None, None).unwrap())
}

fn current(storage: &FileStorage, oid: Oid) -> Option<Revision> {
    match storage.reader().load_before(oid, Tid::MAX, Access::Blocking).unwrap() {
        Load::Revision(revision) => Some(revision),
        _ => None,
    }
}

fn data(transaction: &Transaction) -> Option<Bytes> {
    transaction.records[0].data.clone()
}

fn root(body: NewBody) -> NewRecord {
    NewRecord { oid: Oid::ROOT, body }
}

fn commit_body(storage: &FileStorage, tid: Tid, body: NewBody) -> Result<(), FileStorageError> {
    support::commit(storage, (tid, transaction(vec![root(body)])))
}

fn commit(storage: &FileStorage, tid: Tid) -> Result<(), FileStorageError> {
    commit_body(storage, tid, NewBody::Data(Bytes::from_static(b"new")))
}

/// As a copy of a packed storage has it.
fn commit_packed(storage: &FileStorage, tid: Tid) {
    let body = NewBody::Data(Bytes::from_static(b"packed"));
    let status = TransactionStatus::Packed;
    let packed = NewTransaction { status, ..transaction(vec![root(body)]) };
    support::commit(storage, (tid, packed)).unwrap();
}

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}
