//! Blobs of storages: in a directory, or on a server.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use zodium_backup::BackupError;
use zodium_backup::repository::{BlobSource, BlobTarget, ReadBlob};
use zodium_blobs::{BlobDirectory, BlobError, Fingerprint, NewBlob, TemporaryBlob};
use zodium_client::{Client, ClientError};
use zodium_disk::RealDisk;
use zodium_storage::StorageError;
use zodium_tools::classes::is_blob;
use zodium_types::{Oid, Tid};

/// Bytes of a blob that are copied at once.
const PIECE_BYTES: usize = 256 << 10;

/// Where the blobs of a storage are.
pub(super) enum Blobs {
    /// Nowhere: the files of blobs are left out.
    Absent,
    Directory(BlobDirectory),
    Server(Arc<Client>),
}

impl Blobs {
    /// Those of a storage that may be on a server, and of a directory that may be given.
    ///
    /// # Errors
    /// When the directory is not there, as one that is not mounted.
    pub(super) fn of(client: Option<&Arc<Client>>, directory: Option<&Path>) -> Result<Blobs> {
        Ok(match (directory, client) {
            (Some(path), _) if !path.is_dir() => {
                bail!("{}: there is no such blob directory", path.display())
            }
            (Some(path), _) => {
                Blobs::Directory(BlobDirectory::open(Arc::new(RealDisk), path, true)?)
            }
            (None, Some(client)) => Blobs::Server(Arc::clone(client)),
            (None, None) => Blobs::Absent,
        })
    }

    /// The blob that a transaction wrote for an object; `None` if there is none.
    pub(super) fn find(&self, oid: Oid, tid: Tid) -> Result<Option<Box<dyn Read>>, StorageError> {
        match self {
            Blobs::Absent => Ok(None),
            Blobs::Directory(directory) => {
                let path = directory.path_of(oid, tid);
                match File::open(&path) {
                    Ok(file) => Ok(Some(Box::new(file))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => {
                        let what = format!("{}: cannot open it: {error}", path.display());
                        Err(StorageError::Io(what.into()))
                    }
                }
            }
            Blobs::Server(client) => fetched(client, oid, tid),
        }
    }
}

fn fetched(client: &Client, oid: Oid, tid: Tid) -> Result<Option<Box<dyn Read>>, StorageError> {
    let io = |error: io::Error| StorageError::Io(error.into());
    match client.fetch_blob(oid, tid, tempfile::tempfile().map_err(io)?) {
        Ok(file) => Ok(Some(Box::new(file))),
        Err(ClientError::Raised(exception)) if exception.name.contains("POSKeyError") => Ok(None),
        Err(ClientError::Raised(exception)) if exception.name.contains("Unsupported") => {
            let hint = "but objects are blobs: start the server with --blob-dir";
            Err(StorageError::Io(format!("{exception}, {hint}").into()))
        }
        Err(error) => Err(StorageError::Io(error.into())),
    }
}

impl BlobSource for Blobs {
    fn is_blob(&self, data: &[u8]) -> bool {
        is_blob(data)
    }

    fn open(&self, oid: Oid, tid: Tid) -> Result<Option<Box<dyn Read>>, BackupError> {
        Ok(self.find(oid, tid)?)
    }
}

/// A blob directory that is filled, without a server. Blobs come in the order of their
/// transactions.
pub(super) struct BlobFolder {
    directory: BlobDirectory,
    unrecorded: RefCell<Unrecorded>,
}

/// Blobs of the current transaction. Lengths and sums of a transaction are recorded at once.
#[derive(Default)]
struct Unrecorded {
    tid: Tid,
    blobs: Vec<(Oid, Fingerprint)>,
}

impl BlobFolder {
    pub(super) fn open(path: &Path) -> Result<BlobFolder, BlobError> {
        let directory = BlobDirectory::open(Arc::new(RealDisk), path, false)?;
        Ok(BlobFolder { directory, unrecorded: RefCell::default() })
    }

    /// Whether the blob is there already.
    pub(super) fn has(&self, oid: Oid, tid: Tid) -> Result<bool, BlobError> {
        self.directory.has(oid, tid)
    }

    /// Copies a blob.
    pub(super) fn copy(&self, oid: Oid, tid: Tid, from: &mut dyn Read) -> Result<(), StorageError> {
        let mut blob = self.directory.temporary()?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => blob.append(&piece[..count])?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(StorageError::Io(error.into())),
            }
        }
        Ok(self.commit(oid, tid, &blob)?)
    }

    fn commit(&self, oid: Oid, tid: Tid, blob: &TemporaryBlob) -> Result<(), BlobError> {
        let mut unrecorded = self.unrecorded.borrow_mut();
        if unrecorded.tid != tid {
            unrecorded.record(&self.directory);
            unrecorded.tid = tid;
        }
        let mut staged = self.directory.stage(Tid::ZERO, &[(oid, NewBlob::Sent(blob))])?;
        staged.commit(tid)?;
        unrecorded.blobs.extend(staged.keep_unrecorded());
        Ok(())
    }

    /// Brings what is recorded of the blobs to stable storage.
    pub(super) fn finish(&self) {
        self.unrecorded.borrow_mut().record(&self.directory);
        self.directory.settle();
        self.directory.sync_sums();
    }
}

impl Unrecorded {
    fn record(&mut self, directory: &BlobDirectory) {
        directory.record(self.tid, mem::take(&mut self.blobs));
    }
}

impl BlobTarget for BlobFolder {
    fn put(&self, oid: Oid, tid: Tid, read: &mut ReadBlob<'_>) -> Result<(), BackupError> {
        if self.has(oid, tid).map_err(StorageError::from)? {
            return Ok(());
        }
        let mut blob = self.directory.temporary().map_err(StorageError::from)?;
        read(&mut |piece| Ok(blob.append(piece).map_err(StorageError::from)?))?;
        Ok(self.commit(oid, tid, &blob).map_err(StorageError::from)?)
    }
}
