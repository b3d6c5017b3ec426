//! Deletes the garbage in small transactions, beside other writers.

use bytes::Bytes;
use zodium_types::{Oid, Tid};

use super::marking::Marking;
use crate::ToolError;

/// Objects that are deleted in one transaction.
const BATCH_OBJECTS: usize = 500;

/// A change that a collection commits.
pub enum Change {
    /// The object is deleted, if the revision is current.
    Delete(Oid, Tid),
    /// The object, of which the revision is a deletion, gets its data back.
    BringBack(Oid, Tid, Bytes),
}

/// A database that a collection writes to.
pub trait Sweep {
    /// Asks for what others have committed by now.
    fn refresh(&self) -> Result<(), ToolError>;

    /// Commits changes as one transaction; whether it was committed. It is not when an object has
    /// changed meanwhile.
    fn commit(&self, changes: Vec<Change>) -> Result<bool, ToolError>;

    /// The data of an object before a transaction.
    fn data_before(&self, oid: Oid, tid: Tid) -> Result<Bytes, ToolError>;
}

/// What was done in one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Objects that were deleted and stay so.
    pub deleted: u64,
    /// Objects that were brought back, because a transaction refers to them again.
    pub brought_back: u64,
    /// Objects that are left, because other transactions changed them or refer to them.
    pub left: u64,
}

/// Deletes the garbage of all databases. `targets` are in the order of the marked databases;
/// `progress` is called with numbers of objects that are done.
///
/// # Errors
/// Those of the databases. What was deleted before stays deleted: it was garbage.
pub fn sweep(
    marking: &mut Marking<'_, '_>,
    targets: &[&dyn Sweep],
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<Outcome>, ToolError> {
    let mut outcomes = vec![Outcome::default(); targets.len()];
    let mut done = 0;
    for (database, target) in targets.iter().enumerate() {
        let garbage: Vec<Oid> = marking.garbage(database).into_iter().map(|(oid, _)| oid).collect();
        for batch in garbage.chunks(BATCH_OBJECTS) {
            catch_up(marking, targets, &mut outcomes)?;
            let deleted = delete(marking, *target, database, batch)?;
            outcomes[database].deleted += deleted;
            outcomes[database].left += batch.len() as u64 - deleted;
            done += batch.len() as u64;
            progress(done);
        }
    }
    catch_up(marking, targets, &mut outcomes)?;
    Ok(outcomes)
}

/// Deletes those of a batch that are still garbage; their number.
fn delete(
    marking: &mut Marking<'_, '_>,
    target: &dyn Sweep,
    database: usize,
    batch: &[Oid],
) -> Result<u64, ToolError> {
    let objects = marking.still_garbage(database, batch);
    if commit_deletions(marking, target, database, &objects)? {
        return Ok(objects.len() as u64);
    }
    // One of them has changed: the others are deleted one by one.
    let mut deleted = 0;
    for object in objects {
        let is_deleted = commit_deletions(marking, target, database, &[object])?;
        deleted += u64::from(is_deleted);
    }
    Ok(deleted)
}

fn commit_deletions(
    marking: &mut Marking<'_, '_>,
    target: &dyn Sweep,
    database: usize,
    objects: &[(Oid, Tid)],
) -> Result<bool, ToolError> {
    if objects.is_empty() {
        return Ok(true);
    }
    let changes = objects.iter().map(|(oid, tid)| Change::Delete(*oid, *tid)).collect();
    let is_committed = target.commit(changes)?;
    if is_committed {
        objects.iter().for_each(|(oid, _)| marking.note_swept(database, *oid, true));
    }
    Ok(is_committed)
}

/// Reads what others have committed, and brings back what they refer to.
fn catch_up(
    marking: &mut Marking<'_, '_>,
    targets: &[&dyn Sweep],
    outcomes: &mut [Outcome],
) -> Result<(), ToolError> {
    loop {
        targets.iter().try_for_each(|target| target.refresh())?;
        let wanted = marking.catch_up()?;
        if wanted.is_empty() {
            return Ok(());
        }
        for (database, oid, deletion) in wanted {
            marking.note_swept(database, oid, false);
            outcomes[database].deleted -= 1;
            outcomes[database].brought_back += 1;
            if marking.is_alive(database, oid) {
                continue; // Another transaction has written it anew.
            }
            let data = targets[database].data_before(oid, deletion)?;
            let change = Change::BringBack(oid, deletion, data);
            // If that conflicts, the object was written anew by another transaction.
            targets[database].commit(vec![change])?;
        }
    }
}
