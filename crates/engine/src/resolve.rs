//! Resolving conflicts here, where the client need not be asked.
//!
//! Key decision: nothing of it is kept in the transaction. As long as other conflicts go back to
//! the client, and whenever it votes anew, those of here are resolved again, against what is
//! current then; so the client is told of exactly those that it has to resolve, and a vote that
//! comes later than that finds nothing stale.

use bytes::Bytes;
use rustc_hash::FxHashMap;
use zodium_filestorage::{Access, StorageError};
use zodium_types::Oid;

use crate::commit::{Conflict, ConflictKind};
use crate::{Storage, Transaction};

/// The data that resolve conflicts, by object.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) data: FxHashMap<Oid, Bytes>,
}

impl Storage {
    /// Whether some of these conflicts may be resolved here. That reads old revisions: never on
    /// a worker.
    pub(crate) fn may_resolve(&self, conflicts: &[Conflict]) -> bool {
        let all_stores = conflicts.iter().all(|found| found.kind == ConflictKind::Store);
        self.resolver.is_some() && all_stores && !conflicts.is_empty()
    }

    /// Resolves what can be; gives what is left as well.
    ///
    /// The locks must be held: what is resolved against must still be current when it is written.
    pub(crate) fn resolve(
        &self,
        transaction: &Transaction,
        conflicts: Vec<Conflict>,
    ) -> Result<(Resolved, Vec<Conflict>), StorageError> {
        let mut resolved = Resolved::default();
        let mut left = Vec::new();
        for conflict in conflicts {
            match self.resolve_one(transaction, &conflict)? {
                Some(data) => drop(resolved.data.insert(conflict.oid, data)),
                None => left.push(conflict),
            }
        }
        Ok((resolved, left))
    }

    fn resolve_one(
        &self,
        transaction: &Transaction,
        conflict: &Conflict,
    ) -> Result<Option<Bytes>, StorageError> {
        let Conflict { oid, committed, sent, .. } = *conflict;
        let Some(resolver) = self.resolver else { return Ok(None) };
        let new = transaction.stored_data(oid, Access::Blocking)?;
        // A revision that is gone (created twice, deleted, packed) leaves nothing to merge with.
        let committed = self.file.load_serial(oid, committed)?;
        let old = self.file.load_serial(oid, sent)?;
        let (Some(old), Some(committed), Some(new)) = (old, committed, new) else {
            return Ok(None);
        };
        Ok(resolver(&old, &committed, &new).map(Bytes::from))
    }
}
