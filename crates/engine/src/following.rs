//! Commits of others, to a storage that this server only reads.

use std::sync::{Arc, Weak};

use zodium_storage::{Committed, Follower, StorageError};

use crate::Database;
use crate::commit::TransactionNumber;
use crate::notice::Commit;

/// Announces what a storage tells, as the log writer announces its own batches.
struct Announcer(Weak<Database>);

impl Follower for Announcer {
    fn committed(&self, commits: Vec<Committed>) {
        let Some(database) = self.0.upgrade() else { return };
        let number = TransactionNumber(0); // No session waits for these.
        let commit = |Committed { tid, oids }| Arc::new(Commit { tid, oids, number });
        database.announce(&commits.into_iter().map(commit).collect());
    }
}

impl Database {
    /// Has the storage tell of what others commit, if they may.
    pub(crate) fn follow(self: &Arc<Self>) -> Result<(), StorageError> {
        let Some(following) = self.store.following() else { return Ok(()) };
        following.follow(self.last_tid(), Arc::new(Announcer(Arc::downgrade(self))))
    }
}
