//! A session on its way to another worker.
//!
//! Invariant: its client is told of each commit once, in order. The worker that it leaves has told
//! it of all commits up to one. From then on they are posted to a mailbox of the session's own,
//! until the other worker tells it of the next ones.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use zodium_engine::{Commit, Database, Mailbox, Notice};
use zodium_net::Inbox;
use zodium_types::Tid;
use zodium_zeo::codec::Encoding;

use crate::invalidations::InvalidationMemory;
use crate::subscriber::{Recipient, StorageSubscriber, mailbox};

/// What another worker needs to continue a session that is not at work.
pub(crate) struct MovingSession {
    pub(crate) encoding: Encoding,
    /// The name of the storage.
    pub(crate) storage: String,
    pub(crate) read_only: bool,
    pub(crate) label: String,
    pub(crate) connected: Instant,
    pub(crate) notices: MovingNotices,
}

/// The notices that come while a session moves.
pub(crate) struct MovingNotices {
    storage: Arc<Database>,
    mailbox: Arc<dyn Mailbox>,
    inbox: Inbox<Notice>,
    /// The last commit that the client was told of.
    told: Tid,
}

impl MovingNotices {
    /// Begins to collect notices. The subscriber tells its sessions, and so the one that is about
    /// to leave, of all commits that are not collected.
    pub(crate) fn begin(subscriber: &StorageSubscriber) -> MovingNotices {
        let storage = Arc::clone(&subscriber.storage);
        let (mailbox, inbox) = mailbox();
        storage.subscribers().add(Arc::clone(&mailbox));
        // What was posted before is in the subscriber's inbox by now.
        subscriber.drain_inbox();
        MovingNotices { storage, mailbox, inbox, told: subscriber.last_seen() }
    }

    /// Tells the session of the commits that its new subscriber has handled already. The subscriber
    /// [attends](StorageSubscriber::attend) to it, and is about to add it.
    pub(crate) fn end(self, subscriber: &Rc<StorageSubscriber>, session: &dyn Recipient) {
        // From here on nothing is posted, and all that the subscriber has handled is in the inbox:
        // the commits of a batch are posted to all mailboxes under the lock that this takes.
        self.storage.subscribers().remove(&self.mailbox);
        // Tids ascend: the missed commits of a batch are neighbours.
        let is_told = |commit: &Arc<Commit>| commit.tid <= self.told;
        let is_handled = |commit: &Arc<Commit>| commit.tid <= subscriber.last_seen();
        let mut memory = InvalidationMemory::default();
        while let Some(notice) = self.inbox.take() {
            match notice {
                Notice::Committed(commits) => {
                    let missed =
                        commits.partition_point(is_told)..commits.partition_point(is_handled);
                    session.invalidate(&mut memory.begin(&commits, |_| None), missed);
                }
                Notice::Packed => session.send_info(),
                // These are about transactions, and the session has none.
                Notice::Granted(_) | Notice::Failed(..) | Notice::Expired(_) => {}
            }
        }
    }
}

impl Drop for MovingNotices {
    fn drop(&mut self) {
        // The other worker may have stopped.
        self.storage.subscribers().remove(&self.mailbox);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{storage, subscriber};

    #[test]
    fn a_session_that_does_not_arrive_leaves_no_mailbox() {
        let subscriber = subscriber(&storage());
        subscriber.attend();
        let moving = MovingNotices::begin(&subscriber);
        let mailbox = Arc::downgrade(&moving.mailbox);
        drop(moving);
        assert!(mailbox.upgrade().is_none());
    }
}
