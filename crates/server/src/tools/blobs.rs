//! Blobs of storages: in a directory, or on a server.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Display;
use std::io::{self, ErrorKind, Read};
use std::mem;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use zodium_backup::BackupError;
use zodium_backup::repository::{BlobSource, BlobTarget, ReadBlob};
use zodium_blobs::{BlobDirectory, BlobError, BlobReading, Fingerprint, NewBlob, TemporaryBlob};
use zodium_client::{Client, ClientError};
use zodium_disk::RealDisk;
use zodium_pickle::Value;
use zodium_storage::StorageError;
use zodium_tools::classes::is_blob;
use zodium_types::{Oid, Tid};

use crate::streams::complain;

/// Bytes of a blob that are copied at once.
const PIECE_BYTES: usize = 256 << 10;

/// The blobs of a storage.
pub(super) struct Blobs {
    place: Place,
    /// Those that were found damaged. Each was named on standard error.
    damaged: RefCell<BTreeSet<(Oid, Tid)>>,
}

enum Place {
    /// Nowhere: the files of blobs are left out.
    Absent,
    Directory(Box<BlobDirectory>),
    Server(Arc<Client>),
}

impl Blobs {
    /// Those of a storage that may be on a server, and of a directory that may be given.
    ///
    /// # Errors
    /// When the directory is not there, as one that is not mounted.
    pub(super) fn of(client: Option<&Arc<Client>>, directory: Option<&Path>) -> Result<Blobs> {
        let place = match (directory, client) {
            (Some(path), _) if !path.is_dir() => {
                bail!("{}: there is no such blob directory", path.display())
            }
            (Some(path), _) => {
                Place::Directory(Box::new(BlobDirectory::open(Arc::new(RealDisk), path, true)?))
            }
            (None, Some(client)) => Place::Server(Arc::clone(client)),
            (None, None) => Place::Absent,
        };
        Ok(Blobs { place, damaged: RefCell::default() })
    }

    /// Whether the files of blobs are left out.
    pub(super) fn are_absent(&self) -> bool {
        matches!(self.place, Place::Absent)
    }

    /// How many of those that were looked for are damaged.
    pub(super) fn damaged_count(&self) -> u64 {
        self.damaged.borrow().len() as u64
    }

    /// The blob that a transaction wrote for an object; `None` if there is none, or it is damaged.
    /// Reading fails with `InvalidData` when it is found to be damaged only then.
    pub(super) fn find(
        &self,
        oid: Oid,
        tid: Tid,
    ) -> Result<Option<Box<dyn Read + '_>>, StorageError> {
        match &self.place {
            Place::Absent => Ok(None),
            Place::Directory(directory) => match directory.open_committed(oid, tid) {
                Ok(blob) => {
                    let reading = BlobReading::new(blob);
                    Ok(Some(Box::new(Compared { blobs: self, directory, reading, oid, tid })))
                }
                Err(BlobError::Missing { .. }) => Ok(None),
                Err(error) if is_damage(&error) => {
                    self.note_damaged(oid, tid, &error);
                    Ok(None)
                }
                Err(error) => Err(error.into()),
            },
            Place::Server(client) => self.fetched(client, oid, tid),
        }
    }

    fn fetched(
        &self,
        client: &Client,
        oid: Oid,
        tid: Tid,
    ) -> Result<Option<Box<dyn Read>>, StorageError> {
        let io = |error: io::Error| StorageError::Io(error.into());
        match client.fetch_blob(oid, tid, zodium_tools::temporary_file().map_err(io)?) {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(ClientError::Raised(exception)) if exception.name.contains("POSKeyError") => {
                // To its clients a damaged blob is one that is not there.
                let text = exception.payload.as_sequence().and_then(<[_]>::first);
                let text = text.and_then(Value::as_str);
                if let Some(text) = text.filter(|text| text.contains("It is not served")) {
                    self.note_damaged(oid, tid, &text);
                }
                Ok(None)
            }
            Err(ClientError::Raised(exception)) if exception.name.contains("Unsupported") => {
                let hint = "but objects are blobs: start the server with --blob-dir";
                Err(StorageError::Io(format!("{exception}, {hint}").into()))
            }
            Err(error @ ClientError::File { .. }) => {
                let folder = std::env::temp_dir();
                let hint = "name another folder in TMPDIR";
                let message = format!("{error}, in {}; {hint}", folder.display());
                Err(StorageError::Io(message.into()))
            }
            Err(error) => Err(StorageError::Io(error.into())),
        }
    }

    /// The length of the blob as it was committed, where it can be told without reading it.
    pub(super) fn length_of(&self, oid: Oid, tid: Tid) -> Result<Option<u64>, BlobError> {
        match &self.place {
            Place::Directory(directory) => match directory.recorded(oid, tid) {
                Some(recorded) => Ok(Some(recorded.length)),
                None => directory.length_of(oid, tid),
            },
            Place::Absent | Place::Server(_) => Ok(None),
        }
    }

    fn note_damaged(&self, oid: Oid, tid: Tid, error: &dyn Display) {
        if self.damaged.borrow_mut().insert((oid, tid)) {
            complain!("zodium: {error}");
        }
    }
}

fn is_damage(error: &BlobError) -> bool {
    matches!(error, BlobError::Length { .. } | BlobError::Sum { .. })
}

/// Reads a blob of a directory, and compares its bytes with the recorded sum.
struct Compared<'b> {
    blobs: &'b Blobs,
    directory: &'b BlobDirectory,
    reading: BlobReading,
    oid: Oid,
    tid: Tid,
}

impl Read for Compared<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.directory.read_on(&mut self.reading, buffer.len()) {
            Ok(bytes) => {
                buffer[..bytes.len()].copy_from_slice(&bytes);
                Ok(bytes.len())
            }
            Err(error) if is_damage(&error) => {
                self.blobs.note_damaged(self.oid, self.tid, &error);
                Err(io::Error::new(ErrorKind::InvalidData, error))
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

impl BlobSource for Blobs {
    fn is_blob(&self, data: &[u8]) -> bool {
        is_blob(data)
    }

    fn open(&self, oid: Oid, tid: Tid) -> Result<Option<Box<dyn Read + '_>>, BackupError> {
        Ok(self.find(oid, tid)?)
    }
}

/// A blob directory that is filled, without a server. Blobs come in the order of their
/// transactions, but for those that an earlier run left out.
pub(super) struct BlobFolder {
    directory: BlobDirectory,
    unrecorded: RefCell<Unrecorded>,
}

/// Blobs of the current transaction. Lengths and sums of a transaction are recorded at once.
#[derive(Default)]
struct Unrecorded {
    tid: Tid,
    blobs: Vec<(Oid, Fingerprint)>,
    /// What was recorded of this transaction and of later ones when an earlier blob came: that cuts
    /// it off. It is recorded again in its turn.
    later: VecDeque<(Tid, Vec<(Oid, Fingerprint)>)>,
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

    /// The length of the blob, if it is there already.
    pub(super) fn length_of(&self, oid: Oid, tid: Tid) -> Result<Option<u64>, BlobError> {
        self.directory.length_of(oid, tid)
    }

    /// Copies a blob; `false` if it is found to be damaged, and is left out.
    pub(super) fn copy(
        &self,
        oid: Oid,
        tid: Tid,
        from: &mut dyn Read,
    ) -> Result<bool, StorageError> {
        let mut blob = self.directory.temporary()?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => blob.append(&piece[..count])?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(false),
                Err(error) => return Err(StorageError::Io(error.into())),
            }
        }
        self.commit(oid, tid, &blob)?;
        Ok(true)
    }

    fn commit(&self, oid: Oid, tid: Tid, blob: &TemporaryBlob) -> Result<(), BlobError> {
        let mut unrecorded = self.unrecorded.borrow_mut();
        if unrecorded.tid != tid {
            unrecorded.begin(tid, &self.directory);
        }
        let mut staged = self.directory.stage(Tid::ZERO, &[(oid, NewBlob::Sent(blob))])?;
        staged.commit(tid)?;
        unrecorded.blobs.retain(|(recorded, _)| *recorded != oid);
        unrecorded.blobs.extend(staged.keep_unrecorded());
        Ok(())
    }

    /// Brings what is recorded of the blobs to stable storage.
    pub(super) fn finish(&self) {
        self.unrecorded.borrow_mut().begin(Tid::MAX, &self.directory);
        self.directory.settle();
        self.directory.sync_sums();
    }
}

impl Unrecorded {
    /// Begins with the blobs of another transaction.
    fn begin(&mut self, tid: Tid, directory: &BlobDirectory) {
        directory.record(self.tid, mem::take(&mut self.blobs));
        self.tid = tid;
        for recorded in directory.recorded_from(tid).into_iter().rev() {
            self.later.push_front(recorded);
        }
        while let Some((later, blobs)) = self.later.pop_front_if(|(later, _)| *later <= tid) {
            match later == tid {
                true => self.blobs = blobs,
                false => directory.record(later, blobs),
            }
        }
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
