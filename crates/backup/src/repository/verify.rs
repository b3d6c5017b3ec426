//! Verifies a repository.

use rustc_hash::FxHashSet;

use super::chunk_store::{ChunkStore, hash_of};
use super::hash::Hash;
use super::items::Items;
use super::opened::Repository;
use super::point::{Chunk, Point, points};
use super::sealing::has_its_sum;
use crate::BackupError;

/// What was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Restore points.
    pub points: u64,
    /// Chunks.
    pub chunks: u64,
    /// Blobs.
    pub blobs: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

/// Verifies that each point has its lists, chunks and blobs; and unless `quick`, that their content
/// is what was backed up.
///
/// # Errors
/// `Damaged`.
pub fn verify(repository: &Repository, quick: bool) -> Result<Verified, BackupError> {
    let store = repository.store();
    let (mut verified, mut seen) = (Verified::default(), FxHashSet::default());
    let mut needed = FxHashSet::default();
    let mut before: Option<Point> = None;
    for point in points(repository)? {
        verified.points += 1;
        let continues = before.as_ref().is_some_and(|before| point.is_after(before));
        if !point.is_complete() && !continues {
            let what =
                format!("restore point {} does not continue the one before it", point.number);
            return Err(BackupError::damaged(repository.name(), what));
        }
        for chunk in point.own_chunks(&store)? {
            if seen.insert(chunk.hash.clone()) {
                verify_chunk(&store, &chunk, quick, &mut verified)?;
                needed.extend(chunk.objects().cloned());
            }
        }
        needed.extend(point.pages().cloned());
        before = Some(point);
    }
    if !quick {
        verify_others(repository, &needed)?;
    }
    Ok(verified)
}

/// Holds the objects that no point needs against their checksums: the next backup may find that it
/// needs them.
fn verify_others(repository: &Repository, needed: &FxHashSet<Hash>) -> Result<(), BackupError> {
    let place = repository.place();
    for found in place.list("chunks")? {
        if hash_of(&found.object).is_none_or(|hash| needed.contains(&hash)) {
            continue;
        }
        if place.get(&found.object)?.is_some_and(|sealed| !has_its_sum(&sealed)) {
            let what = "its checksum differs. No restore point needs it: remove it";
            return Err(BackupError::damaged(place.path(&found.object), what));
        }
    }
    Ok(())
}

fn verify_chunk(
    store: &ChunkStore<'_>,
    chunk: &Chunk,
    quick: bool,
    verified: &mut Verified,
) -> Result<(), BackupError> {
    verified.chunks += 1;
    verified.blobs += chunk.blobs.len() as u64;
    verified.bytes += chunk.bytes + chunk.blobs.iter().map(|blob| blob.bytes).sum::<u64>();
    if quick {
        for hash in chunk.objects() {
            if !store.has(hash)? {
                return Err(BackupError::damaged(store.path(hash), "it is missing"));
            }
        }
        return Ok(());
    }
    let content = chunk.content(store)?;
    let mut items = Items::new(&content);
    while let Some(item) = items.step() {
        item.map_err(|()| BackupError::damaged(store.path(&chunk.hash), "it has no items"))?;
    }
    chunk.blobs.iter().try_for_each(|blob| blob.read(store, &mut |_| Ok(())).map(drop))
}
