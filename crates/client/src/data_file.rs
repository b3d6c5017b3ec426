//! Reads a `Data.fs` directly, without a server.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::RealDisk;
use zodium_filestorage::{FileStorage, OpenOptions, TransactionIterator};
use zodium_pickle::Value;
use zodium_storage::{Access, Load};
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::REPLY_LIMITS;

use crate::{ClientError, CommittedRecord, CommittedTransaction, Revision};

/// Memory for the record cache.
const CACHE_BYTES: usize = 20 << 20;

/// A read-only snapshot of a `Data.fs`, as it was when it was opened.
pub struct DataFile {
    storage: FileStorage,
}

/// The transactions of a file, oldest first. Ends after an error.
pub struct FileTransactions {
    places: Option<TransactionIterator>,
}

impl DataFile {
    /// Opens a file for reading, also while a server is writing to it. Neither the file nor any
    /// file beside it is changed.
    pub fn open(path: &Path) -> Result<DataFile, ClientError> {
        let options = OpenOptions {
            read_only: true,
            create: false,
            cache_bytes: CACHE_BYTES,
            ..OpenOptions::new(path)
        };
        let disk = Arc::new(RealDisk);
        let storage = FileStorage::open(disk, &options).map_err(ClientError::options)?;
        Ok(DataFile { storage })
    }

    /// The last transaction in the file.
    pub fn last_tid(&self) -> Tid {
        self.storage.last_tid()
    }

    /// Loads as [`crate::Client::load_before`] does.
    pub fn load_before(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        let load = self.storage.load_before(oid, before, Access::Blocking);
        match load.map_err(ClientError::options)? {
            Load::Revision(found) => {
                let (data, serial, end) = (found.data, found.serial, found.end);
                Ok(Some(Revision { data, serial, end }))
            }
            Load::NoRevision => Ok(None),
            // Blocking reads never return `WouldBlock`.
            Load::Missing | Load::WouldBlock => Err(ClientError::NoObject(oid)),
        }
    }

    /// Iterates as [`crate::Client::iterate`] does, one transaction at a time.
    pub fn iterate(
        &self,
        start: Option<Tid>,
        stop: Option<Tid>,
    ) -> Result<FileTransactions, ClientError> {
        let places = self.storage.iterate(start, stop).map_err(ClientError::options)?;
        Ok(FileTransactions { places: Some(places) })
    }
}

impl Iterator for FileTransactions {
    type Item = Result<CommittedTransaction, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = next_of(self.places.as_mut()?).transpose();
        if !matches!(next, Some(Ok(_))) {
            self.places = None;
        }
        next
    }
}

fn next_of(places: &mut TransactionIterator) -> Result<Option<CommittedTransaction>, ClientError> {
    let Some(transaction) = places.step().map_err(ClientError::options)? else { return Ok(None) };
    let mut steps = places.records(&transaction);
    let mut records = Vec::new();
    while let Some(record) = steps.step().map_err(ClientError::options)? {
        let (oid, tid, data, data_tid) = (record.oid, record.tid, record.data, record.data_tid);
        records.push(CommittedRecord { oid, tid, data, data_tid });
    }
    let metadata = transaction.metadata;
    Ok(Some(CommittedTransaction {
        tid: transaction.tid,
        status: char::from(transaction.status.to_byte()),
        user: metadata.user,
        description: metadata.description,
        extension: extension(&metadata.extension)?,
        records,
    }))
}

/// Decodes the extension: a pickled dict, or nothing for an empty one.
fn extension(pickle: &[u8]) -> Result<Value<'static>, ClientError> {
    if pickle.is_empty() {
        return Ok(Value::Dict(Vec::new()));
    }
    let decoded = zodium_pickle::decode(pickle, &REPLY_LIMITS);
    decoded.map(|(value, _)| value.into_owned()).map_err(ClientError::options)
}
