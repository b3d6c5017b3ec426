//! Restores a storage from a repository.

use std::path::Path;

use zodium_storage::LogItem;
use zodium_types::{Oid, Tid};

use super::blob_files::BlobFiles;
use super::chunk_store::ChunkStore;
use super::items::{Item, Items};
use super::point::{Point, points, tid_of};
use crate::BackupError;

/// Takes the transactions of a backup.
pub trait RestoreTarget {
    /// Takes the next item of the log.
    fn apply(&mut self, item: LogItem<'_>) -> Result<(), BackupError>;

    /// Takes a record with the same data as an earlier one.
    fn apply_same(&mut self, oid: Oid, earlier: Tid) -> Result<(), BackupError>;
}

/// Takes the blobs of a backup.
pub trait BlobTarget {
    /// Takes a blob, whose bytes `read` shows. An error of `read` means that there is none.
    fn put(&self, oid: Oid, tid: Tid, read: &mut ReadBlob<'_>) -> Result<(), BackupError>;
}

/// Shows the bytes of a blob.
pub type ReadBlob<'r> =
    dyn FnMut(&mut dyn FnMut(&[u8]) -> Result<(), BackupError>) -> Result<u64, BackupError> + 'r;

/// Restores what was there after transaction `at`, or else at the last point. Blobs come before
/// their transactions. Gives the point, and the number of transactions.
///
/// # Errors
/// `Refused` if there is no point; `Damaged`; those of the targets.
pub fn restore(
    repository: &Path,
    at: Option<Tid>,
    target: &mut dyn RestoreTarget,
    blobs: Option<&dyn BlobTarget>,
    progress: &dyn Fn(u64, u64),
) -> Result<(Point, u64), BackupError> {
    let mut points = points(repository)?;
    let found = at.and_then(|at| points.iter().position(|point| point.last() >= at));
    let point = match found {
        Some(place) => points.swap_remove(place),
        None => points.pop().ok_or_else(|| {
            BackupError::Refused(format!("{}: there is no restore point", repository.display()))
        })?,
    };
    let store = ChunkStore::new(repository);
    let blob_files = BlobFiles::open(repository)?;
    let until = at.unwrap_or(Tid::MAX);
    let (mut transactions, mut done) = (0, 0);
    for chunk in point.chunks(&store)? {
        if tid_of(&chunk.first) > until {
            break;
        }
        if let Some(target) = blobs {
            for name in &chunk.blobs {
                if let Some((oid, tid)) = name.place().filter(|(_, tid)| *tid <= until) {
                    target.put(oid, tid, &mut |visit| blob_files.read(name, visit))?;
                }
            }
        }
        let content = store.get(&chunk.hash, chunk.bytes)?;
        transactions += apply(&content, until, target).map_err(|error| match error {
            None => BackupError::Refused(format!("chunk {}: no items", chunk.hash.as_str())),
            Some(error) => error,
        })?;
        done += chunk.bytes;
        progress(done, point.bytes);
    }
    Ok((point, transactions))
}

/// Applies the items of a chunk; the number of its transactions. `None` for bytes that are no
/// items.
fn apply(
    content: &[u8],
    until: Tid,
    target: &mut dyn RestoreTarget,
) -> Result<u64, Option<BackupError>> {
    let (mut items, mut transactions) = (Items::new(content), 0);
    while let Some(item) = items.step() {
        match item.map_err(|()| None)? {
            Item::Log(LogItem::Transaction { tid, .. }) if tid > until => break,
            Item::Log(item) => {
                transactions += u64::from(matches!(item, LogItem::Transaction { .. }));
                target.apply(item)?;
            }
            Item::Same { oid, earlier } => target.apply_same(oid, earlier)?,
        }
    }
    Ok(transactions)
}
