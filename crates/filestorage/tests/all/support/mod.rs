//! What the tests of this crate share: a storage in memory, random histories, and the model that
//! says what a storage has to answer.

mod checked;
mod fields;
mod history;
mod model;
mod undo;
mod warnings;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use zodium_disk::{Disk, MemoryDisk, OpenMode};
use zodium_filestorage::{
    ChecksumMode, FileStorage, FileStorageError, OpenOptions, PreparedTransaction,
};
use zodium_storage::{Access, NewBody, NewRecord, NewTransaction};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

pub(crate) use checked::{checked, checked_at, damage_in, flip, flip_in};
pub(crate) use fields::Field;
pub(crate) use history::{History, check_everything, loads_other_bytes, same_answers};
pub(crate) use model::{Model, ModelRecord, ModelTransaction};
pub(crate) use undo::{Undoing, copied_body, undo_record};
pub(crate) use warnings::{count_warnings, logged};

/// The data file of every test.
pub(crate) fn data_file() -> &'static Path {
    Path::new("Data.fs")
}

/// `Data.fs` with something behind it.
pub(crate) fn companion(suffix: &str) -> std::path::PathBuf {
    Path::new(&format!("Data.fs{suffix}")).to_owned()
}

/// Opens for writing, without a cache.
pub(crate) fn open(disk: impl Disk + 'static) -> FileStorage {
    try_open(disk, 0).expect("it opens")
}

/// Opens for writing, without a cache, with checksums beside the file.
pub(crate) fn open_summed(disk: &MemoryDisk, checksums: ChecksumMode) -> FileStorage {
    let options = OpenOptions { checksums, ..OpenOptions::new(data_file()) };
    FileStorage::open(Arc::new(disk.clone()), &options).expect("it opens")
}

/// Opens for writing.
pub(crate) fn try_open(
    disk: impl Disk + 'static,
    cache_bytes: usize,
) -> Result<FileStorage, FileStorageError> {
    open_with(disk, false, cache_bytes)
}

/// Opens for reading only, without a cache.
pub(crate) fn open_read_only(disk: impl Disk + 'static) -> Result<FileStorage, FileStorageError> {
    open_with(disk, true, 0)
}

fn open_with(
    disk: impl Disk + 'static,
    read_only: bool,
    cache_bytes: usize,
) -> Result<FileStorage, FileStorageError> {
    let options = OpenOptions { read_only, cache_bytes, ..OpenOptions::new(data_file()) };
    FileStorage::open(Arc::new(disk), &options)
}

/// How many bytes an opening has to read behind what the index covers.
pub(crate) fn scanned_bytes(disk: &MemoryDisk) -> u64 {
    let scanned = Cell::new(0);
    let options = OpenOptions {
        read_only: true,
        create: false,
        progress: &|_, total| scanned.set(total),
        ..OpenOptions::new(data_file())
    };
    FileStorage::open(Arc::new(disk.clone()), &options).unwrap();
    scanned.get()
}

/// A disk that holds nothing but this data file.
pub(crate) fn disk_of(bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::new();
    disk.put(data_file(), bytes.to_vec());
    disk
}

/// The present bytes of the data file.
pub(crate) fn data_of(disk: &MemoryDisk) -> Vec<u8> {
    disk.bytes(data_file()).expect("the data file is there")
}

/// Puts these bytes in place of those of a file, which stays the same file.
pub(crate) fn overwrite(disk: &MemoryDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::Write).unwrap();
    file.set_length(bytes.len() as u64).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

/// A transaction to be committed with this tid.
pub(crate) type New = (Tid, NewTransaction);

/// Prepares, appends and publishes a batch.
pub(crate) fn commit_all(storage: &FileStorage, batch: Vec<New>) -> Result<(), FileStorageError> {
    let mut prepared = Vec::new();
    for (tid, new) in batch {
        match prepare(storage, new) {
            Ok(new) => prepared.push((tid, new)),
            Err(error) => {
                prepared.into_iter().for_each(|(_, new)| storage.release(new));
                return Err(error);
            }
        }
    }
    append(storage, prepared)
}

/// Prepares a transaction.
pub(crate) fn prepare(
    storage: &FileStorage,
    new: NewTransaction,
) -> Result<PreparedTransaction, FileStorageError> {
    let prepared = storage.prepare(new, Access::Blocking)?;
    Ok(prepared.expect("a blocking call has an answer"))
}

/// Appends and publishes a batch.
pub(crate) fn append(
    storage: &FileStorage,
    batch: Vec<(Tid, PreparedTransaction)>,
) -> Result<(), FileStorageError> {
    for appended in storage.append(batch)? {
        storage.publish(appended);
    }
    Ok(())
}

/// Commits one transaction.
pub(crate) fn commit(storage: &FileStorage, new: New) -> Result<(), FileStorageError> {
    commit_all(storage, vec![new])
}

/// Bytes that a transaction of [`stores`] takes in the file.
pub(crate) fn file_bytes((_, new): &New) -> u64 {
    let data_length = |record: &NewRecord| match &record.body {
        NewBody::Data(data) => data.len() as u64,
        other => panic!("{other:?}"),
    };
    23 + new.records.iter().map(|record| 42 + data_length(record)).sum::<u64>() + 8
}

/// A transaction without metadata that stores data for objects.
pub(crate) fn stores(tid: Tid, objects: &[(u64, &[u8])]) -> New {
    let record = |&(oid, data): &(u64, &[u8])| NewRecord {
        oid: Oid(oid),
        body: NewBody::Data(Bytes::copy_from_slice(data)),
    };
    (tid, transaction(objects.iter().map(record).collect()))
}

/// The data of an object that refers to others.
pub(crate) fn referring(oids: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut data = b"\x80\x03cpersistent.mapping\nPersistentMapping\nq\x00.\x80\x03]".to_vec();
    for oid in oids {
        data.extend_from_slice(b"C\x08");
        data.extend_from_slice(&oid.to_be_bytes());
        data.extend_from_slice(b"h\x00\x86Qa");
    }
    data.push(b'.');
    data
}

/// A transaction without metadata.
pub(crate) fn transaction(records: Vec<NewRecord>) -> NewTransaction {
    let metadata = TransactionMetadata::default();
    NewTransaction { status: TransactionStatus::Normal, metadata, records }
}

/// The `n`-th tid of a series, each a second later than the one before.
pub(crate) fn tid(n: u64) -> Tid {
    Tid(0x03f5_9458_0000_0000 + n * ((1 << 32) / 60 + 1))
}

/// Runs a test with seeds from 1 on, or with `ZODIUM_SEED` alone. A failure names its seed and
/// how to replay it.
pub(crate) fn for_each_seed(count: u64, test: &str, mut run: impl FnMut(u64, &mut SmallRng)) {
    let (first, count) = match std::env::var("ZODIUM_SEED") {
        Ok(seed) => (seed.parse().expect("ZODIUM_SEED is a number"), 1),
        Err(_) => (1, count),
    };
    for seed in first..first + count {
        let _report = FailureReport { seed, test };
        run(seed, &mut SmallRng::seed_from_u64(seed));
    }
}

/// Names the seed when the test panics.
struct FailureReport<'a> {
    seed: u64,
    test: &'a str,
}

impl Drop for FailureReport<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let FailureReport { seed, test } = self;
            eprintln!(
                "seed {seed} failed; replay it with\n  \
                 ZODIUM_SEED={seed} cargo test -p zodium-filestorage --test {test}"
            );
        }
    }
}

/// The position that an error names, when it is about damage.
pub(crate) fn damaged_at<T>(result: Result<T, FileStorageError>) -> u64 {
    match result {
        Err(FileStorageError::Corrupt { position, .. }) => position,
        Err(other) => panic!("damage was expected, not {other}"),
        Ok(_) => panic!("damage was not noticed"),
    }
}
