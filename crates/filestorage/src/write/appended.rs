//! A transaction that is in the log, and not visible yet.

use zodium_storage::{NewBody, NewRecord};
use zodium_types::{Oid, Tid, TransactionStatus};

use super::oids::Oids;
use super::prepared::PreparedTransaction;
use crate::read::{LogFile, new_record};

/// Where a transaction stands in the file.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) start: u64,
    pub(super) end: u64,
    /// For each record: its position, and that of the revision before.
    pub(super) positions: Vec<(u64, u64)>,
}

/// An appended transaction, to be published.
#[derive(Debug)]
pub struct Appended {
    tid: Tid,
    prepared: PreparedTransaction,
    written: Written,
}

impl Appended {
    pub(super) fn new(tid: Tid, mut prepared: PreparedTransaction, written: Written) -> Appended {
        if prepared.transaction.status == TransactionStatus::Undone {
            // The records of an undone transaction do not count, now as after the next opening.
            prepared.transaction.records.clear();
        }
        Appended { tid, prepared, written }
    }

    /// Tid of the transaction.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The objects with a new revision, each once, in the order of their records.
    pub fn oids(&self) -> Vec<Oid> {
        let mut seen = rustc_hash::FxHashSet::default();
        let oids = self.prepared.transaction.records.iter().map(|record| record.oid);
        oids.filter(|oid| seen.insert(*oid)).collect()
    }

    /// Makes the transaction visible to readers. Call it in the order of the appends.
    pub(crate) fn publish(self, log: &LogFile, oids: &Oids) {
        let Written { start, end, positions } = self.written;
        // Extend the end first: a reader that finds the new position must be allowed to read there.
        log.extend_to(end);
        let records = self.prepared.transaction.records.into_iter().zip(positions);
        for (NewRecord { oid, body }, (position, previous)) in records {
            // A new revision of an object that no client loads will probably not be loaded either.
            if let NewBody::Data(data) = body
                && (previous == 0 || log.cache.was_hit(previous))
            {
                log.cache.insert(new_record(position, self.tid, previous, Some(data)));
            }
            log.recent_serials.note(position, self.tid);
            log.positions.publish(oid, position);
            oids.note(oid);
        }
        log.note_tid(self.tid);
        log.note_indexed(end);
        log.tid_index.pass_appended(self.tid, start);
    }
}
