//! Objects of a repository that are named by what is in them: chunks, pages of lists, and pieces of
//! blobs.

use serde::{Deserialize, Serialize};
use zodium_types::Tid;

use super::hash::Hash;
use super::sealing::Sealer;
use crate::BackupError;
use crate::places::Place;

/// The level of zstd: twice as fast as its default, for a few percent of space.
const LEVEL: i32 = 1;
/// The level for differences, and how far back matches are looked for: 16 MiB.
const DELTA_LEVEL: i32 = 3;
const DELTA_WINDOW_LOG: u32 = 24;
/// A difference must be smaller than the content by this factor.
const DELTA_GAIN_MIN: usize = 4;
/// Most bytes of an object; far more than any chunk has, but for a single large record.
const BYTES_MAX: usize = 1 << 32;
/// The folder of the objects.
const FOLDER: &str = "chunks";

/// A content that is stored as its difference from others: a zstd frame whose dictionary is all of
/// theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Delta {
    /// The object that has the difference.
    pub(super) object: Hash,
    /// The others, with their bytes. They are stored whole.
    pub(super) bases: Vec<(Hash, u64)>,
}

/// The objects of a repository.
pub(super) struct ChunkStore<'r> {
    place: &'r dyn Place,
    sealer: &'r Sealer,
}

impl<'r> ChunkStore<'r> {
    pub(super) fn new(place: &'r dyn Place, sealer: &'r Sealer) -> ChunkStore<'r> {
        ChunkStore { place, sealer }
    }

    /// Stores an object, unless it is there; its name, and the bytes that were written.
    pub(super) fn put(&self, content: &[u8]) -> Result<(Hash, u64), BackupError> {
        let hash = self.sealer.name_of(content);
        let object = self.object(&hash)?;
        if self.place.has(&object)? {
            return Ok((hash, 0));
        }
        let failed = |error: std::io::Error| {
            BackupError::Refused(format!("{}: cannot compress: {error}", self.place.path(&object)))
        };
        let stored = zstd::bulk::compress(content, LEVEL).map_err(failed)?;
        let stored = self.sealer.seal(&object, stored)?;
        let bytes = stored.len() as u64;
        self.place.put(&object, stored)?;
        Ok((hash, bytes))
    }

    /// The content of an object of `bytes` bytes, verified.
    pub(super) fn get(&self, hash: &Hash, bytes: u64) -> Result<Vec<u8>, BackupError> {
        let object = self.object(hash)?;
        let damaged = |what: String| BackupError::damaged(self.place.path(&object), what);
        let stored = self.place.get(&object)?;
        let stored = stored.ok_or_else(|| damaged("it is missing".to_owned()))?;
        let stored = self.sealer.open(&object, stored).map_err(damaged)?;
        let capacity = usize::try_from(bytes).unwrap_or(usize::MAX).min(BYTES_MAX);
        match zstd::bulk::decompress(&stored, capacity) {
            Ok(content) if self.sealer.name_of(&content) == *hash => Ok(content),
            Ok(_) => Err(damaged("its content has another hash".to_owned())),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Stores a content as its difference from others, unless that is there or saves little; the
    /// bytes that were written.
    pub(super) fn put_delta(
        &self,
        content: &[u8],
        hash: &Hash,
        bases: &[(Hash, u64)],
    ) -> Result<Option<(Delta, u64)>, BackupError> {
        if bases.is_empty() || self.has(hash)? {
            return Ok(None);
        }
        let delta = Delta { object: self.name_of_delta(hash, bases), bases: bases.to_vec() };
        let object = self.object(&delta.object)?;
        if self.place.has(&object)? {
            return Ok(Some((delta, 0)));
        }
        let failed = |error: std::io::Error| {
            BackupError::Refused(format!("{}: cannot compress: {error}", self.place.path(&object)))
        };
        let dictionary = self.contents(bases)?;
        let mut compressor =
            zstd::bulk::Compressor::with_dictionary(DELTA_LEVEL, &dictionary).map_err(failed)?;
        let window = zstd::zstd_safe::CParameter::WindowLog(DELTA_WINDOW_LOG);
        compressor.set_parameter(window).map_err(failed)?;
        let stored = compressor.compress(content).map_err(failed)?;
        if stored.len() > content.len() / DELTA_GAIN_MIN {
            return Ok(None);
        }
        let stored = self.sealer.seal(&object, stored)?;
        let bytes = stored.len() as u64;
        self.place.put(&object, stored)?;
        Ok(Some((delta, bytes)))
    }

    /// The content of `bytes` bytes that is stored as a difference, verified.
    pub(super) fn get_delta(
        &self,
        hash: &Hash,
        bytes: u64,
        delta: &Delta,
    ) -> Result<Vec<u8>, BackupError> {
        let object = self.object(&delta.object)?;
        let damaged = |what: String| BackupError::damaged(self.place.path(&object), what);
        let stored = self.place.get(&object)?;
        let stored = stored.ok_or_else(|| damaged("it is missing".to_owned()))?;
        let stored = self.sealer.open(&object, stored).map_err(damaged)?;
        let dictionary = self.contents(&delta.bases)?;
        let capacity = usize::try_from(bytes).unwrap_or(usize::MAX).min(BYTES_MAX);
        let content = zstd::bulk::Decompressor::with_dictionary(&dictionary).and_then(|mut it| {
            it.set_parameter(zstd::zstd_safe::DParameter::WindowLogMax(DELTA_WINDOW_LOG))?;
            it.decompress(&stored, capacity)
        });
        match content {
            Ok(content) if self.sealer.name_of(&content) == *hash => Ok(content),
            Ok(_) => Err(damaged("its content has another hash".to_owned())),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    fn contents(&self, bases: &[(Hash, u64)]) -> Result<Vec<u8>, BackupError> {
        let mut all = Vec::new();
        for (hash, bytes) in bases {
            all.extend_from_slice(&self.get(hash, *bytes)?);
        }
        Ok(all)
    }

    fn name_of_delta(&self, hash: &Hash, bases: &[(Hash, u64)]) -> Hash {
        let names = bases.iter().map(|(base, _)| base.as_str());
        let text: Vec<_> = ["delta", hash.as_str()].into_iter().chain(names).collect();
        self.sealer.name_of(text.join(" ").as_bytes())
    }

    /// The name of a content.
    pub(super) fn name_of(&self, content: &[u8]) -> Hash {
        self.sealer.name_of(content)
    }

    /// Whether there is an object, with its content or not.
    pub(super) fn has(&self, hash: &Hash) -> Result<bool, BackupError> {
        self.place.has(&self.object(hash)?)
    }

    /// Removes all objects but some; the bytes that this frees.
    pub(super) fn retain(&self, keep: &dyn Fn(&Hash) -> bool) -> Result<u64, BackupError> {
        let mut freed = 0;
        for found in self.place.list(FOLDER)? {
            if hash_of(&found.object).is_some_and(|hash| !keep(&hash)) {
                freed += found.bytes;
                self.place.remove(&found.object)?;
            }
        }
        Ok(freed)
    }

    pub(super) fn remove(&self, hash: &Hash) -> Result<(), BackupError> {
        self.place.remove(&self.object(hash)?)
    }

    /// The whole name of an object, for messages.
    pub(super) fn path(&self, hash: &Hash) -> String {
        self.place.path(&format!("{FOLDER}/{}", hash.as_str()))
    }

    fn object(&self, hash: &Hash) -> Result<String, BackupError> {
        match Hash::parse(hash.as_str()) {
            Some(hash) => Ok(format!("{FOLDER}/{}/{}", &hash.as_str()[..2], hash.as_str())),
            None => {
                let what = format!("{:?} is no hash", hash.as_str());
                Err(BackupError::damaged(self.place.path(FOLDER), what))
            }
        }
    }
}

/// The hash that an object is named by.
pub(super) fn hash_of(object: &str) -> Option<Hash> {
    let (folder, name) = object.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('/')?;
    Hash::parse(name).filter(|_| name.get(..2) == Some(folder))
}

/// The tid of a text in a list.
pub(super) fn tid_of(text: &str) -> Tid {
    Tid(u64::from_str_radix(text, 16).unwrap_or(0))
}
