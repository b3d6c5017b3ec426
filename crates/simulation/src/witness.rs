//! A mailbox that checks the storage at the moment in which commits are posted to it, while nothing
//! else on this thread runs.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use zodium_engine::{Commit, Database, Mailbox, Notice};

/// Checks what must hold while commits are announced. It reads nothing from the disk: work that
/// runs during a disk call may need locks that the announcement holds.
pub(crate) struct Witness {
    storage: Weak<Database>,
    violation: Mutex<Option<String>>,
}

impl Witness {
    /// Checks all announcements from now on.
    pub(crate) fn subscribe(storage: &Arc<Database>) -> Arc<Witness> {
        let storage_of = Arc::downgrade(storage);
        let witness = Arc::new(Witness { storage: storage_of, violation: Mutex::default() });
        let mailbox: Arc<dyn Mailbox> = Arc::clone(&witness) as _;
        storage.subscribers().add(mailbox);
        witness
    }

    /// Fails with the first violation.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.violation.lock().clone().map_or(Ok(()), Err)
    }
}

impl Mailbox for Witness {
    fn post(&self, notice: Notice) {
        let (Notice::Committed(commits), Some(storage)) = (notice, self.storage.upgrade()) else {
            return;
        };
        if let Err(what) = look(&storage, &commits) {
            self.violation.lock().get_or_insert(what);
        }
    }
}

fn look(storage: &Database, commits: &[Arc<Commit>]) -> Result<(), String> {
    let Some(last) = commits.last().map(|commit| commit.tid) else { return Ok(()) };
    let announced = storage.subscribers().announced_tid();
    if announced != last {
        return Err(format!("{last} is posted while {announced} is known as announced"));
    }
    let locked = storage.commit_status().writing;
    if locked < commits.len() {
        let count = commits.len();
        return Err(format!("{count} commits are posted, of which {locked} hold their locks"));
    }
    Ok(())
}
