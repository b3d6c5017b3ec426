//! The nodes of the cluster, as the primary master tells.

use zodium_neo::messages::NodeInformation;
use zodium_neo::{Address, NodeId, NodeState, NodeType};

use crate::table::Table;

/// The nodes of the cluster.
///
/// A node is the same as another one if it has its address; without an address, if it has its id.
#[derive(Debug, Default)]
pub(crate) struct Members {
    nodes: Vec<NodeInformation>,
    /// Whether the primary master has sent its list; what follows are changes.
    is_listed: bool,
}

impl Members {
    /// Notes a master that has accepted the admin: its list of nodes comes next.
    pub(crate) fn begin(&mut self, address: &Address, id: Option<NodeId>) {
        self.is_listed = false;
        self.note(&NodeInformation {
            node_type: NodeType::Master,
            address: Some(address.clone()),
            id,
            state: NodeState::Running,
            id_timestamp: None,
        });
    }

    /// Notes what the master says. Nodes that are missing in its list are forgotten, but for
    /// storages with cells: they are down.
    pub(crate) fn tell(&mut self, told: &[NodeInformation], table: Option<&Table>) {
        told.iter().for_each(|node| self.note(node));
        if std::mem::replace(&mut self.is_listed, true) {
            return;
        }
        let has_cells = |id| table.is_some_and(|table| table.has(id));
        self.nodes.retain_mut(|node| {
            if told.iter().any(|other| (&other.address, other.id) == (&node.address, node.id)) {
                return true;
            }
            // Its connection was one to the master before.
            node.state = NodeState::Down;
            node.node_type == NodeType::Storage && node.id.is_some_and(has_cells)
        });
    }

    /// Adds the admin of the upstream cluster, in place of the one at another address.
    pub(crate) fn add_upstream(&mut self, before: Option<&Address>, address: &Address) {
        self.nodes.retain(|node| before.is_none() || node.address.as_ref() != before);
        self.note(&NodeInformation {
            node_type: NodeType::Admin,
            address: Some(address.clone()),
            id: None,
            state: NodeState::Down,
            id_timestamp: None,
        });
    }

    fn note(&mut self, told: &NodeInformation) {
        let has_id = |node: &NodeInformation| told.id.is_some() && node.id == told.id;
        let has_address =
            |node: &NodeInformation| told.address.is_some() && node.address == told.address;
        let by_address = self.nodes.iter().position(has_address);
        let by_id = self.nodes.iter().position(has_id);
        if let (Some(place), Some(other)) = (by_address, by_id)
            && place != other
        {
            self.nodes[other].id = None;
        }
        match (by_address.or(by_id), told.state) {
            (Some(place), NodeState::Unknown) => drop(self.nodes.remove(place)),
            (None, NodeState::Unknown) => {}
            (Some(place), _) => self.nodes[place] = told.clone(),
            (None, _) => self.nodes.push(told.clone()),
        }
    }

    /// The nodes of a kind, or all.
    pub(crate) fn list(&self, kind: Option<NodeType>) -> Vec<NodeInformation> {
        let is_asked = |node: &&NodeInformation| kind.is_none_or(|kind| node.node_type == kind);
        self.nodes.iter().filter(is_asked).cloned().collect()
    }

    /// Whether a node is running.
    pub(crate) fn is_running(&self, id: NodeId) -> bool {
        self.nodes.iter().any(|node| node.id == Some(id) && node.state == NodeState::Running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: NodeType, port: u16, number: u32, state: NodeState) -> NodeInformation {
        let address = Some(Address { host: "127.0.0.1".to_owned(), port });
        let address = address.filter(|address| address.port > 0);
        NodeInformation {
            node_type: kind,
            address,
            id: NodeId::of(kind, number),
            state,
            id_timestamp: None,
        }
    }

    fn shown(members: &Members) -> Vec<String> {
        let nodes = members.nodes.iter();
        nodes
            .map(|node| {
                let id = node.id.map_or("none".to_owned(), |id| id.to_string());
                format!("{id} {} {}", node.address.as_ref().map_or(0, |a| a.port), node.state)
            })
            .collect()
    }

    #[test]
    fn the_first_list_replaces_and_later_ones_change() {
        use NodeState::{Down, Pending, Running, Unknown};
        use NodeType::{Client, Master, Storage};
        let mut members = Members::default();
        let master = Address { host: "127.0.0.1".to_owned(), port: 1 };
        members.begin(&master, NodeId::of(Master, 1));
        members.tell(&[node(Master, 1, 1, Running), node(Storage, 2, 1, Pending)], None);
        members.tell(&[node(Storage, 3, 2, Running), node(Client, 0, 1, Running)], None);
        members.tell(&[node(Storage, 2, 1, Running), node(Client, 0, 1, Unknown)], None);
        assert_eq!(shown(&members), ["M1 1 RUNNING", "S1 2 RUNNING", "S2 3 RUNNING"]);
        // Another master: what it does not know is forgotten, but for storages with cells.
        let other = Address { port: 9, ..master };
        let cell = zodium_neo::messages::Cell {
            node: NodeId::of(Storage, 2).unwrap(),
            state: zodium_neo::CellState::UpToDate,
        };
        let table = Table { id: None, replicas: 0, rows: vec![vec![cell]] };
        members.begin(&other, NodeId::of(Master, 2));
        members.tell(&[node(Master, 9, 2, Running), node(Master, 1, 0, Down)], Some(&table));
        assert_eq!(shown(&members), ["none 1 DOWN", "S2 3 DOWN", "M2 9 RUNNING"]);
        assert!(!members.is_running(NodeId::of(Storage, 2).unwrap()));
    }

    #[test]
    fn an_id_that_moves_to_another_address_leaves_the_old_one() {
        use NodeState::{Down, Running};
        use NodeType::Master;
        let mut members = Members::default();
        members.tell(&[node(Master, 1, 1, Running), node(Master, 2, 2, Running)], None);
        members.tell(&[node(Master, 2, 1, Running)], None);
        members.tell(&[node(Master, 1, 2, Down)], None);
        assert_eq!(shown(&members), ["M2 1 DOWN", "M1 2 RUNNING"]);
    }
}
