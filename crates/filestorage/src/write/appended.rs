//! A transaction that is in the log, and not visible yet.

use zodium_types::{Oid, Tid};

use super::new_transaction::NewBody;
use super::oids::Oids;
use crate::read::{LogFile, new_record};

/// Positions of the records of an appended transaction.
#[derive(Debug)]
pub struct Appended {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) records: Vec<(Oid, u64, NewBody)>,
    pub(super) previous: Vec<u64>,
    pub(super) tid: Tid,
}

impl Appended {
    /// Tid of the transaction.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The objects with a new revision, each once, in the order of their records.
    pub fn oids(&self) -> Vec<Oid> {
        let mut seen = rustc_hash::FxHashSet::default();
        let oids = self.records.iter().map(|(oid, ..)| *oid);
        oids.filter(|oid| seen.insert(*oid)).collect()
    }

    /// Makes the transaction visible to readers. Call it in the order of the appends.
    pub(crate) fn publish(self, log: &LogFile, oids: &Oids) {
        // Extend the end first: a reader that finds the new position must be allowed to read there.
        log.extend_to(self.end);
        for ((oid, position, body), previous) in self.records.into_iter().zip(self.previous) {
            if let NewBody::Data(data) = body {
                log.cache.insert(new_record(position, self.tid, previous, Some(data)));
            }
            log.positions.publish(oid, position);
            oids.note(oid);
        }
        log.note_indexed(self.end);
        log.tid_index.pass_appended(self.tid, self.start);
    }
}
