//! The writing traits of the seam. The cluster decides about commits.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use tracing::error;
use zodium_disk::RealDisk;
use zodium_storage::{
    Access, Committed, Finished, Follow, NewTransaction, Pack, Prepared, Shared, SharedTransaction,
    Spool, Storage, StorageError, Undo, Write, WriteState,
};
use zodium_types::{Distribution, Tid, TransactionMetadata};

use super::NeoStorage;
use super::copying::Copied;
use crate::NeoError;
use crate::transaction::{Finish, NeoTransaction};

/// The name of spools, in the folder for temporary files.
const SPOOL: &str = "zodium-neo-spool";

impl Write for NeoStorage {
    fn new_oids(&self, count: u64) -> Option<RangeInclusive<u64>> {
        match self.oids.take(&self.cluster, count) {
            Ok(oids) => Some(oids),
            Err(error) => {
                error!(%error, "no new oids from the NEO cluster");
                None
            }
        }
    }

    fn write_state(&self) -> WriteState {
        match self.cluster.options.read_only {
            true => WriteState::ReadOnly,
            false if self.cluster.is_connected() => WriteState::Writable,
            false => WriteState::Failed,
        }
    }

    fn sync_durations(&self) -> Distribution {
        self.finishes.distribution()
    }

    fn new_spool(&self) -> Result<Spool, StorageError> {
        Spool::new(&RealDisk, &std::env::temp_dir().join(SPOOL), Arc::clone(&self.space))
    }

    /// For copies: other transactions are [shared](Shared).
    fn prepare(
        &self,
        transaction: NewTransaction,
        _: Access,
    ) -> Result<Poll<Prepared>, StorageError> {
        match self.cluster.options.read_only {
            true => Err(NeoError::ReadOnly.into()),
            false => Ok(Poll::Ready(Prepared::new(Copied(transaction)))),
        }
    }

    /// What comes before an error is committed.
    fn commit(&self, batch: Vec<(Tid, Prepared)>) -> Result<Vec<Committed>, StorageError> {
        batch.into_iter().map(|(tid, prepared)| self.copy(tid, prepared.into_inner()?)).collect()
    }

    fn abort(&self, prepared: Prepared) {
        if let Ok(finish) = prepared.into_inner::<Finish>() {
            finish.abort(&self.cluster);
        }
    }

    fn reopen(&self) -> Result<(), StorageError> {
        self.cluster.session(self.cluster.deadline())?;
        Ok(())
    }

    fn close(&self) -> Result<(), StorageError> {
        self.cluster.end(NeoError::Closed);
        Ok(())
    }
}

impl Shared for NeoStorage {
    fn begin(
        &self,
        metadata: &TransactionMetadata,
    ) -> Result<Box<dyn SharedTransaction>, StorageError> {
        Ok(Box::new(NeoTransaction::begin(&self.cluster, metadata.clone(), (None, None))?))
    }

    fn begin_copy(
        &self,
        metadata: &TransactionMetadata,
        tid: Tid,
    ) -> Result<Box<dyn SharedTransaction>, StorageError> {
        let metadata = metadata.clone();
        Ok(Box::new(NeoTransaction::begin(&self.cluster, metadata, (None, Some(tid)))?))
    }

    fn finish(&self, prepared: Prepared, done: Finished) {
        let finish = match prepared.into_inner::<Finish>() {
            Ok(finish) => finish,
            Err(error) => return done(Err(error)),
        };
        let (finishes, asked) = (Arc::clone(&self.finishes), Instant::now());
        let timed = Box::new(move |outcome| {
            finishes.record(asked.elapsed());
            done(outcome);
        });
        finish.send(&self.cluster, timed);
    }
}

impl Storage for NeoStorage {
    fn undo(&self) -> Option<&dyn Undo> {
        Some(self)
    }

    fn packing(&self) -> Option<&dyn Pack> {
        (!self.cluster.options.read_only).then_some(self)
    }

    fn following(&self) -> Option<&dyn Follow> {
        Some(self)
    }

    fn shared(&self) -> Option<&dyn Shared> {
        (!self.cluster.options.read_only).then_some(self)
    }
}
