//! The end of a client: what others know of it is forgotten.

use crate::client::Client;
use crate::server::Server;
use crate::transaction::forget_watch;

/// Forgets a client that has gone, or that resets itself.
pub(crate) fn forget(server: &Server, client: &Client) {
    if let Some(wait) = client.wait.borrow_mut().take() {
        server.waiting.leave(&wait.waiter);
    }
    client.queue.borrow_mut().take();
    server.beside.parked.forget(&server.log, client.id());
    forget_watch(server, client);
    server.publishing.unsubscribe_all(client);
    server.tracking.untrack(client);
    if client.is_monitor.replace(false) {
        server.clients.leave_monitor();
    }
}
