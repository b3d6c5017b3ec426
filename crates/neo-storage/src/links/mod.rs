//! Connections to other nodes, and all tasks for the driver, in order.
//!
//! Key decision: a part may close a connection at any time. When it has returned, the node asks for
//! the connections that were closed, and tells the other parts.

mod job;
mod jobs;
mod output;
mod peer;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tracing::{error, info};
use zodium_neo::{Address, Message, NodeId};

pub use self::job::{Completion, ReadJob, Store, WriteJob};
pub use self::output::{Exit, Output};
pub(crate) use self::peer::{Asked, Role};
use self::peer::{Peer, Peers};
use crate::ConnectionId;
use crate::counts::Counts;
use crate::handling::Refusal;
use crate::members::Members;

/// The peers of a node, and the tasks for its driver.
#[derive(Debug, Default)]
pub(crate) struct Links {
    peers: Peers,
    outputs: Vec<Output>,
    /// Connections that were closed, with their roles, until the node takes note.
    closed: VecDeque<(ConnectionId, Role)>,
    /// Counts the times that operation ended: outcomes of earlier jobs are dropped.
    epoch: u64,
    counts: Counts,
}

impl Links {
    /// A peer has connected.
    pub(crate) fn accepted(&mut self, name: String) -> ConnectionId {
        self.peers.add(Peer::new(name, Role::Stranger))
    }

    /// The connection has ended; the role that its peer had.
    pub(crate) fn ended(&mut self, connection: ConnectionId) -> Option<Role> {
        self.peers.remove(connection).map(|peer| peer.role)
    }

    /// The role of a peer.
    pub(crate) fn role(&self, connection: ConnectionId) -> Option<&Role> {
        self.peers.get(connection).map(|peer| &peer.role)
    }

    /// The role of a peer, to change it.
    pub(crate) fn role_mut(&mut self, connection: ConnectionId) -> Option<&mut Role> {
        self.peers.get_mut(connection).map(|peer| &mut peer.role)
    }

    /// The connections with a role that `is_one` accepts, oldest first.
    pub(crate) fn with(&self, is_one: impl Fn(&Role) -> bool) -> Vec<ConnectionId> {
        self.peers.with(is_one)
    }

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

    /// The address that a peer was accepted or dialled under.
    pub(crate) fn name_of(&self, connection: ConnectionId) -> String {
        self.peers.name_of(connection)
    }

    /// The counters of the node.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The counters of the node, to add to them.
    pub(crate) fn count(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Refuses a message.
    pub(crate) fn refuse(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: &str,
        refusal: &Refusal,
    ) {
        self.answer(connection, id, refusal.message());
        if refusal.is_end {
            refusal.log(&self.name_of(connection), message);
            self.close(connection);
        }
    }

    /// Answers a request.
    pub(crate) fn answer<'a>(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: impl Into<Message<'a>>,
    ) {
        self.send_with(connection, id, message.into());
    }

    /// Sends a notification.
    pub(crate) fn notify<'a>(&mut self, connection: ConnectionId, message: impl Into<Message<'a>>) {
        let Some(id) = self.peers.take_id(connection) else { return };
        self.send_with(connection, id, message.into());
    }

    /// Sends a request; its id.
    pub(crate) fn ask<'a>(
        &mut self,
        connection: ConnectionId,
        message: impl Into<Message<'a>>,
        asked: Asked,
    ) -> Option<u32> {
        let id = self.peers.expect(connection, asked)?;
        self.send_with(connection, id, message.into());
        Some(id)
    }

    /// Takes the request that an answer belongs to.
    pub(crate) fn answered(&mut self, connection: ConnectionId, id: u32) -> Option<Asked> {
        self.peers.answered(connection, id)
    }

    fn send_with(&mut self, connection: ConnectionId, id: u32, message: Message<'_>) {
        if self.role(connection).is_none_or(|role| *role == Role::Leaving) {
            return;
        }
        match self.peers.encode(id, message) {
            Ok(packet) => self.send_packet(connection, packet),
            Err(error) => {
                let peer = self.name_of(connection);
                error!(peer, %error, "cannot send, closing the connection");
                self.close(connection);
            }
        }
    }

    /// Sends a packet that is encoded already.
    pub(crate) fn send_packet(&mut self, connection: ConnectionId, packet: Bytes) {
        self.outputs.push(Output::Send { connection, packet });
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

    /// Dials a node.
    pub(crate) fn dial(&mut self, role: Role, address: Address, after: Duration) -> ConnectionId {
        let connection = self.peers.add(Peer::new(address.to_string(), role));
        self.outputs.push(Output::Dial { connection, address, after });
        connection
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

    /// Closes a connection after what was sent. The driver reports its end later.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        let Some(role) = self.role_mut(connection) else { return };
        if *role == Role::Leaving {
            return;
        }
        let role = std::mem::replace(role, Role::Leaving);
        self.outputs.push(Output::Close { connection });
        self.closed.push_back((connection, role));
    }

    /// Takes a connection that was closed, with the role that its peer had; oldest first.
    pub(crate) fn take_closed(&mut self) -> Option<(ConnectionId, Role)> {
        self.closed.pop_front()
    }

    /// Ends the process.
    pub(crate) fn exit(&mut self, exit: Exit) {
        info!(?exit, "the master ends this node");
        self.outputs.push(Output::Exit(exit));
    }

    /// Operation has ended: outcomes of jobs are dropped.
    pub(crate) fn end_epoch(&mut self) {
        self.epoch += 1;
    }

    /// Takes the tasks for the driver.
    pub(crate) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }
}
