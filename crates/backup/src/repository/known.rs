//! The chunks of an earlier point, by content and by transactions.

use rustc_hash::{FxHashMap, FxHashSet};
use zodium_types::Tid;

use super::chunk_store::tid_of;
use super::hash::Hash;
use super::point::Chunk;

/// Most bytes of the chunks that another one is stored as a difference from. With its own they fit
/// into the window of the compression.
const BASES_BYTES_MAX: u64 = 6 << 20;

/// Where a chunk begins and ends.
pub(super) struct Span<'s> {
    /// The first transaction.
    pub(super) first: Tid,
    /// Where that was cut, if the chunk begins within it.
    pub(super) after: Option<&'s str>,
    /// The last transaction.
    pub(super) last: Tid,
    /// Where that was cut, if the chunk ends within it.
    pub(super) cut: Option<&'s str>,
}

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

    /// Forgets the chunks whose content is not all in these objects.
    pub(super) fn forget_others(&mut self, objects: &FxHashSet<Hash>) {
        self.chunks.retain(|chunk| chunk.content_objects().all(|hash| objects.contains(hash)));
        *self = Known::new(&self.chunks);
    }

    /// The chunk with a content.
    pub(super) fn find(&self, hash: &Hash) -> Option<&Chunk> {
        self.by_hash.get(hash).and_then(|place| self.chunks.get(*place))
    }

    /// What is stored whole of the chunks that have transactions of a span. After a pack these have
    /// all that is left of it, and more. Those that would be too many are left out.
    pub(super) fn around(&self, span: &Span<'_>) -> Vec<(Hash, u64)> {
        let mut bases: Vec<(Hash, u64)> = Vec::new();
        let mut bytes = 0;
        for chunk in self.within(span) {
            let whole = [(chunk.hash.clone(), chunk.bytes)];
            let found = chunk.delta.as_ref().map_or(&whole[..], |delta| &delta.bases);
            for base in found {
                // A large record is not what is needed: it is found by its own content.
                if !bases.contains(base) && bytes + base.1 <= BASES_BYTES_MAX {
                    bytes += base.1;
                    bases.push(base.clone());
                }
            }
        }
        bases
    }

    /// The chunks with transactions of a span, of long ones those between its cuts.
    fn within(&self, span: &Span<'_>) -> &[Chunk] {
        let start = self.chunks.partition_point(|chunk| tid_of(&chunk.last) < span.first);
        let end = self.chunks.partition_point(|chunk| tid_of(&chunk.first) <= span.last);
        let mut found = self.chunks.get(start..end).unwrap_or_default();
        let is_cut = |chunk: &Chunk, tid, cut: Option<&str>| {
            cut.is_some() && chunk.cut.as_deref() == cut && tid_of(&chunk.last) == tid
        };
        if let Some(place) = found.iter().position(|it| is_cut(it, span.first, span.after)) {
            found = &found[place + 1..];
        }
        match found.iter().position(|it| is_cut(it, span.last, span.cut)) {
            Some(place) => &found[..=place],
            None => found,
        }
    }
}
