//! What the unit tests of this crate share: a storage in memory, and transactions for it.

use std::sync::Arc;

use bytes::Bytes;
use zodium_disk::{Disk, MemoryDisk, OpenMode};
use zodium_storage::{Access, NewBody, NewRecord, NewTransaction};
use zodium_types::{Oid, Tid, TransactionMetadata, TransactionStatus};

use crate::{ChecksumMode, FileStorage, OpenOptions};

/// The data file of every test.
pub(crate) const PATH: &str = "Data.fs";

/// Opens for writing, with checksums, without a cache.
pub(crate) fn open(disk: impl Disk + 'static) -> FileStorage {
    let options = OpenOptions { checksums: ChecksumMode::Full, ..OpenOptions::new(PATH) };
    FileStorage::open(Arc::new(disk), &options).expect("it opens")
}

/// A transaction with this description that stores data for the objects 1, 2 and so on.
pub(crate) fn stores(description: &str, data: &[&str]) -> NewTransaction {
    let body = |data: &str| NewBody::Data(Bytes::copy_from_slice(data.as_bytes()));
    let records = (1..).zip(data).map(|(oid, data)| NewRecord { oid: Oid(oid), body: body(data) });
    NewTransaction {
        status: TransactionStatus::Normal,
        metadata: TransactionMetadata {
            user: Vec::new(),
            description: description.as_bytes().to_vec(),
            extension: Vec::new(),
        },
        records: records.collect(),
    }
}

/// Commits a transaction.
pub(crate) fn commit(storage: &FileStorage, tid: u64, new: NewTransaction) {
    let prepared = storage.prepare(new, Access::Blocking).unwrap().unwrap();
    for appended in storage.append(vec![(Tid(tid), prepared)]).unwrap() {
        storage.publish(appended);
    }
}

/// Puts these bytes in place of those of the data file, which stays the same file.
pub(crate) fn overwrite(disk: &MemoryDisk, bytes: &[u8]) {
    let file = disk.open(PATH.as_ref(), OpenMode::Write).unwrap();
    file.set_length(bytes.len() as u64).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

/// The bytes of the data file.
pub(crate) fn bytes_of(disk: &MemoryDisk) -> Vec<u8> {
    disk.bytes(PATH.as_ref()).expect("the data file is there")
}
