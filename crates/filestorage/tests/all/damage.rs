//! Every bit of a data file flipped, one at a time: opening it and reading everything in it ends
//! with answers or an error, never with a panic, a hang or a changed file.
//!
//! `Data.fs` has no checksums, so a wrong bit in what a client sent (data, user, description,
//! extension) cannot be seen. Of the bits that make up the structure nearly all are: the file is
//! refused, or the reading of the object is. What goes unseen all the same:
//! - a data length of 0 that becomes 8 or the other way round, since a back pointer takes the
//!   room of 8 bytes of data;
//! - the oid of an object's first record, while it is the only one: the object is missed (or,
//!   where the transaction that created the object stored it twice, the first data are found);
//! - the tid of a transaction without records;
//! - in what an index covers, and is therefore not read at the opening: an oid, until that record
//!   is read;
//! - there too, the tid of the last record of a transaction, until that transaction is iterated.
//!
//! `--nocapture` prints the shares.

use std::collections::BTreeMap;

use crate::support::{
    Field, History, Model, commit, damaged_at, data_file, data_of, disk_of, flip, for_each_seed,
    loads_other_bytes, open, open_read_only, same_answers, stores, tid,
};
use rand::rngs::SmallRng;
use zodium_disk::MemoryDisk;
use zodium_storage::Access;
use zodium_types::{Oid, Tid};

#[test]
fn wrong_bit_outside_of_contents_is_seen() {
    for_each_seed(3, "damage", |_, rng| {
        let (bytes, model) = written(rng);
        let outcomes = flip_every_bit(&bytes, &model, &disk_of(&bytes));
        report("without an index", &outcomes);
        check_seen(&outcomes, &["oid", "transaction tid"]);
    });
}

#[test]
fn wrong_bit_in_what_an_index_covers_is_seen_when_it_is_read() {
    for_each_seed(3, "damage", |_, rng| {
        let (bytes, model) = written(rng);
        let disk = disk_of(&bytes);
        open(disk.clone()).close().unwrap();
        let outcomes = flip_every_bit(&bytes, &model, &disk);
        report("with an index", &outcomes);
        check_seen(&outcomes, &["oid", "record tid", "transaction tid"]);
    });
}

/// Its oid is wrong, or what it names as the revision before: two objects would be mixed up.
#[test]
fn a_record_that_does_not_continue_its_history_is_refused() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for (number, oid) in [(1, 1), (2, 2), (3, 1)] {
        commit(&storage, stores(tid(number), &[(oid, b"data")])).unwrap();
    }
    drop(storage);
    let bytes = data_of(&disk);
    let transaction = (bytes.len() - 4) / 3;
    let record = |number: usize| 4 + number * transaction + 23;
    let (of_another, of_none) = (record(1) as u64, 0);
    for previous in [of_another, of_none] {
        let mut damaged = bytes.clone();
        damaged[record(2) + 16..][..8].copy_from_slice(&previous.to_be_bytes());
        let opened = open_read_only(disk_of(&damaged));
        assert_eq!(damaged_at(opened), record(2) as u64, "previous record at {previous}");
    }
    let mut damaged = bytes.clone();
    damaged[record(2) + 7] = 2;
    assert_eq!(damaged_at(open_read_only(disk_of(&damaged))), record(2) as u64, "another oid");
}

/// Its history is shorter, but that of no other object.
#[test]
fn a_record_that_names_an_older_one_of_its_object_is_read() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for number in 1..=3 {
        commit(&storage, stores(tid(number), &[(1, b"data")])).unwrap();
    }
    drop(storage);
    let mut bytes = data_of(&disk);
    let third = 4 + (bytes.len() - 4) / 3 * 2 + 23;
    bytes[third + 16..][..8].copy_from_slice(&(4 + 23_u64).to_be_bytes());
    let storage = open_read_only(disk_of(&bytes)).unwrap();
    assert_eq!(storage.last_tid(), tid(3));
}

/// Where an index covers the records, their histories are not read at the opening.
#[test]
fn a_history_that_runs_in_a_circle_is_refused_when_it_is_read() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    for number in [2, 3] {
        commit(&storage, stores(tid(number), &[(1, b"data")])).unwrap();
    }
    storage.close().unwrap();
    let mut bytes = data_of(&disk);
    let transaction = (bytes.len() - 4) / 2;
    let record = |number: usize| 4 + number * transaction + 23;
    let newer = record(1) as u64;
    bytes[record(0) + 16..][..8].copy_from_slice(&newer.to_be_bytes());
    disk.put(data_file(), bytes);
    let storage = open_read_only(disk).unwrap();
    let older = storage.reader().load_before(Oid(1), tid(1), Access::Blocking);
    assert_eq!(damaged_at(older), record(0) as u64);
}

fn written(rng: &SmallRng) -> (Vec<u8>, Model) {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    let mut history = History::new(rng.clone());
    while history.model.size() < 1_000 {
        history.commit_batch(&storage);
    }
    (data_of(&disk), history.model)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    /// All answers are those stored.
    Harmless,
    /// The file is refused.
    Refused,
    /// Some reading gives an error.
    Error,
    /// No error, but something is missing, or named differently.
    Unseen,
    /// A load gives other bytes than were stored.
    OtherBytes,
}

fn read(disk: &MemoryDisk, model: &Model) -> Outcome {
    let Ok(storage) = open_read_only(disk.clone()) else { return Outcome::Refused };
    if loads_other_bytes(&storage, model) {
        return Outcome::OtherBytes;
    }
    match same_answers(&storage, model) {
        Ok(true) => Outcome::Harmless,
        Ok(false) => Outcome::Unseen,
        Err(_) => Outcome::Error,
    }
}

/// The outcomes by field of the format.
type Outcomes = BTreeMap<&'static str, BTreeMap<Outcome, u32>>;

fn flip_every_bit(bytes: &[u8], model: &Model, disk: &MemoryDisk) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let mut damaged = bytes.to_vec();
    for field in Field::all(bytes, model) {
        for bit in field.start * 8..field.end * 8 {
            damaged[bit / 8] ^= 1 << (bit % 8);
            disk.put(data_file(), damaged.clone());
            let outcome = read(disk, model);
            assert_eq!(data_of(disk), damaged);
            damaged[bit / 8] ^= 1 << (bit % 8);
            *outcomes.entry(field.name).or_default().entry(outcome).or_default() += 1;
        }
    }
    outcomes
}

fn report(title: &str, outcomes: &Outcomes) {
    let count = |wanted: &dyn Fn(&str, Outcome) -> bool| {
        let all = outcomes.iter().flat_map(|(name, counts)| {
            counts.iter().map(move |(outcome, count)| (*name, *outcome, *count))
        });
        all.filter(|(name, outcome, _)| wanted(name, *outcome)).map(|(.., count)| count).sum()
    };
    let contents = |name: &str| matches!(name, "data" | "metadata");
    let silent = |outcome| matches!(outcome, Outcome::Unseen | Outcome::OtherBytes);
    let (all, of_contents): (u32, u32) = (count(&|_, _| true), count(&|name, _| contents(name)));
    let unseen: u32 = count(&|name, outcome| !contents(name) && silent(outcome));
    println!("{title}: {all} bits, {of_contents} of contents, {unseen} others go unseen");
    for (name, counts) in outcomes {
        println!("  {name:22} {counts:?}");
    }
}

/// Outside of contents, and of the fields that may, no bit goes unseen.
fn check_seen(outcomes: &Outcomes, unseen_in: &[&str]) {
    for (name, counts) in outcomes {
        let of = |outcome| counts.get(&outcome).copied().unwrap_or(0);
        let unseen = of(Outcome::Unseen) + of(Outcome::OtherBytes);
        match *name {
            "data" | "metadata" => {}
            // At most the one bit that is worth 8.
            "data length" => assert!(unseen <= counts.values().sum::<u32>() / 64, "{counts:?}"),
            name if unseen_in.contains(&name) => {}
            _ => assert_eq!(unseen, 0, "{name}: {counts:?}"),
        }
    }
}

/// Its length may be wrong.
#[test]
fn a_record_with_nothing_behind_it_that_goes_on_from_there_is_not_served() {
    let disk = MemoryDisk::new();
    let storage = open(disk.clone());
    commit(&storage, stores(tid(1), &[(1, b"data"), (2, b"others")])).unwrap();
    let second = 4 + 23 + 42 + 4;
    let load = |oid| storage.reader().load_before(Oid(oid), Tid::MAX, Access::Blocking);
    // The tid of the next record, the transaction it names, and the length of the transaction.
    for (oid, at) in [(1, second + 15), (1, second + 31), (2, storage.size() - 1)] {
        load(oid).unwrap();
        flip(&disk, at, 0);
        let refused = load(oid).unwrap_err().to_string();
        assert!(refused.contains("does not end where"), "{refused}");
        flip(&disk, at, 0);
    }
}
