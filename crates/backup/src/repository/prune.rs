//! Removes restore points, and what only they need.

use std::path::Path;

use rustc_hash::FxHashSet;

use super::blob_files::BlobFiles;
use super::chunk_store::ChunkStore;
use super::point::{Point, points};
use crate::BackupError;
use crate::files::lock;

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// Which restore points are kept. The newest one always is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KeepRules {
    /// The newest ones.
    pub last: usize,
    /// The newest one of each of this many days that have one.
    pub daily: usize,
    /// All that are not older than this many seconds.
    pub within_seconds: i64,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Points that are kept.
    pub kept: u64,
    /// Points that were removed.
    pub removed: u64,
    /// Bytes that are free again.
    pub freed_bytes: u64,
}

impl KeepRules {
    /// Those of the points, the oldest first, that are kept at a time.
    fn kept(&self, points: &[Point], now: i64) -> Vec<bool> {
        let (mut days, mut last_day) = (0, None);
        let mut kept: Vec<bool> = points
            .iter()
            .rev()
            .enumerate()
            .map(|(age, point)| {
                let day = point.seconds.div_euclid(SECONDS_PER_DAY);
                let is_first_of_day = last_day != Some(day);
                last_day = Some(day);
                days += usize::from(is_first_of_day);
                age < self.last.max(1)
                    || (is_first_of_day && days <= self.daily)
                    || now - point.seconds <= self.within_seconds && self.within_seconds > 0
            })
            .collect();
        kept.reverse();
        kept
    }
}

/// Removes the points that no rule keeps, and then all that no kept point needs. `dry_run`: removes
/// nothing.
///
/// # Errors
/// `Refused` while a backup is under way; `Damaged` if a kept point cannot be read: nothing is
/// removed then.
pub fn prune(
    repository: &Path,
    rules: &KeepRules,
    now: i64,
    dry_run: bool,
) -> Result<Pruned, BackupError> {
    let _lock = lock(repository)?;
    let points = points(repository)?;
    let kept = rules.kept(&points, now);
    let store = ChunkStore::new(repository);
    let (mut hashes, mut blobs) = (FxHashSet::default(), FxHashSet::default());
    let mut pruned = Pruned::default();
    for (point, _) in points.iter().zip(&kept).filter(|(_, is_kept)| **is_kept) {
        pruned.kept += 1;
        hashes.extend(point.pages().cloned());
        for chunk in point.chunks(&store)? {
            hashes.insert(chunk.hash);
            blobs.extend(chunk.blobs);
        }
    }
    pruned.removed = points.len() as u64 - pruned.kept;
    if dry_run {
        return Ok(pruned);
    }
    for (point, _) in points.iter().zip(&kept).filter(|(_, is_kept)| !**is_kept) {
        point.remove(repository)?;
    }
    pruned.freed_bytes = store.retain(&|hash| hashes.contains(hash))?
        + BlobFiles::open(repository)?.retain(&|name| blobs.contains(name))?;
    Ok(pruned)
}
