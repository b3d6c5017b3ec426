//! The power fails after any operation of a long script, in every way of the model in
//! `zodium_disk::PowerCut`. Pieces that were not synced are there or not, each for itself, or torn.
//! Files have either length, and names are changed or not.
//!
//! Whatever was left, the file opens, and every transaction that was acknowledged is in it, byte
//! for byte. All else in it is whole, byte for byte. After a pack it is the old file or the new
//! one. A check finds nothing, index and log agree, and the next commit works.
//!
//! `ZODIUM_SEED` says where to begin (1), `ZODIUM_TEST_POWER_LOSS` with how many seeds to go on
//! (1) for each of the scripts.

use std::sync::{Arc, Mutex};

use crate::support::{
    New, Undoing, checked, commit, commit_all, companion, copied_body, damaged_at, data_file,
    data_of, disk_of, logged, overwrite, stores, tid, transaction, undo_record,
};
use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use tracing::Level;
use zodium_disk::{Disk, FaultyDisk, MemoryDisk, OpenMode, Operation, PowerCut};
use zodium_filestorage::{ChecksumMode, FileStorage, OpenOptions};
use zodium_storage::{Access, Load, NewBody, NewRecord, NewTransaction, PackOptions};
use zodium_types::{Oid, Tid, TransactionMetadata};

/// Ways of failing at each operation, of those there are.
const IMAGES_AT_EACH: usize = 8;
/// Every so many images are looked at closely.
const CLOSELY: u64 = 25;
const OBJECTS: u64 = 40;

#[test]
fn acknowledged_commits_survive_and_others_are_whole_or_absent() {
    for_each_seed(0, |script| {
        for _ in 0..20 {
            script.commit_batches(20);
            script.storage.save_index().unwrap();
        }
    });
}

#[test]
fn packs_leave_the_old_file_or_the_new_one() {
    for_each_seed(1_000, |script| {
        for _ in 0..6 {
            script.commit_batches(10);
            script.pack();
        }
    });
}

#[test]
fn sessions_that_follow_one_another_lose_nothing() {
    for_each_seed(2_000, |script| {
        for _ in 0..16 {
            script.commit_batches(4);
            script.reopen();
        }
    });
}

#[test]
fn commits_are_kept_whatever_fails_around_their_checksums() {
    let mut refused = 0;
    for operation in [Operation::Write, Operation::Sync, Operation::Open, Operation::Folder] {
        for (nth, times) in (1..8).flat_map(|nth| (1..6).map(move |times| (nth, times))) {
            let disk = FaultyDisk::new(MemoryDisk::new());
            let storage = open(disk.clone());
            disk.fail_times(operation, nth, times, std::io::ErrorKind::Other);
            let mut acknowledged = Tid::ZERO;
            for number in 1..3 {
                // Zeros look like a lost sector.
                match commit(&storage, stores(tid(number), &[(1, &[0; 5_000])])) {
                    Ok(()) => acknowledged = tid(number),
                    Err(_) => refused += 1,
                }
            }
            let last = open(disk.files().after_power_cut()).last_tid();
            let what = format!("{operation:?} {nth} fails {times} times");
            assert!(last >= acknowledged, "{acknowledged} is lost when {what}: {last}");
        }
    }
    assert!(refused > 0, "nothing was refused");
}

/// What is not covered by checksums may not be taken for torn: that session is not named.
#[test]
fn a_commit_without_checksums_is_not_cut_when_it_is_damaged() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"covered")])).unwrap();
    let start = storage.size() as usize;
    // The data, then their checksums.
    disk.fail(Operation::Write, 2, std::io::ErrorKind::StorageFull);
    commit(&storage, stores(tid(2), &[(1, b"not covered")])).unwrap();
    assert!(disk.has_failed());
    let crashed = disk.files().after_power_cut();
    drop(storage);
    let mut damaged = crashed.bytes(data_file()).unwrap();
    damaged[start + 15] ^= 1;
    let file = crashed.open(data_file(), OpenMode::Write).unwrap();
    file.write_all_at(&damaged, 0).unwrap();
    file.sync().unwrap();
    assert_eq!(damaged_at(try_open(crashed.clone())), start as u64);
    assert_eq!(crashed.bytes(data_file()).unwrap(), damaged);
}

#[test]
fn a_batch_that_lacks_a_sector_is_put_aside_and_told_with_the_number_of_its_transactions() {
    check_lost_sector(&[(2, &[2; 3_000])]);
}

/// The sector that is lost is another one than those of zeros.
#[test]
fn a_batch_with_zeros_that_lacks_a_sector_is_put_aside_too() {
    check_lost_sector(&[(2, &[2; 3_000]), (4, &[0; 3_000])]);
}

/// A batch of two transactions, the first with these records, of which a sector was not written.
fn check_lost_sector(records: &[(u64, &[u8])]) {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, &[1; 50])])).unwrap();
    let start = storage.size() as usize;
    disk.keep_images();
    commit_all(&storage, vec![stores(tid(2), records), stores(tid(3), &[(3, b"x")])]).unwrap();
    let bytes = data_of(disk.files());
    let mut written = disk.images().into_iter().map(|image| image.kill);
    let written = written.find(|image| image.bytes(data_file()).as_ref() == Some(&bytes));
    // The system goes down before the first sync.
    let crashed = written.unwrap().after_power_cut();
    drop(storage);
    assert_eq!(open(crashed.after_kill()).last_tid(), tid(3), "nothing is missing");
    let mut torn = bytes.clone();
    torn[start.next_multiple_of(512) + 512..][..512].fill(0);
    overwrite(&crashed, data_file(), &torn);
    let options = OpenOptions {
        checksums: ChecksumMode::Full,
        read_only: true,
        ..OpenOptions::new(data_file())
    };
    let reader = || FileStorage::open(Arc::new(crashed.clone()), &options).unwrap();
    let (reader, messages) = logged(Level::WARN, reader);
    assert_eq!(reader.last_tid(), tid(1));
    let [(level, text)] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(*level, Level::WARN);
    assert!(text.contains("are not served") && text.contains("whole=2 "), "{text}");
    let (storage, messages) = logged(Level::WARN, || open(crashed.clone()));
    assert_eq!(storage.last_tid(), tid(1));
    let [(level, text)] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!(*level, Level::ERROR);
    assert!(text.contains("put the last transactions aside"), "{text}");
    assert!(text.contains(&format!("bytes={} whole=2 ", bytes.len() - start)), "{text}");
    assert_eq!(crashed.bytes(&companion(".tr0")).unwrap(), &torn[start..]);
}

/// Its checksums were announced, and those that replace them were not synced yet.
#[test]
fn a_large_transaction_with_zeros_is_kept_when_its_checksums_are_lost() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    let storage = open(disk.clone());
    let records: Vec<(u64, &[u8])> = (1..=6_000).map(|oid| (oid, &[0; 600][..])).collect();
    commit(&storage, stores(tid(1), &records)).unwrap();
    let crashed = disk.files().after_power_cut();
    drop(storage);
    assert_eq!(open(crashed).last_tid(), tid(1));
}

/// Its bytes are written piece by piece: in large records, and in many that fill a buffer.
#[test]
fn the_checksums_of_a_large_transaction_with_zeros_last_before_its_first_byte_is_written() {
    let zeros = [0; 100_000];
    let large: Vec<(u64, &[u8])> = vec![(1, &zeros[..])];
    let many: Vec<(u64, &[u8])> = (1..=30).map(|oid| (oid, &zeros[..40_000])).collect();
    for records in [large, many] {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let storage = open(disk.clone());
        commit(&storage, stores(tid(1), &[(1, b"before")])).unwrap();
        storage.sync_checksums();
        let side = |files: &MemoryDisk| files.bytes(&companion(".checksums")).unwrap().len();
        let (size, entries) = (storage.size() as usize, side(disk.files()));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let seen_then = Arc::clone(&seen);
        disk.after_each(move |_, files| {
            let written = files.bytes(data_file()).unwrap().len();
            if written > size {
                seen_then.lock().unwrap().push(side(&files.after_power_cut()));
            }
        });
        commit(&storage, stores(tid(2), &records)).unwrap();
        // One of each record, and one of the transaction.
        let announced = entries + 16 * (records.len() + 1);
        let seen = seen.lock().unwrap();
        assert!(!seen.is_empty() && seen.iter().all(|side| *side >= announced), "{seen:?}");
    }
}

/// The system drops what it could not write. What follows the hole must not be taken for torn.
#[test]
fn an_announced_commit_is_kept_behind_checksums_that_a_failed_sync_lost() {
    let disk = FaultyDisk::new(MemoryDisk::new());
    disk.forget_failed_syncs();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, &[1; 50])])).unwrap();
    disk.fail(Operation::Sync, 1, std::io::ErrorKind::Other);
    storage.sync_checksums();
    assert!(disk.has_failed());
    commit(&storage, stores(tid(2), &[(1, &[0; 5_000])])).unwrap();
    let crashed = disk.files().after_power_cut();
    drop(storage);
    assert_eq!(open(crashed).last_tid(), tid(2));
}

fn for_each_seed(first: u64, run: impl Fn(&mut Script)) {
    let number = |name: &str| std::env::var(name).map_or(1, |text| text.parse::<u64>().unwrap());
    let seed = number("ZODIUM_SEED");
    for seed in seed..seed + number("ZODIUM_TEST_POWER_LOSS") {
        println!(
            "replay with ZODIUM_SEED={seed} \
             cargo test -p zodium-filestorage --test all power_loss::"
        );
        let mut script = Script::new(first + seed);
        run(&mut script);
        let watch = script.watch.lock().unwrap();
        println!(
            "{} transactions in {} batches, {} operations, {} images: {} with more than was \
             acknowledged, {} cut",
            script.transactions,
            script.batches,
            watch.operations,
            watch.images,
            watch.with_more,
            watch.cut
        );
        assert!(watch.with_more > 0 && watch.cut > 0);
    }
}

/// Commits of all kinds.
struct Script {
    disk: FaultyDisk,
    storage: FileStorage,
    watch: Arc<Mutex<Watch>>,
    random: SmallRng,
    last: u64,
    transactions: u64,
    batches: u64,
}

impl Script {
    fn new(seed: u64) -> Script {
        let disk = FaultyDisk::new(MemoryDisk::new());
        let storage = open(disk.clone());
        let watch = Arc::new(Mutex::new(Watch::new(seed)));
        let observer = Arc::clone(&watch);
        disk.after_each(move |operation, files| {
            observer.lock().unwrap().look(operation, files);
        });
        let random = SmallRng::seed_from_u64(seed);
        Script { disk, storage, watch, random, last: 0, transactions: 0, batches: 0 }
    }

    fn commit_batches(&mut self, count: usize) {
        for _ in 0..count {
            let mut free: Vec<u64> = (0..OBJECTS).collect();
            let transactions = self.random.random_range(1..=4);
            let batch: Vec<_> = (0..transactions).map(|_| self.transaction(&mut free)).collect();
            self.transactions += batch.len() as u64;
            commit_all(&self.storage, batch).unwrap();
            self.batches += 1;
            self.watch.lock().unwrap().acknowledged = tid(self.last);
        }
    }

    /// Commits before, during and after.
    fn pack(&mut self) {
        let packed_to = tid(self.last - self.random.random_range(0..10));
        let cancelled = Arc::default();
        let options = PackOptions {
            keep_old: self.random.random_ratio(1, 2),
            ..PackOptions::new(&cancelled)
        };
        let Some(mut pack) = self.storage.packer().begin(packed_to, &options).unwrap() else {
            return;
        };
        self.commit_batches(2);
        self.storage.packer().catch_up(&mut pack).unwrap();
        self.commit_batches(1);
        self.storage.packer().finish(&mut pack).unwrap();
        self.commit_batches(1);
        drop(pack);
        self.storage.save_index().unwrap();
    }

    /// Ends the session in order, or by killing the process, and begins another.
    fn reopen(&mut self) {
        if self.random.random_ratio(1, 2) {
            self.storage.close().unwrap();
        }
        // The session before has the lock: it ends first.
        self.storage = open(MemoryDisk::new());
        self.storage = open(self.disk.clone());
    }

    fn transaction(&mut self, free: &mut Vec<u64>) -> New {
        self.last += 1;
        let records = match self.random.random_range(0..12) {
            0 if self.last > 20 => self.undo(free),
            _ => (0..self.random.random_range(1..4)).map(|_| self.record(free)).collect(),
        };
        let metadata = TransactionMetadata {
            user: vec![b'u'; self.random.random_range(0..9)],
            description: vec![b'd'; self.random.random_range(0..50)],
            extension: Vec::new(),
        };
        (tid(self.last), NewTransaction { metadata, ..transaction(records) })
    }

    fn undo(&mut self, free: &mut Vec<u64>) -> Vec<NewRecord> {
        let undone = self.storage.last_tid();
        let Ok(found) = self.storage.reader().records_to_undo(undone) else { return Vec::new() };
        let mut undoing = Undoing::default();
        let mut records = Vec::new();
        for record in found {
            let oid = record.oid;
            let body = undo_record(&self.storage, undone, record, &mut undoing).unwrap();
            let place = free.iter().position(|free| *free == oid.0);
            if let (Some(body), Some(place)) = (body, place) {
                free.swap_remove(place);
                records.push(NewRecord { oid, body });
            }
        }
        records
    }

    fn record(&mut self, free: &mut Vec<u64>) -> NewRecord {
        let oid = Oid(free.swap_remove(self.random.random_range(0..free.len())));
        let body = match self.random.random_range(0..20) {
            0 => NewBody::Deleted,
            1 | 2 => {
                match self.storage.reader().load_before(oid, Tid::MAX, Access::Blocking).unwrap() {
                    Load::Revision(current) => {
                        let source = Some(current.serial);
                        copied_body(&self.storage, oid, Some(current.data), source).unwrap()
                    }
                    _ => NewBody::Deleted,
                }
            }
            _ => NewBody::Data(self.data()),
        };
        NewRecord { oid, body }
    }

    fn data(&mut self) -> Bytes {
        let length = match self.random.random_range(0..20) {
            0 => self.random.random_range(4_000..6_000),
            1..4 => self.random.random_range(500..2_000),
            _ => self.random.random_range(1..200),
        };
        let mut data = vec![0; length];
        match self.random.random_range(0..8) {
            // All zeros.
            0 => {}
            // Zeros within.
            1 => self.random.fill(&mut data[length / 2..]),
            _ => self.random.fill(&mut data[..]),
        }
        data.into()
    }
}

/// Looks at what each power cut would leave.
struct Watch {
    random: SmallRng,
    acknowledged: Tid,
    /// What `Data.fs` holds now, and what the one before it did.
    now: Vec<u8>,
    before: Vec<u8>,
    operations: u64,
    images: u64,
    with_more: u64,
    cut: u64,
}

impl Watch {
    fn new(seed: u64) -> Watch {
        Watch {
            random: SmallRng::seed_from_u64(seed),
            acknowledged: Tid::ZERO,
            now: Vec::new(),
            before: Vec::new(),
            operations: 0,
            images: 0,
            with_more: 0,
            cut: 0,
        }
    }

    fn look(&mut self, operation: Operation, files: &MemoryDisk) {
        let live = files.bytes(data_file()).unwrap_or_default();
        if !live.starts_with(&self.now) && !self.now.starts_with(&live) {
            self.before = std::mem::take(&mut self.now);
        }
        self.now = live;
        self.operations += 1;
        let first = self.random.random_range(0..PowerCut::KINDS.len());
        for kind in 0..IMAGES_AT_EACH {
            let cut = PowerCut::KINDS[(first + kind) % PowerCut::KINDS.len()];
            let random = &mut self.random;
            let image = files.after(&cut, &mut |below| random.random_range(0..below));
            self.images += 1;
            let of = &*self;
            let context = || {
                let Watch { operations, images, acknowledged, .. } = of;
                format!(
                    "operation {operations} ({operation:?}), image {images}, {cut:?}, \
                     {acknowledged} acknowledged"
                )
            };
            let packed = files.bytes(&companion(".pack"));
            let (found, was) = check(&image, &self.candidates(packed.as_deref()), &context);
            assert!(found >= self.acknowledged, "{found} is the last: {}", context());
            if self.images.is_multiple_of(CLOSELY) {
                check_closely(&image, found, &context);
            }
            self.with_more += u64::from(found > self.acknowledged);
            self.cut += u64::from(was);
        }
    }

    fn candidates<'a>(&'a self, packed: Option<&'a [u8]>) -> Vec<&'a [u8]> {
        let all = [Some(&self.now[..]), Some(&self.before[..]), packed];
        all.into_iter().flatten().collect()
    }
}

/// Opens an image; its file is the beginning of one of the candidates, up to the end of a
/// transaction. Gives its last tid, and whether something was cut.
fn check(image: &MemoryDisk, candidates: &[&[u8]], context: &dyn Fn() -> String) -> (Tid, bool) {
    let length = image.bytes(data_file()).map_or(0, |bytes| bytes.len());
    let opened = try_open(image.clone());
    let storage = opened.unwrap_or_else(|error| panic!("{error}: {}", context()));
    let found = image.bytes(data_file()).unwrap();
    let is_known = candidates.iter().any(|candidate| candidate.starts_with(&found));
    if !is_known {
        let same = |c: &&[u8]| c.iter().zip(&found).take_while(|(a, b)| a == b).count();
        let at = candidates.iter().map(same).max().unwrap();
        panic!("{} bytes differ from byte {at} on: {}", found.len(), context());
    }
    // The bytes are those of whole transactions up to the last one, so the end is what remains.
    assert_eq!(storage.size(), found.len() as u64, "{}", context());
    (storage.last_tid(), found.len() < length)
}

/// Opens it once more, without an index too, checks it, and commits.
fn check_closely(image: &MemoryDisk, last: Tid, context: &dyn Fn() -> String) {
    let storage = open(image.clone());
    let bytes = image.bytes(data_file()).unwrap();
    let scanned = open(disk_of(&bytes));
    for oid in (0..OBJECTS).map(Oid) {
        let of = |storage: &FileStorage| match storage.reader().load_before(
            oid,
            Tid::MAX,
            Access::Blocking,
        ) {
            Ok(Load::Revision(revision)) => Some((revision.data, revision.serial)),
            Ok(_) => None,
            Err(error) => panic!("{error}: {}", context()),
        };
        assert_eq!(of(&storage), of(&scanned), "{oid}: {}", context());
    }
    commit(&storage, stores(last.next(), &[(1, b"next")])).unwrap();
    drop(storage);
    let (_, damage) = checked(image);
    assert!(damage.is_empty(), "{damage:?}: {}", context());
    assert_eq!(open(image.clone()).last_tid(), last.next(), "{}", context());
}

fn open(disk: impl Disk + 'static) -> FileStorage {
    try_open(disk).expect("it opens")
}

fn try_open(
    disk: impl Disk + 'static,
) -> Result<FileStorage, zodium_filestorage::FileStorageError> {
    let options = OpenOptions {
        checksums: ChecksumMode::Full,
        cache_bytes: 1 << 16,
        ..OpenOptions::new(data_file())
    };
    FileStorage::open(Arc::new(disk), &options)
}
