//! Answers that wait for the log: those of commands whose changes, or whose findings, are not
//! synced under `always`, and those of changes that are far ahead of what is written.
//!
//! Key decision: the output of the whole connection waits, and its next requests too, as answers
//! come in the order of requests. Other connections of the worker go on.

use std::rc::Rc;

use zodium_net::CloseReason;

use crate::client::Client;
use crate::local::LocalServer;

impl LocalServer {
    /// Notes the position that the answers of a client wait for, 0 for none.
    pub(crate) fn note_position(&self, client: &Client, position: u64) {
        if position > client.log_position.get() {
            client.log_position.set(position);
        }
    }

    /// Holds the output of a client back if an answer in it waits for the log.
    pub(crate) fn hold_back(&self, client: &Rc<Client>) {
        let wanted = client.log_position.get();
        if wanted == 0 || client.is_held.get() {
            return;
        }
        let Some(keeper) = self.server.log.keeper() else { return };
        if keeper.has_reached(wanted) {
            client.log_position.set(0);
            return;
        }
        client.is_held.set(true);
        client.link.hold(true);
        self.held.borrow_mut().push(client.id());
        keeper.note_waiting(self.number);
        if keeper.has_reached(wanted) || keeper.log.failure().is_some() {
            self.release();
        }
    }

    /// Lets go the output of clients that need not wait any more.
    pub(crate) fn release(&self) {
        let Some(keeper) = self.server.log.keeper() else { return };
        loop {
            let held = std::mem::take(&mut *self.held.borrow_mut());
            let mut waits = Vec::new();
            for client in held.into_iter().filter_map(|id| self.client(id)) {
                if keeper.has_reached(client.log_position.get()) {
                    let_go(&client);
                } else if keeper.log.failure().is_some() {
                    give_up(&client);
                } else {
                    waits.push(client);
                }
            }
            let Some(least) = waits.iter().map(|client| client.log_position.get()).min() else {
                return;
            };
            self.held.borrow_mut().extend(waits.iter().map(|client| client.id()));
            keeper.note_waiting(self.number);
            if !keeper.has_reached(least) && keeper.log.failure().is_none() {
                return;
            }
        }
    }
}

fn let_go(client: &Client) {
    client.log_position.set(0);
    client.is_held.set(false);
    client.link.hold(false);
    client.link.wake();
}

/// Ends a connection whose answers cannot be given: its changes may be lost, or may come to be.
fn give_up(client: &Client) {
    let peer = client.link.peer();
    tracing::warn!(
        peer,
        "disconnecting a client: the log cannot be written, so what it was about to be told may \
         not last"
    );
    client.link.output().clear();
    client.link.hold(false);
    client.link.close(CloseReason::Done);
}
