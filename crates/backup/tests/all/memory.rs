//! A place in memory that fails, and storages in memory that are backed up to it.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use zodium_backup::BackupError;
use zodium_backup::places::{Claim, Listed, Place};
use zodium_backup::repository::{
    Backup, BlobSource, BlobTarget, Key, Repository, RestoreTarget, Restored, Source, restore,
    restored_point,
};
use zodium_memorystorage::MemoryStorage;
use zodium_storage::{Applier, LogItem, Read, Write};
use zodium_types::{Oid, Tid, TransactionStatus};

/// Objects in memory. Any number of writers may claim it at once.
#[derive(Clone, Default)]
pub(crate) struct Memory {
    objects: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// Writes until one fails, though what it wrote is there; 0 for never.
    pub(crate) lost_answer: Arc<AtomicUsize>,
    /// Writes until one fails, and writes nothing; 0 for never.
    pub(crate) failure: Arc<AtomicUsize>,
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
    fn confirm(&self) -> Result<(), BackupError> {
        Ok(())
    }

    fn check(&self) -> Result<(), BackupError> {
        Ok(())
    }
}

pub(crate) fn repository(memory: &Memory, key: Option<&Key>) -> Repository {
    Repository::open_or_create(Box::new(memory.clone()), key).unwrap()
}

struct NoBlobs;

impl BlobSource for NoBlobs {
    fn is_blob(&self, _: &[u8]) -> bool {
        false
    }

    fn open(&self, _: Oid, _: Tid) -> Result<Option<Box<dyn io::Read + '_>>, BackupError> {
        Ok(None)
    }
}

pub(crate) fn source(storage: &MemoryStorage) -> Source<'_> {
    Source { storage, blobs: &NoBlobs, progress: &|_| () }
}

pub(crate) fn plan(storage: &MemoryStorage) -> Backup<'_> {
    Backup { source: source(storage), quick: true, replaced: false, seconds: 1 }
}

/// Writes a transaction.
pub(crate) fn write(
    storage: &MemoryStorage,
    tid: Tid,
    status: TransactionStatus,
    records: &[(Oid, Vec<u8>)],
) {
    let mut applier = Applier::new(storage);
    let (user, description, extension) = (b"u", b"", b"");
    applier.apply(LogItem::Transaction { tid, status, user, description, extension }).unwrap();
    for (oid, data) in records {
        let record = LogItem::Record { oid: *oid, data: Some(data), data_tid: None };
        applier.apply(record).unwrap();
    }
    applier.finish().unwrap();
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

pub(crate) fn restored(repository: &Repository, at: Option<Tid>) -> Vec<String> {
    let storage = MemoryStorage::new();
    restore_to(&storage, repository, at, None);
    log(&storage, Tid::MAX)
}

/// What a restore with these blobs has done.
pub(crate) fn restored_with(
    repository: &Repository,
    at: Option<Tid>,
    blobs: Option<&dyn BlobTarget>,
) -> Restored {
    restore_to(&MemoryStorage::new(), repository, at, blobs)
}

fn restore_to(
    storage: &MemoryStorage,
    repository: &Repository,
    at: Option<Tid>,
    blobs: Option<&dyn BlobTarget>,
) -> Restored {
    let mut target = Target(Applier::new(storage as &dyn Write));
    let point = restored_point(repository, at).unwrap();
    let restored = restore(repository, &point, at, &mut target, blobs, &|_, _| ()).unwrap();
    target.0.finish().unwrap();
    restored
}

/// The log of a storage as text.
pub(crate) fn log(storage: &MemoryStorage, until: Tid) -> Vec<String> {
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
