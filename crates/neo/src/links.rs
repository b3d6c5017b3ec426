//! The connections of a node: the peers at their other ends, and the tasks for its driver.
//!
//! Key decision: a part of a node may close a connection at any time. When it has returned, the
//! node takes the connections that were lost so, and tells its other parts. So no part calls
//! another one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;
use tracing::error;

use crate::handling::Refusal;
use crate::output::LinkTask;
use crate::refusals::Refusals;
use crate::{Address, ConnectionId, ErrorCode, Message, MessageIds, TooLong, encode};

/// Memory for a few packets.
const ENCODER_BYTES: usize = 64 << 10;

/// Where a message comes from. If it is a request, the answer goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The connection.
    pub connection: ConnectionId,
    /// The id of the message, which its answer has too.
    pub id: u32,
}

/// The connections of a node. What a peer is, and what it is asked, each kind of node has its own
/// types for.
///
/// A connection that is closed stays until the driver reports its end. Its peer has no role then:
/// it is sent nothing, and what it sends is ignored.
#[derive(Debug)]
pub struct Links<Role, Asked, Output> {
    peers: FxHashMap<ConnectionId, Peer<Role, Asked>>,
    last: u64,
    /// Packets are encoded here. They share its memory, which is used again when they are sent.
    encoder: BytesMut,
    outputs: Vec<Output>,
    lost: VecDeque<(ConnectionId, Lost<Role, Asked>)>,
    refusals: Refusals,
}

/// The other end of a connection.
#[derive(Debug)]
struct Peer<Role, Asked> {
    /// Its address, for log lines.
    name: String,
    /// What it is; `None` while the connection is being closed.
    role: Option<Role>,
    /// The ids of what is sent to it.
    ids: MessageIds,
    /// Requests that it has not answered, by id.
    asked: FxHashMap<u32, Asked>,
    /// Those of them that it may not answer any more.
    given_up: FxHashMap<u32, Asked>,
}

/// A peer whose connection has ended, or is being closed.
#[derive(Debug)]
pub struct Lost<Role, Asked> {
    /// What it was.
    pub role: Role,
    /// Requests that it has not answered, by id.
    pub asked: FxHashMap<u32, Asked>,
}

impl From<(ConnectionId, u32)> for Request {
    fn from((connection, id): (ConnectionId, u32)) -> Request {
        Request { connection, id }
    }
}

impl<Role, Asked, Output> Default for Links<Role, Asked, Output> {
    fn default() -> Links<Role, Asked, Output> {
        Links {
            peers: FxHashMap::default(),
            last: 0,
            encoder: BytesMut::with_capacity(ENCODER_BYTES),
            outputs: Vec::new(),
            lost: VecDeque::new(),
            refusals: Refusals::default(),
        }
    }
}

impl<Role, Asked, Output: From<LinkTask>> Links<Role, Asked, Output> {
    /// A peer has connected. `name` is its address, for log lines.
    pub fn accepted(&mut self, name: String, role: Role) -> ConnectionId {
        self.last += 1;
        let connection = ConnectionId::new(self.last);
        let (ids, asked) = (MessageIds::default(), FxHashMap::default());
        let given_up = FxHashMap::default();
        self.peers.insert(connection, Peer { name, role: Some(role), ids, asked, given_up });
        connection
    }

    /// Dials an address after a pause.
    pub fn dial(&mut self, role: Role, address: Address, after: Duration) -> ConnectionId {
        let connection = self.accepted(address.to_string(), role);
        self.push(LinkTask::Dial { connection, address, after }.into());
        connection
    }

    /// A connection has ended, or could not be made. Gives its peer, unless it was closed here.
    pub fn ended(&mut self, connection: ConnectionId) -> Option<Lost<Role, Asked>> {
        let Peer { role, mut asked, given_up, .. } = self.peers.remove(&connection)?;
        asked.extend(given_up);
        role.map(|role| Lost { role, asked })
    }

    /// The role of a peer.
    pub fn role(&self, connection: ConnectionId) -> Option<&Role> {
        self.peers.get(&connection)?.role.as_ref()
    }

    /// The role of a peer, to change it.
    pub fn role_mut(&mut self, connection: ConnectionId) -> Option<&mut Role> {
        self.peers.get_mut(&connection)?.role.as_mut()
    }

    /// Gives a peer another role.
    pub fn set_role(&mut self, connection: ConnectionId, role: Role) {
        if let Some(place) = self.role_mut(connection) {
            *place = role;
        }
    }

    /// The connections with a role that `is_one` accepts, oldest first.
    pub fn with(&self, is_one: impl Fn(&Role) -> bool) -> Vec<ConnectionId> {
        let found = self.peers.iter().filter(|(_, peer)| peer.role.as_ref().is_some_and(&is_one));
        let mut found: Vec<_> = found.map(|(connection, _)| *connection).collect();
        found.sort_unstable();
        found
    }

    /// The address that a peer was accepted or dialled under; empty when its connection has ended.
    pub fn name_of(&self, connection: ConnectionId) -> String {
        self.peers.get(&connection).map(|peer| peer.name.clone()).unwrap_or_default()
    }

    /// Answers a request. If the answer is longer than a message, only this request is refused.
    pub fn answer<'a>(&mut self, request: impl Into<Request>, message: impl Into<Message<'a>>) {
        let request = request.into();
        let Err(error) = self.try_send(request, message.into()) else { return };
        let refusal = Refusal::answer(ErrorCode::BackendNotImplemented, error.to_string());
        let peer = self.name_of(request.connection);
        if let Some(unlogged) = self.refusals.admit(&peer, &refusal.text, Instant::now()) {
            let unlogged = (unlogged > 0).then_some(unlogged);
            error!(peer, %error, unlogged, "cannot answer a request");
        }
        self.send(request, refusal.message().into());
    }

    /// Refuses a message, and closes the connection if the refusal says so.
    pub fn refuse(&mut self, from: impl Into<Request>, message: &str, refusal: &Refusal) {
        let from = from.into();
        self.answer(from, refusal.message());
        if refusal.is_end {
            let peer = self.name_of(from.connection);
            if let Some(unlogged) = self.refusals.admit(&peer, &refusal.text, Instant::now()) {
                refusal.log(&peer, message, unlogged);
            }
            self.close(from.connection);
        }
    }

    /// Sends a message that has no answer, or whose answer names what it is about.
    pub fn notify<'a>(&mut self, connection: ConnectionId, message: impl Into<Message<'a>>) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        let id = peer.ids.take();
        self.send(Request { connection, id }, message.into());
    }

    /// Sends a request; its id.
    pub fn ask<'a>(
        &mut self,
        connection: ConnectionId,
        message: impl Into<Message<'a>>,
        asked: Asked,
    ) -> Option<u32> {
        let peer = self.peers.get_mut(&connection)?;
        let id = peer.ids.take();
        peer.asked.insert(id, asked);
        self.send(Request { connection, id }, message.into());
        Some(id)
    }

    /// Takes the request that an answer belongs to.
    pub fn answered(&mut self, answer: impl Into<Request>) -> Option<Asked> {
        let Request { connection, id } = answer.into();
        let peer = self.peers.get_mut(&connection)?;
        peer.asked.remove(&id).or_else(|| peer.given_up.remove(&id))
    }

    /// Counts on no answers any more to what a peer was asked. Those that come still are taken.
    pub fn give_up_answers(&mut self, connection: ConnectionId) {
        if let Some(peer) = self.peers.get_mut(&connection) {
            peer.given_up.extend(peer.asked.drain());
        }
    }

    /// Number of requests that a peer has not answered, and will.
    pub fn unanswered(&self, connection: ConnectionId) -> usize {
        self.peers.get(&connection).map_or(0, |peer| peer.asked.len())
    }

    /// A peer that cannot be sent a message misses it: its connection is closed.
    fn send(&mut self, to: Request, message: Message<'_>) {
        if let Err(error) = self.try_send(to, message) {
            let peer = self.name_of(to.connection);
            error!(peer, %error, "cannot send, closing the connection");
            self.close(to.connection);
        }
    }

    /// Sends a message, unless it is too long.
    fn try_send(&mut self, to: Request, message: Message<'_>) -> Result<(), TooLong> {
        let Request { connection, id } = to;
        if self.role(connection).is_some() {
            encode(id, message, &mut self.encoder)?;
            let packet = self.encoder.split().freeze();
            self.send_packet(connection, packet);
        }
        Ok(())
    }

    /// Sends a packet that is encoded already.
    pub fn send_packet(&mut self, connection: ConnectionId, packet: Bytes) {
        self.push(LinkTask::Send { connection, packet }.into());
    }

    /// Closes a connection after what was sent. The driver reports its end later.
    pub fn close(&mut self, connection: ConnectionId) {
        if let Some(lost) = self.leave(connection) {
            self.lost.push_back((connection, lost));
        }
    }

    /// Closes a connection without what its end means otherwise.
    pub fn forget(&mut self, connection: ConnectionId) {
        self.leave(connection);
    }

    /// Closes all connections but one, without what their ends mean otherwise.
    pub fn forget_all_but(&mut self, kept: Option<ConnectionId>) {
        for connection in self.with(|_| true) {
            if Some(connection) != kept {
                self.forget(connection);
            }
        }
    }

    /// Has the driver close a connection. Gives its peer, unless it is closed already.
    fn leave(&mut self, connection: ConnectionId) -> Option<Lost<Role, Asked>> {
        let peer = self.peers.get_mut(&connection)?;
        let role = peer.role.take()?;
        let mut asked = std::mem::take(&mut peer.asked);
        asked.extend(peer.given_up.drain());
        self.push(LinkTask::Close { connection }.into());
        Some(Lost { role, asked })
    }

    /// Takes a connection that was closed here, and whose end was not taken yet; oldest first.
    pub fn take_lost(&mut self) -> Option<(ConnectionId, Lost<Role, Asked>)> {
        self.lost.pop_front()
    }

    /// Whether there is one.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Adds a task for the driver.
    pub fn push(&mut self, output: Output) {
        self.outputs.push(output);
    }

    /// The tasks that the driver has not taken yet, in order.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// Takes the tasks for the driver, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{Error, Pong};
    use crate::{Output, Packet, Scan, Scanner};

    type TestLinks = Links<&'static str, (), Output>;

    #[test]
    fn peers_are_found_by_role_in_the_order_of_their_connections() {
        let mut links = TestLinks::default();
        let made = ["a", "b", "a"].map(|role| links.accepted(String::new(), role));
        assert_eq!(links.with(|role| *role == "a"), [made[0], made[2]]);
        assert!(links.ended(made[0]).is_some() && links.role(made[0]).is_none());
        let next = links.accepted(String::new(), "a");
        assert!(!made.contains(&next), "the number of an ended connection is not given again");
        assert_eq!(links.with(|_| true), [made[1], made[2], next]);
    }

    #[test]
    fn an_answer_takes_its_request_once() {
        let mut links = TestLinks::default();
        let connection = links.accepted(String::new(), "a");
        assert_eq!(links.unanswered(connection), 0);
        let id = links.ask(connection, Pong {}, ()).unwrap();
        links.notify(connection, Pong {});
        assert_eq!(links.unanswered(connection), 1);
        assert_eq!([(); 2].map(|()| links.answered((connection, id))), [Some(()), None]);
        assert_eq!(links.unanswered(connection), 0);
        assert_eq!(links.take_outputs().len(), 2);
    }

    #[test]
    fn an_answer_that_is_too_long_is_refused_and_the_connection_goes_on() {
        let mut links = TestLinks::default();
        let connection = links.accepted(String::new(), "a");
        let long = "x".repeat(crate::MESSAGE_BYTES_MAX);
        links.answer((connection, 7), Error { code: ErrorCode::Ack, message: &long });
        assert!(!links.has_lost());
        let outputs = links.take_outputs();
        let [Output::Link(LinkTask::Send { packet, .. })] = &outputs[..] else {
            panic!("{outputs:?}");
        };
        let Ok(Scan::Complete(frame)) = Scanner::default().scan(packet) else { panic!() };
        let packet = Packet::decode(frame).unwrap();
        let Message::Error(error) = packet.message else { panic!("{packet:?}") };
        assert_eq!((packet.id, error.code), (7, ErrorCode::BackendNotImplemented));
        assert!(error.message.ends_with("bytes is not sent: peers accept 67108864 at most"));
        links.notify(connection, Error { code: ErrorCode::Ack, message: &long });
        assert!(links.has_lost());
    }

    #[test]
    fn an_answer_that_was_given_up_is_not_waited_for_but_taken() {
        let mut links = TestLinks::default();
        let connection = links.accepted(String::new(), "a");
        let first = links.ask(connection, Pong {}, ()).unwrap();
        links.ask(connection, Pong {}, ());
        links.give_up_answers(connection);
        assert_eq!(links.unanswered(connection), 0);
        links.ask(connection, Pong {}, ());
        assert_eq!(links.unanswered(connection), 1);
        assert_eq!([(); 2].map(|()| links.answered((connection, first))), [Some(()), None]);
        assert_eq!(links.ended(connection).unwrap().asked.len(), 2);
    }

    #[test]
    fn a_closed_connection_is_lost_once_and_sent_nothing() {
        let mut links = TestLinks::default();
        let connection = links.accepted(String::new(), "a");
        links.ask(connection, Pong {}, ());
        links.take_outputs();
        links.close(connection);
        links.close(connection);
        links.notify(connection, Pong {});
        assert_eq!(links.take_outputs(), [Output::Link(LinkTask::Close { connection })]);
        let (lost, peer) = links.take_lost().unwrap();
        assert_eq!((lost, peer.role, peer.asked.len()), (connection, "a", 1));
        assert!(!links.has_lost() && links.with(|_| true).is_empty());
        assert!(links.ended(connection).is_none());
        let other = links.accepted(String::new(), "b");
        links.forget_all_but(None);
        assert_eq!(links.take_outputs(), [Output::Link(LinkTask::Close { connection: other })]);
        assert!(!links.has_lost());
    }
}
