//! Readers that follow what the writer commits.

use std::sync::Arc;

use zodium_storage::{Committed, Follow, Follower, StorageError};
use zodium_types::Tid;

use crate::MemoryStorage;
use crate::storage::oids_of;

impl Follow for MemoryStorage {
    fn follow(&self, since: Tid, follower: Arc<dyn Follower>) -> Result<(), StorageError> {
        // No batch is committed between what it is told now and what it will be told.
        let mut followers = self.followers.lock();
        let state = self.state.read();
        let missed = state.transactions.range(since.next()..);
        let missed: Vec<_> =
            missed.map(|(tid, one)| Committed { tid: *tid, oids: oids_of(one) }).collect();
        drop(state);
        if !missed.is_empty() {
            follower.committed(missed);
        }
        followers.push(follower);
        Ok(())
    }
}
