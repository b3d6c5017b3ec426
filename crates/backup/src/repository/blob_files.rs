//! Blobs of a repository: files that are named by oid, tid and the hash of their content.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zodium_types::{Oid, Tid};

use super::chunk_store::{Hash, entries};
use crate::BackupError;
use crate::files::{BUFFER_BYTES, NewFile};

/// `OID.TID.HASH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct BlobName(String);

impl BlobName {
    fn parts(&self) -> Option<(Oid, Tid, super::chunk_store::Hash)> {
        let mut parts = self.0.split('.');
        let number = |text: &str| u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16);
        let (oid, tid) = (Oid(number(parts.next()?)?), Tid(number(parts.next()?)?));
        let hash = super::chunk_store::Hash::parse(parts.next()?)?;
        parts.next().is_none().then_some((oid, tid, hash))
    }

    /// The object and the transaction that it is of.
    pub(super) fn place(&self) -> Option<(Oid, Tid)> {
        self.parts().map(|(oid, tid, _)| (oid, tid))
    }
}

/// The blobs of a repository.
pub(super) struct BlobFiles {
    folder: PathBuf,
    there: FxHashMap<(Oid, Tid), BlobName>,
}

impl BlobFiles {
    /// Lists those that are there.
    pub(super) fn open(repository: &Path) -> Result<BlobFiles, BackupError> {
        let folder = repository.join("blobs");
        let mut there = FxHashMap::default();
        for path in entries(&folder)? {
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.map(|name| BlobName(name.to_owned()));
            if let Some((name, place)) = name.and_then(|name| Some((name.clone(), name.place()?))) {
                there.insert(place, name);
            }
        }
        Ok(BlobFiles { folder, there })
    }

    /// The name of a blob that is there.
    pub(super) fn find(&self, oid: Oid, tid: Tid) -> Option<&BlobName> {
        self.there.get(&(oid, tid))
    }

    /// Stores a blob; its name, and its length.
    pub(super) fn put(
        &mut self,
        oid: Oid,
        tid: Tid,
        input: &mut dyn Read,
    ) -> Result<(BlobName, u64), BackupError> {
        fs::create_dir_all(&self.folder).map_err(BackupError::io("create it", &self.folder))?;
        let temporary = self.folder.join("tmp.tmp");
        let mut file = NewFile::create(&temporary, &temporary)?;
        let (hash, bytes) = copy(input, &temporary, &mut |piece| file.write(piece))?;
        let name = BlobName(format!("{oid}.{tid}.{}", hash.as_str()));
        file.finish_as(&self.folder.join(&name.0))?;
        self.there.insert((oid, tid), name.clone());
        Ok((name, bytes))
    }

    /// Shows the bytes of a blob; an error at the end if they are damaged.
    pub(super) fn read(
        &self,
        name: &BlobName,
        visit: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
    ) -> Result<u64, BackupError> {
        let path = self.folder.join(&name.0);
        let Some((_, _, expected)) = name.parts() else {
            return Err(BackupError::damaged(&path, "a list names a blob in another way"));
        };
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(BackupError::damaged(&path, "it is missing"));
            }
            Err(error) => return Err(BackupError::io("open it", &path)(error)),
        };
        let (hash, bytes) = copy(&mut file, &path, visit)?;
        match hash == expected {
            true => Ok(bytes),
            false => Err(BackupError::damaged(&path, "its content has another hash")),
        }
    }

    /// Removes all but some; the bytes that this frees.
    pub(super) fn retain(&self, keep: &dyn Fn(&BlobName) -> bool) -> Result<u64, BackupError> {
        let mut freed = 0;
        for name in self.there.values().filter(|name| !keep(name)) {
            let path = self.folder.join(&name.0);
            freed += path.metadata().map_or(0, |found| found.len());
            fs::remove_file(&path).map_err(BackupError::io("remove it", &path))?;
        }
        Ok(freed)
    }
}

/// Shows all bytes of `input`; their hash and their number.
fn copy(
    input: &mut dyn Read,
    path: &Path,
    visit: &mut dyn FnMut(&[u8]) -> Result<(), BackupError>,
) -> Result<(Hash, u64), BackupError> {
    let (mut sum, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; BUFFER_BYTES]);
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok((Hash::from_digest(&sum.finalize()), bytes)),
            Ok(count) => {
                sum.update(&buffer[..count]);
                bytes += count as u64;
                visit(&buffer[..count])?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(BackupError::io("read a blob for it", path)(error)),
        }
    }
}
