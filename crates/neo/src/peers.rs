//! The peers of a node: one for each connection.

use rustc_hash::FxHashMap;

use crate::{ConnectionId, MessageIds};

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
}

impl<Role, Asked> Default for Peers<Role, Asked> {
    fn default() -> Peers<Role, Asked> {
        Peers { all: FxHashMap::default(), last: 0 }
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
        peers.get_mut(made[1]).unwrap().asked.insert(1, ());
        assert!(peers.is_asked(made[1]));
        assert!(peers.remove(made[0]).is_some() && peers.get(made[0]).is_none());
        let next = peers.add(Peer::new(String::new(), "a"));
        assert!(!made.contains(&next), "the number of an ended connection is not given again");
        assert_eq!(peers.with(|_| true), [made[1], made[2], next]);
    }
}
