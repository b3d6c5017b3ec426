//! Objects of a repository that are named by the hash of their content: chunks, and pages of lists.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::BackupError;
use crate::files::{NewFile, sync_folder_of};

/// The level of zstd: twice as fast as its default, for a few percent of space.
const LEVEL: i32 = 1;
/// Most bytes of an object; far more than any chunk has, but for a single large record.
const BYTES_MAX: usize = 1 << 32;
/// The name of a file that is not whole yet.
const TEMPORARY: &str = "tmp.tmp";

/// The SHA-256 of an object's content, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Hash(String);

impl Hash {
    pub(super) fn of(bytes: &[u8]) -> Hash {
        Hash::from_digest(&Sha256::digest(bytes))
    }

    pub(super) fn from_digest(digest: &[u8]) -> Hash {
        Hash(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub(super) fn parse(text: &str) -> Option<Hash> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 64 && text.bytes().all(is_digit)).then(|| Hash(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The objects of a repository.
pub(super) struct ChunkStore {
    folder: PathBuf,
}

impl ChunkStore {
    pub(super) fn new(repository: &Path) -> ChunkStore {
        ChunkStore { folder: repository.join("chunks") }
    }

    /// Stores an object, unless it is there; its name, and the bytes that were written.
    pub(super) fn put(&self, content: &[u8]) -> Result<(Hash, u64), BackupError> {
        let hash = Hash::of(content);
        let path = self.path(&hash)?;
        if path.exists() {
            return Ok((hash, 0));
        }
        let folder = path.parent().unwrap_or(&self.folder);
        if !folder.exists() {
            fs::create_dir_all(folder).map_err(BackupError::io("create it", folder))?;
            sync_folder_of(folder)?;
        }
        let stored = zstd::bulk::compress(content, LEVEL);
        let stored = stored.map_err(BackupError::io("compress what belongs into it", &path))?;
        let mut file = NewFile::create(&path, &self.folder.join(TEMPORARY))?;
        file.write(&stored)?;
        file.finish()?;
        Ok((hash, stored.len() as u64))
    }

    /// The content of an object of `bytes` bytes, verified.
    pub(super) fn get(&self, hash: &Hash, bytes: u64) -> Result<Vec<u8>, BackupError> {
        let path = self.path(hash)?;
        let stored = match fs::read(&path) {
            Ok(stored) => stored,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(BackupError::damaged(&path, "it is missing"));
            }
            Err(error) => return Err(BackupError::io("read it", &path)(error)),
        };
        let capacity = usize::try_from(bytes).unwrap_or(usize::MAX).min(BYTES_MAX);
        let content = zstd::bulk::decompress(&stored, capacity);
        match content {
            Ok(content) if Hash::of(&content) == *hash => Ok(content),
            Ok(_) => Err(BackupError::damaged(&path, "its content has another hash")),
            Err(error) => Err(BackupError::damaged(&path, error.to_string())),
        }
    }

    pub(super) fn has(&self, hash: &Hash) -> Result<bool, BackupError> {
        Ok(self.path(hash)?.exists())
    }

    /// Removes all objects but some; the bytes that this frees.
    pub(super) fn retain(&self, keep: &dyn Fn(&Hash) -> bool) -> Result<u64, BackupError> {
        let mut freed = 0;
        for folder in entries(&self.folder)?.into_iter().filter(|path| path.is_dir()) {
            for path in entries(&folder)? {
                let name = path.file_name().and_then(|name| name.to_str()).and_then(Hash::parse);
                if name.is_some_and(|hash| !keep(&hash)) {
                    freed += path.metadata().map_or(0, |found| found.len());
                    fs::remove_file(&path).map_err(BackupError::io("remove it", &path))?;
                }
            }
        }
        Ok(freed)
    }

    fn path(&self, hash: &Hash) -> Result<PathBuf, BackupError> {
        match Hash::parse(hash.as_str()) {
            Some(hash) => Ok(self.folder.join(&hash.0[..2]).join(&hash.0)),
            None => Err(BackupError::damaged(&self.folder, format!("{:?} is no hash", hash.0))),
        }
    }
}

/// The paths in a folder, which need not be there.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(BackupError::io("read it", folder)(error)),
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths: Vec<_> =
        paths.collect::<Result<_, _>>().map_err(BackupError::io("read it", folder))?;
    paths.sort();
    Ok(paths)
}
