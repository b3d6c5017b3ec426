//! Restores a storage from a repository.

use zodium_storage::LogItem;
use zodium_types::{Oid, Tid};

use super::chunk_store::tid_of;
use super::items::{Item, Items};
use super::later_blobs::LaterBlobs;
use super::moments::check_moment;
use super::opened::Repository;
use super::point::{Newest, Point, chunks_of, is_damaged, newest, readable_points};
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

/// What was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Transactions.
    pub transactions: u64,
    /// Blobs of the backup that were left out, as there was no target for them.
    pub blobs_left_out: u64,
}

/// The point that [`restore`] restores from: the first one that has transaction `at`, or else the
/// last one. Damaged points of others are no obstacle.
///
/// # Errors
/// `Refused` if there is no point, or none that has all that was there at `at`; `Damaged` if the
/// last one is; those of the repository.
pub fn restored_point(repository: &Repository, at: Option<Tid>) -> Result<Point, BackupError> {
    let Some(at) = at else { return last_point(repository) };
    let points = readable_points(repository)?;
    let covering = points.iter().filter(|point| point.last() >= at);
    let covering = covering.map(|point| chunks_of(repository, point).map(|_| point.clone()));
    let covering = covering.into_iter().find(|point| !is_damaged(point));
    let point = covering.unwrap_or_else(|| last_point(repository))?;
    check_moment(repository, &points, &point, at)?;
    Ok(point)
}

/// The last point; if that is damaged, the error tells which one is not.
fn last_point(repository: &Repository) -> Result<Point, BackupError> {
    let Newest { point, damage, .. } = newest(repository)?;
    match (point, damage) {
        (Some((point, _)), None) => Ok(point),
        (Some((point, _)), Some(BackupError::Damaged { path, what })) => {
            let (number, last) = (point.number, point.last());
            let advice = format!("the newest restore point before it is {number}: --at {last}");
            Err(BackupError::damaged(path, format!("{what}; {advice}")))
        }
        (_, Some(damage)) => Err(damage),
        (None, None) => {
            let what = format!("{}: there is no restore point", repository.name());
            Err(BackupError::Refused(what))
        }
    }
}

/// Restores what was there after transaction `at`, or else all of `point`, which is the
/// [`restored_point`] of `at`. Blobs come before their transactions. Those that the point lacks are
/// taken from later points.
///
/// # Errors
/// `Damaged`; those of the targets.
pub fn restore(
    repository: &Repository,
    point: &Point,
    at: Option<Tid>,
    target: &mut dyn RestoreTarget,
    blobs: Option<&dyn BlobTarget>,
    progress: &dyn Fn(u64, u64),
) -> Result<Restored, BackupError> {
    let store = repository.store();
    // A damaged clock can have made tids beyond `Tid::MAX`.
    let until = at.unwrap_or(Tid(u64::MAX));
    let later = match blobs {
        Some(_) => LaterBlobs::read(repository, point, until)?,
        None => LaterBlobs::default(),
    };
    let (mut restored, mut done) = (Restored::default(), 0);
    for chunk in chunks_of(repository, point)? {
        if tid_of(&chunk.first) > until {
            break;
        }
        let content = chunk.content(&store)?;
        let listed = later.with_those_of(&chunk, &content);
        let listed = listed.iter().filter(|blob| blob.place().1 <= until);
        match blobs {
            None => restored.blobs_left_out += listed.count() as u64,
            Some(target) => {
                for blob in listed {
                    let (oid, tid) = blob.place();
                    target.put(oid, tid, &mut |visit| blob.read(&store, visit))?;
                }
            }
        }
        let applied = apply(&content, until, target).map_err(|error| match error {
            None => BackupError::damaged(store.path(&chunk.hash), "it has no items"),
            Some(error) => error,
        });
        restored.transactions += applied?;
        done += chunk.bytes;
        progress(done, point.bytes);
    }
    Ok(restored)
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
