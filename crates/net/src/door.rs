//! The door of a worker: the way in for connections and orders.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::link::Departed;
use crate::{Incoming, Limits};

/// Where other threads send connections and orders to a worker; all clones are the same.
#[derive(Clone)]
pub(crate) struct Door {
    orders: mpsc::UnboundedSender<Order>,
    connections: Arc<AtomicUsize>,
}

/// The worker's side of its door.
pub(crate) struct Orders {
    received: mpsc::UnboundedReceiver<Order>,
    connections: Arc<AtomicUsize>,
}

/// An order to a worker.
pub(crate) enum Order {
    Serve(Connection),
    /// Hand connections over to other workers, to each in turn.
    HandOver(Share, Vec<Door>),
    Answer(oneshot::Sender<()>),
    Stop {
        patience: Duration,
    },
}

/// Which connections a worker hands over. Those over TLS stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Half of those that have sent anything.
    Half,
    /// All of them.
    All,
}

/// A connection on its way to a worker.
pub(crate) struct Connection {
    pub(crate) incoming: Incoming,
    pub(crate) peer: String,
    pub(crate) limits: Limits,
    /// Its session, if another worker has served it before.
    pub(crate) departed: Option<Box<Departed>>,
}

/// A connection of a worker, as far as it is counted: until this is dropped.
pub(crate) struct Counted(Arc<AtomicUsize>);

/// The two sides of a new door.
pub(crate) fn door() -> (Door, Orders) {
    let (orders, received) = mpsc::unbounded_channel();
    let connections = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&connections);
    (Door { orders, connections }, Orders { received, connections: counted })
}

impl Door {
    /// Number of the worker's connections, with those on their way to it.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Gives the worker a connection. If the worker has stopped, the connection is closed.
    pub(crate) fn send(&self, connection: Connection) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.order(Order::Serve(connection));
    }

    /// Gives an order. A worker that has stopped drops it.
    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }
}

impl Orders {
    /// The next order; `None` when there is no door left.
    pub(crate) async fn next(&mut self) -> Option<Order> {
        self.received.recv().await
    }

    /// The count of a connection that was received.
    pub(crate) fn counted(&self) -> Counted {
        Counted(Arc::clone(&self.connections))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
