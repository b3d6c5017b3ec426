//! The peers of a node: one for each connection.

use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;

use crate::{ConnectionId, Message, MessageIds, TooLong, encode};

/// Memory for a few packets.
const ENCODER_BYTES: usize = 64 << 10;

/// The other end of a connection. What it is, and what it is asked, each kind of node has its own
/// types for.
#[derive(Debug)]
pub struct Peer<Role, Asked> {
    /// Its address, for log lines.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// The ids of what is sent to it.
    pub ids: MessageIds,
    /// Requests that it has not answered, by id.
    pub asked: FxHashMap<u32, Asked>,
}

impl<Role, Asked> Peer<Role, Asked> {
    /// A peer that has not been asked anything.
    pub fn new(name: String, role: Role) -> Peer<Role, Asked> {
        Peer { name, role, ids: MessageIds::default(), asked: FxHashMap::default() }
    }
}

/// All peers, by connection.
#[derive(Debug)]
pub struct Peers<Role, Asked> {
    all: FxHashMap<ConnectionId, Peer<Role, Asked>>,
    last: u64,
    /// Packets are encoded here. They share its memory, which is used again when they are sent.
    encoder: BytesMut,
}

impl<Role, Asked> Default for Peers<Role, Asked> {
    fn default() -> Peers<Role, Asked> {
        let encoder = BytesMut::with_capacity(ENCODER_BYTES);
        Peers { all: FxHashMap::default(), last: 0, encoder }
    }
}

impl<Role, Asked> Peers<Role, Asked> {
    /// Adds a peer.
    pub fn add(&mut self, peer: Peer<Role, Asked>) -> ConnectionId {
        self.last += 1;
        let connection = ConnectionId::new(self.last);
        self.all.insert(connection, peer);
        connection
    }

    /// The peer of a connection.
    pub fn get(&self, connection: ConnectionId) -> Option<&Peer<Role, Asked>> {
        self.all.get(&connection)
    }

    /// The peer of a connection, to change it.
    pub fn get_mut(&mut self, connection: ConnectionId) -> Option<&mut Peer<Role, Asked>> {
        self.all.get_mut(&connection)
    }

    /// Forgets the peer of a connection that has ended.
    pub fn remove(&mut self, connection: ConnectionId) -> Option<Peer<Role, Asked>> {
        self.all.remove(&connection)
    }

    /// The connections with a role that `is_one` accepts, oldest first.
    pub fn with(&self, is_one: impl Fn(&Role) -> bool) -> Vec<ConnectionId> {
        let found = self.all.iter().filter(|(_, peer)| is_one(&peer.role));
        let mut found: Vec<_> = found.map(|(connection, _)| *connection).collect();
        found.sort_unstable();
        found
    }

    /// The name of a peer, for log lines; empty when its connection has ended.
    pub fn name_of(&self, connection: ConnectionId) -> String {
        self.get(connection).map(|peer| peer.name.clone()).unwrap_or_default()
    }

    /// The packet of a message to any peer.
    pub fn encode(&mut self, id: u32, message: Message<'_>) -> Result<Bytes, TooLong> {
        encode(id, message, &mut self.encoder)?;
        Ok(self.encoder.split().freeze())
    }

    /// The id of a notification to a peer.
    pub fn take_id(&mut self, connection: ConnectionId) -> Option<u32> {
        Some(self.get_mut(connection)?.ids.take())
    }

    /// The id of a request to a peer, whose answer is then expected.
    pub fn expect(&mut self, connection: ConnectionId, asked: Asked) -> Option<u32> {
        let peer = self.get_mut(connection)?;
        let id = peer.ids.take();
        peer.asked.insert(id, asked);
        Some(id)
    }

    /// Takes the request that an answer of a peer belongs to.
    pub fn answered(&mut self, connection: ConnectionId, id: u32) -> Option<Asked> {
        self.get_mut(connection)?.asked.remove(&id)
    }

    /// Whether a peer has requests to answer.
    pub fn is_asked(&self, connection: ConnectionId) -> bool {
        self.get(connection).is_some_and(|peer| !peer.asked.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_found_by_role_in_the_order_of_their_connections() {
        let mut peers: Peers<&str, ()> = Peers::default();
        let made: Vec<ConnectionId> =
            ["a", "b", "a"].map(|role| peers.add(Peer::new(String::new(), role))).into();
        assert_eq!(peers.with(|role| *role == "a"), [made[0], made[2]]);
        assert!(!peers.is_asked(made[1]));
        let id = peers.expect(made[1], ()).unwrap();
        assert_ne!(peers.take_id(made[1]), Some(id));
        assert!(peers.is_asked(made[1]));
        assert_eq!([peers.answered(made[1], id), peers.answered(made[1], id)], [Some(()), None]);
        assert!(!peers.is_asked(made[1]));
        assert!(peers.remove(made[0]).is_some() && peers.get(made[0]).is_none());
        let next = peers.add(Peer::new(String::new(), "a"));
        assert!(!made.contains(&next), "the number of an ended connection is not given again");
        assert_eq!(peers.with(|_| true), [made[1], made[2], next]);
    }
}
