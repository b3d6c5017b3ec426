//! The end of all faults: what the server does by itself is left to it.

use std::rc::Rc;

use super::World;

impl World {
    /// Repairs the disk. A server that has met the fault reopens its file; it is restarted if it
    /// will not try.
    pub(crate) fn mend_disk(self: &Rc<Self>) {
        let Some(server) = self.server() else { return };
        server.disk.mend();
        server.disk.files().set_capacity(u64::MAX / 2);
        if server.storage.commit_status().failed && !self.is_reopening() {
            self.restart_in_order();
        }
    }

    /// Whether the server will try to reopen its file.
    pub(crate) fn is_reopening(&self) -> bool {
        let failure = self.server().and_then(|server| server.storage.write_failure());
        failure.is_some_and(|failure| failure.next_attempt.is_some())
    }

    /// Resets the connections that clients have abandoned. Where transactions expire, the server
    /// must free by itself what they have locked.
    pub(crate) fn end_silence(&self) {
        if self.plan.transaction_timeout.is_none() {
            self.silent.borrow_mut().drain(..).for_each(|pipe| pipe.reset(0));
        }
    }
}
