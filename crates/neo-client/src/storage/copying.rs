//! Copies: whole transactions that bring their tids.
//!
//! Key decision: the cluster commits them one by one. A master takes a transaction with a tid only
//! while there is no other one.

use std::sync::mpsc::sync_channel;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zodium_storage::{Committed, NewTransaction, SharedConflict, SharedWrite, StorageError};
use zodium_types::{Oid, Tid, TransactionStatus};

use super::NeoStorage;
use crate::NeoError;
use crate::transaction::{Finish, NeoTransaction};

/// Objects whose serials are remembered.
const REMEMBERED_MAX: usize = 1 << 20;
/// Times that a store of a copy is repeated, with the serial that the cluster says is current.
const ROUNDS_MAX: usize = 3;

/// A transaction that is to be copied.
pub(super) struct Copied(pub(super) NewTransaction);

/// The serials of the objects that were copied last: each store names the one before it.
#[derive(Default)]
pub(super) struct CopiedSerials(Mutex<FxHashMap<Oid, Tid>>);

impl CopiedSerials {
    fn of(&self, oid: Oid) -> Tid {
        self.0.lock().get(&oid).copied().unwrap_or(Tid::ZERO)
    }

    fn note(&self, committed: &Committed) {
        let mut serials = self.0.lock();
        if serials.len() > REMEMBERED_MAX {
            serials.clear();
        }
        serials.extend(committed.oids.iter().map(|oid| (*oid, committed.tid)));
    }
}

impl NeoStorage {
    /// Commits a transaction with its tid. Blocking.
    pub(super) fn copy(&self, tid: Tid, copied: Copied) -> Result<Committed, StorageError> {
        let Copied(NewTransaction { status, metadata, records }) = copied;
        // Of several records of an object the last one counts, at the place of the first one.
        let mut places: FxHashMap<Oid, usize> = FxHashMap::default();
        let mut writes: Vec<SharedWrite> = Vec::new();
        if status != TransactionStatus::Undone {
            for record in records {
                let (oid, serial) = (record.oid, self.copied.of(record.oid));
                let write = SharedWrite { oid, serial, body: record.body };
                let place = *places.entry(oid).or_insert(writes.len());
                match writes.get_mut(place) {
                    Some(earlier) => *earlier = write,
                    None => writes.push(write),
                }
            }
        }
        let mut open = NeoTransaction::begin(&self.cluster, metadata, (None, Some(tid)))?;
        let mut left = writes.clone();
        for _ in 0..ROUNDS_MAX {
            let conflicts = open.store_all(&left, &[])?;
            let again = |SharedConflict { oid, committed }: &SharedConflict| {
                let body = writes.get(*places.get(oid)?)?.body.clone();
                Some(SharedWrite { oid: *oid, serial: *committed, body })
            };
            left = conflicts.iter().filter_map(again).collect();
            if left.is_empty() {
                break;
            }
        }
        if !left.is_empty() {
            let what = "another client commits to the NEO cluster that is copied into; stop it";
            return Err(NeoError::Unsupported { what }.into());
        }
        let committed = self.finish_now(open.vote()?)?;
        if committed.tid != tid {
            let cause =
                format!("{tid} was copied as {}: the master does not keep tids", committed.tid);
            return Err(StorageError::Other(cause.into()));
        }
        self.copied.note(&committed);
        Ok(committed)
    }

    /// Commits a voted transaction, and waits for the outcome.
    pub(super) fn finish_now(&self, finish: Finish) -> Result<Committed, StorageError> {
        let (done, outcome) = sync_channel(1);
        let told = Box::new(move |finished| {
            // The caller waits, whatever it takes.
            let _ = done.send(finished);
        });
        finish.send(&self.cluster, told);
        outcome.recv().map_err(|_| NeoError::Closed)?
    }
}
