//! Connections to other nodes, and jobs for the database: all tasks for the driver, in order.

mod job;
mod jobs;
mod output;
mod peer;

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use tracing::info;
use zodium_neo::{Address, Message, NodeId};

pub use self::job::{Completion, ReadJob, Store, WriteJob};
pub use self::output::{Exit, Output};
pub(crate) use self::peer::{Asked, Role};
use crate::ConnectionId;
use crate::counts::Counts;
use crate::members::Members;

/// The connections of a node, and the jobs for its database.
#[derive(Debug, Default)]
pub(crate) struct Links {
    connections: zodium_neo::Links<Role, Asked, Output>,
    /// Counts the times that operation ended: outcomes of earlier jobs are dropped.
    epoch: u64,
    counts: Counts,
}

impl Deref for Links {
    type Target = zodium_neo::Links<Role, Asked, Output>;

    fn deref(&self) -> &Self::Target {
        &self.connections
    }
}

impl DerefMut for Links {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.connections
    }
}

impl Links {
    /// The connection to the primary master.
    pub(crate) fn primary(&self) -> Option<ConnectionId> {
        self.with(|role| matches!(role, Role::Master { is_primary: true, .. })).first().copied()
    }

    /// The newest connection of a client.
    pub(crate) fn client(&self, id: NodeId) -> Option<ConnectionId> {
        self.with(|role| *role == Role::Client { node: id }).last().copied()
    }

    /// Whether another storage has accepted a connection, or has made it.
    pub(crate) fn is_ready(&self, connection: ConnectionId) -> bool {
        let role = self.role(connection);
        matches!(role, Some(Role::Source { is_ready: true, .. } | Role::Storage { .. }))
    }

    /// The counters of the node.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The counters of the node, to add to them.
    pub(crate) fn count(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Sends a notification to the primary master.
    pub(crate) fn notify_master<'a>(&mut self, message: impl Into<Message<'a>>) {
        if let Some(master) = self.primary() {
            self.notify(master, message);
        }
    }

    /// Asks the primary master.
    pub(crate) fn ask_master<'a>(&mut self, message: impl Into<Message<'a>>, asked: Asked) {
        if let Some(master) = self.primary() {
            self.ask(master, message, asked);
        }
    }

    /// A connection to a storage, and whether it can be used now. A new one is dialled after a
    /// pause.
    pub(crate) fn connection_to(
        &mut self,
        address: &Address,
        members: &Members,
        pause: Duration,
    ) -> (ConnectionId, bool) {
        let is_there =
            |role: &Role| matches!(role, Role::Source { address: at, .. } if at == address);
        if let Some(connection) = self.with(is_there).first() {
            let role = self.role(*connection);
            let is_ready = matches!(role, Some(Role::Source { is_ready: true, .. }));
            return (*connection, is_ready);
        }
        // One that the storage has made serves as well: it would refuse a second one.
        let is_its = |role: &Role| match role {
            Role::Storage { node: Some(node) } => members.running_address(*node) == Some(address),
            _ => false,
        };
        if let Some(connection) = self.with(is_its).first() {
            return (*connection, true);
        }
        let role = Role::Source { address: address.clone(), is_ready: false };
        (self.dial(role, address.clone(), pause), false)
    }

    /// Ends the process.
    pub(crate) fn exit(&mut self, exit: Exit) {
        info!(?exit, "the master ends this node");
        self.push(Output::Exit(exit));
    }

    /// Operation has ended: outcomes of jobs are dropped.
    pub(crate) fn end_epoch(&mut self) {
        self.epoch += 1;
    }
}
