//! The clients of a server by their ids, and the inboxes of the workers that serve them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use zodium_net::{Inbox, InboxSender, inbox};

use crate::Letter;
use crate::client::ClientShared;

/// The clients of all workers.
pub(crate) struct Clients {
    by_id: Mutex<FxHashMap<u64, Arc<ClientShared>>>,
    next_id: AtomicU64,
    /// Clients that see all commands. Read before each command, and hardly ever written.
    monitors: AtomicUsize,
    /// One for each worker.
    inboxes: Vec<InboxSender<Letter>>,
    /// Each is taken by the service of its worker.
    unopened: Mutex<Vec<Option<Inbox<Letter>>>>,
}

impl Clients {
    /// The clients of so many workers: none yet.
    pub(crate) fn new(workers: usize) -> Clients {
        let (inboxes, unopened): (Vec<_>, Vec<_>) = (0..workers).map(|_| inbox()).unzip();
        Clients {
            by_id: Mutex::default(),
            next_id: AtomicU64::new(1),
            monitors: AtomicUsize::new(0),
            inboxes,
            unopened: Mutex::new(unopened.into_iter().map(Some).collect()),
        }
    }

    /// An id that no other client has had.
    pub(crate) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Enters a client that has come to a worker.
    pub(crate) fn enter(&self, client: &Arc<ClientShared>) {
        self.by_id.lock().insert(client.id, Arc::clone(client));
    }

    /// Removes a client that has gone.
    pub(crate) fn leave(&self, id: u64) {
        self.by_id.lock().remove(&id);
    }

    /// Number of clients.
    pub(crate) fn count(&self) -> usize {
        self.by_id.lock().len()
    }

    /// All clients, in no order.
    pub(crate) fn all(&self) -> Vec<Arc<ClientShared>> {
        self.by_id.lock().values().cloned().collect()
    }

    /// The client with an id.
    pub(crate) fn find(&self, id: u64) -> Option<Arc<ClientShared>> {
        self.by_id.lock().get(&id).cloned()
    }

    /// The worker of the client with an id.
    pub(crate) fn worker_of(&self, id: u64) -> Option<usize> {
        self.by_id.lock().get(&id).map(|client| client.worker.load(Ordering::Relaxed))
    }

    /// Whether any client sees all commands.
    pub(crate) fn is_any_monitor(&self) -> bool {
        self.monitors.load(Ordering::Relaxed) > 0
    }

    /// Notes a client that sees all commands from now on.
    pub(crate) fn enter_monitor(&self) {
        self.monitors.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that such a client has gone, or sees them no longer.
    pub(crate) fn leave_monitor(&self) {
        self.monitors.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a worker's inbox; `None` if its service has it already.
    pub(crate) fn take_inbox(&self, worker: usize) -> Option<Inbox<Letter>> {
        self.unopened.lock().get_mut(worker)?.take()
    }

    /// Sends a letter to a worker.
    pub(crate) fn send(&self, worker: usize, letter: Letter) {
        if let Some(inbox) = self.inboxes.get(worker) {
            inbox.send(letter);
        }
    }

    /// Sends a letter to each worker.
    pub(crate) fn send_to_all(&self, letter: impl Fn() -> Letter) {
        self.inboxes.iter().for_each(|inbox| inbox.send(letter()));
    }
}
