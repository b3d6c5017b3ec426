//! Loads of many objects with few round trips.

use zodium_storage::{Load, StorageError};
use zodium_types::{Oid, Tid};

use super::NeoStorage;
use super::read::is_possible;

impl NeoStorage {
    /// Loads of many objects, each an oid and its `before`. What is not in memory is requested with
    /// one write to each storage.
    pub(super) fn load_many(&self, asked: &[(Oid, Tid)]) -> Vec<Result<Load, StorageError>> {
        let known = |&(oid, before): &(Oid, Tid)| match is_possible(oid) {
            true => self.resident(oid, before),
            false => Some(Load::Missing),
        };
        let mut answers: Vec<Option<Result<Load, StorageError>>> =
            asked.iter().map(|load| known(load).map(Ok)).collect();
        let unknown = asked.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
        let unknown: Vec<_> =
            unknown.map(|(&(oid, before), _)| (oid, before.min(Tid::MAX))).collect();
        // First, so that a commit during the reads makes the answers stale.
        let number = self.cluster.current.now();
        let loaded = self.reads().load_many(&unknown);
        let missing = answers.iter_mut().filter(|answer| answer.is_none());
        for (answer, ((oid, _), loaded)) in missing.zip(unknown.iter().zip(loaded)) {
            let loaded = loaded.map(|loaded| self.answered(*oid, number, loaded));
            *answer = Some(loaded.map_err(StorageError::from));
        }
        answers.into_iter().flatten().collect()
    }

    /// Starts loading the current revisions of objects that are not in memory, and does not wait
    /// for them. This is a hint: it does nothing without a cache, without a connection, or while
    /// too many are on their way.
    pub fn prefetch(&self, oids: &[Oid], before: Tid) {
        if self.cluster.options.cache_bytes > 0 {
            let oids: Vec<_> = oids.iter().copied().filter(|oid| is_possible(*oid)).collect();
            self.reads().prefetch(&oids, before.min(Tid::MAX), &self.prefetches);
        }
    }
}
