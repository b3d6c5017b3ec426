//! Finds the writes and reads of a transaction that conflict with committed revisions.
//!
//! Key decision: the check is pure. It runs only while the transaction holds the locks of all its
//! objects, so its result holds until publication. It finds all conflicts at once, because a ZEO
//! client resolves all of them before it votes again.
//!
//! The rules are those of ZODB's FileStorage. A deletion is a revision like any other: the current
//! tid of a deleted object is that of its deletion.

use rustc_hash::FxHashMap;
use zodium_types::{Oid, Tid};

/// One write of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectWrite {
    /// The object.
    pub oid: Oid,
    /// The revision that the writer saw; ignored for [`WriteKind::Restore`].
    pub serial: Tid,
    /// How it is written.
    pub kind: WriteKind,
}

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// New data. An object that does not exist yet is created, whatever the serial.
    Store,
    /// No data. The object must exist.
    Delete,
    /// Written without a check: a `restore`, or an undo, which does its own check.
    Restore,
}

/// One `checkCurrentSerialInTransaction` (`readCurrent` of a ZODB connection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRead {
    /// The object.
    pub oid: Oid,
    /// The revision that must be current.
    pub serial: Tid,
}

/// A write or read that conflicts with the current revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The object.
    pub oid: Oid,
    /// Its current revision; [`Tid::ZERO`] when there is none.
    pub committed: Tid,
    /// The revision that the client sent.
    pub sent: Tid,
    /// The kind of conflict.
    pub kind: ConflictKind,
}

/// The kind of conflict, which decides whether the client may resolve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// A store over a newer revision (`ConflictError`). The client may resolve it.
    Store,
    /// An undo of data that changed later (`ConflictError`). The client may resolve it if it is
    /// known to have a merge for the class.
    Undo,
    /// A deletion of a newer revision (`ConflictError`). Cannot be resolved.
    Delete,
    /// A read that is no longer current (`ReadConflictError`). Cannot be resolved.
    Read,
    /// A deletion or a read of an object that does not exist (`POSKeyError`).
    Missing,
}

/// Checks `writes` (in the order sent) and `reads` against the `current` revisions.
///
/// Only the last write of an object counts: a client that resolved a conflict has stored the object
/// again. `current` is called once for each write and each read. Its results must not change in
/// between: hold the locks.
///
/// # Errors
/// All conflicts, those of writes first, each in the order sent.
pub fn check(
    writes: &[ObjectWrite],
    reads: &[ObjectRead],
    current: impl Fn(Oid) -> Option<Tid>,
) -> Result<(), Vec<Conflict>> {
    let mut conflicts = Vec::new();
    for (index, write) in writes.iter().enumerate() {
        conflicts.extend(check_write(write, &current).map(|conflict| (index, conflict)));
    }
    // Usually there are no conflicts, and the last writes need not be found.
    if !conflicts.is_empty() {
        let last = last_writes(writes);
        conflicts.retain(|(index, conflict)| last.get(&conflict.oid) == Some(index));
    }
    let mut conflicts: Vec<_> = conflicts.into_iter().map(|(_, conflict)| conflict).collect();
    conflicts.extend(reads.iter().filter_map(|read| check_read(read, &current)));
    if conflicts.is_empty() { Ok(()) } else { Err(conflicts) }
}

fn check_write(write: &ObjectWrite, current: impl Fn(Oid) -> Option<Tid>) -> Option<Conflict> {
    let (mismatch, missing) = match write.kind {
        WriteKind::Restore => return None,
        WriteKind::Store => (ConflictKind::Store, None),
        WriteKind::Delete => (ConflictKind::Delete, Some(ConflictKind::Missing)),
    };
    compare(write.oid, write.serial, current(write.oid), mismatch, missing)
}

fn check_read(read: &ObjectRead, current: impl Fn(Oid) -> Option<Tid>) -> Option<Conflict> {
    let missing = Some(ConflictKind::Missing);
    compare(read.oid, read.serial, current(read.oid), ConflictKind::Read, missing)
}

/// Returns `mismatch` if another revision is current, `missing` if none is.
fn compare(
    oid: Oid,
    sent: Tid,
    current: Option<Tid>,
    mismatch: ConflictKind,
    missing: Option<ConflictKind>,
) -> Option<Conflict> {
    match current {
        Some(committed) if committed == sent => None,
        Some(committed) => Some(Conflict { oid, committed, sent, kind: mismatch }),
        None => missing.map(|kind| Conflict { oid, committed: Tid::ZERO, sent, kind }),
    }
}

fn last_writes(writes: &[ObjectWrite]) -> FxHashMap<Oid, usize> {
    writes.iter().enumerate().map(|(index, write)| (write.oid, index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects 1 to 9 exist, each at the tid of ten times its number.
    fn current(oid: Oid) -> Option<Tid> {
        (1..10).contains(&oid.0).then_some(Tid(oid.0 * 10))
    }

    fn write(oid: u64, serial: u64, kind: WriteKind) -> ObjectWrite {
        ObjectWrite { oid: Oid(oid), serial: Tid(serial), kind }
    }

    fn store(oid: u64, serial: u64) -> ObjectWrite {
        write(oid, serial, WriteKind::Store)
    }

    fn conflict(oid: u64, committed: u64, sent: u64, kind: ConflictKind) -> Conflict {
        Conflict { oid: Oid(oid), committed: Tid(committed), sent: Tid(sent), kind }
    }

    #[test]
    fn a_store_fits_the_current_revision_or_no_object_at_all() {
        assert_eq!(check(&[store(1, 10), store(77, 0), store(78, 5)], &[], current), Ok(()));
        let expected = vec![conflict(1, 10, 9, ConflictKind::Store)];
        assert_eq!(check(&[store(1, 9)], &[], current), Err(expected));
        // The object is created twice: the second creator conflicts.
        let expected = vec![conflict(2, 20, 0, ConflictKind::Store)];
        assert_eq!(check(&[store(2, 0)], &[], current), Err(expected));
    }

    #[test]
    fn only_the_last_write_of_an_object_counts() {
        assert_eq!(check(&[store(1, 9), store(2, 20), store(1, 10)], &[], current), Ok(()));
        let expected = vec![conflict(1, 10, 8, ConflictKind::Store)];
        assert_eq!(check(&[store(1, 10), store(1, 8)], &[], current), Err(expected));
        let restored = write(1, 0, WriteKind::Restore);
        assert_eq!(check(&[store(1, 9), restored], &[], current), Ok(()));
    }

    #[test]
    fn a_deletion_needs_the_object() {
        assert_eq!(check(&[write(3, 30, WriteKind::Delete)], &[], current), Ok(()));
        let writes = [write(3, 29, WriteKind::Delete), write(77, 0, WriteKind::Delete)];
        let expected = vec![
            conflict(3, 30, 29, ConflictKind::Delete),
            conflict(77, 0, 0, ConflictKind::Missing),
        ];
        assert_eq!(check(&writes, &[], current), Err(expected));
    }

    #[test]
    fn restored_objects_are_not_checked() {
        let writes = [write(1, 3, WriteKind::Restore), write(77, 3, WriteKind::Restore)];
        assert_eq!(check(&writes, &[], current), Ok(()));
    }

    #[test]
    fn reads_must_be_current_and_exist_even_if_the_object_is_written_too() {
        let read = |oid, serial| ObjectRead { oid: Oid(oid), serial: Tid(serial) };
        assert_eq!(check(&[], &[read(1, 10)], current), Ok(()));
        let reads = [read(1, 9), read(77, 0)];
        let expected =
            vec![conflict(1, 10, 9, ConflictKind::Read), conflict(77, 0, 0, ConflictKind::Missing)];
        assert_eq!(check(&[store(1, 10)], &reads, current), Err(expected));
    }

    #[test]
    fn all_conflicts_are_found_at_once_in_the_order_sent() {
        let found = check(&[store(5, 1), store(4, 1), store(6, 60), store(3, 1)], &[], current);
        let oids: Vec<_> = found.unwrap_err().iter().map(|conflict| conflict.oid.0).collect();
        assert_eq!(oids, [5, 4, 3]);
    }
}
