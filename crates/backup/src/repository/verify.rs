//! Verifies a repository.

use rustc_hash::FxHashSet;

use super::blobs::Blob;
use super::chunk_store::{ChunkStore, Delta, hash_of};
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

/// What was verified already.
#[derive(Default)]
struct Seen {
    /// Contents of chunks, by how they are stored.
    contents: FxHashSet<(Hash, Option<Delta>)>,
    /// Two points may list other blobs beside the same content: those that each backup found.
    blobs: FxHashSet<Blob>,
}

/// Verifies that each point has its lists, chunks and blobs; and unless `quick`, that their content
/// is what was backed up.
///
/// # Errors
/// `Damaged`.
pub fn verify(repository: &Repository, quick: bool) -> Result<Verified, BackupError> {
    let store = repository.store();
    let (mut verified, mut seen) = (Verified::default(), Seen::default());
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
            needed.extend(chunk.objects().cloned());
            if seen.contents.insert((chunk.hash.clone(), chunk.delta.clone())) {
                verify_content(&store, &chunk, quick)?;
                verified.chunks += 1;
                verified.bytes += chunk.bytes;
            }
            for blob in chunk.blobs {
                if !seen.blobs.contains(&blob) {
                    verify_blob(&store, &blob, quick)?;
                    verified.blobs += 1;
                    verified.bytes += blob.bytes;
                    seen.blobs.insert(blob);
                }
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

fn verify_content(store: &ChunkStore<'_>, chunk: &Chunk, quick: bool) -> Result<(), BackupError> {
    if quick {
        return verify_presence(store, chunk.content_objects());
    }
    let content = chunk.content(store)?;
    let mut items = Items::new(&content);
    while let Some(item) = items.step() {
        item.map_err(|()| BackupError::damaged(store.path(&chunk.hash), "it has no items"))?;
    }
    Ok(())
}

fn verify_blob(store: &ChunkStore<'_>, blob: &Blob, quick: bool) -> Result<(), BackupError> {
    match quick {
        true => verify_presence(store, blob.pieces.iter()),
        false => blob.read(store, &mut |_| Ok(())).map(drop),
    }
}

fn verify_presence<'h>(
    store: &ChunkStore<'_>,
    mut objects: impl Iterator<Item = &'h Hash>,
) -> Result<(), BackupError> {
    objects.try_for_each(|hash| match store.has(hash)? {
        true => Ok(()),
        false => Err(BackupError::damaged(store.path(hash), "it is missing")),
    })
}
