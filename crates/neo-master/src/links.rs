//! The connections of a master: the peers, and what is sent to them.

use std::collections::VecDeque;
use std::time::Duration;

use tracing::error;
use zodium_neo::{Address, ConnectionId, Message};

use crate::Output;
use crate::handling::Refusal;
use crate::peer::{Asked, Peer, Peers, Role};

/// The message of a peer that is a request, or has the id of the request that it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) connection: ConnectionId,
    pub(crate) id: u32,
}

/// All connections.
///
/// A connection that is closed here is a lost one: the coordinator takes it with
/// [`Links::take_lost`], and handles its end as that of any other.
#[derive(Debug, Default)]
pub(crate) struct Links {
    peers: Peers,
    outputs: Vec<Output>,
    /// Closed connections whose ends are not handled yet, with the roles that they had.
    lost: VecDeque<(ConnectionId, Role)>,
}

impl Links {
    /// A peer has connected. `name` is its address, for log lines.
    pub(crate) fn accept(&mut self, name: String) -> ConnectionId {
        self.peers.add(Peer::new(name, Role::Stranger))
    }

    /// Dials an address.
    pub(crate) fn dial(&mut self, role: Role, address: Address, after: Duration) -> ConnectionId {
        let connection = self.peers.add(Peer::new(address.to_string(), role));
        self.outputs.push(Output::Dial { connection, address, after });
        connection
    }

    /// A connection has ended, or could not be made. Gives the role that its peer had.
    pub(crate) fn ended(&mut self, connection: ConnectionId) -> Option<Role> {
        self.peers.remove(connection).map(|peer| peer.role)
    }

    /// The role of a peer.
    pub(crate) fn role(&self, connection: ConnectionId) -> Option<&Role> {
        self.peers.get(connection).map(|peer| &peer.role)
    }

    /// Gives a peer another role.
    pub(crate) fn set_role(&mut self, connection: ConnectionId, role: Role) {
        if let Some(peer) = self.peers.get_mut(connection) {
            peer.role = role;
        }
    }

    /// The connections with a role that `is_one` accepts, oldest first.
    pub(crate) fn with(&self, is_one: impl Fn(&Role) -> bool) -> Vec<ConnectionId> {
        self.peers.with(is_one)
    }

    /// The address that a peer was accepted or dialled under.
    pub(crate) fn name_of(&self, connection: ConnectionId) -> String {
        self.peers.name_of(connection)
    }

    /// Refuses a message, and closes the connection if the refusal says so.
    pub(crate) fn refuse(&mut self, from: Request, message: &str, refusal: &Refusal) {
        self.answer(from, refusal.message());
        if refusal.is_end {
            refusal.log(&self.name_of(from.connection), message);
            self.close(from.connection);
        }
    }

    /// Answers a request.
    pub(crate) fn answer<'a>(&mut self, request: Request, message: impl Into<Message<'a>>) {
        self.send(request.connection, request.id, message.into());
    }

    fn send(&mut self, connection: ConnectionId, id: u32, message: Message<'_>) {
        if self.role(connection).is_none_or(|role| *role == Role::Leaving) {
            return;
        }
        match self.peers.encode(id, message) {
            Ok(packet) => self.outputs.push(Output::Send { connection, packet }),
            Err(error) => {
                let peer = self.name_of(connection);
                error!(peer, %error, "cannot send, closing the connection");
                self.close(connection);
            }
        }
    }

    /// Sends a notification.
    pub(crate) fn notify<'a>(&mut self, connection: ConnectionId, message: impl Into<Message<'a>>) {
        let Some(id) = self.peers.take_id(connection) else { return };
        self.send(connection, id, message.into());
    }

    /// Sends a request whose answer names what it is about.
    pub(crate) fn request<'a>(
        &mut self,
        connection: ConnectionId,
        message: impl Into<Message<'a>>,
    ) {
        self.notify(connection, message);
    }

    /// Sends a request.
    pub(crate) fn ask<'a>(
        &mut self,
        connection: ConnectionId,
        message: impl Into<Message<'a>>,
        asked: Asked,
    ) {
        let Some(id) = self.peers.expect(connection, asked) else { return };
        self.send(connection, id, message.into());
    }

    /// Takes the request that an answer belongs to.
    pub(crate) fn answered(&mut self, answer: Request) -> Option<Asked> {
        self.peers.answered(answer.connection, answer.id)
    }

    /// Whether a peer has requests to answer.
    pub(crate) fn is_asked(&self, connection: ConnectionId) -> bool {
        self.peers.is_asked(connection)
    }

    /// Closes a connection after what was sent. The driver reports its end later.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        if let Some(role) = self.leave(connection) {
            self.lost.push_back((connection, role));
        }
    }

    /// Closes a connection without what its end means otherwise.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        self.leave(connection);
    }

    /// Closes all connections but one, without what their ends mean otherwise.
    pub(crate) fn forget_all_but(&mut self, kept: Option<ConnectionId>) {
        for connection in self.peers.with(|role| *role != Role::Leaving) {
            if Some(connection) != kept {
                self.forget(connection);
            }
        }
    }

    /// Has the driver close a connection. Gives the role of its peer, unless it is closed already.
    fn leave(&mut self, connection: ConnectionId) -> Option<Role> {
        let peer = self.peers.get_mut(connection)?;
        if peer.role == Role::Leaving {
            return None;
        }
        peer.asked.clear();
        self.outputs.push(Output::Close { connection });
        Some(std::mem::replace(&mut peer.role, Role::Leaving))
    }

    /// Takes a connection that was closed here, and whose end is not handled yet.
    pub(crate) fn take_lost(&mut self) -> Option<(ConnectionId, Role)> {
        self.lost.pop_front()
    }

    /// Whether there is one.
    pub(crate) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Ends the process of this master.
    pub(crate) fn exit(&mut self) {
        self.outputs.push(Output::Exit);
    }

    /// Whether the process was told to end, and has not taken that yet.
    pub(crate) fn is_exiting(&self) -> bool {
        self.outputs.contains(&Output::Exit)
    }

    /// Takes what is to be done now, in order.
    pub(crate) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }
}
