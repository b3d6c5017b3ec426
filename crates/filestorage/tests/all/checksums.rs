//! With checksums beside it a `Data.fs` gives the bytes that were stored, or an error: whatever
//! bit of a committed transaction is flipped.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use crate::support::{
    History, Model, check_everything, checked, checked_at, commit, companion, data_file, data_of,
    disk_of, flip, for_each_seed, loads_other_bytes, overwrite, same_answers, stores, tid,
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
