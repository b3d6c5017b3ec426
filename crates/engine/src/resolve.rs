//! Resolving conflicts here, where the client need not be asked.
//!
//! Key decision: nothing of it is kept in the transaction. As long as other conflicts go back to
//! the client, and whenever it votes anew, those of here are resolved again, against what is
//! current then; so the client is told of exactly those that it has to resolve, and a vote that
//! comes later than that finds nothing stale.

use bytes::Bytes;
use rustc_hash::FxHashMap;
use zodium_storage::{Access, Load, StorageError};
use zodium_types::{Oid, Tid};

use crate::commit::Conflict;
use crate::{Merge, Storage, Transaction};

/// The data that resolve conflicts, by object.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) data: FxHashMap<Oid, Bytes>,
}

/// On a worker, which others wait for, so few conflicts are resolved, of records with so many bytes
/// in all.
const WORKER_CONFLICTS_MAX: usize = 4;
const WORKER_BYTES_MAX: usize = 16 << 10;

/// The three revisions that a conflict is about.
enum Revisions {
    Found {
        old: Bytes,
        committed: Bytes,
        new: Bytes,
    },
    /// One of them is not there any more.
    Gone,
    /// They are not in memory, or too much to merge on a worker.
    Cold,
}

impl Storage {
    /// Whether some of these conflicts, all of stores, may be resolved here.
    pub(crate) fn may_resolve(&self, conflicts: &[Conflict]) -> bool {
        self.resolver.is_some() && !conflicts.is_empty()
    }

    /// Resolves what can be; gives what is left as well. `None`: ask with [`Access::Blocking`].
    ///
    /// The locks must be held: what is resolved against must still be current when it is written.
    pub(crate) fn resolve(
        &self,
        transaction: &Transaction,
        conflicts: Vec<Conflict>,
        access: Access,
    ) -> Result<Option<(Resolved, Vec<Conflict>)>, StorageError> {
        if access == Access::Resident && conflicts.len() > WORKER_CONFLICTS_MAX {
            return Ok(None);
        }
        let Some(resolver) = &self.resolver else {
            return Ok(Some((Resolved::default(), conflicts)));
        };
        let mut resolved = Resolved::default();
        let mut left = Vec::new();
        for conflict in conflicts {
            let merged = match self.revisions(transaction, &conflict, access)? {
                Revisions::Found { old, committed, new } => {
                    resolver.resolve(&old, &committed, &new, access)
                }
                Revisions::Gone => Merge::Unresolved,
                Revisions::Cold => Merge::Cold,
            };
            match merged {
                Merge::Resolved(data) => drop(resolved.data.insert(conflict.oid, data.into())),
                Merge::Unresolved => left.push(conflict),
                Merge::Cold => return Ok(None),
            }
        }
        Ok(Some((resolved, left)))
    }

    fn revisions(
        &self,
        transaction: &Transaction,
        conflict: &Conflict,
        access: Access,
    ) -> Result<Revisions, StorageError> {
        let Conflict { oid, committed, sent, .. } = *conflict;
        let Some(new) = transaction.stored_data(oid, access)? else { return Ok(Revisions::Cold) };
        if access == Access::Resident {
            let old = self.resident_revision(oid, sent)?;
            let committed = self.resident_revision(oid, committed)?;
            let (Some(old), Some(committed)) = (old, committed) else { return Ok(Revisions::Cold) };
            let is_small = old.len() + committed.len() + new.len() <= WORKER_BYTES_MAX;
            return Ok(match is_small {
                true => Revisions::Found { old, committed, new },
                false => Revisions::Cold,
            });
        }
        // A revision that is gone (created twice, deleted, packed, damaged) leaves nothing to merge
        // with.
        let committed = self.readable_revision(oid, committed)?;
        let old = self.readable_revision(oid, sent)?;
        Ok(match (old, committed) {
            (Some(old), Some(committed)) => Revisions::Found { old, committed, new },
            _ => Revisions::Gone,
        })
    }

    /// The data that a transaction wrote, if they are in memory.
    fn resident_revision(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, StorageError> {
        Ok(match self.store.load_before(oid, serial.next(), Access::Resident) {
            Ok(Load::Revision(found)) if found.serial == serial => Some(found.data),
            Ok(_) | Err(StorageError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        })
    }

    /// The data that a transaction wrote; `None` also when they are damaged. The client is told of
    /// the conflict then, and of the damage as soon as it loads what is damaged.
    fn readable_revision(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, StorageError> {
        match self.store.load_serial(oid, serial) {
            Err(StorageError::Corrupt { .. }) => Ok(None),
            found => found,
        }
    }
}
