//! A data file with checksums that other programs write and replace: what they leave whole is never
//! called damaged, and a bit that flips in what Zodium wrote last always is.
//!
//! Another program is a storage without checksums behind which the lock file is as `zc.lockfile`
//! writes it, and beside which the checksums are as Zodium had left them. The files are large:
//! in a small one all checksums are near its end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::support::{
    checked, commit, companion, count_warnings, data_file, data_of, flip, for_each_seed, overwrite,
    stores, tid,
};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use zodium_disk::{Disk, FaultyDisk, MemoryDisk};
use zodium_filestorage::{
    ChecksumMode, Damage, DamageKind, Distrust, FileStorage, IndexVerdict, OpenOptions,
    RecoverOptions, recover,
};
use zodium_storage::{Access, Load, PackOptions};
use zodium_types::{Oid, Tid};

const OBJECTS: u64 = 15_000;
const OBJECTS_A_TRANSACTION: u64 = 500;
const STEPS: usize = 7;
const BACKUPS_MAX: usize = 3;

/// Of each object its last revision.
type Revisions = BTreeMap<Oid, (Tid, Vec<u8>)>;

fn open(disk: impl Disk + 'static, checksums: ChecksumMode) -> FileStorage {
    let options = OpenOptions { checksums, ..OpenOptions::new(data_file()) };
    FileStorage::open(Arc::new(disk), &options).expect("it opens")
}

fn cover(storage: &FileStorage) {
    while storage.cover(1 << 20) > 0 {}
    assert_eq!(storage.uncovered_bytes(), 0);
}

fn pack(storage: &FileStorage, tid: Tid) {
    let cancelled = Arc::default();
    let options = PackOptions { keep_old: true, ..PackOptions::new(&cancelled) };
    if let Some(mut pack) = storage.packer().begin(tid, &options).unwrap() {
        storage.packer().finish(&mut pack).unwrap();
    }
}

/// What the log alone says.
fn truth_of(disk: &MemoryDisk) -> Revisions {
    let alone = MemoryDisk::new();
    alone.put(data_file(), data_of(disk));
    let storage = open(alone, ChecksumMode::Off);
    revisions_of(&storage, &(0..OBJECTS).map(Oid).collect::<Vec<_>>())
}

fn revisions_of(storage: &FileStorage, oids: &[Oid]) -> Revisions {
    let mut revisions = Revisions::new();
    for oid in oids {
        if let Load::Revision(found) =
            storage.reader().load_before(*oid, Tid::MAX, Access::Blocking).expect("a sound file")
        {
            revisions.insert(*oid, (found.serial, found.data.to_vec()));
        }
    }
    revisions
}

/// A file, and what happens to it.
struct World {
    disk: MemoryDisk,
    rng: SmallRng,
    /// Of the last transaction in any of the copies.
    last: u64,
    backups: Vec<Vec<u8>>,
    /// Zodium has written last, and the checksums cover all.
    is_covered: bool,
    steps: Vec<String>,
}

impl World {
    /// A large file that the one or the other has begun.
    fn new(mut rng: SmallRng) -> World {
        let (disk, is_stock) = (MemoryDisk::new(), rng.random_ratio(1, 2));
        let (backups, steps) = (Vec::new(), Vec::new());
        let mut world = World { disk, rng, last: 0, backups, is_covered: false, steps };
        match is_stock {
            true => world.stock(World::fill),
            false => world.zodium(World::fill, true),
        }
        world
    }

    fn fill(&mut self, storage: &FileStorage) {
        for first in (0..OBJECTS).step_by(OBJECTS_A_TRANSACTION as usize) {
            let oids: Vec<_> = (first..first + OBJECTS_A_TRANSACTION).collect();
            self.commit(storage, &oids);
        }
    }

    fn commit(&mut self, storage: &FileStorage, oids: &[u64]) {
        self.last += 1;
        let mut data = vec![0; 24];
        self.rng.fill_bytes(&mut data);
        let lengths: Vec<_> = oids.iter().map(|_| self.rng.random_range(1..data.len())).collect();
        let objects = oids.iter().zip(&lengths).map(|(oid, length)| (*oid, &data[..*length]));
        commit(storage, stores(tid(self.last), &objects.collect::<Vec<_>>())).unwrap();
    }

    fn commit_some(&mut self, storage: &FileStorage) {
        for _ in 0..self.rng.random_range(1..30) {
            let mut oids: Vec<_> = (0..self.rng.random_range(1..20))
                .map(|_| self.rng.random_range(0..OBJECTS))
                .collect();
            oids.sort_unstable();
            oids.dedup();
            self.commit(storage, &oids);
        }
    }

    /// A session of the other program.
    fn stock(&mut self, write: impl FnOnce(&mut World, &FileStorage)) {
        self.is_covered = false;
        self.disk.put(&companion(".lock"), b" 4711\n".to_vec());
        let [side, index_checksum] = [".checksums", ".index.crc32c"].map(companion);
        let ours = [side, index_checksum].map(|path| (self.disk.bytes(&path), path));
        let storage = open(self.disk.clone(), ChecksumMode::Off);
        write(self, &storage);
        storage.close().unwrap();
        for (bytes, path) in ours {
            match bytes {
                Some(bytes) => self.disk.put(&path, bytes),
                None => self.disk.remove(&path).unwrap(),
            }
        }
    }

    /// A session of Zodium, closed or killed.
    fn zodium(&mut self, write: impl FnOnce(&mut World, &FileStorage), is_closed: bool) {
        let storage = open(self.disk.clone(), ChecksumMode::Full);
        match self.rng.random_range(0..3) {
            0 => {}
            1 => drop(storage.cover(self.rng.random_range(1..400_000))),
            _ => cover(&storage),
        }
        write(self, &storage);
        if self.rng.random_ratio(1, 2) {
            storage.sync_checksums();
        }
        self.is_covered = storage.uncovered_bytes() == 0;
        if is_closed {
            storage.close().unwrap();
        } else {
            self.disk = self.disk.after_kill();
        }
    }

    /// Packs up to somewhere, or now.
    fn pack_some(&mut self, storage: &FileStorage) {
        self.commit_some(storage);
        let last = self.last - self.rng.random_range(0..10);
        pack(storage, tid(last.max(1)));
        if self.rng.random_ratio(1, 2) {
            self.commit_some(storage);
        }
    }

    fn step(&mut self) {
        let kind = self.rng.random_range(0..10);
        let is_closed = self.rng.random_ratio(1, 2);
        match kind {
            0 | 1 => self.zodium(World::commit_some, is_closed),
            2 => self.zodium(World::pack_some, is_closed),
            3 | 4 => self.stock(World::commit_some),
            5 => self.stock(World::pack_some),
            6 | 7 if !self.backups.is_empty() => {
                self.is_covered = false;
                let number = self.rng.random_range(0..self.backups.len());
                match is_closed {
                    true => self.disk.put(data_file(), self.backups[number].clone()),
                    false => overwrite(&self.disk, data_file(), &self.backups[number]),
                }
            }
            8 => {
                self.is_covered = false;
                let bytes = data_of(&self.disk);
                let end = (0..self.rng.random_range(1..12))
                    .fold(bytes.len(), |end, _| before(&bytes, end));
                overwrite(&self.disk, data_file(), &bytes[..end]);
            }
            _ => {
                self.backups.push(data_of(&self.disk));
                let count = self.backups.len();
                self.backups.drain(..count.saturating_sub(BACKUPS_MAX));
            }
        }
        self.steps.push(format!("{kind} closed or other file {is_closed}"));
    }

    /// Nothing is called damaged, lost or wrong.
    fn check_sound(&mut self) {
        let (steps, truth) = (self.steps.join(", "), truth_of(&self.disk));
        let (found, damages) = checked(&self.disk);
        let others: Vec<_> = damages.iter().filter(|d| d.kind != DamageKind::Index).collect();
        assert!(others.is_empty(), "{others:?} after {steps}");
        assert!(!self.is_covered || found.uncovered == 0, "{:?} after {steps}", found.distrust);
        let image = self.disk.after_kill();
        self.check_recovery(&image, &steps);
        let (_, warnings) = count_warnings(|| {
            let storage = open(image.clone(), ChecksumMode::Full);
            let oids: Vec<_> = truth.keys().copied().collect();
            assert!(revisions_of(&storage, &oids) == truth, "other revisions after {steps}");
            assert_eq!(storage.reader().object_count(), truth.len() as u64, "after {steps}");
            cover(&storage);
            storage.scrub(Default::default(), u64::MAX);
            assert_eq!(storage.checksum_metrics().unwrap().damaged, 0, "after {steps}");
            storage.close().unwrap();
        });
        let is_bad = |line: &&String| line.contains("lost") || line.contains("damage");
        assert_eq!(warnings.iter().find(is_bad), None, "after {steps}");
        let (found, damages) = checked(&image);
        assert_eq!(damages, [], "after {steps}");
        assert_eq!((found.index, found.distrust), (IndexVerdict::Agrees, None), "after {steps}");
        assert_eq!(found.uncovered, 0);
    }

    fn check_recovery(&self, image: &MemoryDisk, steps: &str) {
        let to = Path::new("New.fs");
        let options = RecoverOptions {
            from: data_file().to_owned(),
            to: to.to_owned(),
            partial: false,
            drop_mismatches: true,
            progress: &|_, _| (),
        };
        let summary = recover(image, &options, &mut |_| ()).unwrap();
        assert_eq!((summary.left_out, summary.mended), (0, 0), "after {steps}");
        assert!(image.bytes(to).unwrap() == data_of(image), "another file after {steps}");
    }

    /// Flips a bit somewhere, of which a check has to tell.
    fn check_flips(&mut self) {
        if !self.is_covered {
            return;
        }
        let bytes = data_of(&self.disk);
        for is_near_the_end in [true, true, false] {
            let from = if is_near_the_end { bytes.len() - 2_000 } else { 4 };
            let (at, bit) = (self.rng.random_range(from..bytes.len()), self.rng.random_range(0..8));
            let image = self.disk.after_kill();
            flip(&image, at as u64, bit);
            let (found, damages) = checked(&image);
            let what = format!("bit {bit} of byte {at} of {} after {:?}", bytes.len(), self.steps);
            assert_eq!(found.distrust, None, "{what}");
            assert!(!damages.is_empty(), "{what}");
        }
    }
}

/// Where the transaction that ends there begins; the first of a file stays.
fn before(bytes: &[u8], end: usize) -> usize {
    let length = u64::from_be_bytes(bytes[end - 8..end].try_into().unwrap());
    let start = end - 8 - length as usize;
    if start == 4 { end } else { start }
}

#[test]
fn what_others_write_and_put_back_is_sound_and_flipped_bits_are_found() {
    for_each_seed(6, "foreign_writers", |_, rng| {
        let mut world = World::new(rng.clone());
        for _ in 0..STEPS {
            world.step();
            world.check_sound();
            world.check_flips();
        }
    });
}

#[test]
fn another_writer_a_copy_and_a_file_put_back_are_told_apart_and_said_once() {
    let mut world = World::new(SmallRng::seed_from_u64(1));
    world.zodium(World::commit_some, true);
    let older = data_of(&world.disk);
    world.zodium(|_, storage| cover(storage), true);
    world.zodium(World::commit_some, true);
    let bytes = data_of(&world.disk);
    let length = bytes.len() as u64;
    type Change<'a> = &'a dyn Fn(&MemoryDisk);
    let cases: [(Change<'_>, Option<Distrust>); 6] = [
        (&|_| (), None),
        (&|disk| disk.remove(&companion(".lock")).unwrap(), Some(Distrust::OtherWriter)),
        (&|disk| disk.put(&companion(".lock"), b" 1\n".to_vec()), Some(Distrust::OtherWriter)),
        (&|disk| disk.put(data_file(), bytes.clone()), Some(Distrust::OtherFile)),
        (
            &|disk| overwrite(disk, data_file(), &older),
            Some(Distrust::OtherLength { was: length, is: older.len() as u64 }),
        ),
        (
            &|disk| open(disk.clone(), ChecksumMode::Off).close().unwrap(),
            Some(Distrust::OtherWriter),
        ),
    ];
    for (number, (change, expected)) in cases.into_iter().enumerate() {
        let disk = world.disk.after_kill();
        change(&disk);
        let (found, damages) = checked(&disk);
        assert_eq!(found.distrust, expected, "case {number}");
        assert_eq!(found.has_checksums, expected.is_none(), "case {number}");
        assert!(damages.iter().all(|damage| damage.kind == DamageKind::Index), "case {number}");
        let (storage, warnings) = count_warnings(|| open(disk.clone(), ChecksumMode::Full));
        let said = warnings.iter().filter(|line| line.contains("are not used")).count();
        assert_eq!(said, usize::from(expected.is_some()), "case {number}: {warnings:?}");
        cover(&storage);
        storage.close().unwrap();
        drop(storage);
        let (_, warnings) = count_warnings(|| open(disk, ChecksumMode::Full));
        assert_eq!(warnings, [""; 0], "case {number}");
    }
}

/// Two servers went on from one file; the file of the one comes in place of the other's, which was
/// killed.
#[test]
fn another_continuation_in_the_same_file_is_no_damage() {
    for_each_seed(3, "foreign_writers", |_, rng| {
        let mut world = World::new(rng.clone());
        world.zodium(|_, storage| cover(storage), true);
        let common = data_of(&world.disk);
        let other = MemoryDisk::new();
        other.put(data_file(), common);
        let storage = open(other.clone(), ChecksumMode::Off);
        let wanted = storage.size() + 20_000;
        while storage.size() < wanted {
            world.commit_some(&storage);
        }
        storage.close().unwrap();
        let is_synced = world.rng.random_ratio(1, 2);
        world.zodium(
            |world, storage| {
                world.commit(storage, &[1, 2, 3]);
                if is_synced {
                    storage.sync_checksums();
                }
                world.commit(storage, &[4]);
                // A single small transaction that has checksums might be taken for damage.
                world.commit(storage, &[5]);
            },
            false,
        );
        overwrite(&world.disk, data_file(), &data_of(&other));
        world.is_covered = false;
        let (found, _) = checked(&world.disk);
        assert!(matches!(found.distrust, Some(Distrust::OtherContents { .. })), "{found:?}");
        world.check_sound();
    });
}

/// The file is written over while it is served, with transactions at the same places.
#[test]
fn checksums_that_turn_out_to_be_of_another_log_are_taken_anew() {
    let write = |salt: u8| {
        let disk = MemoryDisk::new();
        let storage = open(disk.clone(), ChecksumMode::Full);
        for n in 1..=40_u64 {
            let data = [salt; 30];
            commit(&storage, stores(tid(n * 2 + u64::from(salt)), &[(n, &data), (n + 1, &data)]))
                .unwrap();
        }
        (disk, storage)
    };
    let (disk, storage) = write(0);
    let (other, _) = write(1);
    overwrite(&disk, data_file(), &data_of(&other));
    let (loaded, warnings) =
        count_warnings(|| storage.reader().load_before(Oid(7), Tid::MAX, Access::Blocking));
    assert!(loaded.is_ok(), "{loaded:?}");
    assert!(warnings.iter().any(|line| line.contains("not used any more")), "{warnings:?}");
    let metrics = storage.checksum_metrics().unwrap();
    assert_eq!((metrics.damaged, metrics.covered_bytes), (0, 0));
    cover(&storage);
    storage.scrub(Default::default(), u64::MAX);
    let metrics = storage.checksum_metrics().unwrap();
    assert_eq!((metrics.damaged, metrics.covered_bytes), (0, metrics.bytes));
    storage.close().unwrap();
    flip(&disk, metrics.bytes - 10, 3);
    let (found, damages) = checked(&disk);
    assert_eq!((found.distrust, damages.len()), (None, 1));
}

/// Neither its frame nor its only record fits, as if it were another transaction; but one bit of
/// the description makes the frame fit.
#[test]
fn a_damaged_record_below_a_flipped_bit_of_the_description_is_damage() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone(), ChecksumMode::Full);
    commit(&storage, stores(tid(1), &[(1, b"first")])).unwrap();
    let start = storage.size();
    let description = b"all prices of the winter".to_vec();
    let (second, mut new) = stores(tid(2), &[(2, &[7; 50])]);
    new.metadata.description.clone_from(&description);
    commit(&storage, (second, new)).unwrap();
    let record = start + 23 + description.len() as u64;
    commit(&storage, stores(tid(3), &[(3, b"third")])).unwrap();
    storage.close().unwrap();
    for bit in 0..description.len() as u64 * 8 {
        let damaged = disk.after_kill();
        flip(&damaged, start + 23 + bit / 8, (bit % 8) as u32);
        flip(&damaged, record + 42 + 10, 3);
        let (found, damages) = checked(&damaged);
        assert_eq!(found.distrust, None, "bit {bit}");
        assert!(damages.iter().any(|it| it.kind == DamageKind::Checksum), "bit {bit}");
    }
}

#[test]
fn after_a_kill_at_any_step_the_checksums_are_trusted_and_flips_found() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone(), ChecksumMode::Full);
    commit(&storage, stores(tid(1), &[(1, b"first"), (2, b"second")])).unwrap();
    storage.close().unwrap();
    drop(storage);
    let bytes = data_of(&disk);
    let disk = FaultyDisk::new(disk);
    disk.keep_images();
    for session in 0..2 {
        let storage = open(disk.clone(), ChecksumMode::Full);
        for n in 0..3 {
            commit(&storage, stores(tid(session * 10 + n + 2), &[(n, b"data")])).unwrap();
            storage.sync_checksums();
        }
        if session == 1 {
            storage.close().unwrap();
        }
    }
    let images = disk.images();
    assert!(images.len() > 30);
    for image in images {
        for after in [image.kill, image.power_cut] {
            let (found, damages) = checked(&after);
            let damages: Vec<_> = damages.iter().filter(|d| d.kind != DamageKind::Tail).collect();
            let what = &image.after;
            assert_eq!((found.distrust, damages.len()), (None, 0), "{what:?}: {damages:?}");
            flip(&after, bytes.len() as u64 - 12, 5);
            assert_eq!(checked(&after).0.distrust, None, "{what:?}");
            let is_sum = |damage: &Damage| damage.kind == DamageKind::Checksum;
            assert!(checked(&after).1.iter().any(is_sum), "{what:?}");
        }
    }
}

#[test]
fn no_index_is_saved_while_damage_is_suspected() {
    let mut world = World::new(SmallRng::seed_from_u64(2));
    world.zodium(|_, storage| cover(storage), true);
    let bytes = data_of(&world.disk);
    let index = world.disk.bytes(&companion(".index")).unwrap();
    // An oid, in the header of the first record.
    for (at, has_index) in
        [(4 + 23 + 7, false), (bytes.len() - 12, true), (bytes.len() - 12, false)]
    {
        let disk = world.disk.after_kill();
        if !has_index {
            disk.remove(&companion(".index")).unwrap();
        }
        flip(&disk, at as u64, 1);
        let storage = open(disk.clone(), ChecksumMode::Full);
        world.commit(&storage, &[7]);
        storage.scrub(Default::default(), u64::MAX);
        storage.save_index().unwrap();
        storage.close().unwrap();
        let expected = has_index.then(|| index.clone());
        assert!(disk.bytes(&companion(".index")) == expected, "an index saved: byte {at}");
    }
}

/// A session ends without a close, a copy goes on elsewhere, and is put back in place. Its data
/// have the traces of lost sectors.
fn check_copy_put_back(minutes_between: u64, crashed: impl Fn(&MemoryDisk) -> MemoryDisk) {
    let disk = MemoryDisk::new();
    let left = open(disk.clone(), ChecksumMode::Full);
    commit(&left, stores(tid(1), &[(1, b"one")])).unwrap();
    cover(&left);
    let elsewhere = MemoryDisk::new();
    elsewhere.put(data_file(), data_of(&disk));
    let copy = open(elsewhere.clone(), ChecksumMode::Off);
    for number in 2..6 {
        let tid = Tid(tid(number).0 + ((number * minutes_between) << 32));
        commit(&copy, stores(tid, &[(number, &[0; 2000])])).unwrap();
    }
    let disk = crashed(&disk);
    overwrite(&disk, data_file(), &data_of(&elsewhere));
    let storage = open(disk.clone(), ChecksumMode::Full);
    assert_eq!(storage.reader().object_count(), 5);
    assert_eq!(data_of(&disk), data_of(&elsewhere));
}

#[test]
fn what_a_copy_wrote_later_stays_when_it_is_put_back_after_a_power_cut() {
    check_copy_put_back(2, MemoryDisk::after_power_cut);
}

/// The end of a process loses no bytes, so none can be missing in what is there.
#[test]
fn what_a_copy_wrote_stays_when_it_is_put_back_after_a_kill() {
    check_copy_put_back(0, MemoryDisk::after_kill);
}

/// The primary was closed after a transaction that the copy did not have, which went on with one of
/// the same length.
#[test]
fn a_copy_that_differs_in_the_last_transaction_and_went_on_is_no_damage() {
    let (disk, elsewhere) = (MemoryDisk::new(), MemoryDisk::new());
    let described = |number: u64, data: &[u8]| {
        let (tid, mut new) = stores(tid(number), &[(1, data)]);
        new.metadata.description = format!("/page/{number:02}").into_bytes();
        (tid, new)
    };
    let primary = open(disk.clone(), ChecksumMode::Full);
    (1..9).for_each(|number| commit(&primary, described(number, b"before")).unwrap());
    elsewhere.put(data_file(), data_of(&disk));
    commit(&primary, described(9, b"first")).unwrap();
    cover(&primary);
    primary.close().unwrap();
    drop(primary);
    let copy = open(elsewhere.clone(), ChecksumMode::Off);
    commit(&copy, described(10, b"other")).unwrap();
    commit(&copy, described(11, b"after")).unwrap();
    overwrite(&disk, data_file(), &data_of(&elsewhere));
    let (found, damages) = checked(&disk);
    assert_eq!(damages, []);
    assert_eq!(found.distrust.map(|reason| reason.to_string().contains("bytes")), Some(true));
    assert!(open(disk, ChecksumMode::Full).reader().object_count() > 0);
}
