//! Resolves conflicts on the server, where the client need not be asked.
//!
//! Key decision: the transaction keeps no resolved data. Every vote resolves its conflicts again,
//! against the data current then, even if other conflicts went back to the client before. So the
//! client gets exactly the conflicts that it must resolve, and a later vote uses no stale result.

use bytes::Bytes;
use rustc_hash::FxHashMap;
use zodium_storage::{Access, Load, Read, StorageError};
use zodium_types::{Oid, Tid};

use crate::commit::Conflict;
use crate::conflict_room::ConflictRoom;
use crate::transaction::Stores;
use crate::{FoundConflict, Merge, Resolver, Transaction, VoteError};

/// The data that resolve conflicts, by object.
#[derive(Debug, Default)]
pub(crate) struct Resolved {
    pub(crate) data: FxHashMap<Oid, Bytes>,
}

/// A worker must not delay its other sessions: it resolves at most this many conflicts, with at
/// most this many bytes in the three revisions of each.
const WORKER_CONFLICTS_MAX: usize = 4;
const WORKER_BYTES_MAX: usize = 16 << 10;

/// The three revisions that a conflict concerns.
enum Revisions {
    Found {
        old: Bytes,
        committed: Bytes,
        new: Bytes,
    },
    /// One of them no longer exists.
    Gone,
    /// They are not in memory, or too large to merge on a worker.
    WouldBlock,
}

/// Resolves the conflicts of a transaction.
pub(crate) struct ConflictResolution<'d> {
    /// Where the revisions are read.
    pub(crate) store: &'d dyn Read,
    /// What merges them; without it no conflict is resolved.
    pub(crate) resolver: Option<&'d dyn Resolver>,
}

impl ConflictResolution<'_> {
    /// Resolves conflicts of stores; also returns those left. `None`: ask again with
    /// [`Access::Blocking`].
    ///
    /// The caller must hold the locks: the revision merged with must still be current at the write.
    ///
    /// # Errors
    /// Also when there is no room for all that would be merged.
    pub(crate) fn resolve(
        &self,
        transaction: &Transaction,
        conflicts: Vec<Conflict>,
        room: &mut ConflictRoom<'_>,
        access: Access,
    ) -> Result<Option<(Resolved, Vec<Conflict>)>, VoteError> {
        let Some(resolver) = self.resolver else {
            return Ok(Some((Resolved::default(), conflicts)));
        };
        if access == Access::NonBlocking && conflicts.len() > WORKER_CONFLICTS_MAX {
            return Ok(None);
        }
        let stores = transaction.stores();
        let mut resolved = Resolved::default();
        let mut left = Vec::new();
        for conflict in conflicts {
            let merged = match self.revisions(&stores, &conflict, access)? {
                Revisions::Found { old, committed, new } => {
                    resolver.resolve(&old, &committed, &new, access)
                }
                Revisions::Gone => Merge::Unresolved,
                Revisions::WouldBlock => Merge::WouldBlock,
            };
            match merged {
                Merge::Resolved(data) if room.take(data.len()) => {
                    resolved.data.insert(conflict.oid, data.into());
                }
                Merge::Resolved(_) => {
                    let data = stores.data(conflict.oid, access)?.unwrap_or_default();
                    return Err(VoteError::ManyConflicts { one: FoundConflict { conflict, data } });
                }
                Merge::Unresolved => left.push(conflict),
                Merge::WouldBlock => return Ok(None),
            }
        }
        Ok(Some((resolved, left)))
    }

    fn revisions(
        &self,
        stores: &Stores<'_>,
        conflict: &Conflict,
        access: Access,
    ) -> Result<Revisions, StorageError> {
        let Conflict { oid, committed, sent, .. } = *conflict;
        let Some(new) = stores.data(oid, access)? else {
            return Ok(Revisions::WouldBlock);
        };
        if access == Access::NonBlocking {
            let old = self.resident_revision(oid, sent)?;
            let committed = self.resident_revision(oid, committed)?;
            let (Some(old), Some(committed)) = (old, committed) else {
                return Ok(Revisions::WouldBlock);
            };
            let is_small = old.len() + committed.len() + new.len() <= WORKER_BYTES_MAX;
            return Ok(match is_small {
                true => Revisions::Found { old, committed, new },
                false => Revisions::WouldBlock,
            });
        }
        // Without a revision (created twice, deleted, packed, damaged) there is nothing to merge
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
        Ok(match self.store.load_before(oid, serial.next(), Access::NonBlocking) {
            Ok(Load::Revision(found)) if found.serial == serial => Some(found.data),
            Ok(_) | Err(StorageError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        })
    }

    /// The data that a transaction wrote; `None` also if they are damaged. The client then gets the
    /// conflict, and an error for the damage as soon as it loads the damaged revision.
    fn readable_revision(&self, oid: Oid, serial: Tid) -> Result<Option<Bytes>, StorageError> {
        match self.store.load_serial(oid, serial) {
            Err(StorageError::Corrupt { .. }) => Ok(None),
            found => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use zodium_memorystorage::MemoryStorage;
    use zodium_storage::{NewBody, NewRecord, NewTransaction, Write};
    use zodium_types::{TransactionMetadata, TransactionStatus};

    use super::*;
    use crate::commit::ConflictKind;

    /// Takes what the client sent.
    #[derive(Debug)]
    struct Newest;

    impl Resolver for Newest {
        fn resolve(&self, _: &[u8], _: &[u8], new: &[u8], _: Access) -> Merge {
            Merge::Resolved(new.to_vec())
        }
    }

    /// A storage with so many objects, each with revisions 1 and 2.
    fn storage(objects: u64, data: &Bytes) -> MemoryStorage {
        let storage = MemoryStorage::new();
        for tid in [1, 2].map(Tid) {
            let record = |oid| NewRecord { oid: Oid(oid), body: NewBody::Data(data.clone()) };
            let records = (0..objects).map(record).collect();
            let (status, metadata) = (TransactionStatus::Normal, TransactionMetadata::default());
            let new = NewTransaction { status, metadata, records };
            let Ok(Poll::Ready(prepared)) = storage.prepare(new, Access::Blocking) else {
                panic!()
            };
            storage.commit(vec![(tid, prepared)]).unwrap();
        }
        storage
    }

    /// How many of so many conflicts are resolved; `None` if it has to be asked again.
    fn resolved(count: u64, data_bytes: usize, access: Access) -> Option<usize> {
        let data = Bytes::from(vec![b'd'; data_bytes]);
        let storage = storage(count, &data);
        let mut transaction = Transaction::default();
        (0..count).for_each(|oid| transaction.store(Oid(oid), Tid(1), data.clone()));
        let (committed, sent, kind) = (Tid(2), Tid(1), ConflictKind::Store);
        let conflicts = (0..count).map(|oid| Conflict { oid: Oid(oid), committed, sent, kind });
        let resolution = ConflictResolution { store: &storage, resolver: Some(&Newest) };
        let mut room = ConflictRoom::new(None);
        let found = resolution.resolve(&transaction, conflicts.collect(), &mut room, access);
        found.unwrap().map(|(resolved, left)| {
            assert!(left.is_empty());
            resolved.data.len()
        })
    }

    #[test]
    fn a_worker_resolves_few_small_conflicts_and_leaves_others_to_a_job() {
        // Three revisions of 5,461 bytes are just below the limit.
        for (count, bytes, is_left) in
            [(1, 10, false), (4, 10, false), (5, 10, true), (1, 5461, false), (1, 5462, true)]
        {
            let by_worker = resolved(count, bytes, Access::NonBlocking);
            assert_eq!(by_worker, (!is_left).then_some(count as usize), "{count} of {bytes} bytes");
            assert_eq!(resolved(count, bytes, Access::Blocking), Some(count as usize));
        }
    }
}
