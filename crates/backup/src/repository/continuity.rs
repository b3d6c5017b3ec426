//! Whether a storage is the one whose backups a repository has.
//!
//! An address may lead elsewhere some night: to a server whose disk is not mounted, which serves an
//! empty database, or to another site's. A prune would soon remove the good restore points.
//!
//! Key decision: one transaction in common is enough. A pack may have removed the others, the last
//! one too. It may even have removed all of a point that has few. Then it marked the first
//! transaction behind them, so a storage where that one is marked is taken for the same.

use rustc_hash::FxHashSet;
use zodium_storage::{LogItem, Read};
use zodium_types::{Tid, TransactionStatus};

use super::chunk_store::{ChunkStore, tid_of};
use super::items::{Item, Items};
use super::point::{Chunk, Point};
use crate::BackupError;

/// Chunks at the end, and at the beginning, whose transactions are looked for.
const CHUNKS_MAX: usize = 8;

/// How a storage goes on from a restore point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Continuity {
    /// It has the last transaction, or later ones beside some that the point has.
    Continued,
    /// It ends before the last transaction: an older copy.
    Older,
    /// It has none of the transactions.
    Other,
}

/// Compares a storage with the newest point. `known`: the chunks of the complete one that this
/// point continues.
///
/// # Errors
/// Those of the storage, and of the repository but for damage.
pub(super) fn of(
    store: &ChunkStore<'_>,
    storage: &dyn Read,
    point: &Point,
    known: &[Chunk],
) -> Result<Continuity, BackupError> {
    let (last, now) = (point.last(), storage.last_tid());
    if last == Tid::ZERO || has_any(storage, &FxHashSet::from_iter([last]))? {
        return Ok(Continuity::Continued);
    }
    let mut chunks = known.to_vec();
    if !point.is_complete() {
        chunks.extend(sound(point.own_chunks(store))?.into_iter().flatten());
    }
    let tail = &chunks[chunks.len().saturating_sub(CHUNKS_MAX)..];
    let head = &chunks[..chunks.len().min(CHUNKS_MAX)];
    for part in [tail, head] {
        if has_any(storage, &transactions(store, part)?)? {
            return Ok(if now < last { Continuity::Older } else { Continuity::Continued });
        }
    }
    match is_packed_behind(storage, last)? {
        true => Ok(Continuity::Continued),
        false => Ok(Continuity::Other),
    }
}

/// Whether the first transaction behind `last` was there when the storage was packed.
fn is_packed_behind(storage: &dyn Read, last: Tid) -> Result<bool, BackupError> {
    let next = storage.iterate(Some(last.next()), None)?.step()?;
    Ok(next.is_some_and(|next| next.status == TransactionStatus::Packed))
}

/// The transactions that begin in chunks, as far as these can be read.
fn transactions(store: &ChunkStore<'_>, chunks: &[Chunk]) -> Result<FxHashSet<Tid>, BackupError> {
    let mut tids = FxHashSet::default();
    for chunk in chunks {
        tids.extend([tid_of(&chunk.first), tid_of(&chunk.last)]);
        let Some(content) = sound(chunk.content(store))? else { continue };
        let mut items = Items::new(&content);
        while let Some(Ok(item)) = items.step() {
            if let Item::Log(LogItem::Transaction { tid, .. }) = item {
                tids.insert(tid);
            }
        }
    }
    Ok(tids)
}

/// Whether a storage has one of these transactions.
fn has_any(storage: &dyn Read, tids: &FxHashSet<Tid>) -> Result<bool, BackupError> {
    let (Some(first), Some(last)) = (tids.iter().min(), tids.iter().max()) else {
        return Ok(false);
    };
    let last = (*last).min(storage.last_tid());
    if *first > last {
        return Ok(false);
    }
    let mut cursor = storage.iterate(Some(*first), Some(last))?;
    while let Some(transaction) = cursor.step()? {
        if tids.contains(&transaction.tid) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What was read; `None` if it is damaged.
fn sound<T>(read: Result<T, BackupError>) -> Result<Option<T>, BackupError> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => read.map(Some),
    }
}
