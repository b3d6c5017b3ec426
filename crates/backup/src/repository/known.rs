//! The chunks of an earlier point, by content and by transactions.

use rustc_hash::FxHashMap;
use zodium_types::Tid;

use super::chunk_store::tid_of;
use super::hash::Hash;
use super::point::Chunk;

/// Most bytes of the chunks that another one is stored as a difference from. With its own they fit
/// into the window of the compression.
const BASES_BYTES_MAX: u64 = 6 << 20;

/// The chunks of an earlier point.
#[derive(Clone, Default)]
pub(super) struct Known {
    /// In the order of their transactions.
    chunks: Vec<Chunk>,
    by_hash: FxHashMap<Hash, usize>,
}

impl Known {
    pub(super) fn new(chunks: &[Chunk]) -> Known {
        let places = chunks.iter().enumerate();
        Known {
            by_hash: places.map(|(place, chunk)| (chunk.hash.clone(), place)).collect(),
            chunks: chunks.to_vec(),
        }
    }

    /// The chunk with a content.
    pub(super) fn find(&self, hash: &Hash) -> Option<&Chunk> {
        self.by_hash.get(hash).and_then(|place| self.chunks.get(*place))
    }

    /// What is stored whole of the chunks with transactions from `first` to `last`. After a pack
    /// these have all that is left, and more. Empty if they are too large.
    pub(super) fn around(&self, first: Tid, last: Tid) -> Vec<(Hash, u64)> {
        let start = self.chunks.partition_point(|chunk| tid_of(&chunk.last) < first);
        let mut bases: Vec<(Hash, u64)> = Vec::new();
        let mut bytes = 0;
        for chunk in self.chunks[start..].iter().take_while(|it| tid_of(&it.first) <= last) {
            let whole = [(chunk.hash.clone(), chunk.bytes)];
            let found = chunk.delta.as_ref().map_or(&whole[..], |delta| &delta.bases);
            for base in found {
                if !bases.contains(base) {
                    bytes += base.1;
                    bases.push(base.clone());
                }
            }
            if bytes > BASES_BYTES_MAX {
                return Vec::new();
            }
        }
        bases
    }
}
