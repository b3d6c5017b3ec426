//! A log keeps what it acknowledged, whatever the disk does.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, Operation, RealDisk};
use zodium_keylog::{Chunk, Log, LogReader, OpenError, Reached, Sync};

const PATH: &str = "keys.log";

fn path() -> &'static Path {
    Path::new(PATH)
}

/// Opens a log, with the records that it has.
fn open(disk: &Arc<dyn Disk>, sync: Sync) -> Result<(Log, Vec<Vec<u8>>), OpenError> {
    open_at(disk, path(), sync)
}

fn open_at(
    disk: &Arc<dyn Disk>,
    path: &Path,
    sync: Sync,
) -> Result<(Log, Vec<Vec<u8>>), OpenError> {
    let mut records = Vec::new();
    let log = Log::open(disk, path, sync, |chunk| {
        records.extend(chunk.iter().flat_map(Chunk::records).map(<[u8]>::to_vec));
        Ok::<(), OpenError>(())
    })?;
    Ok((log, records))
}

fn memory(disk: &MemoryDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn bodies(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| number.to_le_bytes().repeat(number as usize % 9)).collect()
}

#[test]
fn records_are_read_in_order() {
    let disk = MemoryDisk::new();
    for sync in [Sync::No, Sync::EverySecond, Sync::Always] {
        let (log, before) = open(&memory(&disk), sync).unwrap();
        for body in bodies(100) {
            log.append(&body);
        }
        drop(log);
        let (_, after) = open(&memory(&disk), sync).unwrap();
        assert_eq!(after, [before, bodies(100)].concat());
    }
}

#[test]
fn what_was_not_to_be_synced_is_once_it_is_to_be() {
    for sync in [Sync::EverySecond, Sync::Always] {
        let disk = MemoryDisk::new();
        let (log, _) = open(&memory(&disk), Sync::No).unwrap();
        let position = log.append(b"one");
        wait_until(|| log.has_reached(position, Reached::Written));
        log.set_sync(sync);
        wait_until(|| log.has_reached(position, Reached::Synced));
        let (_, found) = open(&memory(&disk.after_power_cut()), sync).unwrap();
        assert_eq!(found, [b"one"], "{sync:?}");
    }
}

#[test]
fn the_length_after_the_last_replacement_is_known_again() {
    let disk = MemoryDisk::new();
    let reopened = || open(&memory(&disk), Sync::No).unwrap().0;
    let header = 16;
    assert_eq!(reopened().lengths(), (header, header));
    let log = reopened();
    bodies(9).iter().for_each(|body| _ = log.append(body));
    drop(log);
    let (length, base) = reopened().lengths();
    assert!(base == header && length > 100, "{length} {base}");
    for appends in [false, true, true] {
        let log = reopened();
        let mut replacement = log.begin_replacement().unwrap();
        replacement.append(b"copy").unwrap();
        let replaced = log.replace(replacement, &[b"last".to_vec()]);
        wait_until(|| log.has_reached(replaced, Reached::Written));
        let (_, base) = log.lengths();
        if appends {
            log.append(b"later");
        }
        drop(log);
        for _ in 0..3 {
            let log = reopened();
            assert!(log.lengths().1 == base && log.lengths().0 > base, "{:?}", log.lengths());
            log.append(b"later");
        }
    }
}

#[test]
fn what_is_synced_survives_a_power_cut() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&memory(&disk), Sync::Always).unwrap();
    for body in bodies(20) {
        let position = log.append(&body);
        wait_until(|| log.has_reached(position, Reached::Synced));
        let (_, found) = open(&memory(&disk.after_power_cut()), Sync::Always).unwrap();
        assert_eq!(found.last(), Some(&body));
    }
}

#[test]
fn a_failing_disk_delays_records_and_loses_none() {
    for operation in [Operation::Write, Operation::Sync] {
        let memory_disk = MemoryDisk::new();
        let disk = Arc::new(FaultyDisk::new(memory_disk.clone()));
        let (log, _) = open(&(Arc::clone(&disk) as Arc<dyn Disk>), Sync::Always).unwrap();
        let first = log.append(b"first");
        wait_until(|| log.has_reached(first, Reached::Synced));
        disk.fail_from(operation, 1, ErrorKind::StorageFull);
        let second = log.append(b"second");
        wait_until(|| log.failure().is_some());
        log.append(b"third");
        assert!(!log.has_reached(second, Reached::Synced));
        disk.mend();
        wait_until(|| log.failure().is_none());
        wait_until(|| log.has_reached(second, Reached::Synced));
        drop(log);
        let (_, found) = open(&memory(&memory_disk), Sync::Always).unwrap();
        assert_eq!(found, [&b"first"[..], b"second", b"third"], "{operation:?}");
    }
}

#[test]
fn nothing_is_acknowledged_while_the_file_has_lost_its_name() {
    let (disk, aside) = (MemoryDisk::new(), Path::new("aside"));
    let (log, _) = open(&memory(&disk), Sync::Always).unwrap();
    let position = log.append(b"first");
    wait_until(|| log.has_reached(position, Reached::Synced));
    for replaces in [false, true] {
        disk.move_file(path(), aside).unwrap();
        if replaces {
            disk.put(path(), disk.bytes(aside).unwrap());
        }
        let position = log.append(b"later");
        wait_until(|| log.failure().is_some());
        assert!(!log.has_reached(position, Reached::Written));
        disk.move_file(aside, path()).unwrap();
        wait_until(|| log.has_reached(position, Reached::Synced));
        assert!(log.failure().is_none());
    }
    drop(log);
    let (_, found) = open(&memory(&disk), Sync::Always).unwrap();
    assert_eq!(found, [&b"first"[..], b"later", b"later"]);
}

/// As `cp` and `rsync --inplace` do it with a backup.
#[test]
fn a_file_that_is_overwritten_in_place_is_not_written_any_more() {
    for has_later in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (disk, file): (Arc<dyn Disk>, _) = (Arc::new(RealDisk), folder.path().join(PATH));
        let (log, _) = open_at(&disk, &file, Sync::Always).unwrap();
        let first = log.append(b"first");
        wait_until(|| log.has_reached(first, Reached::Synced));
        let backup = std::fs::read(&file).unwrap();
        let second = log.append(b"second");
        wait_until(|| log.has_reached(second, Reached::Synced));
        std::fs::write(&file, &backup).unwrap();
        if has_later {
            let later = log.append(b"later");
            wait_until(|| log.failure().is_some_and(|text| text.contains("overwritten")));
            assert!(!log.has_reached(later, Reached::Written));
        }
        assert_eq!(log.close().is_err(), has_later);
        assert_eq!(std::fs::read(&file).unwrap(), backup);
        drop(log);
        let (_, found) = open_at(&disk, &file, Sync::Always).unwrap();
        assert_eq!(found, [b"first"]);
    }
}

#[test]
fn a_replacement_takes_over_at_one_moment() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&memory(&disk), Sync::EverySecond).unwrap();
    bodies(50).iter().for_each(|body| _ = log.append(body));
    let mut replacement = log.begin_replacement().unwrap();
    replacement.append(b"all of them").unwrap();
    log.append(b"before");
    let position = log.replace(replacement, &[b"the last".to_vec()]);
    log.append(b"after");
    wait_until(|| log.has_reached(position, Reached::Synced));
    // One that is not used leaves nothing behind.
    drop(log.begin_replacement().unwrap());
    drop(log);
    assert_eq!(disk.paths().iter().filter(|path| path.ends_with("keys.log.new")).count(), 0);
    let (_, found) = open(&memory(&disk), Sync::No).unwrap();
    assert_eq!(found, [&b"all of them"[..], b"the last", b"after"]);
}

#[test]
fn a_replacement_leaves_a_link_to_the_log_and_two_links_are_one_log() {
    let folder = tempfile::tempdir().unwrap();
    let [file, one, other] = ["keys", "one", "other"].map(|name| folder.path().join(name));
    for link in [&one, &other] {
        std::os::unix::fs::symlink("keys", link).unwrap();
    }
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let (log, _) = open_at(&disk, &one, Sync::Always).unwrap();
    assert!(matches!(open_at(&disk, &other, Sync::Always), Err(OpenError::Locked { .. })));
    log.append(b"before");
    log.replace(log.begin_replacement().unwrap(), &[b"after".to_vec()]);
    drop(log);
    assert!(one.is_symlink() && !file.is_symlink());
    let (_log, found) = open_at(&disk, &other, Sync::Always).unwrap();
    assert_eq!(found, [b"after"]);
}

#[test]
fn a_hard_link_to_the_file_is_the_same_log() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("keys"), folder.path().join("link"));
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let (log, _) = open_at(&disk, &file, Sync::Always).unwrap();
    log.append(b"before");
    for replaced in [false, true] {
        if replaced {
            let end = log.replace(log.begin_replacement().unwrap(), &[b"after".to_vec()]);
            wait_until(|| log.has_reached(end, Reached::Synced));
            std::fs::remove_file(&link).unwrap();
        }
        std::fs::hard_link(&file, &link).unwrap();
        let refused = open_at(&disk, &link, Sync::Always);
        assert!(matches!(refused, Err(OpenError::Locked { .. })), "{refused:?}");
    }
}

#[test]
fn a_replacement_that_fails_leaves_the_log() {
    let memory_disk = MemoryDisk::new();
    let disk = Arc::new(FaultyDisk::new(memory_disk.clone()));
    let (log, _) = open(&(Arc::clone(&disk) as Arc<dyn Disk>), Sync::Always).unwrap();
    log.append(b"one");
    let mut replacement = log.begin_replacement().unwrap();
    replacement.append(b"copy").unwrap();
    disk.fail_from(Operation::Folder, 1, ErrorKind::PermissionDenied);
    log.replace(replacement, &[]);
    let last = log.append(b"two");
    wait_until(|| log.has_reached(last, Reached::Synced));
    drop(log);
    let (_, found) = open(&memory(&memory_disk), Sync::Always).unwrap();
    assert_eq!(found, [b"one", b"two"]);
}

#[test]
fn a_replacement_whose_folder_cannot_be_synced_takes_over_and_is_not_durable_before_it_is() {
    let memory_disk = MemoryDisk::new();
    let disk = Arc::new(FaultyDisk::new(memory_disk.clone()));
    let (log, _) = open(&(Arc::clone(&disk) as Arc<dyn Disk>), Sync::Always).unwrap();
    let first = log.append(b"one");
    wait_until(|| log.has_reached(first, Reached::Synced));
    let mut replacement = log.begin_replacement().unwrap();
    replacement.append(b"copy").unwrap();
    // The permissions and the move come before.
    disk.fail_from(Operation::Folder, 3, ErrorKind::StorageFull);
    let replaced = log.replace(replacement, &[]);
    let last = log.append(b"two");
    wait_until(|| disk.has_failed());
    wait_until(|| log.failure().is_some() || log.has_reached(last, Reached::Synced));
    assert!(!log.has_reached(replaced, Reached::Written));
    disk.mend();
    wait_until(|| log.has_reached(last, Reached::Synced));
    let (_, found) =
        open(&memory(&memory_disk.after_power_cut_with_names_lost()), Sync::Always).unwrap();
    assert_eq!(found, [b"copy".to_vec(), b"two".to_vec()]);
    drop(log);
    let (_, found) = open(&memory(&memory_disk), Sync::Always).unwrap();
    assert_eq!(found, [b"copy".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_replacement_is_not_overwritten_by_another_while_the_log_cannot_be_written() {
    let memory_disk = MemoryDisk::new();
    let disk = Arc::new(FaultyDisk::new(memory_disk.clone()));
    let (log, _) = open(&(Arc::clone(&disk) as Arc<dyn Disk>), Sync::Always).unwrap();
    let mut replacement = log.begin_replacement().unwrap();
    replacement.append(b"copy").unwrap();
    replacement.sync().unwrap();
    disk.fail_from(Operation::Write, 1, ErrorKind::StorageFull);
    log.append(b"one");
    wait_until(|| log.failure().is_some());
    // The writer waits before it tries again, and takes the replacement then.
    let replaced = log.replace(replacement, &[]);
    disk.mend();
    assert!(log.begin_replacement().is_err(), "the first one is not in place yet");
    let last = log.append(b"two");
    wait_until(|| log.has_reached(last, Reached::Synced));
    assert!(log.has_reached(replaced, Reached::Synced) && !log.has_replacement());
    drop(log.begin_replacement().unwrap());
    drop(log);
    let (_, found) = open(&memory(&memory_disk), Sync::Always).unwrap();
    assert_eq!(found, [b"copy".to_vec(), b"two".to_vec()]);
}

#[test]
fn a_replacement_that_comes_after_the_end_of_the_log_ends() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&memory(&disk), Sync::Always).unwrap();
    let replacement = log.begin_replacement().unwrap();
    log.close().unwrap();
    log.replace(replacement, &[]);
    assert!(!log.has_replacement());
}

/// A log of groups, synced one by one, and where each ends.
fn groups() -> (Vec<u8>, Vec<usize>) {
    let disk = MemoryDisk::new();
    let (log, _) = open(&memory(&disk), Sync::Always).unwrap();
    let mut ends = Vec::new();
    for number in 0..6_u8 {
        let position = log.append(&[number; 40]);
        wait_until(|| log.has_reached(position, Reached::Synced));
        ends.push(disk.bytes(path()).unwrap().len());
    }
    drop(log);
    (disk.bytes(path()).unwrap(), ends)
}

fn reopened(bytes: Vec<u8>) -> Result<usize, OpenError> {
    let disk = MemoryDisk::new();
    disk.put(path(), bytes);
    let (log, found) = open(&memory(&disk), Sync::Always)?;
    log.append(b"later");
    drop(log);
    let (_, again) = open(&memory(&disk), Sync::Always)?;
    assert_eq!(again.len(), found.len() + 1);
    Ok(found.len())
}

#[test]
fn a_torn_end_is_cut_at_every_byte() {
    let (bytes, ends) = groups();
    for length in 0..=bytes.len() {
        let whole = ends.iter().filter(|end| **end <= length).count();
        assert_eq!(reopened(bytes[..length].to_vec()).unwrap(), whole, "{length} bytes");
    }
}

#[test]
fn damage_below_what_was_synced_is_refused_at_every_byte() {
    let (bytes, ends) = groups();
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 0x40;
        // The end of the log says that all before it was synced.
        let is_known = place < ends[ends.len() - 1];
        assert_eq!(reopened(changed).is_err(), is_known, "byte {place}");
    }
}

#[test]
fn damage_to_a_closed_log_is_refused_however_it_was_synced() {
    for sync in [Sync::No, Sync::EverySecond, Sync::Always] {
        let disk = MemoryDisk::new();
        let (log, _) = open(&memory(&disk), sync).unwrap();
        bodies(30).iter().for_each(|body| _ = log.append(body));
        log.close().unwrap();
        let mut bytes = disk.bytes(path()).unwrap();
        // Nothing is noted again.
        drop(open(&memory(&disk), sync).unwrap());
        assert_eq!(disk.bytes(path()).unwrap(), bytes);
        bytes[60] ^= 1;
        assert!(matches!(reopened(bytes), Err(OpenError::Damaged { .. })), "{sync:?}");
    }
}

#[test]
fn what_a_killed_process_has_written_is_noted_as_synced_once_it_is() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&memory(&disk), Sync::No).unwrap();
    let position = log.append(b"one");
    wait_until(|| log.has_reached(position, Reached::Written));
    let after = MemoryDisk::new();
    after.put(path(), disk.bytes(path()).unwrap());
    drop(open(&memory(&after), Sync::No).unwrap());
    let (_, found) = open(&memory(&after.after_power_cut()), Sync::No).unwrap();
    assert_eq!(found, [b"one"]);
    let mut bytes = after.bytes(path()).unwrap();
    bytes[20] ^= 1;
    assert!(matches!(reopened(bytes), Err(OpenError::Damaged { .. })));
}

#[test]
fn a_torn_end_is_kept_beside_the_log_if_there_is_space() {
    let (bytes, ends) = groups();
    let torn = &bytes[..ends[5] - 1];
    for has_space in [true, false] {
        let memory_disk = MemoryDisk::new();
        memory_disk.put(path(), torn.to_vec());
        let disk = Arc::new(FaultyDisk::new(memory_disk.clone()));
        if !has_space {
            disk.fail(Operation::Write, 1, ErrorKind::StorageFull);
        }
        let (log, found) = open(&(Arc::clone(&disk) as Arc<dyn Disk>), Sync::Always).unwrap();
        assert_eq!(found.len(), 5);
        drop(log);
        let kept = memory_disk.bytes(Path::new("keys.log.tr0"));
        assert_eq!(kept.is_some(), has_space);
        // The frame of the last record, without its last byte.
        assert!(kept.is_none_or(|kept| kept.len() > 40 && torn.ends_with(&kept)));
        assert_eq!(memory_disk.bytes(Path::new("keys.log.tr_tmp")), None);
    }
}

#[test]
fn a_record_of_several_frames_is_read_whole_or_not_at_all() {
    // Frames have 4 MiB at most.
    let body = |bytes: usize| (0..bytes).map(|at| (at >> 10) as u8).collect::<Vec<_>>();
    let bodies = [4 << 20, (4 << 20) + 1, (10 << 20) + 7].map(body);
    let disk = MemoryDisk::new();
    let (log, _) = open(&memory(&disk), Sync::Always).unwrap();
    log.append(b"first");
    let mut replacement = log.begin_replacement().unwrap();
    bodies.iter().for_each(|body| replacement.append(body).unwrap());
    log.replace(replacement, &[b"last".to_vec()]);
    bodies.iter().for_each(|body| _ = log.append(body));
    log.close().unwrap();
    let expected = [&bodies[..], &[b"last".to_vec()], &bodies].concat();
    let (_, found) = open(&memory(&disk), Sync::Always).unwrap();
    assert!(found == expected);
    let bytes = disk.bytes(path()).unwrap();
    for cut in [100, 3 << 20, 9 << 20] {
        assert_eq!(reopened(bytes[..bytes.len() - cut].to_vec()).unwrap(), expected.len() - 1);
        let mut changed = bytes.clone();
        changed[bytes.len() - cut] ^= 1;
        assert!(matches!(reopened(changed), Err(OpenError::Damaged { .. })));
    }
}

#[test]
fn unsynced_groups_may_be_torn_anywhere() {
    let disk = MemoryDisk::new();
    let (log, _) = open(&memory(&disk), Sync::No).unwrap();
    for number in 0..5_u8 {
        let position = log.append(&[number; 40]);
        wait_until(|| log.has_reached(position, Reached::Written));
    }
    let mut bytes = disk.bytes(path()).unwrap();
    let middle = bytes.len() / 2;
    // A later page came to the device, and this one did not.
    bytes[middle..middle + 30].fill(0);
    assert!(reopened(bytes).unwrap() < 5);
    drop(log);
}

#[test]
fn other_files_and_newer_versions_are_refused() {
    assert!(matches!(reopened(b"REDIS0011".to_vec()), Err(OpenError::NoLog { .. })));
    let mut bytes = groups().0;
    bytes[15] = 9;
    assert!(matches!(reopened(bytes), Err(OpenError::Version { version: 9, .. })));
    assert!(LogReader::open(&MemoryDisk::new(), path()).unwrap().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn large_records_are_read_from_chunks(
        sizes in proptest::collection::vec(0..3_000_000_usize, 0..8),
    ) {
        let disk = MemoryDisk::new();
        let (log, _) = open(&memory(&disk), Sync::No).unwrap();
        let bodies: Vec<Vec<u8>> = sizes.iter().map(|size| vec![*size as u8; *size]).collect();
        bodies.iter().for_each(|body| _ = log.append(body));
        drop(log);
        let (_, found) = open(&memory(&disk), Sync::No).unwrap();
        prop_assert!(found == bodies);
    }
}

#[test]
fn the_end_of_a_log_tells_what_could_not_be_written() {
    for (operation, sync) in [(Operation::Write, Sync::EverySecond), (Operation::Sync, Sync::No)] {
        let memory_disk = MemoryDisk::new();
        let disk = Arc::new(FaultyDisk::new(memory_disk.clone()));
        let (log, _) = open(&(Arc::clone(&disk) as Arc<dyn Disk>), sync).unwrap();
        let first = log.append(b"first");
        wait_until(|| log.has_reached(first, Reached::Written));
        disk.fail_from(operation, 1, ErrorKind::StorageFull);
        let last = log.append(b"second");
        let error = log.close().unwrap_err();
        let lost = if operation == Operation::Write { last - first } else { last };
        assert_eq!((error.bytes, &*error.path), (lost, path()), "{error}");
        assert!(log.close().is_ok(), "it is told once");
    }
}
