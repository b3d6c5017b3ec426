//! The revisions of an object, newest first.
//!
//! A storage that keeps histories is asked for one. Of others, such as servers, each revision leads
//! to the one before it.

use zodium_storage::{Access, Load, Read, Revision, StorageError, Transaction};
use zodium_types::{Oid, Tid};

use crate::log;

/// Longest history that a storage is asked for at once.
const HISTORY_MAX: usize = 4096;

/// A revision of an object, without its data.
#[derive(Debug)]
pub(crate) struct RevisionHead {
    pub(crate) tid: Tid,
    /// Bytes of data, as far as they are known.
    pub(crate) size: Option<u64>,
    /// `None`: its transaction is not in the log any more.
    pub(crate) transaction: Option<Transaction>,
}

/// The revision of an object after transaction `at`.
pub(crate) fn revision(
    storage: &dyn Read,
    oid: Oid,
    at: Tid,
) -> Result<Option<Revision>, StorageError> {
    match storage.load_before(oid, at.next(), Access::Blocking)? {
        Load::Revision(revision) => Ok(Some(revision)),
        Load::NoRevision | Load::Missing | Load::WouldBlock => Ok(None),
    }
}

/// The newest `count` revisions up to transaction `at`, and whether there are older ones.
pub(crate) fn history(
    storage: &dyn Read,
    oid: Oid,
    at: Tid,
    count: usize,
) -> Result<(Vec<RevisionHead>, bool), StorageError> {
    let entries = match storage.history(oid, HISTORY_MAX) {
        Ok(entries) => entries,
        Err(StorageError::Unsupported { .. }) => return by_loads(storage, oid, at, count),
        Err(error) => return Err(error),
    };
    let mut heads: Vec<RevisionHead> = entries
        .into_iter()
        .filter(|entry| entry.transaction.tid <= at)
        .take(count + 1)
        .map(|entry| RevisionHead {
            tid: entry.transaction.tid,
            size: Some(entry.size).filter(|size| *size > 0),
            transaction: Some(entry.transaction),
        })
        .collect();
    let has_older = heads.len() > count;
    heads.truncate(count);
    Ok((heads, has_older))
}

fn by_loads(
    storage: &dyn Read,
    oid: Oid,
    at: Tid,
    count: usize,
) -> Result<(Vec<RevisionHead>, bool), StorageError> {
    let (mut heads, mut before) = (Vec::new(), at);
    while let Some(found) = revision(storage, oid, before)? {
        if heads.len() == count {
            return Ok((heads, true));
        }
        let tid = found.serial;
        let transaction = log::transaction(storage, tid)?;
        heads.push(RevisionHead { tid, size: Some(found.data.len() as u64), transaction });
        match tid.0.checked_sub(1) {
            Some(earlier) => before = Tid(earlier),
            None => break,
        }
    }
    Ok((heads, false))
}
