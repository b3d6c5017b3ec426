//! The nodes of the cluster.
//!
//! Masters are known by their addresses: one that has not been met has no id. All others are known
//! by their ids.

use std::collections::BTreeMap;

use zodium_neo::messages::NodeInformation;
use zodium_neo::{Address, ConnectionId, NodeId, NodeState, NodeType};
use zodium_types::Tid;

/// A storage, client or admin.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeType,
    pub(crate) address: Option<Address>,
    pub(crate) state: NodeState,
    pub(crate) id_timestamp: Option<f64>,
    /// The connection on which it has identified itself.
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) about: About,
    /// Whether the node was given its id, and did not ask for it.
    pub(crate) is_id_given: bool,
    /// Of a storage that packs: the last pack that it has completed.
    pub(crate) completed_pack: Option<Tid>,
}

/// What a node says of itself when it identifies itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct About {
    /// Of a storage: where its device is, the largest place first.
    pub(crate) device: Vec<Vec<u8>>,
    /// Of a storage: it tells how checks end, if it is asked to.
    pub(crate) tells_checks: bool,
    /// Of an admin: the backup clusters whose admins may connect to it.
    pub(crate) backups: Vec<Vec<u8>>,
    /// Of an admin: it takes notes of what is not as it should be.
    pub(crate) wants_notes: bool,
    /// Of a client that is the master of a backup cluster: the name of that.
    pub(crate) backup: Option<Vec<u8>>,
    /// Of a client: it only reads.
    pub(crate) is_read_only: bool,
}

/// A master, this one too.
#[derive(Clone, Debug)]
pub(crate) struct KnownMaster {
    pub(crate) address: Address,
    pub(crate) id: Option<NodeId>,
    pub(crate) state: NodeState,
    pub(crate) id_timestamp: Option<f64>,
    /// The connection on which it has identified itself as a secondary master.
    pub(crate) connection: Option<ConnectionId>,
}

/// What others are told of a node.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) information: NodeInformation,
    /// Of an admin: the backup clusters that hear of it.
    pub(crate) backups: Vec<Vec<u8>>,
}

/// All nodes.
#[derive(Debug, Default)]
pub(crate) struct Members {
    nodes: BTreeMap<NodeId, Node>,
    masters: Vec<KnownMaster>,
    /// The addresses of the masters.
    addresses: Vec<Address>,
}

impl Node {
    pub(crate) fn new(kind: NodeType, address: Option<Address>, state: NodeState) -> Node {
        Node {
            kind,
            address,
            state,
            id_timestamp: None,
            connection: None,
            about: About::default(),
            is_id_given: false,
            completed_pack: None,
        }
    }

    pub(crate) fn told(&self, id: NodeId) -> Told {
        let information = NodeInformation {
            node_type: self.kind,
            address: self.address.clone(),
            id: Some(id),
            state: self.state,
            id_timestamp: self.id_timestamp,
        };
        let backups = self.about.backups.clone();
        Told { information, backups }
    }
}

impl KnownMaster {
    pub(crate) fn told(&self) -> Told {
        let information = NodeInformation {
            node_type: NodeType::Master,
            address: Some(self.address.clone()),
            id: self.id,
            state: self.state,
            id_timestamp: self.id_timestamp,
        };
        Told { information, backups: Vec::new() }
    }
}

impl Told {
    /// Whether a node hears of this one. `backup` is the backup cluster whose master it is.
    pub(crate) fn is_for(&self, kind: NodeType, backup: Option<&Vec<u8>>) -> bool {
        match self.information.node_type {
            NodeType::Admin => backup.is_some_and(|backup| self.backups.contains(backup)),
            NodeType::Client => matches!(kind, NodeType::Admin | NodeType::Storage),
            NodeType::Storage => kind != NodeType::Master,
            NodeType::Master => true,
        }
    }
}

impl Members {
    /// All storages, clients and admins.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// Adds a storage, client or admin, or replaces it.
    pub(crate) fn insert(&mut self, id: NodeId, node: Node) {
        self.nodes.insert(id, node);
    }

    /// Forgets a storage, client or admin.
    pub(crate) fn remove(&mut self, id: NodeId) {
        self.nodes.remove(&id);
    }

    /// Forgets all storages, clients and admins.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(&id)
    }

    /// The connection of a storage, client or admin that has identified itself.
    pub(crate) fn connection_of(&self, id: NodeId) -> Option<ConnectionId> {
        self.nodes.get(&id)?.connection
    }

    pub(crate) fn is_running(&self, id: NodeId) -> bool {
        self.state(id) == Some(NodeState::Running)
    }

    pub(crate) fn state(&self, id: NodeId) -> Option<NodeState> {
        self.nodes.get(&id).map(|node| node.state)
    }

    /// The nodes of a kind.
    pub(crate) fn of(&self, kind: NodeType) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes().filter(move |(_, node)| node.kind == kind)
    }

    /// The nodes of a kind that have identified themselves, with their connections.
    pub(crate) fn identified(&self, kind: NodeType) -> Vec<(NodeId, ConnectionId)> {
        self.of(kind).filter_map(|(id, node)| Some((id, node.connection?))).collect()
    }

    /// The id and the node with an address.
    pub(crate) fn by_address(&self, address: &Address) -> Option<(NodeId, &Node)> {
        let mut nodes = self.nodes.iter();
        let found = nodes.find(|(_, node)| node.address.as_ref() == Some(address));
        found.map(|(id, node)| (*id, node))
    }

    /// Adds a master, unless it is known.
    pub(crate) fn add_master(&mut self, address: &Address) {
        if self.addresses.contains(address) {
            return;
        }
        self.addresses.push(address.clone());
        self.masters.push(KnownMaster {
            address: address.clone(),
            id: None,
            state: NodeState::Down,
            id_timestamp: None,
            connection: None,
        });
    }

    /// Forgets a master.
    pub(crate) fn remove_master(&mut self, address: &Address) {
        self.addresses.retain(|known| known != address);
        self.masters.retain(|known| known.address != *address);
    }

    pub(crate) fn masters(&self) -> &[KnownMaster] {
        &self.masters
    }

    pub(crate) fn masters_mut(&mut self) -> impl Iterator<Item = &mut KnownMaster> {
        self.masters.iter_mut()
    }

    pub(crate) fn master(&self, address: &Address) -> Option<&KnownMaster> {
        self.masters.iter().find(|master| master.address == *address)
    }

    pub(crate) fn master_mut(&mut self, address: &Address) -> Option<&mut KnownMaster> {
        self.masters.iter_mut().find(|master| master.address == *address)
    }

    /// The master with an id.
    pub(crate) fn master_with_id(&self, id: NodeId) -> Option<&KnownMaster> {
        self.masters.iter().find(|master| master.id == Some(id))
    }

    /// The addresses of the masters.
    pub(crate) fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The id that a node gets: the one that it asks for if it is free, else the lowest free one.
    /// `is_reserved` ids belong to nodes that are not here.
    pub(crate) fn free_id(
        &self,
        kind: NodeType,
        wanted: Option<NodeId>,
        is_reserved: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        let is_free = |id: NodeId| {
            !self.nodes.contains_key(&id) && self.master_with_id(id).is_none() && !is_reserved(id)
        };
        let wanted = wanted.filter(|id| id.kind() == Some(kind) && is_free(*id));
        let mut numbers = (1..=NodeId::NUMBER_MAX).filter_map(|number| NodeId::of(kind, number));
        wanted.or_else(|| numbers.find(|id| is_free(*id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: NodeType, number: u32) -> NodeId {
        NodeId::of(kind, number).unwrap()
    }

    #[test]
    fn a_node_gets_the_id_that_it_asks_for_or_the_lowest_free_one() {
        let mut members = Members::default();
        let kind = NodeType::Client;
        let free = |members: &Members, wanted| members.free_id(kind, wanted, |_| false);
        assert_eq!(free(&members, None), Some(id(kind, 1)));
        members.nodes.insert(id(kind, 1), Node::new(kind, None, NodeState::Running));
        assert_eq!(free(&members, Some(id(kind, 1))), Some(id(kind, 2)));
        assert_eq!(free(&members, Some(id(kind, 7))), Some(id(kind, 7)));
        // Not the id of another kind of node.
        assert_eq!(free(&members, Some(id(NodeType::Admin, 7))), Some(id(kind, 2)));
        let is_second = |other| other == id(kind, 2);
        assert_eq!(members.free_id(kind, None, is_second), Some(id(kind, 3)));
    }

    #[test]
    fn nodes_hear_of_what_they_have_to_know() {
        let heard = |kind, receiver, backup: Option<&str>| {
            let mut node = Node::new(kind, None, NodeState::Running);
            node.about.backups = vec![b"there".to_vec()];
            let backup = backup.map(|name| name.as_bytes().to_vec());
            node.told(id(kind, 1)).is_for(receiver, backup.as_ref())
        };
        use NodeType::{Admin, Client, Master, Storage};
        assert!(heard(Storage, Client, None) && heard(Storage, Admin, None));
        assert!(!heard(Storage, Master, None));
        assert!(heard(Client, Storage, None) && !heard(Client, Client, None));
        assert!(!heard(Admin, Storage, None) && !heard(Admin, Client, Some("elsewhere")));
        assert!(heard(Admin, Client, Some("there")));
        assert!(heard(Master, Master, None));
    }
}
