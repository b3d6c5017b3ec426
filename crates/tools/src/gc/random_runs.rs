//! Random collections beside a writer, against a model of what is in use.
//!
//! The writer works whenever a collection asks for the commits of others. It moves references,
//! drops them, makes objects, and refers again to what was in use at some moment since the grace
//! time began.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;

use bytes::Bytes;
use zodium_memorystorage::MemoryStorage;
use zodium_storage::{Access, Load, NewBody, NewRecord, NewTransaction, Read, StorageError, Write};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use super::{Change, Databases, Marking, Sweep, sweep};
use crate::ToolError;

const NAMES: [&str; 2] = ["one", "two"];
const RUNS: u64 = 400;

type Place = (usize, Oid);

/// A small generator of the same numbers on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        ((self.0 >> 33) as usize) % bound
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> Option<T> {
        if items.is_empty() { None } else { Some(items[self.below(items.len())]) }
    }
}

/// Two databases, with a writer and what it knows.
struct World {
    storages: [MemoryStorage; 2],
    random: RefCell<Random>,
    model: RefCell<Model>,
}

#[derive(Default)]
struct Model {
    references: BTreeMap<Place, Vec<Place>>,
    /// What was in use at some moment of the grace time: it may be referred to again.
    held: BTreeSet<Place>,
    tid: u64,
    next_oid: u64,
}

impl Model {
    fn reachable(&self) -> BTreeSet<Place> {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![(0, Oid::ROOT), (1, Oid::ROOT)]);
        while let Some(place) = waiting.pop() {
            if seen.insert(place) {
                waiting.extend(self.references.get(&place).into_iter().flatten());
            }
        }
        seen
    }
}

impl World {
    fn new(seed: u64) -> World {
        let world = World {
            storages: [MemoryStorage::new(), MemoryStorage::new()],
            random: RefCell::new(Random(seed)),
            model: RefCell::new(Model { next_oid: 1, ..Model::default() }),
        };
        for database in 0..2 {
            world.write((database, Oid::ROOT), Vec::new());
        }
        world
    }

    fn write(&self, place: Place, references: Vec<Place>) {
        let (database, oid) = place;
        let data = record(database, &references);
        let mut model = self.model.borrow_mut();
        model.tid += 10;
        let tid = model.tid;
        model.references.insert(place, references);
        drop(model);
        let records = vec![NewRecord { oid, body: NewBody::Data(data) }];
        commit(&self.storages[database], records, Tid(tid)).unwrap();
        let reachable = self.model.borrow().reachable();
        self.model.borrow_mut().held.extend(reachable);
    }

    fn step(&self) {
        let mut random = self.random.borrow_mut();
        let model = self.model.borrow();
        let reachable: Vec<Place> = model.reachable().into_iter().collect();
        let held: Vec<Place> = model.held.iter().copied().collect();
        let place = random.one_of(&reachable).unwrap();
        let mut references = model.references.get(&place).cloned().unwrap_or_default();
        let mut created = None;
        match random.below(4) {
            0 if !references.is_empty() => {
                let index = random.below(references.len());
                references.remove(index);
            }
            1 => references.extend(random.one_of(&held)),
            2 => references.clear(),
            _ => {
                created = Some((random.below(2), Oid(model.next_oid)));
                references.extend(created);
            }
        }
        drop((model, random));
        if let Some(created) = created {
            self.model.borrow_mut().next_oid += 1;
            self.write(created, Vec::new());
        }
        self.write(place, references);
    }
}

fn record(database: usize, references: &[Place]) -> Bytes {
    let mut data = b"\x80\x03cm\nC\n.\x80\x03(".to_vec();
    for (other, oid) in references {
        if *other == database {
            data.extend_from_slice(b"C\x08");
            data.extend_from_slice(&oid.0.to_be_bytes());
        } else {
            data.extend_from_slice(b"](X\x01\0\0\0nX\x03\0\0\0");
            data.extend_from_slice(NAMES[*other].as_bytes());
            data.extend_from_slice(b"C\x08");
            data.extend_from_slice(&oid.0.to_be_bytes());
            data.extend_from_slice(b"\x86e");
        }
        data.push(b'Q');
    }
    data.extend_from_slice(b"t.");
    data.into()
}

fn commit(storage: &dyn Write, records: Vec<NewRecord>, tid: Tid) -> Result<(), StorageError> {
    let metadata = TransactionMetadata::default();
    let new = NewTransaction { status: TransactionStatus::Normal, metadata, records };
    let Poll::Ready(prepared) = storage.prepare(new, Access::Blocking)? else {
        return Err(StorageError::Other("a blocking call did not wait".into()));
    };
    storage.commit(vec![(tid, prepared)]).map(drop)
}

struct Target<'w> {
    world: &'w World,
    database: usize,
}

impl Sweep for Target<'_> {
    fn refresh(&self) -> Result<(), ToolError> {
        // The last collection of a run has to come to its end.
        if self.world.random.borrow_mut().below(3) > 0 {
            self.world.step();
        }
        Ok(())
    }

    fn commit(&self, changes: Vec<Change>) -> Result<bool, ToolError> {
        if self.world.random.borrow_mut().below(3) == 0 {
            self.world.step();
        }
        let storage = &self.world.storages[self.database];
        let mut records = Vec::new();
        for change in changes {
            let (oid, serial, body) = match change {
                Change::Delete(oid, serial) => (oid, serial, NewBody::Deleted),
                Change::BringBack(oid, serial, data) => (oid, serial, NewBody::Data(data)),
            };
            if storage.current_serial(oid)? != Some(serial) {
                return Ok(false);
            }
            records.push(NewRecord { oid, body });
        }
        let mut model = self.world.model.borrow_mut();
        model.tid += 10;
        commit(storage, records, Tid(model.tid))?;
        Ok(true)
    }

    fn data_before(&self, oid: Oid, tid: Tid) -> Result<Bytes, ToolError> {
        let storage = &self.world.storages[self.database];
        match storage.load_before(oid, tid, Access::Blocking)? {
            Load::Revision(revision) => Ok(revision.data),
            _ => Err(ToolError::Refused(format!("object {oid} has no data"))),
        }
    }
}

fn run(seed: u64) -> u64 {
    let world = World::new(seed);
    (0..30).for_each(|_| world.step());
    let since = {
        let mut model = world.model.borrow_mut();
        model.held = model.reachable();
        Tid(model.tid)
    };
    (0..5).for_each(|_| world.step());
    let all = NAMES.iter().zip(&world.storages);
    let all = all.map(|(name, storage)| ((*name).to_owned(), storage as &dyn Read)).collect();
    let databases = Databases { all, ignored: Vec::new() };
    let mut marking = Marking::of(&databases, since).unwrap();
    let targets = [Target { world: &world, database: 0 }, Target { world: &world, database: 1 }];
    let targets: Vec<&dyn Sweep> = targets.iter().map(|target| target as &dyn Sweep).collect();
    let outcomes = sweep(&mut marking, &targets, &mut |_| ()).unwrap();
    for (database, oid) in world.model.borrow().reachable() {
        let found = world.storages[database].serial_of_living(oid).unwrap();
        assert!(found.is_some(), "seed {seed}: object {oid} of {} is lost", NAMES[database]);
    }
    outcomes.iter().map(|outcome| outcome.deleted).sum()
}

#[test]
fn nothing_in_use_is_lost_beside_a_writer() {
    // ZODIUM_TEST_GC names another number of runs.
    let runs = std::env::var("ZODIUM_TEST_GC").ok().and_then(|count| count.parse().ok());
    let runs = runs.unwrap_or(RUNS);
    let deleted: u64 = (0..runs).map(run).sum();
    assert!(deleted > runs, "{deleted} objects were deleted");
}

#[test]
fn all_garbage_goes_when_nothing_writes() {
    for seed in 0..RUNS {
        let world = World::new(seed);
        (0..40).for_each(|_| world.step());
        let all = NAMES.iter().zip(&world.storages);
        let all = all.map(|(name, storage)| ((*name).to_owned(), storage as &dyn Read)).collect();
        let databases = Databases { all, ignored: Vec::new() };
        let marking = Marking::of(&databases, Tid(world.model.borrow().tid)).unwrap();
        let reachable = world.model.borrow().reachable();
        for database in 0..2 {
            let garbage: BTreeSet<Oid> =
                marking.garbage(database).into_iter().map(|(oid, _)| oid).collect();
            let model = world.model.borrow();
            let places = model.references.keys().filter(|(place, _)| *place == database);
            let expected: BTreeSet<Oid> =
                places.filter(|place| !reachable.contains(*place)).map(|(_, oid)| *oid).collect();
            assert_eq!(garbage, expected, "seed {seed}");
        }
    }
}
