//! The revisions of an object, newest first.
//!
//! A storage is asked for the history. Where it has none, each revision leads to the one before it,
//! up to the last time that the object was created.

use zodium_storage::{Access, Load, Read, Revision, StorageError, Transaction};
use zodium_types::{Oid, Tid};

use crate::log;

/// How many revisions a storage is asked for at first.
const FIRST_HISTORY: usize = 4096;

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
    let mut asked = FIRST_HISTORY;
    loop {
        let entries = match storage.history(oid, asked) {
            Ok(entries) => entries,
            Err(StorageError::Unsupported { .. }) => return by_loads(storage, oid, at, count),
            Err(error) => return Err(error),
        };
        let is_whole = entries.len() < asked;
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
        if has_older || is_whole {
            heads.truncate(count);
            return Ok((heads, has_older));
        }
        // A storage tells the newest ones only.
        asked = asked.saturating_mul(4);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_history_comes_in_pages_to_its_start() {
        let all: Vec<u64> = (1..FIRST_HISTORY as u64 + 100).collect();
        let storage = log::test_storage(&all);
        let (mut last, mut seen) = (Tid::MAX, Vec::new());
        loop {
            let (heads, has_older) = history(&storage, Oid(0), last, 1000).unwrap();
            seen.extend(heads.iter().map(|head| head.tid.0));
            last = Tid(seen[seen.len() - 1] - 1);
            if !has_older {
                break;
            }
        }
        assert!(seen.into_iter().rev().eq(all));
    }
}
