//! Random bits flipped in a file with checksums, one at a time: what verifies the place names it,
//! everything around it is served as it was, and no wrong byte ever is.
//!
//! `ZODIUM_TEST_FLIPS` is how many; the file has 1,000 bytes for each, up to 1 GB. What is known
//! of the file comes from its bytes alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::{
    checked, commit_all, damaged_at, data_file, flip_in, for_each_seed, open_summed, stores, tid,
};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt};
use zodium_disk::{Disk, DiskFile, MemoryDisk, OpenMode};
use zodium_filestorage::{
    ChecksumMode, DamageKind, FileStorage, FileStorageError, OpenOptions, ScrubPlace,
};
use zodium_types::{Oid, Tid};

const FLIPS: u64 = 3_000;
const FILE_BYTES_MAX: u64 = 1_000_000_000;
/// Of so many flips one is also looked for by a check of the whole file, opened anew.
const FLIPS_A_SAMPLE: u64 = 1_000;
/// Samples at most: each reads the whole file.
const SAMPLES_MAX: u64 = 20;
/// Places that are remembered as damaged are limited to more than these.
const NOTED_MAX: u64 = 50_000;
/// A transaction and its records.
const TRANSACTION_PARTS_MAX: u64 = 41;
const TRANSACTION_HEADER_BYTES: u64 = 23;
const RECORD_HEADER_BYTES: u64 = 42;

/// Where something stands in the file.
#[derive(Clone, Copy)]
struct Part {
    start: u64,
    end: u64,
    tid: Tid,
    /// The object, when it is a record.
    oid: Option<Oid>,
}

fn open(disk: &MemoryDisk) -> FileStorage {
    open_summed(disk, ChecksumMode::Full)
}

/// For the flips: a file that no other program has open.
fn open_read_only(disk: &MemoryDisk) -> FileStorage {
    let (checksums, read_only) = (ChecksumMode::Full, true);
    let options = OpenOptions { checksums, read_only, ..OpenOptions::new(data_file()) };
    FileStorage::open(Arc::new(disk.clone()), &options).expect("it opens")
}

/// Records from a few bytes to some KiB. Each object has two revisions, in different batches.
fn write(rng: &mut SmallRng, bytes: u64) -> MemoryDisk {
    let disk = MemoryDisk::new();
    let storage = open(&disk);
    let mut noise = vec![0; 64 << 10];
    rng.fill_bytes(&mut noise);
    let mut n = 0;
    while storage.size() < bytes {
        let mut transaction = || {
            n += 1;
            let record = |i| {
                let length = rng.random_range(1..3_000);
                let start = rng.random_range(0..noise.len() - length);
                ((n / 16 * 8 + n % 8) * 100 + i, &noise[start..start + length])
            };
            let count = 1 + n % 40;
            stores(tid(n), &(0..count).map(record).collect::<Vec<_>>())
        };
        let batch: Vec<_> = std::iter::repeat_with(&mut transaction).take(8).collect();
        commit_all(&storage, batch).unwrap();
    }
    storage.close().unwrap();
    disk
}

fn number(file: &dyn DiskFile, position: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, position).unwrap();
    u64::from_be_bytes(bytes)
}

/// The parts of a file without metadata, ascending: each transaction, then its records.
fn parts_of(file: &dyn DiskFile) -> Vec<Part> {
    let (mut parts, mut position) = (Vec::new(), 4);
    while position < file.length().unwrap() {
        let tid = Tid(number(file, position));
        let end = position + number(file, position + 8);
        parts.push(Part { start: position, end: end + 8, tid, oid: None });
        position += TRANSACTION_HEADER_BYTES;
        while position < end {
            let length = number(file, position + RECORD_HEADER_BYTES - 8);
            let (start, oid) = (position, Some(Oid(number(file, position))));
            position += RECORD_HEADER_BYTES + length;
            parts.push(Part { start, end: position, tid, oid });
        }
        position += 8;
    }
    parts
}

/// The part that a byte belongs to: a record's, or the frame's around them.
fn part_of(parts: &[Part], byte: u64) -> usize {
    let last = parts.partition_point(|part| part.start <= byte) - 1;
    if byte < parts[last].end {
        return last;
    }
    parts[..last].iter().rposition(|part| part.oid.is_none()).unwrap()
}

/// An open file, with what has been found damaged in it so far.
struct Flipped<'a> {
    storage: FileStorage,
    file: &'a dyn DiskFile,
    parts: &'a [Part],
    /// Where the frames of the transactions can be verified.
    places: &'a BTreeMap<u64, ScrubPlace>,
    noted: BTreeSet<u64>,
    damaged: u64,
}

impl Flipped<'_> {
    /// The data as they stand in the file, unless they are served otherwise.
    fn is_served(&self, part: &Part) -> Result<bool, FileStorageError> {
        let served = self.storage.reader().load_serial(part.oid.unwrap(), part.tid)?;
        let start = part.start + RECORD_HEADER_BYTES;
        let mut bytes = vec![0; (part.end - start) as usize];
        self.file.read_exact_at(&mut bytes, start).unwrap();
        Ok(served.is_some_and(|served| served == bytes))
    }

    /// Holds what is said of a damaged place, and of what stands beside it.
    fn verify(&mut self, damaged: usize, flip: &str) {
        let part = &self.parts[damaged];
        let is_new = u64::from(self.noted.insert(part.start));
        match part.oid {
            Some(_) => assert_eq!(damaged_at(self.is_served(part)), part.start, "{flip}"),
            None => {
                self.storage.scrub(self.places[&part.start], 1);
            }
        }
        for other in damaged.saturating_sub(1)..(damaged + 2).min(self.parts.len()) {
            let other = &self.parts[other];
            // An older revision is found by way of the newer one.
            let is_hidden = part.oid == other.oid && other.tid <= part.tid;
            if other.oid.is_some() && !is_hidden {
                assert!(self.is_served(other).unwrap(), "{flip}");
            }
        }
        let now = self.storage.checksum_metrics().unwrap().damaged;
        match part.oid {
            // The place itself may have been counted before.
            Some(_) => assert!(now <= self.damaged + 1, "{flip}"),
            // Without its frame a transaction may have no records either.
            None => assert!((is_new..=TRANSACTION_PARTS_MAX).contains(&(now - self.damaged))),
        }
        self.damaged = now;
    }

    /// Opens the file anew when so many places were found damaged that no more are remembered.
    fn forget(&mut self, disk: &MemoryDisk) {
        if self.damaged > NOTED_MAX {
            self.storage = open_read_only(disk);
            (self.noted, self.damaged) = (BTreeSet::new(), 0);
        }
    }
}

fn places_of(storage: &FileStorage, parts: &[Part]) -> BTreeMap<u64, ScrubPlace> {
    let mut place = Some(ScrubPlace::default());
    let frames = parts.iter().filter(|part| part.oid.is_none());
    frames
        .map(|part| {
            let here = place.expect("as many steps as transactions");
            place = storage.scrub(here, 1);
            (part.start, here)
        })
        .collect()
}

/// What a check of the whole file, opened anew, finds not to fit its checksums.
fn mismatches(disk: &MemoryDisk) -> Vec<u64> {
    let (_, found) = checked(disk);
    let of_sums = found.iter().filter(|damage| damage.kind == DamageKind::Checksum);
    of_sums.map(|damage| damage.position).collect()
}

#[test]
fn every_random_flip_is_seen_where_it_is_and_nothing_else_suffers() {
    let flips = std::env::var("ZODIUM_TEST_FLIPS").map_or(FLIPS, |n| n.parse().unwrap());
    for_each_seed(1, "flips", |_, rng| {
        let disk = write(rng, (flips * 1_000).min(FILE_BYTES_MAX));
        let file = disk.open(data_file(), OpenMode::Write).unwrap();
        let (file, storage) = (file.as_ref(), open_read_only(&disk));
        let (parts, length) = (parts_of(file), file.length().unwrap());
        let places = &places_of(&storage, &parts);
        let (parts, noted) = (&parts[..], BTreeSet::new());
        let mut flipped = Flipped { storage, file, parts, places, noted, damaged: 0 };
        let each = FLIPS_A_SAMPLE.max(flips / SAMPLES_MAX);
        let mut in_frames = 0;
        for n in 0..flips {
            let (at, bit) = (rng.random_range(4..length), rng.random_range(0..8));
            let part = part_of(parts, at);
            in_frames += u64::from(parts[part].oid.is_none());
            flip_in(file, at, bit);
            flipped.verify(part, &format!("bit {bit} of byte {at}"));
            if n % each == 0 {
                assert!(mismatches(&disk).contains(&parts[part].start), "bit {bit} of byte {at}");
            }
            flip_in(file, at, bit);
            flipped.forget(&disk);
        }
        println!("{flips} flips in {length} bytes, {in_frames} in frames");
    });
}

#[test]
fn check_tells_each_damaged_record_once_and_in_order() {
    for_each_seed(3, "flips", |_, rng| {
        let disk = write(rng, 9_000_000);
        let file = disk.open(data_file(), OpenMode::Write).unwrap();
        let parts = parts_of(file.as_ref());
        let mut damaged = BTreeSet::new();
        for _ in 0..100 {
            let part = &parts[rng.random_range(0..parts.len())];
            if part.oid.is_some() && damaged.insert(part.start) {
                let at = rng.random_range(part.start + RECORD_HEADER_BYTES..part.end);
                flip_in(file.as_ref(), at, rng.random_range(0..8));
            }
        }
        assert_eq!(mismatches(&disk), damaged.into_iter().collect::<Vec<_>>());
    });
}
