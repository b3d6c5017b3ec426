//! Objects of a repository that are named by what is in them: chunks, pages of lists, and pieces of
//! blobs.

use std::cell::RefCell;
use std::ops::RangeInclusive;

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use zodium_types::Tid;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::{CParameter, DParameter};

use super::hash::Hash;
use super::sealing::Sealer;
use crate::BackupError;
use crate::places::{Claim, Listed, Place};

/// The level of zstd: twice as fast as its default, for a few percent of space.
const LEVEL: i32 = 1;
/// The level for differences, and how far back matches are looked for: 16 MiB.
const DELTA_LEVEL: i32 = 3;
const DELTA_WINDOW_LOG: u32 = 24;
/// The logarithm of the entries of the tables of matches. zstd knows only the last eight bytes for
/// each entry of what it looks for matches in, and has 2^17 entries at this level.
const DELTA_TABLE_LOGS: RangeInclusive<u32> = 17..=23;
/// A difference must be smaller than the content by this factor.
const DELTA_GAIN_MIN: usize = 4;
/// Most bytes of an object; far more than any chunk has, but for a single large record.
const BYTES_MAX: usize = 1 << 32;
/// The folder of the objects.
const FOLDER: &str = "chunks";

/// A content that is stored as its difference from others: a zstd frame whose dictionary is all of
/// theirs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// What compresses whole contents; made when it is needed first.
    compressor: RefCell<Option<Compressor<'static>>>,
    decompressor: RefCell<Option<Decompressor<'static>>>,
}

impl<'r> ChunkStore<'r> {
    pub(super) fn new(place: &'r dyn Place, sealer: &'r Sealer) -> ChunkStore<'r> {
        ChunkStore {
            place,
            sealer,
            compressor: RefCell::default(),
            decompressor: RefCell::default(),
        }
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
        let stored = self.compress(content).map_err(failed)?;
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
        match self.decompress(&stored, capacity) {
            Ok(content) if self.sealer.name_of(&content) == *hash => Ok(content),
            Ok(_) => Err(damaged("its content has another hash".to_owned())),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// Stores a content as its difference from others; the bytes that were written. `None` if the
    /// content is there, if a difference would save little, or if one of the others is damaged.
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
        let dictionary = match self.contents(bases) {
            // It would have to be mended before anything could be made from the difference.
            Err(error) if error.is_damage() => return Ok(None),
            contents => contents?,
        };
        let stored = compress_with(&dictionary, content).map_err(failed)?;
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
        let content = Decompressor::with_dictionary(&dictionary).and_then(|mut it| {
            it.set_parameter(DParameter::WindowLogMax(DELTA_WINDOW_LOG))?;
            it.decompress(&stored, capacity)
        });
        match content {
            Ok(content) if self.sealer.name_of(&content) == *hash => Ok(content),
            Ok(_) => Err(damaged("its content has another hash".to_owned())),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    fn compress(&self, content: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut compressor = self.compressor.borrow_mut();
        match &mut *compressor {
            Some(compressor) => compressor.compress(content),
            empty => empty.insert(Compressor::new(LEVEL)?).compress(content),
        }
    }

    fn decompress(&self, stored: &[u8], capacity: usize) -> std::io::Result<Vec<u8>> {
        let mut decompressor = self.decompressor.borrow_mut();
        match &mut *decompressor {
            Some(decompressor) => decompressor.decompress(stored, capacity),
            empty => empty.insert(Decompressor::new()?).decompress(stored, capacity),
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

    /// The names of all objects.
    pub(super) fn names(&self) -> Result<FxHashSet<Hash>, BackupError> {
        let all = self.place.list(FOLDER)?;
        Ok(all.iter().filter_map(|found| hash_of(&found.object)).collect())
    }

    /// Removes all objects but some, as long as the claim holds; the bytes that this frees.
    pub(super) fn retain(
        &self,
        claim: &dyn Claim,
        keep: &dyn Fn(&Hash) -> bool,
    ) -> Result<u64, BackupError> {
        let mut freed = 0;
        for found in self.all_but(keep)? {
            claim.check()?;
            freed += found.bytes;
            self.place.remove(&found.object)?;
        }
        Ok(freed)
    }

    /// All objects but some.
    pub(super) fn all_but(&self, keep: &dyn Fn(&Hash) -> bool) -> Result<Vec<Listed>, BackupError> {
        let mut all = self.place.list(FOLDER)?;
        all.retain(|found| hash_of(&found.object).is_some_and(|hash| !keep(&hash)));
        Ok(all)
    }

    pub(super) fn remove(&self, hash: &Hash) -> Result<(), BackupError> {
        self.place.remove(&self.object(hash)?)
    }

    /// The whole name of an object, for messages.
    pub(super) fn path(&self, hash: &Hash) -> String {
        let no_hash = |_| format!("{FOLDER}/{}", hash.as_str());
        self.place.path(&self.object(hash).unwrap_or_else(no_hash))
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

/// Compresses a content with matches in others.
fn compress_with(dictionary: &[u8], content: &[u8]) -> std::io::Result<Vec<u8>> {
    let entries_log = dictionary.len().max(1).ilog2() + 1;
    let tables_log = entries_log.clamp(*DELTA_TABLE_LOGS.start(), *DELTA_TABLE_LOGS.end());
    let mut compressor = Compressor::with_dictionary(DELTA_LEVEL, dictionary)?;
    compressor.set_parameter(CParameter::WindowLog(DELTA_WINDOW_LOG))?;
    compressor.set_parameter(CParameter::HashLog(tables_log))?;
    compressor.set_parameter(CParameter::ChainLog(tables_log))?;
    compressor.compress(content)
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
