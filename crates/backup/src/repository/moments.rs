//! Whether a moment can be restored from a point: a pack may have removed revisions of it.
//!
//! Key decision: the statuses of transactions tell. A pack marks all transactions up to its time,
//! and keeps the newest revision that each object has then. So if the first transaction after a
//! moment is not marked, no pack came after the moment. If a pack left no transaction between the
//! moment and its own time, no object that it kept had changed in between.

use zodium_storage::LogItem;
use zodium_types::{CalendarTime, Tid, TransactionStatus};

use super::chunk_store::tid_of;
use super::items::{Item, Items};
use super::opened::Repository;
use super::point::{Point, chunks_of};
use crate::BackupError;

/// Checks that `point` has all that was there at `at`. `points`: all points.
///
/// # Errors
/// `Refused` if the moment is before the first transaction, or before a pack; `Damaged`.
pub(super) fn check_moment(
    repository: &Repository,
    points: &[Point],
    point: &Point,
    at: Tid,
) -> Result<(), BackupError> {
    let refused = |why: String, later: Tid| {
        let name = repository.name();
        let others = others(points, at, later);
        Err(BackupError::Refused(format!("{name}: {why}. {others}")))
    };
    if point.last() > at
        && let Some(packed) = packed_after(repository, point, at)?
    {
        let why = format!(
            "what was there at {} cannot be restored: the storage was packed up to {} before \
             restore point {} was made",
            moment(at),
            moment(packed),
            point.number
        );
        return refused(why, packed);
    }
    let first = tid_of(&point.first);
    match point.last() == Tid::ZERO || first > at {
        true => {
            let why = format!(
                "nothing would be restored: restore point {} has no transaction at or before {}",
                point.number,
                moment(at)
            );
            refused(why, first)
        }
        false => Ok(()),
    }
}

/// The last transaction that a pack after `at` has marked; `None` if there was no such pack.
fn packed_after(
    repository: &Repository,
    point: &Point,
    at: Tid,
) -> Result<Option<Tid>, BackupError> {
    let (store, mut packed) = (repository.store(), None);
    let chunks = chunks_of(repository, point)?;
    for chunk in chunks.iter().filter(|chunk| tid_of(&chunk.last) > at) {
        let content = chunk.content(&store)?;
        let mut items = Items::new(&content);
        while let Some(item) = items.step() {
            let damaged = |()| BackupError::damaged(store.path(&chunk.hash), "it has no items");
            let Item::Log(LogItem::Transaction { tid, status, .. }) = item.map_err(damaged)? else {
                continue;
            };
            match status {
                _ if tid <= at => {}
                TransactionStatus::Packed => packed = Some(tid),
                // Says nothing: an old version of ZODB has undone it.
                TransactionStatus::Undone => {}
                TransactionStatus::Normal => return Ok(packed),
            }
        }
    }
    Ok(packed)
}

/// Says which other moments can be restored. `later`: the first one that the point has.
fn others(points: &[Point], at: Tid, later: Tid) -> String {
    let earlier = points.iter().rfind(|point| (Tid(1)..at).contains(&point.last()));
    let earlier = earlier.map(|earlier| {
        let (last, number) = (moment(earlier.last()), earlier.number);
        format!("as of {last}, the last transaction of restore point {number}")
    });
    let later = (later > Tid::ZERO).then(|| format!("as of {} or later", moment(later)));
    match (earlier, later) {
        (Some(earlier), Some(later)) => format!("Restore {earlier}, or {later}"),
        (Some(only), None) | (None, Some(only)) => format!("Restore {only}"),
        (None, None) => "Restore without a moment".to_owned(),
    }
}

/// A transaction and its time, for messages.
fn moment(tid: Tid) -> String {
    let time = CalendarTime::from_tid(tid);
    let CalendarTime { year, month, day, hour, minute, minute_nanos } = time;
    let seconds = minute_nanos / 1_000_000_000;
    format!("{tid} ({year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{seconds:02} UTC)")
}
