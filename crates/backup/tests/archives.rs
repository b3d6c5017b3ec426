//! Archives of a storage in memory, in a place in memory that fails: any transaction can be
//! restored, and of two writers one writes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use zodium_backup::BackupError;
use zodium_backup::places::{Claim, Listed, Place};
use zodium_backup::repository::{
    Archiver, Backup, KeepRules, Key, Repository, RestoreTarget, Source, backup, prune, restore,
    verify,
};
use zodium_memorystorage::MemoryStorage;
use zodium_storage::{Applier, LogItem, Read, Write};
use zodium_types::{Oid, Tid, TransactionStatus};

/// Objects in memory. Any number of writers may claim it at once.
#[derive(Clone, Default)]
struct Memory {
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// Writes until one fails, though what it wrote is there; 0 for never.
    lost_answer: Arc<AtomicUsize>,
    /// Writes until one fails, and writes nothing; 0 for never.
    failure: Arc<AtomicUsize>,
}

/// Whether this call is the one that a counter counts down to.
fn is_the_one(counter: &AtomicUsize) -> bool {
    let counted =
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
    counted == Ok(1)
}

fn failed() -> BackupError {
    BackupError::Unavailable { what: "write it", path: "m".to_owned(), error: "no".to_owned() }
}

impl Memory {
    fn write(&self, object: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        if is_the_one(&self.failure) {
            return Err(failed());
        }
        self.objects.lock().unwrap().insert(object.to_owned(), bytes);
        if is_the_one(&self.lost_answer) { Err(failed()) } else { Ok(()) }
    }
}

impl Place for Memory {
    fn path(&self, object: &str) -> String {
        format!("memory/{object}")
    }

    fn get(&self, object: &str) -> Result<Option<Vec<u8>>, BackupError> {
        Ok(self.objects.lock().unwrap().get(object).cloned())
    }

    fn has(&self, object: &str) -> Result<bool, BackupError> {
        Ok(self.objects.lock().unwrap().contains_key(object))
    }

    fn put(&self, object: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        self.write(object, bytes)
    }

    fn settle(&self) -> Result<(), BackupError> {
        Ok(())
    }

    fn create(&self, object: &str, bytes: Vec<u8>) -> Result<bool, BackupError> {
        match self.has(object)? {
            true => Ok(false),
            false => self.write(object, bytes).map(|()| true),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>, BackupError> {
        let objects = self.objects.lock().unwrap();
        let found = objects.iter().filter(|(object, _)| object.starts_with(&format!("{folder}/")));
        Ok(found
            .map(|(object, bytes)| Listed { object: object.clone(), bytes: bytes.len() as u64 })
            .collect())
    }

    fn is_empty(&self) -> Result<bool, BackupError> {
        Ok(self.objects.lock().unwrap().is_empty())
    }

    fn remove(&self, object: &str) -> Result<(), BackupError> {
        self.objects.lock().unwrap().remove(object);
        Ok(())
    }

    fn claim(&self) -> Result<Box<dyn Claim>, BackupError> {
        Ok(Box::new(Free))
    }
}

struct Free;

impl Claim for Free {
    fn check(&self) -> Result<(), BackupError> {
        Ok(())
    }
}

fn repository(memory: &Memory, key: Option<&Key>) -> Repository {
    Repository::open_or_create(Box::new(memory.clone()), key).unwrap()
}

fn source(storage: &MemoryStorage) -> Source<'_> {
    Source { storage, blobs: None, progress: &|_| () }
}

fn plan(storage: &MemoryStorage) -> Backup<'_> {
    Backup { source: source(storage), quick: true, seconds: 1 }
}

/// Commits `data` as a transaction of one object.
fn commit(storage: &MemoryStorage, oid: u64, data: &[u8]) -> Tid {
    let tid = Tid(storage.last_tid().0 + (1 << 20));
    let mut applier = Applier::new(storage);
    let (status, user, description, extension) = (TransactionStatus::Normal, b"u", b"", b"");
    applier.apply(LogItem::Transaction { tid, status, user, description, extension }).unwrap();
    applier.apply(LogItem::Record { oid: Oid(oid), data: Some(data), data_tid: None }).unwrap();
    applier.finish().unwrap()
}

struct Target<'s>(Applier<'s>);

impl RestoreTarget for Target<'_> {
    fn apply(&mut self, item: LogItem<'_>) -> Result<(), BackupError> {
        Ok(self.0.apply(item)?)
    }

    fn apply_same(&mut self, oid: Oid, earlier: Tid) -> Result<(), BackupError> {
        Ok(self.0.apply_same_as(oid, earlier)?)
    }
}

fn restored(repository: &Repository, at: Option<Tid>) -> Vec<String> {
    let storage = MemoryStorage::new();
    let mut target = Target(Applier::new(&storage as &dyn Write));
    restore(repository, at, &mut target, None, &|_, _| ()).unwrap();
    target.0.finish().unwrap();
    log(&storage, Tid::MAX)
}

/// The log of a storage as text.
fn log(storage: &MemoryStorage, until: Tid) -> Vec<String> {
    let mut lines = Vec::new();
    let mut cursor = storage.iterate(None, Some(until)).unwrap();
    let mut visit = |item: LogItem<'_>| {
        lines.push(match item {
            LogItem::Transaction { tid, .. } => format!("T {tid}"),
            LogItem::Record { oid, data, .. } => format!("R {oid} {data:?}"),
            LogItem::Skipped => String::new(),
        });
        ControlFlow::Continue(())
    };
    while !cursor.read(true, &mut visit).unwrap() {}
    lines
}

#[test]
fn a_writer_that_another_one_has_followed_never_writes_again() {
    let (memory, storage) = (Memory::default(), MemoryStorage::new());
    let repository = repository(&memory, None);
    commit(&storage, 1, b"a");
    let (mut first, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
    commit(&storage, 1, b"b");
    first.step(&source(&storage), 1).unwrap();
    let (mut second, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
    commit(&storage, 1, b"c");
    let before = memory.list("points").unwrap();
    let refused = first.step(&source(&storage), 1).unwrap_err();
    assert!(matches!(refused, BackupError::Fenced { .. }), "{refused}");
    assert!(matches!(first.complete(2).unwrap_err(), BackupError::Fenced { .. }));
    assert_eq!(memory.list("points").unwrap(), before);
    second.step(&source(&storage), 1).unwrap();
    assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
    verify(&repository, false).unwrap();
}

#[test]
fn a_point_whose_answer_was_lost_is_no_other_writer() {
    for write in 1..=2 {
        let (memory, storage) = (Memory::default(), MemoryStorage::new());
        let repository = repository(&memory, None);
        commit(&storage, 1, b"a");
        let (mut archiver, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
        commit(&storage, 1, b"b");
        memory.lost_answer.store(write, Ordering::Relaxed);
        assert!(archiver.step(&source(&storage), 1).is_err());
        commit(&storage, 1, b"c");
        archiver.step(&source(&storage), 1).unwrap();
        assert_eq!(restored(&repository, None), log(&storage, Tid::MAX));
        verify(&repository, false).unwrap();
    }
}

#[test]
fn chunks_that_lost_records_are_stored_as_differences() {
    let (memory, storage, packed) = (Memory::default(), MemoryStorage::new(), MemoryStorage::new());
    let repository = repository(&memory, None);
    let mut random = 1u64;
    for number in 0..400u64 {
        let data: Vec<u8> = (0..4000)
            .map(|_| {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (random >> 56) as u8
            })
            .collect();
        let tid = commit(&storage, number % 300, &data);
        let (status, user, description, extension) = (TransactionStatus::Normal, b"u", b"", b"");
        let mut applier = Applier::new(&packed);
        applier.apply(LogItem::Transaction { tid, status, user, description, extension }).unwrap();
        // A tenth of the records is gone, all over the log.
        if number % 10 != 3 {
            let (oid, data) = (Oid(number % 300), Some(&data[..]));
            applier.apply(LogItem::Record { oid, data, data_tid: None }).unwrap();
        }
        applier.finish().unwrap();
    }
    let full = |storage| Backup { quick: false, ..plan(storage) };
    let before = backup(&repository, &full(&storage)).unwrap().stored_bytes;
    let after = backup(&repository, &full(&packed)).unwrap();
    assert!(after.is_new && after.stored_bytes < before / 20, "{before}, {}", after.stored_bytes);
    assert_eq!(restored(&repository, None), log(&packed, Tid::MAX));
    // Once more nothing is new, and what the differences need stays.
    assert!(!backup(&repository, &full(&packed)).unwrap().is_new);
    prune(&repository, &KeepRules { last: 1, ..KeepRules::default() }, 1, false).unwrap();
    verify(&repository, false).unwrap();
    assert_eq!(restored(&repository, None), log(&packed, Tid::MAX));
}

/// What happens to an archive.
#[derive(Clone, Debug)]
enum Event {
    Commit(Vec<u8>),
    Step,
    FailedStep(usize),
    LostAnswer(usize),
    Complete,
    Reread,
    Restart,
    Prune(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..200_000).prop_map(Event::Commit),
        4 => Just(Event::Step),
        1 => (1usize..6).prop_map(Event::FailedStep),
        1 => (1usize..6).prop_map(Event::LostAnswer),
        1 => Just(Event::Complete),
        1 => Just(Event::Reread),
        1 => Just(Event::Restart),
        1 => (1usize..4).prop_map(Event::Prune),
    ];
    proptest::collection::vec(event, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_history_is_restored_at_any_transaction(events in events(), with_key: bool) {
        let key = Key::parse(&"5a".repeat(32)).unwrap();
        let (memory, storage) = (Memory::default(), MemoryStorage::new());
        let repository = repository(&memory, with_key.then_some(&key));
        let mut tids = vec![commit(&storage, 1, b"first")];
        let (mut archiver, _) = Archiver::start(&repository, &plan(&storage)).unwrap();
        for (number, event) in events.into_iter().enumerate() {
            let seconds = number as i64;
            match event {
                Event::Commit(data) => tids.push(commit(&storage, number as u64 % 3, &data)),
                Event::Step => {
                    archiver.step(&source(&storage), seconds).unwrap();
                }
                Event::FailedStep(writes) => {
                    memory.failure.store(writes, Ordering::Relaxed);
                    let _ = archiver.step(&source(&storage), seconds);
                    memory.failure.store(0, Ordering::Relaxed);
                }
                Event::LostAnswer(writes) => {
                    memory.lost_answer.store(writes, Ordering::Relaxed);
                    let _ = archiver.step(&source(&storage), seconds);
                    memory.lost_answer.store(0, Ordering::Relaxed);
                }
                Event::Complete => archiver.complete(seconds).unwrap(),
                Event::Reread => {
                    archiver.begin_rereading();
                    loop {
                        archiver.step(&source(&storage), seconds).unwrap();
                        if archiver.reread(&source(&storage), seconds).unwrap() {
                            break;
                        }
                    }
                }
                Event::Restart => {
                    archiver = Archiver::start(&repository, &plan(&storage)).unwrap().0;
                }
                Event::Prune(last) => {
                    let rules = KeepRules { last, ..KeepRules::default() };
                    prune(&repository, &rules, seconds, false).unwrap();
                    // An archiver and a prune keep each other out.
                    archiver = Archiver::start(&repository, &plan(&storage)).unwrap().0;
                }
            }
            verify(&repository, false).unwrap();
        }
        archiver.step(&source(&storage), 99).unwrap();
        prop_assert_eq!(archiver.newest().last(), storage.last_tid());
        verify(&repository, false).unwrap();
        for tid in tids {
            prop_assert_eq!(restored(&repository, Some(tid)), log(&storage, tid));
        }
    }
}
