//! What all nodes are told: nodes, the partition table, the state of the cluster.

use zodium_neo::messages::{
    CellChange, NodeInformation, NotifyClusterInformation, NotifyNodeInformation,
    NotifyPartitionChanges, Ping,
};
use zodium_neo::{ClusterState, ConnectionId, NodeId, NodeType};

use super::Cluster;
use crate::members::Told;
use crate::peer::{Asked, Links};

/// A node that has identified itself.
struct Receiver {
    connection: ConnectionId,
    kind: NodeType,
    /// Of the master of a backup cluster.
    backup: Option<Vec<u8>>,
}

impl Cluster {
    /// Tells nodes of others that have changed.
    pub(crate) fn tell_nodes(&mut self, links: &mut Links, changed: &[Told]) {
        self.counted = None;
        if changed.is_empty() {
            return;
        }
        let timestamp = self.clock.stamp();
        for Receiver { connection, kind, backup } in self.receivers() {
            let nodes: Vec<_> = visible(changed, kind, backup.as_ref()).collect();
            if !nodes.is_empty() {
                links.notify(connection, NotifyNodeInformation { timestamp, nodes });
            }
        }
    }

    /// Tells nodes of one that has changed.
    pub(crate) fn tell_node(&mut self, links: &mut Links, id: NodeId) {
        if let Some(told) = self.members.get(id).map(|node| node.told(id)) {
            self.tell_nodes(links, &[told]);
        }
    }

    /// Tells a node that has identified itself of all others, and itself first.
    pub(crate) fn tell_all_nodes(
        &mut self,
        links: &mut Links,
        connection: ConnectionId,
        itself: Told,
        backup: Option<&Vec<u8>>,
    ) {
        let kind = itself.information.node_type;
        let masters = self.members.masters().iter().map(|master| master.told());
        let nodes = self.members.nodes().map(|(id, node)| node.told(id));
        let is_itself = |told: &Told| match kind {
            NodeType::Master => told.information.address == itself.information.address,
            _ => told.information.id == itself.information.id,
        };
        let others: Vec<_> = masters.chain(nodes).filter(|told| !is_itself(told)).collect();
        let nodes = [itself.information.clone()].into_iter();
        let nodes = nodes.chain(visible(&others, kind, backup)).collect();
        let timestamp = self.clock.stamp();
        links.notify(connection, NotifyNodeInformation { timestamp, nodes });
    }

    /// Tells nodes of changes of the table, which are made already. Without changes nothing is
    /// told, unless the number of replicas has changed.
    pub(crate) fn tell_cells(
        &mut self,
        links: &mut Links,
        changes: Vec<CellChange>,
        is_other_count: bool,
    ) {
        if changes.is_empty() && !is_other_count {
            return;
        }
        self.counted = None;
        let (table, replicas) = (self.table.next_id(), self.table.replicas());
        let receivers = self.receivers();
        for receiver in receivers.iter().filter(|receiver| receiver.kind != NodeType::Master) {
            let changes = changes.clone();
            links.notify(receiver.connection, NotifyPartitionChanges { table, replicas, changes });
        }
        self.ask_known(links);
    }

    /// Tells admins of the whole table in the recovery: storages get it afterwards.
    pub(crate) fn tell_table_to_admins(&mut self, links: &mut Links) {
        self.counted = None;
        for (_, admin) in self.members.identified(NodeType::Admin) {
            links.notify(admin, self.table.message());
        }
    }

    /// Asks all storages to say when they have the table.
    pub(crate) fn ask_known(&self, links: &mut Links) {
        for (_, connection) in self.members.identified(NodeType::Storage) {
            self.ask_known_by(links, connection);
        }
    }

    /// Asks a storage to say when it has the table.
    pub(crate) fn ask_known_by(&self, links: &mut Links, connection: ConnectionId) {
        if let Some(id) = self.table.id() {
            links.ask(connection, Ping {}, Asked::Known(id));
        }
    }

    /// The cluster is in another state.
    pub(crate) fn set_state(&mut self, links: &mut Links, state: ClusterState) {
        if self.state == state && self.is_state_told {
            return;
        }
        (self.state, self.is_state_told, self.counted) = (state, true, None);
        for receiver in self.receivers() {
            links.notify(receiver.connection, NotifyClusterInformation { state });
        }
    }

    /// All nodes that have identified themselves.
    fn receivers(&self) -> Vec<Receiver> {
        let masters = self.members.masters().iter().filter_map(|master| {
            let kind = NodeType::Master;
            Some(Receiver { connection: master.connection?, kind, backup: None })
        });
        let nodes = self.members.nodes().filter_map(|(_, node)| {
            let backup = node.about.backup.clone();
            Some(Receiver { connection: node.connection?, kind: node.kind, backup })
        });
        masters.chain(nodes).collect()
    }
}

/// What a node may know.
fn visible<'a>(
    nodes: &'a [Told],
    kind: NodeType,
    backup: Option<&'a Vec<u8>>,
) -> impl Iterator<Item = NodeInformation> + 'a {
    let seen = nodes.iter().filter(move |told| told.is_for(kind, backup));
    seen.map(|told| told.information.clone())
}
