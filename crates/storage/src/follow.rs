//! Storages that others write to.

use std::sync::Arc;

use zodium_types::Tid;

use crate::{Committed, Read, StorageError};

/// Is told of the commits of others.
pub trait Follower: Send + Sync {
    /// These transactions were committed, and every read sees them. In the order of their tids,
    /// each once.
    fn committed(&self, commits: Vec<Committed>);
}

/// A storage that others write to meanwhile. A [shared](crate::Shared) one does not tell of what
/// was committed through itself.
pub trait Follow: Read {
    /// Tells `follower` of each transaction after `since`, first of those that are there already.
    /// It is kept until the storage is dropped.
    ///
    /// # Errors
    /// When the transactions after `since` cannot be read.
    fn follow(&self, since: Tid, follower: Arc<dyn Follower>) -> Result<(), StorageError>;

    /// Waits until the follower was told of all that is committed by now. Blocking.
    ///
    /// # Errors
    /// When the storage cannot be reached.
    fn catch_up(&self) -> Result<(), StorageError> {
        Ok(())
    }
}
