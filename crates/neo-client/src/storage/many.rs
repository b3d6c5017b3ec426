//! Loads of many objects with few round trips.

use zodium_storage::{Load, StorageError};
use zodium_types::{Oid, Tid};

use super::NeoStorage;
use super::read::is_possible;

impl NeoStorage {
    /// Loads many objects at once, as [`load_before`] does. What is not in memory is requested with
    /// one write to each storage. The answers are in the order of `oids`. Blocking.
    ///
    /// # Errors
    /// When there is no primary master.
    ///
    /// [`load_before`]: zodium_storage::Read::load_before
    pub fn load_many(
        &self,
        oids: &[Oid],
        before: Tid,
    ) -> Result<Vec<Result<Load, StorageError>>, StorageError> {
        let known = |oid: &Oid| match is_possible(*oid) {
            true => self.resident(*oid, before),
            false => Some(Load::Missing),
        };
        let mut answers: Vec<Option<Result<Load, StorageError>>> =
            oids.iter().map(|oid| known(oid).map(Ok)).collect();
        let unknown = oids.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
        let unknown: Vec<_> = unknown.map(|(oid, _)| *oid).collect();
        if !unknown.is_empty() {
            // First, so that a commit during the reads makes the answers stale.
            let number = self.cluster.current.now();
            let loaded = self.reads().load_many(&unknown, before.min(Tid::MAX))?;
            let missing = answers.iter_mut().filter(|answer| answer.is_none());
            for (answer, (oid, loaded)) in missing.zip(unknown.iter().zip(loaded)) {
                let loaded = loaded.map(|loaded| self.answered(*oid, number, loaded));
                *answer = Some(loaded.map_err(StorageError::from));
            }
        }
        Ok(answers.into_iter().flatten().collect())
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
