//! The end of a client: what others know of it is forgotten.

use crate::client::Client;
use crate::server::Server;

impl Server {
    /// Forgets a client that has gone, or that resets itself.
    pub(crate) fn forget(&self, client: &Client) {
        if let Some(waiter) = client.waiter.borrow_mut().take() {
            self.waiting.leave(&waiter);
        }
        client.queue.borrow_mut().take();
        self.beside.parked.forget(&self.log, client.id());
        self.unwatch(client);
        self.publishing.unsubscribe_all(client);
        self.tracking.untrack(client);
        if client.is_monitor.replace(false) {
            self.clients.leave_monitor();
        }
    }
}
