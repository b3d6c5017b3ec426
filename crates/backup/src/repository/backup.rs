//! Backs a storage up: what is not in the repository yet.

use zodium_types::Tid;

use super::continuity::{self, Continuity};
use super::opened::Repository;
use super::point::{Chunk, Newest, Point, newest};
use super::writer::{Source, Writer};
use crate::BackupError;
use crate::places::Claim;

/// What is backed up, and how.
pub struct Backup<'s> {
    /// The storage.
    pub source: Source<'s>,
    /// Read only what comes after the last point, if the storage agrees with it there.
    pub quick: bool,
    /// Back it up although it has no transaction of the newest point: it has taken the place of the
    /// storage that was backed up.
    pub replaced: bool,
    /// The time, in seconds since 1970.
    pub seconds: i64,
}

/// What a backup did.
#[derive(Debug)]
pub struct BackupSummary {
    /// The restore point.
    pub point: Point,
    /// Whether it is a new one.
    pub is_new: bool,
    /// Transactions that no point had before.
    pub new_transactions: u64,
    /// Bytes of new chunks and blobs, as they are stored.
    pub stored_bytes: u64,
    /// Blobs that were not found or are damaged, of those that were looked for. The point lacks
    /// them.
    pub missing_blobs: u64,
    /// What is wrong with the newest point that was there, if it is damaged.
    pub damage: Option<BackupError>,
    /// The newest point that was there, if the storage ends before it.
    pub older_than: Option<Point>,
}

/// Backs a storage up as it is now.
///
/// # Errors
/// `Refused` if it is another storage; those of the storage and of the repository. What was stored
/// before an error is found by the next backup.
pub fn backup(repository: &Repository, backup: &Backup<'_>) -> Result<BackupSummary, BackupError> {
    let claim = repository.claim()?;
    write(repository, &*claim, backup, false).map(|(summary, _)| summary)
}

/// Backs a storage up; also gives what reads on from there. `always`: writes a point even if
/// nothing is new.
pub(super) fn write<'r>(
    repository: &'r Repository,
    claim: &dyn Claim,
    backup: &Backup<'_>,
    always: bool,
) -> Result<(BackupSummary, Writer<'r>), BackupError> {
    let Backup { source, quick, seconds, .. } = backup;
    let last = source.storage.last_tid();
    let Newest { point: newest, damage, next_number } = newest(repository)?;
    let (newest, known) = newest.unzip();
    let known = known.unwrap_or_default();
    let older_than = check_source(repository, backup, newest.as_ref(), &known)?;
    let kept = match quick {
        true => Writer::agreed(repository.store(), source, &known)?,
        false => &[],
    };
    let mut writer = Writer::new(repository.store(), kept, &known);
    if !quick {
        writer.forget_lost()?;
    }
    writer.archived = newest.as_ref().map_or(Tid::ZERO, Point::last);
    let start = writer.next_tid();
    writer.read(source, start, last)?;
    let chunks = writer.all_chunks()?;
    repository.place().settle()?;
    claim.check()?;
    let always = always || damage.is_some();
    let summary = |point, is_new, writer: &Writer<'_>| BackupSummary {
        point,
        is_new,
        new_transactions: writer.new_transactions,
        stored_bytes: writer.stored_bytes,
        missing_blobs: writer.missing_blobs,
        damage,
        older_than: older_than.cloned(),
    };
    let unchanged = newest.as_ref().filter(|point| point.is_complete() && chunks == known);
    if let Some(point) = unchanged.filter(|_| !always) {
        return Ok((summary(point.clone(), false, &writer), writer));
    }
    let (store, python_2) = (repository.store(), source.storage.is_of_python_2());
    let point = Point::complete(&store, next_number, *seconds, python_2, &chunks)?;
    let point = point.prepare(repository)?;
    repository.place().settle()?;
    claim.confirm()?;
    let point = point.write(repository)?;
    Ok((summary(point, true, &writer), writer))
}

/// Refuses another storage than that of the newest point; the point, if the storage ends before it.
fn check_source<'p>(
    repository: &Repository,
    backup: &Backup<'_>,
    newest: Option<&'p Point>,
    known: &[Chunk],
) -> Result<Option<&'p Point>, BackupError> {
    let Some(point) = newest.filter(|_| !backup.replaced) else { return Ok(None) };
    let storage = backup.source.storage;
    match continuity::of(&repository.store(), storage, point, known)? {
        Continuity::Continued => Ok(None),
        Continuity::Older => Ok(newest),
        Continuity::Other => Err(BackupError::Refused(format!(
            "{} has none of the transactions of restore point {} in {}: it is another storage, or \
             an empty one in the place of the right one. Check its address, and whether its disk \
             is mounted. If it is to be backed up there from now on, give --replaced once",
            storage.name(),
            point.number,
            repository.name()
        ))),
    }
}
