//! A client that commits blobs, and what it finds.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use zodium_blobs::{BlobDirectory, TemporaryBlob};
use zodium_disk::{Disk, MemoryDisk, SystemClock};
use zodium_engine::{Config, Database, Transaction, VoteError};
use zodium_filestorage::{FileStorage, FileStorageError};
use zodium_storage::StorageError;
use zodium_types::{Oid, Tid};

use crate::support::{CONFIG, Outcome, Session, transaction, try_open_file};

/// What ZODB stores for any blob.
pub(crate) const BLOB_RECORD: &[u8] = b"\x80\x03cZODB.blob\nBlob\nq\x00.\x80\x03N.";

pub(crate) const DIRECTORY: &str = "blobs";

pub(crate) fn open(disk: &(impl Disk + Clone + 'static)) -> Result<FileStorage, FileStorageError> {
    try_open_file(disk.clone(), Some(DIRECTORY))
}

/// Where a bushy layout has a blob.
pub(crate) fn path_of((oid, tid): (u64, Tid)) -> PathBuf {
    let folders = oid.to_be_bytes().map(|byte| format!("0x{byte:02x}")).join("/");
    Path::new(DIRECTORY).join(folders).join(format!("0x{tid}.blob"))
}

/// Files of a blob directory itself: marker, what a pack has dropped, lengths and sums.
const OWN_FILES: [&str; 3] = [".layout", "zodium-packed", ".zodium-sums"];

/// All files in the blob directory but its own.
pub(crate) fn blob_paths(disk: &MemoryDisk) -> Vec<PathBuf> {
    let paths = disk.paths().into_iter().filter(|path| path.starts_with(DIRECTORY));
    paths.filter(|path| !is_own(path)).collect()
}

/// Whether a file of a blob directory is none of a blob.
pub(crate) fn is_own(path: &Path) -> bool {
    OWN_FILES.iter().any(|name| path.ends_with(name))
}

/// A record that refers to others.
pub(crate) fn folder_record(oids: &[u64]) -> Bytes {
    let mut record = b"\x80\x03cpersistent.mapping\nPersistentMapping\nq\x00.\x80\x03](".to_vec();
    for oid in oids {
        record.extend_from_slice(b"C\x08");
        record.extend_from_slice(&oid.to_be_bytes());
        record.extend_from_slice(b"N\x86Q");
    }
    record.extend_from_slice(b"e.");
    record.into()
}

pub(crate) struct Client {
    pub(crate) session: Session,
    file: Arc<FileStorage>,
}

impl Client {
    pub(crate) fn new(disk: &(impl Disk + Clone + 'static)) -> Client {
        Client::with(disk, &CONFIG)
    }

    pub(crate) fn with(disk: &(impl Disk + Clone + 'static), config: &Config) -> Client {
        Client::over(open(disk).expect("it opens"), config)
    }

    pub(crate) fn over(file: FileStorage, config: &Config) -> Client {
        let file = Arc::new(file);
        let kept = Arc::<FileStorage>::clone(&file);
        let storage = Database::start(kept, Arc::new(SystemClock::new()), config);
        Client { session: Session::new(&storage.expect("it starts")), file }
    }

    pub(crate) fn file(&self) -> &FileStorage {
        &self.file
    }

    pub(crate) fn storage(&self) -> &Database {
        &self.session.storage
    }

    pub(crate) fn blobs(&self) -> &BlobDirectory {
        self.storage().blobs().expect("there is a directory")
    }

    pub(crate) fn temporary(&self, data: &[u8]) -> TemporaryBlob {
        self.try_temporary(data).expect("there is room")
    }

    pub(crate) fn try_temporary(&self, data: &[u8]) -> Result<TemporaryBlob, StorageError> {
        let mut blob = self.blobs().temporary()?;
        for chunk in data.chunks(2) {
            blob.append(chunk)?;
        }
        Ok(blob)
    }

    /// A transaction that stores blobs over the current revisions, as a ZEO client does.
    pub(crate) fn storing(&self, blobs: &[(u64, &[u8])]) -> Transaction {
        self.try_storing(blobs).expect("there is room")
    }

    pub(crate) fn try_storing(&self, blobs: &[(u64, &[u8])]) -> Result<Transaction, StorageError> {
        let mut transaction = transaction();
        for (oid, data) in blobs {
            let oid = Oid(*oid);
            let serial = self.storage().reader().current_serial(oid)?;
            let serial = serial.unwrap_or(Tid::ZERO);
            let record = Bytes::from_static(BLOB_RECORD);
            transaction.store(oid, serial, record.clone());
            transaction.store_blob(oid, serial, record, self.try_temporary(data)?);
        }
        Ok(transaction)
    }

    pub(crate) fn store_blobs(&mut self, blobs: &[(u64, &[u8])]) -> Tid {
        let transaction = self.storing(blobs);
        self.session.commit(transaction)
    }

    pub(crate) fn store_blob(&mut self, oid: u64, data: &[u8]) -> Tid {
        self.store_blobs(&[(oid, data)])
    }

    /// Stores the root, with references to these objects.
    pub(crate) fn store_root(&mut self, oids: &[u64]) -> Tid {
        let serial = self.storage().reader().current_serial(Oid::ROOT);
        let serial = serial.expect("it reads").unwrap_or(Tid::ZERO);
        let mut transaction = transaction();
        transaction.store(Oid::ROOT, serial, folder_record(oids));
        self.session.commit(transaction)
    }

    pub(crate) fn undo(&mut self, tids: &[Tid]) -> Result<Tid, VoteError> {
        let mut transaction = transaction();
        tids.iter().for_each(|tid| transaction.undo(*tid));
        match self.session.try_vote(&mut transaction)? {
            Outcome::Voted(number, voted) => {
                Ok(self.session.finish(number, voted).expect("it is written"))
            }
            Outcome::Conflicts(_, found) => panic!("{found:?}"),
        }
    }

    pub(crate) fn blob(&self, oid: u64, tid: Tid) -> Result<Vec<u8>, StorageError> {
        let blob = self.blobs().open_committed(Oid(oid), tid)?;
        let mut data = vec![0; usize::try_from(blob.length).expect("it is small")];
        blob.file.read_exact_at(&mut data, 0).expect("it can be read");
        Ok(data)
    }

    /// The objects of the records that a transaction wrote.
    pub(crate) fn records_of(&self, tid: Tid) -> Vec<Oid> {
        let mut transactions =
            self.storage().reader().iterate(Some(tid), Some(tid)).expect("reads");
        transactions.step().expect("it reads").expect("it is there");
        let mut records = transactions.records().unwrap();
        std::iter::from_fn(|| records.step().expect("it reads")).map(|record| record.oid).collect()
    }

    pub(crate) fn close(&self) {
        self.storage().close().expect("it closes");
    }
}
