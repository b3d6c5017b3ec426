//! Verifies a repository.

use std::path::Path;

use rustc_hash::FxHashSet;

use super::blob_files::BlobFiles;
use super::chunk_store::ChunkStore;
use super::items::Items;
use super::point::points;
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
pub fn verify(repository: &Path, quick: bool) -> Result<Verified, BackupError> {
    let store = ChunkStore::new(repository);
    let blob_files = BlobFiles::open(repository)?;
    let (mut verified, mut seen) = (Verified::default(), FxHashSet::default());
    for point in points(repository)? {
        verified.points += 1;
        for chunk in point.chunks(&store)? {
            if !seen.insert(chunk.hash.clone()) {
                continue;
            }
            verified.chunks += 1;
            verified.bytes += chunk.bytes;
            match quick {
                true if store.has(&chunk.hash)? => {}
                _ => {
                    let content = store.get(&chunk.hash, chunk.bytes)?;
                    let mut items = Items::new(&content);
                    while let Some(item) = items.step() {
                        item.map_err(|()| {
                            let what = format!("chunk {}: no items", chunk.hash.as_str());
                            BackupError::damaged(repository, what)
                        })?;
                    }
                }
            }
            for name in &chunk.blobs {
                verified.blobs += 1;
                let is_listed =
                    name.place().is_some_and(|(oid, tid)| blob_files.find(oid, tid) == Some(name));
                if !(quick && is_listed) {
                    verified.bytes += blob_files.read(name, &mut |_| Ok(()))?;
                }
            }
        }
    }
    Ok(verified)
}
