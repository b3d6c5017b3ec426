//! The upstream cluster: its primary master, which is told of as a client, and its storages.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{error, info};
use zodium_neo::messages::{
    AskLastTransaction, NodeInformation, NotifyNodeInformation, NotifyUpstreamAdmin,
    RequestIdentification,
};
use zodium_neo::{
    Address, ClusterState, ConnectionId, Extra, Masters, Message, NodeId, NodeState, NodeType,
    Partition, PartitionTable, Value,
};

use super::Backup;
use crate::cluster::Cluster;
use crate::handling::Refusal;
use crate::packs::Packs;
use crate::peer::{Asked, Links, Role};
use crate::settings::UpstreamSettings;

/// Pause before the next master is dialled after one could not be used.
const DIAL_PAUSE: Duration = Duration::from_millis(200);

/// Pause before a cluster is dialled again that this one cannot be a backup of. Each try changes
/// the state of this cluster, and only operators can end it.
const MISMATCH_PAUSE: Duration = Duration::from_secs(60);

/// The upstream cluster, as far as it is known.
#[derive(Debug)]
pub(super) struct Upstream {
    cluster: String,
    masters: Masters,
    pause: Duration,
    /// The id that it has given to this master.
    id: Option<NodeId>,
    /// The connection to one of its masters, also one that is being made.
    connection: Option<ConnectionId>,
    table: Option<PartitionTable>,
    /// The storages that run, and their addresses.
    storages: BTreeMap<NodeId, Address>,
    /// The admins that run.
    admins: BTreeMap<NodeId, Address>,
    /// Its packs are known: what it decides of them is understood.
    pub(super) knows_packs: bool,
}

impl Upstream {
    /// One that is not connected.
    pub(super) fn new(settings: UpstreamSettings) -> Upstream {
        let UpstreamSettings { cluster, masters } = settings;
        Upstream {
            cluster,
            masters: Masters::new(masters),
            pause: Duration::ZERO,
            id: None,
            connection: None,
            table: None,
            storages: BTreeMap::new(),
            admins: BTreeMap::new(),
            knows_packs: false,
        }
    }

    /// Its name.
    pub(super) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Forgets the connection, and what it has told.
    fn disconnect(&mut self) -> Option<ConnectionId> {
        (self.table, self.knows_packs, self.pause) = (None, false, Duration::ZERO);
        self.storages.clear();
        self.admins.clear();
        self.connection.take()
    }

    /// The addresses of the storages that have a partition. The first one differs from partition to
    /// partition.
    pub(super) fn storages_of(&self, partition: Partition) -> Vec<Address> {
        let Some(table) = &self.table else { return Vec::new() };
        let nodes = table.readable(partition);
        let mut all: Vec<_> = nodes.filter_map(|node| self.storages.get(&node).cloned()).collect();
        if !all.is_empty() {
            let first = partition.0 as usize % all.len();
            all.rotate_left(first);
        }
        all
    }

    /// Notes nodes that have changed; whether there are admins among them.
    fn note(&mut self, nodes: Vec<NodeInformation>) -> bool {
        let mut has_admin = false;
        for node in nodes {
            let all = match node.node_type {
                NodeType::Storage => &mut self.storages,
                NodeType::Admin => &mut self.admins,
                NodeType::Client | NodeType::Master => continue,
            };
            let Some(id) = node.id else { continue };
            has_admin |= node.node_type == NodeType::Admin;
            match (node.address, node.state) {
                (Some(address), NodeState::Running) => drop(all.insert(id, address)),
                _ => drop(all.remove(&id)),
            }
        }
        has_admin
    }
}

impl Backup {
    /// Dials a master of the upstream cluster, unless one is connected.
    pub(super) fn dial_upstream(&mut self, links: &mut Links) {
        let Some(upstream) = &mut self.upstream else { return };
        if upstream.connection.is_some() {
            return;
        }
        let next = upstream.masters.pause(DIAL_PAUSE);
        let after = std::mem::replace(&mut upstream.pause, next);
        let Some(address) = upstream.masters.take() else { return };
        upstream.connection = Some(links.dial(Role::Upstream, address, after));
    }

    /// Introduces this master to the upstream cluster, as a client.
    pub(crate) fn identify(&self, cluster: &Cluster, links: &mut Links, connection: ConnectionId) {
        let Some(upstream) = &self.upstream else { return };
        let own = cluster.settings.cluster.as_bytes();
        let request = RequestIdentification {
            node_type: NodeType::Client,
            id: upstream.id,
            address: None,
            cluster: &upstream.cluster,
            id_timestamp: None,
            extra: Extra::from_iter([("backup", Value::Bytes(own))]),
        };
        links.ask(connection, request, Asked::Identification);
    }

    /// Closes the connection to the upstream cluster.
    pub(super) fn leave_upstream(&mut self, links: &mut Links) {
        let connection = self.upstream.as_mut().and_then(Upstream::disconnect);
        connection.into_iter().for_each(|connection| links.close(connection));
    }

    /// The connection to the upstream cluster has ended, or could not be made; `false` if it was
    /// not in use any more.
    pub(crate) fn upstream_left(&mut self, connection: ConnectionId) -> bool {
        let Some(upstream) = &mut self.upstream else { return false };
        if upstream.connection != Some(connection) {
            return false;
        }
        let pause = upstream.pause;
        upstream.disconnect();
        upstream.pause = pause;
        true
    }

    /// Handles a message of a master of the upstream cluster, unless any node may send it: it
    /// gives that back.
    pub(crate) fn upstream_says<'a>(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        packs: &mut Packs,
        connection: ConnectionId,
        message: Message<'a>,
    ) -> Result<Option<Message<'a>>, Refusal> {
        let Some(upstream) = &mut self.upstream else { return Ok(None) };
        match message {
            Message::AcceptIdentification(accepted) => {
                if accepted.node_type != NodeType::Master || accepted.your_id.is_none() {
                    return Err(Refusal::protocol("the identification was accepted by no master"));
                }
                upstream.id = accepted.your_id;
                upstream.masters.accepted();
                self.accepted_upstream(cluster, links, packs, connection);
            }
            Message::NotPrimaryMaster(message) => {
                upstream.masters.note(&message);
                if message.primary.is_some() {
                    upstream.pause = Duration::ZERO;
                }
                links.close(connection);
            }
            Message::NotifyNodeInformation(message) => {
                self.upstream_nodes_told(cluster, links, message)
            }
            Message::SendPartitionTable(message) => {
                let table = PartitionTable::from_message(message);
                let table = table.map_err(|error| Refusal::protocol(error.to_string()))?;
                self.upstream_table_told(cluster, links, connection, table);
            }
            Message::NotifyPartitionChanges(changes) => {
                if let Some(table) = &mut upstream.table {
                    table.apply(&changes).map_err(|error| Refusal::protocol(error.to_string()))?;
                    self.order_all(cluster, links);
                }
            }
            Message::InvalidatePartitions(message) => {
                let (tid, partitions) = (message.tid, message.partitions);
                self.committed_upstream(cluster, links, tid, &partitions)?;
            }
            Message::NotifyPackSigned(message) => {
                self.signed_upstream(cluster, links, packs, (connection, &message));
            }
            Message::NotifyClusterInformation(_) => {}
            Message::StopOperation(_) => {
                info!("the upstream cluster stops operating");
                links.close(connection);
            }
            Message::Error(error) => {
                let (peer, reason) = (links.name_of(connection), error.for_log());
                upstream.masters.refused(&peer, error.code, reason);
                links.close(connection);
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    fn accepted_upstream(
        &self,
        cluster: &mut Cluster,
        links: &mut Links,
        packs: &Packs,
        connection: ConnectionId,
    ) {
        let upstream = links.name_of(connection);
        info!(upstream, "connected to the primary master of the upstream cluster");
        cluster.set_state(links, ClusterState::BackingUp);
        links.ask(connection, AskLastTransaction {}, Asked::UpstreamLast);
        self.ask_upstream_packs(cluster, links, packs, connection);
    }

    fn upstream_nodes_told(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        message: NotifyNodeInformation,
    ) {
        let Some(upstream) = &mut self.upstream else { return };
        if upstream.note(message.nodes) {
            self.tell_upstream_admin(cluster, links, None);
        }
        self.order_all(cluster, links);
    }

    /// Tells one admin of this cluster, or the one that has come, of one upstream.
    pub(crate) fn tell_upstream_admin(
        &self,
        cluster: &Cluster,
        links: &mut Links,
        came: Option<ConnectionId>,
    ) {
        let upstream = self.upstream.as_ref().and_then(|one| one.admins.values().next().cloned());
        let Some(address) = upstream else { return };
        let first = || cluster.members.identified(NodeType::Admin).first().map(|(_, one)| *one);
        if let Some(connection) = came.or_else(first) {
            links.notify(connection, NotifyUpstreamAdmin { address });
        }
    }

    fn upstream_table_told(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        connection: ConnectionId,
        table: Option<PartitionTable>,
    ) {
        let (own, other) =
            (cluster.table.partitions(), table.as_ref().map(PartitionTable::partitions));
        if let Some(other) = other.filter(|other| *other != own) {
            error!(
                own,
                upstream = other,
                "the upstream cluster has another number of partitions: a \
                backup cluster must be created with the same number"
            );
            if let Some(upstream) = &mut self.upstream {
                upstream.pause = MISMATCH_PAUSE;
            }
            return links.close(connection);
        }
        if let Some(upstream) = &mut self.upstream {
            upstream.table = table;
        }
        self.order_all(cluster, links);
    }
}
