//! With checksums beside it a `Data.fs` gives the bytes that were stored, or an error: whatever
//! bit of a committed transaction is flipped.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use crate::support::{
    History, Model, check_everything, checked, checked_at, commit, companion, count_warnings,
    data_file, data_of, disk_of, file_bytes, flip, for_each_seed, loads_other_bytes, overwrite,
    same_answers, stores, tid,
};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation, PowerCut};
use zodium_filestorage::{
    ChecksumMode, Distrust, FileStorage, FileStorageError, OpenOptions, RecoverOptions,
    RecoveryKind, recover,
};
use zodium_storage::{Access, Load, LogItem, PackOptions};
use zodium_types::{Oid, Tid};

fn open(disk: impl Disk + 'static) -> FileStorage {
    let checksums = ChecksumMode::Full;
    let options = OpenOptions { checksums, ..OpenOptions::new(data_file()) };
    FileStorage::open(Arc::new(disk), &options).expect("it opens")
}

/// Takes all checksums that are missing.
fn cover(storage: &FileStorage) {
    while storage.cover(1 << 20) > 0 {}
    assert_eq!(storage.uncovered_bytes(), 0);
}

fn written(rng: &SmallRng, bytes: u64) -> (MemoryDisk, History) {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let mut history = History::new(rng.clone());
    while history.model.size() < bytes {
        history.commit_batch(&storage);
    }
    storage.close().unwrap();
    (disk, history)
}

/// Where the last `count` transactions of the model begin in the file.
fn start_of_last(bytes: &[u8], count: usize) -> usize {
    (0..count).fold(bytes.len(), |end, _| {
        let length = u64::from_be_bytes(bytes[end - 8..end].try_into().unwrap());
        end - 8 - length as usize
    })
}

/// How many flips give an error when everything is read. All are found by the scrub.
fn flip_every_bit(disk: &MemoryDisk, model: &Model) -> (u32, u32) {
    let bytes = data_of(disk);
    let (mut by_reading, mut flips) = (0, 0);
    for bit in start_of_last(&bytes, 3) * 8..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let disk = disk.after_kill();
        overwrite(&disk, data_file(), &damaged);
        let storage = open(disk.clone());
        assert!(!loads_other_bytes(&storage, model), "bit {bit}");
        match same_answers(&storage, model) {
            Ok(is_same) => assert!(!is_same, "bit {bit} goes unseen"),
            Err(_) => by_reading += 1,
        }
        flips += 1;
        storage.scrub(Default::default(), u64::MAX);
        assert!(storage.checksum_metrics().unwrap().damaged >= 1, "bit {bit}");
        drop(storage);
        assert_eq!(data_of(&disk), damaged, "bit {bit}: damage is kept");
    }
    (by_reading, flips)
}

#[test]
fn every_flipped_bit_of_the_last_three_transactions_is_seen() {
    for_each_seed(2, "checksums", |_, rng| {
        let (disk, history) = written(rng, 1_000);
        let (by_reading, flips) = flip_every_bit(&disk, &history.model);
        println!("with an index: {by_reading} of {flips} seen by reading, all by the scrub");
        disk.remove(&companion(".index")).unwrap();
        let (by_reading, flips) = flip_every_bit(&disk, &history.model);
        println!("without an index: {by_reading} of {flips} seen by reading, all by the scrub");
    });
}

#[test]
fn checksums_are_written_with_commits_and_taken_up_by_the_next_session() {
    let (disk, mut history) = written(&SmallRng::seed_from_u64(1), 2_000);
    for round in 0..3 {
        let storage = open(disk.clone());
        let metrics = storage.checksum_metrics().unwrap();
        assert_eq!((metrics.covered_bytes, metrics.damaged), (metrics.bytes, 0), "round {round}");
        history.commit_batch(&storage);
        check_everything(&storage, &history.model, &mut SmallRng::seed_from_u64(9));
        if round % 2 == 0 {
            storage.close().unwrap();
        }
    }
}

#[test]
fn file_without_checksums_gets_them_while_it_is_written_to() {
    let (disk, mut history) = written(&SmallRng::seed_from_u64(2), 50_000);
    disk.remove(&companion(".checksums")).unwrap();
    let storage = open(disk.clone());
    assert_eq!(storage.checksum_metrics().unwrap().covered_bytes, 4);
    for _ in 0..10 {
        storage.cover(1_000);
        history.commit_batch(&storage);
    }
    cover(&storage);
    history.commit_batch(&storage);
    assert_eq!(storage.uncovered_bytes(), 0);
    storage.scrub(Default::default(), u64::MAX);
    let metrics = storage.checksum_metrics().unwrap();
    assert_eq!((metrics.covered_bytes, metrics.damaged), (metrics.bytes, 0));
    check_everything(&storage, &history.model, &mut SmallRng::seed_from_u64(9));
}

/// The header that a program with version 2 would have written.
fn as_version_2(header: &[u8]) -> Vec<u8> {
    let mut old = [&header[..19], &[2], &header[20..60], &header[68..84], &header[92..93]].concat();
    old.extend(crc32c::crc32c(&old).to_be_bytes());
    old.resize(4096, 0);
    old
}

/// Else an update of the program would take damaged bytes for sound.
#[test]
fn checksums_of_version_2_are_used_and_get_version_3() {
    for is_closed in [true, false] {
        let (disk, mut history) = written(&SmallRng::seed_from_u64(4), 5_000);
        if !is_closed {
            history.commit_batch(&open(disk.clone()));
        }
        let (path, mut data) = (companion(".checksums"), data_of(&disk));
        let side = disk.bytes(&path).unwrap();
        let old = [as_version_2(&side), side[4096..].to_vec()].concat();
        overwrite(&disk, &path, &old);
        let at = start_of_last(&data, 1) + 60;
        data[at] ^= 1;
        overwrite(&disk, data_file(), &data);
        let storage = open(disk.clone());
        assert!(!loads_other_bytes(&storage, &history.model), "closed: {is_closed}");
        storage.scrub(Default::default(), u64::MAX);
        let metrics = storage.checksum_metrics().unwrap();
        assert_eq!((metrics.covered_bytes, metrics.damaged), (metrics.bytes, 1), "{is_closed}");
        assert_eq!(disk.bytes(&path).unwrap()[16..20], [0, 0, 0, 3]);
    }
}

/// The later program, or a search for damage, may need them.
#[test]
fn checksums_of_a_later_version_are_kept_aside() {
    let (disk, history) = written(&SmallRng::seed_from_u64(4), 2_000);
    let path = companion(".checksums");
    let mut later = disk.bytes(&path).unwrap();
    later[19] = 4;
    overwrite(&disk, &path, &later);
    let read_only = OpenOptions {
        checksums: ChecksumMode::Full,
        read_only: true,
        ..OpenOptions::new(data_file())
    };
    drop(FileStorage::open(Arc::new(disk.clone()), &read_only).unwrap());
    assert!(disk.bytes(&path).unwrap() == later);
    let distrust = checked(&disk).0.distrust;
    assert_eq!(distrust, Some(Distrust::LaterVersion(4)));
    let storage = open(disk.clone());
    cover(&storage);
    check_everything(&storage, &history.model, &mut SmallRng::seed_from_u64(9));
    assert!(disk.bytes(&companion(".checksums.later")).unwrap() == later);
}

/// Whatever pieces of the side file a power cut leaves: its header counts no entry that is lost.
#[test]
fn a_power_cut_while_checksums_are_synced_leaves_none_that_count_and_are_missing() {
    for_each_seed(2, "checksums", |seed, rng| {
        let (disk, mut history) = written(rng, 1_000);
        let disk = FaultyDisk::new(disk);
        let storage = open(disk.clone());
        for _ in 0..3 {
            (0..8).for_each(|_| history.commit_batch(&storage));
            let images = Arc::new(Mutex::new(Vec::new()));
            let (kept, mut random) = (Arc::clone(&images), SmallRng::seed_from_u64(seed));
            disk.after_each(move |_, files| {
                let image = |cut| files.after(cut, &mut |below| random.random_range(0..below));
                kept.lock().unwrap().extend(PowerCut::KINDS.iter().map(image));
            });
            storage.sync_checksums();
            disk.after_each(|_, _| ());
            let images = std::mem::take(&mut *images.lock().unwrap());
            assert!(images.len() >= 3 * PowerCut::KINDS.len());
            for image in images {
                let storage = open(image.clone());
                assert_eq!(storage.last_tid(), history.model.last_tid());
                cover(&storage);
                storage.close().unwrap();
                let (found, _) = checked(&image);
                assert_eq!((found.damages, found.uncovered), (0, 0));
            }
        }
    });
}

/// As two callers may do it, though one is meant to.
#[test]
fn what_was_covered_meanwhile_gets_no_second_checksums() {
    let (disk, _) = written(&SmallRng::seed_from_u64(4), 20_000);
    disk.remove(&companion(".checksums")).unwrap();
    let disk = FaultyDisk::new(disk);
    let storage = Arc::new(open(disk.clone()));
    let other = Arc::clone(&storage);
    disk.before_next(Operation::Read, move || assert!(other.cover(1_000) > 0));
    assert_eq!(storage.cover(1_000), 0, "the other caller has covered them");
    cover(&storage);
    storage.scrub(Default::default(), u64::MAX);
    let metrics = storage.checksum_metrics().unwrap();
    assert_eq!((metrics.covered_bytes, metrics.damaged), (metrics.bytes, 0));
    storage.close().unwrap();
    let (found, _) = checked(disk.files());
    assert_eq!((found.damages, found.uncovered), (0, 0));
}

/// The commit ends before the upkeep goes on, or must wait for it.
#[test]
fn a_commit_without_checksums_is_not_named_complete_by_an_upkeep_that_has_looked_before() {
    let (disk, history) = written(&SmallRng::seed_from_u64(5), 2_000);
    disk.remove(&companion(".checksums")).unwrap();
    let disk = FaultyDisk::new(disk);
    let storage = Arc::new(open(disk.clone()));
    let (committed, commits) = std::sync::mpsc::channel();
    let last = history.model.last_tid().next();
    let (disk_then, storage_then) = (disk.clone(), Arc::clone(&storage));
    // The first sync is that of all checksums, before the session is named.
    disk.before_next(Operation::Sync, move || {
        // The checksum of the commit cannot be written behind it.
        disk_then.fail(Operation::Write, 2, std::io::ErrorKind::StorageFull);
        let (done, ends) = std::sync::mpsc::channel();
        let commit = std::thread::spawn(move || {
            let result = commit(&storage_then, stores(last, &[(1, b"last")]));
            _ = done.send(());
            result
        });
        _ = ends.recv_timeout(std::time::Duration::from_millis(500));
        committed.send(commit).unwrap();
    });
    assert!(storage.cover(1 << 20) > 0);
    commits.recv().unwrap().join().unwrap().unwrap();
    assert!(disk.has_failed());
    let image = disk.files().after_power_cut();
    let lock = String::from_utf8(image.bytes(&companion(".lock")).unwrap()).unwrap();
    assert!(lock.ends_with(" gaps\n"), "{lock}");
    assert_eq!(open(image).last_tid(), last);
    // The next upkeep names it again.
    storage.cover(1 << 20);
    let lock = String::from_utf8(disk.files().bytes(&companion(".lock")).unwrap()).unwrap();
    assert!(lock.contains("zodium ") && !lock.ends_with(" gaps\n"), "{lock}");
}

#[test]
fn reading_stays_before_a_transaction_that_does_not_fit_its_checksum() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let described = |number, text: &[u8]| {
        let mut new = stores(tid(number), &[(1, b"data")]);
        new.1.metadata.description = text.to_vec();
        new
    };
    for (number, text) in [(1, &b"first"[..]), (2, b"second"), (3, b"third")] {
        commit(&storage, described(number, text)).unwrap();
    }
    storage.close().unwrap();
    drop(storage);
    let bytes = data_of(&disk);
    let at = bytes.windows(6).position(|window| window == b"second").unwrap();
    let file = disk.open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(b"Second", at as u64).unwrap();
    file.sync().unwrap();

    let storage = open(disk.clone());
    let mut transactions = storage.reader().iterate(None, None).unwrap();
    for attempt in 0..3 {
        let mut seen = Vec::new();
        let read = transactions.read(true, |item| {
            if let LogItem::Transaction { tid, .. } = item {
                seen.push(tid);
            }
            ControlFlow::Continue(())
        });
        assert!(
            matches!(read, Err(FileStorageError::Corrupt { .. })),
            "attempt {attempt}: {read:?}"
        );
        let expected = if attempt == 0 { vec![tid(1)] } else { vec![] };
        assert_eq!(seen, expected, "attempt {attempt}");
    }
}

fn side_of(disk: &MemoryDisk) -> Vec<u8> {
    disk.bytes(&companion(".checksums")).unwrap()
}

/// Opens with this side file, and makes sure that it does no harm: the answers are those of the
/// model, nothing is damaged, and what is not covered can be.
///
/// Once as a copy, and once where the file and its lock are those of `disk`.
fn check_harmless(disk: &MemoryDisk, bytes: &[u8], side: &[u8], model: &Model, what: &str) {
    let copy = disk_of(bytes);
    copy.put(&companion(".checksums"), side.to_vec());
    check_harmless_on(&copy, bytes, model, what);
    let disk = disk.after_kill();
    overwrite(&disk, data_file(), bytes);
    overwrite(&disk, &companion(".checksums"), side);
    check_harmless_on(&disk, bytes, model, what);
}

fn check_harmless_on(disk: &MemoryDisk, bytes: &[u8], model: &Model, what: &str) {
    let storage = open(disk.clone());
    assert!(same_answers(&storage, model).unwrap(), "{what}");
    storage.scrub(Default::default(), u64::MAX);
    cover(&storage);
    storage.scrub(Default::default(), u64::MAX);
    let metrics = storage.checksum_metrics().unwrap();
    assert_eq!((metrics.covered_bytes, metrics.damaged), (metrics.bytes, 0), "{what}");
    assert_eq!(data_of(disk), bytes, "{what}");
}

#[test]
fn side_file_cut_at_any_byte_or_with_any_flipped_bit_changes_no_answer() {
    let (disk, history) = written(&SmallRng::seed_from_u64(3), 500);
    let (bytes, side) = (data_of(&disk), side_of(&disk));
    let used = |at: &usize| *at < 128 || *at >= 4096;
    for length in (0..side.len()).filter(used) {
        let what = format!("cut at {length}");
        check_harmless(&disk, &bytes, &side[..length], &history.model, &what);
    }
    for byte in (0..side.len()).filter(used) {
        for bit in 0..8 {
            let mut flipped = side.clone();
            flipped[byte] ^= 1 << bit;
            let what = format!("bit {bit} of byte {byte}");
            check_harmless(&disk, &bytes, &flipped, &history.model, &what);
        }
    }
}

#[test]
fn side_file_of_another_file_or_an_older_or_a_newer_one_changes_no_answer() {
    for_each_seed(10, "checksums", |seed, rng| {
        let (disk, mut history) = written(rng, 3_000);
        let (older, older_side, older_model) =
            (data_of(&disk), side_of(&disk), history.model.clone());
        let storage = open(disk.clone());
        for _ in 0..4 {
            history.commit_batch(&storage);
        }
        storage.close().unwrap();
        let (newer, newer_side) = (data_of(&disk), side_of(&disk));
        check_harmless(&disk, &newer, &older_side, &history.model, "an older side file");
        check_harmless(&disk, &older, &newer_side, &older_model, "a newer side file");
        let (other, _) = written(&SmallRng::seed_from_u64(seed + 1_000), 3_000);
        check_harmless(&disk, &newer, &side_of(&other), &history.model, "another's side file");
        // The older one was put back, and a program without checksums went on with it.
        let elsewhere = disk_of(&older);
        let storage = crate::support::open(elsewhere.clone());
        let mut other = History::after(&older_model, SmallRng::seed_from_u64(seed + 2_000));
        (0..4).for_each(|_| other.commit_batch(&storage));
        storage.close().unwrap();
        let what = "another continuation";
        check_harmless(&disk, &data_of(&elsewhere), &newer_side, &other.model, what);
    });
}

#[test]
fn pack_writes_the_checksums_of_the_new_file() {
    for keep_old in [false, true] {
        let (disk, _) = written(&SmallRng::seed_from_u64(5), 20_000);
        let storage = open(disk.clone());
        let cancelled = Arc::default();
        let options = PackOptions { keep_old, ..PackOptions::new(&cancelled) };
        let mut pack = storage.packer().begin(storage.last_tid(), &options).unwrap().unwrap();
        storage.packer().finish(&mut pack).unwrap();
        drop(pack);
        let metrics = storage.checksum_metrics().unwrap();
        assert_eq!((metrics.covered_bytes, metrics.damaged), (metrics.bytes, 0));
        assert_eq!(disk.bytes(&companion(".old.checksums")).is_some(), keep_old);
        storage.close().unwrap();
        let (found, _) = checked(&disk);
        assert!(found.has_checksums);
        assert_eq!((found.damages, found.uncovered), (0, 0));
        drop(storage);
        let storage = open(disk);
        assert_eq!(storage.uncovered_bytes(), 0);
    }
}

#[test]
fn pack_without_checksums_leaves_none_that_are_taken_for_those_of_the_new_file() {
    for_each_seed(10, "checksums", |_, rng| {
        let (disk, _) = written(rng, 5_000);
        let side = side_of(&disk);
        let storage = crate::support::open(disk.clone());
        let cancelled = Arc::default();
        let options = PackOptions::new(&cancelled);
        let Some(mut pack) = storage.packer().begin(storage.last_tid(), &options).unwrap() else {
            return;
        };
        storage.packer().finish(&mut pack).unwrap();
        drop((pack, storage));
        // As a stock server would have left it.
        disk.put(&companion(".checksums"), side);
        let storage = open(disk.clone());
        cover(&storage);
        storage.scrub(Default::default(), u64::MAX);
        assert_eq!(storage.checksum_metrics().unwrap().damaged, 0);
        storage.close().unwrap();
        assert_eq!(checked(&disk).0.damages, 0);
    });
}

#[test]
fn crash_at_any_step_of_commits_and_a_pack_leaves_checksums_that_fit_or_none() {
    for_each_seed(3, "checksums", |_, rng| {
        let (disk, mut history) = written(rng, 2_000);
        let disk = FaultyDisk::new(disk);
        disk.keep_images();
        let storage = open(disk.clone());
        for _ in 0..3 {
            history.commit_batch(&storage);
        }
        let cancelled = Arc::default();
        let options = PackOptions { keep_old: true, ..PackOptions::new(&cancelled) };
        if let Some(mut pack) = storage.packer().begin(storage.last_tid(), &options).unwrap() {
            history.commit_batch(&storage);
            storage.packer().catch_up(&mut pack).unwrap();
            storage.packer().finish(&mut pack).unwrap();
        }
        history.commit_batch(&storage);
        storage.close().unwrap();
        for image in disk.images() {
            for after in [image.power_cut, image.names_lost, image.kill] {
                let storage = open(after.clone());
                cover(&storage);
                storage.scrub(Default::default(), u64::MAX);
                let metrics = storage.checksum_metrics().unwrap();
                assert_eq!((metrics.covered_bytes, metrics.damaged), (metrics.bytes, 0));
                storage.close().unwrap();
                let (found, _) = checked(&after);
                assert_eq!((found.damages, found.uncovered), (0, 0), "{:?}", image.after);
            }
        }
    });
}

#[test]
fn failure_to_write_checksums_never_fails_a_commit_and_is_made_good_later() {
    for operation in [Operation::Write, Operation::Sync] {
        for nth in 1..20 {
            let (disk, mut history) = written(&SmallRng::seed_from_u64(nth), 500);
            disk.remove(&companion(".checksums")).unwrap();
            let disk = FaultyDisk::new(disk);
            disk.fail(operation, nth, std::io::ErrorKind::StorageFull);
            let storage = open(disk.clone());
            if storage.checksum_metrics().is_none() {
                assert!(disk.has_failed());
                history.commit_batch(&storage);
                continue;
            }
            disk.mend();
            cover(&storage);
            history.commit_batch(&storage);
            assert_eq!(storage.uncovered_bytes(), 0);
        }
    }
}

#[test]
fn recovery_leaves_out_what_does_not_fit_and_covers_the_new_file() {
    let (disk, history) = written(&SmallRng::seed_from_u64(7), 5_000);
    let mut bytes = data_of(&disk);
    // Within the data of the last record that has some.
    let oid = history.model.transactions.iter().rev().flat_map(|t| &t.records);
    let data = oid.filter_map(|record| record.data.clone()).find(|data| data.len() > 30).unwrap();
    let at = bytes.windows(data.len()).rposition(|window| window == &data[..]).unwrap();
    bytes[at + 20] ^= 4;
    overwrite(&disk, data_file(), &bytes);
    assert!(checked(&disk).0.damages >= 1);
    let to = std::path::Path::new("New.fs").to_owned();
    let options = RecoverOptions {
        from: data_file().to_owned(),
        to: to.clone(),
        partial: true,
        drop_mismatches: true,
        progress: &|_, _| (),
    };
    let mut notes = Vec::new();
    let summary = recover(&disk, &options, &mut |note| notes.push(note.clone())).unwrap();
    assert!(summary.left_out >= 1 && notes.iter().any(|note| note.what.contains("checksum")));
    let (found, _) = checked_at(&disk, &to);
    assert_eq!((found.damages, found.uncovered), (0, 0));
    assert!(found.has_checksums);
}

/// More than is covered at once.
#[test]
fn recovery_covers_a_large_file() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=5 {
        commit(&storage, stores(tid(n), &[(n, &vec![n as u8; 2 << 20])])).unwrap();
    }
    storage.close().unwrap();
    let to = std::path::Path::new("New.fs").to_owned();
    let options = RecoverOptions {
        from: data_file().to_owned(),
        to: to.clone(),
        partial: false,
        drop_mismatches: false,
        progress: &|_, _| (),
    };
    recover(&disk, &options, &mut |note| panic!("{note:?}")).unwrap();
    let (found, _) = checked_at(&disk, &to);
    assert_eq!((found.damages, found.covered, found.uncovered), (0, 10, 0));
}

#[test]
fn recovery_takes_and_names_what_does_not_fit_unless_it_is_told_to_leave_it_out() {
    let (disk, _) = written(&SmallRng::seed_from_u64(7), 5_000);
    let bytes = data_of(&disk);
    let mut damaged = bytes.clone();
    let at = bytes.len() - 12;
    damaged[at] ^= 4;
    overwrite(&disk, data_file(), &damaged);
    let to = std::path::Path::new("New.fs").to_owned();
    let options = RecoverOptions {
        from: data_file().to_owned(),
        to: to.clone(),
        partial: false,
        drop_mismatches: false,
        progress: &|_, _| (),
    };
    let mut notes = Vec::new();
    let summary = recover(&disk, &options, &mut |note| notes.push(note.clone())).unwrap();
    assert_eq!((summary.left_out, summary.mismatches), (0, 1));
    assert_eq!(notes.iter().map(|note| note.kind).collect::<Vec<_>>(), [RecoveryKind::Mismatch]);
    assert_eq!(disk.bytes(&to).unwrap(), damaged);
}

/// To tell damage from checksums of another file takes more reads.
#[test]
fn a_load_that_may_not_wait_leaves_it_to_another_one_to_tell_of_damage() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"data that are damaged"), (2, b"others")])).unwrap();
    let bytes = data_of(&disk);
    let at = bytes.windows(7).position(|window| window == b"damaged").unwrap();
    flip(&disk, at as u64, 0);
    let load = |oid, access| storage.reader().load_before(Oid(oid), Tid::MAX, access);
    for access in [Access::NonBlocking, Access::Blocking] {
        assert!(matches!(load(2, access), Ok(Load::Revision(_))));
    }
    assert!(matches!(load(1, Access::NonBlocking), Ok(Load::WouldBlock)));
    assert!(matches!(load(1, Access::Blocking), Err(FileStorageError::Corrupt { .. })));
}

/// A file of nine transactions as long as each other, without checksums, and their length.
fn without_checksums() -> (MemoryDisk, u64) {
    let disk = MemoryDisk::new();
    let storage = crate::support::open(disk.clone());
    let new = |n| stores(tid(n), &[(n, b"data")]);
    (1..=9).for_each(|n| commit(&storage, new(n)).unwrap());
    storage.close().unwrap();
    (disk, file_bytes(&new(1)))
}

#[test]
fn checksums_are_taken_of_whole_transactions_until_so_many_bytes_have_some() {
    let (disk, bytes) = without_checksums();
    let storage = open(disk);
    for (asked, transactions) in [(1, 1), (bytes, 1), (bytes + 1, 2), (2 * bytes, 2)] {
        assert_eq!(storage.cover(asked), transactions * bytes, "{asked} bytes");
    }
    assert_eq!(storage.uncovered_bytes(), 3 * bytes);
    assert_eq!((storage.cover(1 << 20), storage.cover(1 << 20)), (3 * bytes, 0));
}

#[test]
fn a_session_goes_on_where_the_one_before_had_come_to() {
    for is_closed in [false, true] {
        let (disk, bytes) = without_checksums();
        let storage = open(disk.clone());
        storage.cover(3 * bytes);
        match is_closed {
            true => storage.close().unwrap(),
            false => storage.sync_checksums(),
        }
        let after = disk.after_kill();
        drop(storage);
        let storage = open(after);
        let metrics = storage.checksum_metrics().unwrap();
        assert_eq!(metrics.covered_bytes, 4 + 3 * bytes, "closed: {is_closed}");
        let (found, _) = checked(&disk);
        assert_eq!((found.covered, found.uncovered), (3 * 2, 6 * 2), "closed: {is_closed}");
        assert_eq!(storage.uncovered_bytes(), 6 * bytes);
        assert_eq!(storage.cover(1 << 20), 6 * bytes);
    }
}

/// It would come back behind what is written there.
#[test]
fn what_is_behind_the_entries_of_a_side_file_is_cut_off_at_an_opening() {
    let (disk, _) = written(&SmallRng::seed_from_u64(6), 2_000);
    let (path, side) = (companion(".checksums"), side_of(&disk));
    overwrite(&disk, &path, &[&side[..], &[0xee; 1000]].concat());
    let storage = open(disk.clone());
    assert_eq!(side_of(&disk).len(), side.len());
    assert_eq!(side_of(&disk.after_power_cut()).len(), side.len());
    assert_eq!(storage.uncovered_bytes(), 0);
}

fn lock_of(disk: &MemoryDisk) -> String {
    String::from_utf8(disk.bytes(&companion(".lock")).unwrap()).unwrap()
}

#[test]
fn a_session_is_named_as_one_with_gaps_until_all_checksums_are_taken() {
    let (disk, _) = written(&SmallRng::seed_from_u64(7), 2_000);
    let before = lock_of(&disk);
    assert!(!before.ends_with(" gaps\n"), "{before}");
    disk.remove(&companion(".checksums")).unwrap();
    let storage = open(disk.clone());
    let with_gaps = lock_of(&disk);
    assert!(with_gaps.contains("zodium ") && with_gaps.ends_with(" gaps\n"), "{with_gaps}");
    cover(&storage);
    let named = lock_of(&disk);
    assert_eq!(named.trim_end(), with_gaps.trim_end().trim_end_matches(" gaps"));
    assert_ne!(named, before);
}

/// A served file that was written over with other transactions at the same places, and the tids of
/// these.
fn replaced() -> (FaultyDisk, FileStorage, Vec<Tid>) {
    let tids = |salt| (1..=20).map(move |n| tid(2 * n + u64::from(salt)));
    let write = |salt: u8| {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let storage = open(disk.clone());
        for (oid, tid) in (1..).zip(tids(salt)) {
            commit(&storage, stores(tid, &[(oid, &[salt; 30])])).unwrap();
        }
        (disk, storage)
    };
    let ((disk, storage), (other, _)) = (write(0), write(1));
    overwrite(disk.files(), data_file(), &data_of(other.files()));
    (disk, storage, tids(1).collect())
}

#[test]
fn an_iteration_goes_by_the_log_when_its_checksums_turn_out_to_be_of_another_one() {
    let (_, storage, tids) = replaced();
    let mut transactions = storage.reader().iterate(None, None).unwrap();
    for tid in tids {
        assert_eq!(transactions.step().unwrap().map(|found| found.tid), Some(tid));
        let record = transactions.records().unwrap().step().unwrap().unwrap();
        assert_eq!(record.data.as_deref(), Some(&[1; 30][..]));
    }
    assert_eq!(storage.checksum_metrics().unwrap().damaged, 0);
}

/// Else what they do not cover would be taken for torn after a crash.
#[test]
fn checksums_are_not_taken_anew_while_the_session_is_named_as_one_without_gaps() {
    let (disk, storage, _) = replaced();
    let covered = || storage.checksum_metrics().unwrap().covered_bytes;
    storage.scrub(Default::default(), u64::MAX);
    assert_eq!(covered(), 0);
    disk.fail(Operation::Write, 1, std::io::ErrorKind::Other);
    assert_eq!(storage.cover(1 << 20), 0);
    assert!(disk.has_failed());
    assert_eq!(covered(), 0);
    cover(&storage);
    assert_eq!(covered(), storage.size());
}

/// More than is summed at once.
#[test]
fn each_byte_of_a_large_record_is_covered() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let data: Vec<u8> = (0..5 << 19).map(|at: u32| (at % 251) as u8).collect();
    commit(&storage, stores(tid(1), &[(1, &data)])).unwrap();
    commit(&storage, stores(tid(2), &[(2, b"behind it")])).unwrap();
    storage.close().unwrap();
    let damaged = |storage: &FileStorage| {
        storage.scrub(Default::default(), u64::MAX);
        storage.checksum_metrics().unwrap().damaged
    };
    assert_eq!(damaged(&storage), 0);
    drop(storage);
    let taken_later = disk.after_kill();
    taken_later.remove(&companion(".checksums")).unwrap();
    cover(&open(taken_later.clone()));
    for disk in [disk, taken_later] {
        for at in [0, 1 << 20, 2 << 20, data.len() - 1] {
            let flipped = disk.after_kill();
            flip(&flipped, (4 + 23 + 42 + at) as u64, 5);
            assert_eq!(damaged(&open(flipped)), 1, "byte {at}");
        }
        assert_eq!(damaged(&open(disk)), 0);
    }
}

#[test]
fn a_scrub_counts_the_bytes_that_it_reads_and_ends_with_the_file() {
    let (disk, _) = written(&SmallRng::seed_from_u64(8), 10_000);
    let storage = open(disk);
    let scrubbed = || storage.checksum_metrics().unwrap().scrubbed_bytes;
    assert_eq!(scrubbed(), 0);
    let (mut place, mut steps) = (Some(Default::default()), 0);
    while let Some(at) = place {
        place = storage.scrub(at, 1_000);
        steps += 1;
    }
    let bytes = storage.size() - 4;
    assert_eq!(scrubbed(), bytes);
    assert!((5..=10).contains(&steps), "{steps}");
    assert_eq!(storage.scrub(Default::default(), bytes), None);
    assert_eq!(scrubbed(), 2 * bytes);
    let rest = storage.scrub(Default::default(), bytes - 8).map(|at| storage.scrub(at, 1));
    assert!(rest.is_none_or(|rest| rest.is_none()));
}

#[test]
fn a_scrub_reads_whole_transactions_until_it_has_so_many_bytes() {
    let (disk, bytes) = without_checksums();
    let storage = open(disk);
    let (mut place, mut before) = (Default::default(), 0);
    for (asked, transactions) in [(1, 1), (bytes, 1), (bytes + 1, 2), (2 * bytes, 2)] {
        place = storage.scrub(place, asked).unwrap();
        let scrubbed = storage.checksum_metrics().unwrap().scrubbed_bytes;
        assert_eq!(scrubbed - before, transactions * bytes, "{asked} bytes");
        before = scrubbed;
    }
}

#[test]
fn a_scrub_begins_anew_after_a_pack() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=100 {
        commit(&storage, stores(tid(n), &[(n % 50, b"some data")])).unwrap();
    }
    let place = storage.scrub(Default::default(), storage.size() / 2).unwrap();
    let cancelled = Arc::default();
    let options = PackOptions::new(&cancelled);
    let mut pack = storage.packer().begin(tid(100), &options).unwrap().unwrap();
    storage.packer().finish(&mut pack).unwrap();
    // The first record.
    flip(&disk, 4 + 23 + 42, 0);
    assert_eq!(storage.scrub(place, u64::MAX), None);
    assert_eq!(storage.checksum_metrics().unwrap().damaged, 1);
}

#[test]
fn checksums_that_cannot_be_written_are_warned_of_once_until_they_can_be() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    let fails = |nth, run: &dyn Fn()| {
        disk.fail(Operation::Write, nth, std::io::ErrorKind::StorageFull);
        let ((), warnings) = count_warnings(run);
        assert!(disk.has_failed());
        warnings.iter().filter(|line| line.contains("checksums cannot be written")).count()
    };
    for n in [1, 2] {
        // The data are written first.
        let warnings = fails(2, &|| commit(&storage, stores(tid(n), &[(n, b"data")])).unwrap());
        assert_eq!(warnings, 1);
        assert_eq!(fails(1, &|| assert_eq!(storage.cover(1 << 20), 0)), 0);
        cover(&storage);
    }
}

#[test]
fn a_file_that_ends_within_what_was_durable_is_warned_of() {
    let (disk, _) = written(&SmallRng::seed_from_u64(9), 2_000);
    let bytes = data_of(&disk);
    // What opens it for writing puts the rest of the last transaction aside.
    let texts = [
        (true, "ends within a transaction that was on stable storage"),
        (false, "had been on stable storage"),
    ];
    for (read_only, text) in texts {
        for (missing, is_warned_of) in [(0, false), (1, true), (20, true)] {
            let cut = disk.after_kill();
            overwrite(&cut, data_file(), &bytes[..bytes.len() - missing]);
            let checksums = ChecksumMode::Full;
            let options = OpenOptions { checksums, read_only, ..OpenOptions::new(data_file()) };
            let (opened, warnings) =
                count_warnings(|| FileStorage::open(Arc::new(cut), &options).map(drop));
            opened.unwrap();
            let is_said = warnings.iter().any(|line| line.contains(text));
            assert_eq!(is_said, is_warned_of, "{missing} bytes are missing: {warnings:?}");
        }
    }
}

/// With an index it reads nothing else.
#[test]
fn an_opening_compares_the_last_64_transactions() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let new = |n| stores(tid(n), &[(n, b"data")]);
    (1..=70).for_each(|n| commit(&storage, new(n)).unwrap());
    storage.close().unwrap();
    for (n, is_seen) in [(70, true), (69, true), (40, true), (7, true), (6, false), (1, false)] {
        let damaged = disk.after_kill();
        flip(&damaged, 4 + (n - 1) * file_bytes(&new(1)) + 23 + 42, 1);
        let found = open(damaged).checksum_metrics().unwrap().damaged;
        assert_eq!(found, u64::from(is_seen), "transaction {n}");
    }
}

#[test]
fn an_opening_compares_4_mib_at_most() {
    for (more, is_seen) in [(0, true), (1, false)] {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        commit(&storage, stores(tid(1), &[(1, b"before them")])).unwrap();
        let start = storage.size();
        let last = stores(tid(3), &[(3, &[3; 1000])]);
        let header_bytes = file_bytes(&stores(tid(2), &[(2, b"")]));
        let bytes = (4 << 20) - file_bytes(&last) - header_bytes + more;
        commit(&storage, stores(tid(2), &[(2, &vec![2; bytes as usize])])).unwrap();
        commit(&storage, last).unwrap();
        assert_eq!(storage.size() - start, (4 << 20) + more);
        storage.close().unwrap();
        for (at, is_seen) in [(start + 100, is_seen), (storage.size() - 20, true)] {
            let damaged = disk.after_kill();
            flip(&damaged, at, 1);
            let found = open(damaged).checksum_metrics().unwrap().damaged;
            assert_eq!(found, u64::from(is_seen), "{more} bytes more, byte {at}");
        }
    }
}

#[test]
fn a_record_whose_checksum_cannot_be_read_is_not_covered_and_all_others_are() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"one"), (2, b"two"), (3, b"three")])).unwrap();
    commit(&storage, stores(tid(2), &[(4, b"four")])).unwrap();
    storage.close().unwrap();
    drop(storage);
    let side = side_of(&disk);
    for number in 0..6 {
        let disk = disk.after_kill();
        let mut spoiled = side.clone();
        spoiled[4096 + 16 * number + 9] ^= 1;
        overwrite(&disk, &companion(".checksums"), &spoiled);
        let (found, _) = checked(&disk);
        assert_eq!((found.damages, found.covered, found.uncovered), (0, 5, 1), "entry {number}");
        let storage = open(disk);
        storage.scrub(Default::default(), u64::MAX);
        assert_eq!(storage.checksum_metrics().unwrap().damaged, 0, "entry {number}");
    }
}

/// More than are read at once, and than a page holds.
#[test]
fn each_of_many_records_of_a_transaction_is_compared() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let objects: Vec<(u64, &[u8])> = (1..=9_000).map(|oid| (oid, &b"x"[..])).collect();
    commit(&storage, stores(tid(1), &objects)).unwrap();
    commit(&storage, stores(tid(2), &[(1, b"behind")])).unwrap();
    let damaged = || {
        storage.scrub(Default::default(), u64::MAX);
        storage.checksum_metrics().unwrap().damaged
    };
    assert_eq!(damaged(), 0);
    for (number, record) in (1..).zip([1, 4094, 4095, 4096, 4097, 8191, 8192, 9000]) {
        flip(&disk, 4 + 23 + record * 43 - 1, 0);
        assert_eq!(damaged(), number, "record {record}");
    }
    flip(&disk, storage.size() - 9, 0);
    assert_eq!(damaged(), 9);
}

/// So that a wrong length does not make a load read most of a file. Shorter ones are read, as their
/// checksum tells that they are whole.
#[test]
fn a_record_of_more_than_16_mib_must_end_where_something_begins() {
    for (more, is_read) in [(0, true), (1, false)] {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone());
        let data = vec![7; (16 << 20) + more];
        commit(&storage, stores(tid(1), &[(1, &data)])).unwrap();
        let load = || storage.reader().load_before(Oid(1), Tid::MAX, Access::Blocking);
        assert!(matches!(load(), Ok(Load::Revision(found)) if found.data == data));
        // The length of the transaction, behind its only record.
        flip(&disk, storage.size() - 1, 0);
        match load() {
            Ok(Load::Revision(found)) => assert!(is_read && found.data == data),
            Ok(_) => panic!("it is there"),
            Err(error) => {
                assert!(!is_read && error.to_string().contains("does not end"), "{error}")
            }
        }
    }
}

/// As documented: the scrub finds it.
#[test]
fn loads_are_compared_in_the_full_mode_only() {
    for (mode, is_compared) in [(ChecksumMode::Full, true), (ChecksumMode::Commit, false)] {
        let disk = MemoryDisk::new();
        let options = OpenOptions { checksums: mode, ..OpenOptions::new(data_file()) };
        let storage = FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
        commit(&storage, stores(tid(1), &[(1, b"data"), (2, b"others")])).unwrap();
        flip(&disk, 4 + 23 + 42, 0);
        let load = storage.reader().load_before(Oid(1), Tid::MAX, Access::Blocking);
        match load {
            Ok(Load::Revision(found)) => assert!(!is_compared && found.data[..] == *b"eata"),
            Ok(_) => panic!("it is there"),
            Err(error) => assert!(is_compared, "{error}"),
        }
        let mut transactions = storage.reader().iterate(None, None).unwrap();
        let read = transactions.read(true, |_| ControlFlow::Continue(()));
        assert_eq!(read.is_err(), is_compared, "{read:?}");
        let serial = storage.reader().current_serial(Oid(1), Access::Blocking).unwrap();
        assert_eq!(serial, Some(Some(tid(1))));
        storage.scrub(Default::default(), u64::MAX);
        assert_eq!(storage.checksum_metrics().unwrap().damaged, 1);
    }
}

/// Another program must not take the session for the one that has written all of the file.
#[test]
fn a_name_that_cannot_be_removed_from_the_lock_file_is_warned_of() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"data")])).unwrap();
    let file = disk.files().open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(b"of another program", storage.size()).unwrap();
    disk.fail_from(Operation::Write, 1, std::io::ErrorKind::Other);
    let (closed, warnings) = count_warnings(|| storage.close());
    assert!(matches!(closed, Err(FileStorageError::Changed { .. })), "{closed:?}");
    assert!(warnings.iter().any(|line| line.contains("still names")), "{warnings:?}");
    disk.mend();
    let (_, warnings) = count_warnings(|| storage.close());
    assert_eq!(warnings, Vec::<String>::new());
    assert!(!lock_of(disk.files()).contains("zodium"));
}

/// The file is read anew, and compared with the checksums meanwhile.
#[test]
fn an_opening_counts_a_wrong_bit_and_does_not_leave_the_checksums_for_it() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=3 {
        let mut new = stores(tid(n), &[(n, b"some data")]);
        new.1.metadata.user = b"user".to_vec();
        commit(&storage, new).unwrap();
    }
    storage.close().unwrap();
    drop(storage);
    let second = 4 + (data_of(&disk).len() as u64 - 4) / 3;
    disk.remove(&companion(".index")).unwrap();
    // A byte of the user, one of a tid, one of an oid, one of the data.
    for offset in [24, 7, 27 + 7, 27 + 42 + 3] {
        let image = disk.after_kill();
        flip(&image, second + offset, 1);
        let storage = open(image);
        assert_eq!(storage.checksum_metrics().unwrap().damaged, 1, "{offset}");
        assert_eq!(storage.last_tid(), tid(3));
        assert_eq!(storage.reader().object_count(), 3);
    }
}
