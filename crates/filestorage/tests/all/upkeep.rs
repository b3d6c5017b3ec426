//! The background work on checksums: missing ones are taken, and the file is scrubbed.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{commit, data_file, data_of, flip, logged, open, open_summed, stores, tid};
use tracing::Level;
use zodium_disk::{FaultyDisk, MemoryDisk, Operation};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_storage::Upkeep;

const MIB: usize = 1 << 20;
/// How long a step over a MiB may make the next one wait, and one that found nothing to do.
const COVER_WAIT: Duration = Duration::from_millis(5);
const SCRUB_WAIT: Duration = Duration::from_micros(62_500);
const IDLE: Duration = Duration::from_secs(2);

/// A file of so many MiB, written without checksums.
fn written(mib: u64) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for n in 1..=mib {
        commit(&storage, stores(tid(n), &[(n, &vec![n as u8; MIB])])).unwrap();
    }
    storage.close().unwrap();
    disk
}

fn summed(disk: &MemoryDisk) -> Arc<FileStorage> {
    Arc::new(open_summed(disk, ChecksumMode::Full))
}

/// Takes all missing checksums; returns how many steps that took.
fn cover(storage: &FileStorage, upkeep: &mut dyn Upkeep) -> usize {
    let mut steps = 0;
    while storage.uncovered_bytes() > 0 {
        assert!(upkeep.step() <= COVER_WAIT);
        steps += 1;
        assert!(steps < 1000, "{} bytes are left", storage.uncovered_bytes());
    }
    steps
}

#[test]
fn a_file_without_checksums_needs_no_upkeep() {
    let storage = Arc::new(open(written(1)));
    assert!(storage.upkeep(None).is_none());
}

#[test]
fn missing_checksums_are_taken_a_part_at_a_time_and_then_there_is_nothing_to_do() {
    let disk = written(4);
    let storage = summed(&disk);
    assert!(storage.uncovered_bytes() > 0);
    let mut upkeep = storage.upkeep(None).unwrap();
    let steps = cover(&storage, upkeep.as_mut());
    assert!((2..=10).contains(&steps), "{steps} steps");
    for _ in 0..3 {
        let wait = upkeep.step();
        assert!(wait > IDLE / 2 && wait <= IDLE, "{wait:?}");
    }
}

/// They are synced as soon as the last one is taken, not at some later time.
#[test]
fn checksums_that_were_all_taken_outlive_a_power_cut() {
    let disk = written(2);
    let storage = summed(&disk);
    let mut upkeep = storage.upkeep(None).unwrap();
    cover(&storage, upkeep.as_mut());
    let after = disk.after_power_cut();
    assert_eq!(summed(&after).uncovered_bytes(), 0);
}

#[test]
fn a_scrub_reads_the_file_slowly_finds_damage_and_begins_anew_after_its_interval() {
    let disk = written(3);
    let storage = summed(&disk);
    let mut upkeep = storage.upkeep(Some(Duration::ZERO)).unwrap();
    cover(&storage, upkeep.as_mut());
    let damaged = |storage: &FileStorage| storage.checksum_metrics().unwrap().damaged;
    let scrub = |upkeep: &mut dyn Upkeep| {
        let waits = [(); 4].map(|()| upkeep.step());
        assert!(waits.iter().all(|wait| *wait <= SCRUB_WAIT), "{waits:?}");
        // A step that takes as long as it may would be followed by the next one at once.
        assert!(waits.iter().any(|wait| *wait > Duration::ZERO), "{waits:?}");
    };
    scrub(upkeep.as_mut());
    assert_eq!(damaged(&storage), 0);
    let middle = data_of(&disk).len() / 2;
    flip(&disk, middle as u64, 3);
    scrub(upkeep.as_mut());
    scrub(upkeep.as_mut());
    assert_eq!(damaged(&storage), 1, "{}", data_file().display());
}

#[test]
fn the_first_scrub_waits_for_its_interval() {
    let disk = written(1);
    let storage = summed(&disk);
    let mut upkeep = storage.upkeep(Some(Duration::from_secs(1000))).unwrap();
    cover(&storage, upkeep.as_mut());
    assert!(upkeep.step() > SCRUB_WAIT);
}

#[test]
fn it_is_told_once_how_many_checksums_are_missing_and_how_many_were_taken() {
    let storage = summed(&written(3));
    let missing = storage.uncovered_bytes();
    let mut upkeep = storage.upkeep(None).unwrap();
    let steps = |upkeep: &mut dyn Upkeep| {
        let (_, messages) = logged(Level::INFO, || (0..20).for_each(|_| _ = upkeep.step()));
        messages.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };
    let messages = steps(upkeep.as_mut());
    let [begins, ends] = &messages[..] else { panic!("{messages:?}") };
    let bytes = format!("bytes={missing} ");
    assert!(begins.contains("taking checksums") && begins.contains(&bytes), "{begins}");
    assert!(ends.contains("all checksums taken") && ends.contains(&bytes), "{ends}");
    assert_eq!(steps(upkeep.as_mut()), Vec::<String>::new());
}

/// Commits wait while the device syncs.
#[test]
fn checksums_of_commits_are_not_synced_at_each_step() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let options = OpenOptions { checksums: ChecksumMode::Full, ..OpenOptions::new(data_file()) };
    let storage = Arc::new(FileStorage::open(Arc::new(disk.clone()), &options).unwrap());
    let mut upkeep = storage.upkeep(None).unwrap();
    commit(&storage, stores(tid(1), &[(1, b"data")])).unwrap();
    let syncs = disk.count(Operation::Sync);
    (0..5).for_each(|_| _ = upkeep.step());
    assert_eq!(disk.count(Operation::Sync), syncs);
}
