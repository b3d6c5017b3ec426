//! The upstream cluster: its primary master, which is told of as a client, and its storages.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{error, info, warn};
use zodium_neo::messages::{
    AskLastTransaction, NodeInformation, NotifyNodeInformation, NotifyUpstreamAdmin,
    RequestIdentification,
};
use zodium_neo::{
    Address, ClusterState, ConnectionId, Extra, Masters, Message, NodeId, NodeState, NodeType,
    Partition, PartitionTable, Value,
};

use crate::Master;
use crate::handling::{Handled, Refusal};
use crate::peer::{Asked, Role};
use crate::settings::UpstreamSettings;

/// Pause before the next master is dialled after one could not be used.
const DIAL_PAUSE: Duration = Duration::from_millis(200);

/// The upstream cluster, as far as it is known.
#[derive(Debug)]
pub(crate) struct Upstream {
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
    pub(crate) fn new(settings: UpstreamSettings) -> Upstream {
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

    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Forgets the connection, and what it has told.
    pub(crate) fn disconnect(&mut self) -> Option<ConnectionId> {
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

    /// A storage with a partition.
    pub(crate) fn storage_of(&self, partition: Partition) -> Option<Address> {
        self.storages_of(partition).into_iter().next()
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

impl Master {
    /// Dials a master of the upstream cluster, unless one is connected.
    pub(super) fn dial_upstream(&mut self) {
        let Some(upstream) = &mut self.upstream else { return };
        if upstream.connection.is_some() {
            return;
        }
        let after = std::mem::replace(&mut upstream.pause, DIAL_PAUSE);
        let Some(address) = upstream.masters.take() else { return };
        let connection = self.links.dial(Role::Upstream, address, after);
        if let Some(upstream) = &mut self.upstream {
            upstream.connection = Some(connection);
        }
    }

    pub(crate) fn identify_upstream(&mut self, connection: ConnectionId) {
        let Some(upstream) = &self.upstream else { return };
        let (id, cluster) = (upstream.id, upstream.cluster.clone());
        let own = self.cluster.settings.cluster.clone();
        let request = RequestIdentification {
            node_type: NodeType::Client,
            id,
            address: None,
            cluster: &cluster,
            id_timestamp: None,
            extra: Extra::from_iter([("backup", Value::Bytes(own.as_bytes()))]),
        };
        self.links.ask(connection, request, Asked::Identification);
    }

    /// Closes the connection to the upstream cluster.
    pub(crate) fn leave_upstream(&mut self) {
        let connection = self.upstream.as_mut().and_then(Upstream::disconnect);
        connection.into_iter().for_each(|connection| self.close(connection));
    }

    /// The connection to the upstream cluster has ended, or could not be made.
    pub(crate) fn upstream_left(&mut self, connection: ConnectionId) {
        let Some(upstream) = &mut self.upstream else { return };
        if upstream.connection != Some(connection) {
            return;
        }
        let pause = upstream.pause;
        upstream.disconnect();
        upstream.pause = pause;
        self.upstream_down();
    }

    /// Handles a message of a master of the upstream cluster.
    pub(crate) fn upstream_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        let Some(upstream) = &mut self.upstream else { return Ok(()) };
        match message {
            Message::AcceptIdentification(accepted) => {
                if accepted.node_type != NodeType::Master || accepted.your_id.is_none() {
                    return Err(Refusal::protocol("the identification was accepted by no master"));
                }
                upstream.id = accepted.your_id;
                self.accepted_upstream(connection);
            }
            Message::NotPrimaryMaster(message) => {
                upstream.masters.note(&message);
                if message.primary.is_some() {
                    upstream.pause = Duration::ZERO;
                }
                self.close(connection);
            }
            Message::NotifyNodeInformation(message) => self.upstream_nodes_told(message),
            Message::SendPartitionTable(message) => {
                let table = PartitionTable::from_message(message);
                let table = table.map_err(|error| Refusal::protocol(error.to_string()))?;
                return self.upstream_table_told(connection, table);
            }
            Message::NotifyPartitionChanges(changes) => {
                if let Some(table) = &mut upstream.table {
                    table.apply(&changes).map_err(|error| Refusal::protocol(error.to_string()))?;
                    self.order_all();
                }
            }
            Message::InvalidatePartitions(message) => {
                return self.committed_upstream(message.tid, &message.partitions);
            }
            Message::NotifyPackSigned(message) => self.signed_upstream(connection, &message),
            Message::NotifyClusterInformation(_) => {}
            Message::StopOperation(_) => {
                info!("the upstream cluster stops operating");
                self.close(connection);
            }
            Message::Error(error) => {
                let (peer, reason) = (self.links.name_of(connection), error.message);
                info!(peer, code = %error.code, reason, "not accepted upstream, trying again");
                self.close(connection);
            }
            message => return self.upstream_answers(connection, id, message),
        }
        Ok(())
    }

    fn upstream_answers(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        let asked = self.links.answered(connection, id);
        match (asked, message) {
            (Some(Asked::UpstreamLast), Message::AnswerLastTransaction(answer)) => {
                if answer.tid < self.cluster.last_tid {
                    let (upstream, here) = (answer.tid, self.cluster.last_tid);
                    warn!(%upstream, %here, "the upstream cluster was truncated, leaving backup \
                        mode in case this one must be truncated as well");
                    self.stop_backup();
                } else {
                    self.upstream_is_at(answer.tid);
                }
                Ok(())
            }
            (Some(Asked::UpstreamPacks(from)), Message::AnswerPackOrders(answer)) => {
                self.upstream_packs_told(from, answer.orders);
                Ok(())
            }
            (_, other) => self.any_says(connection, id, &other),
        }
    }

    fn accepted_upstream(&mut self, connection: ConnectionId) {
        let upstream = self.links.name_of(connection);
        info!(upstream, "connected to the primary master of the upstream cluster");
        self.cluster.set_state(&mut self.links, ClusterState::BackingUp);
        self.links.ask(connection, AskLastTransaction {}, Asked::UpstreamLast);
        self.ask_upstream_packs(connection);
    }

    fn upstream_nodes_told(&mut self, message: NotifyNodeInformation) {
        let Some(upstream) = &mut self.upstream else { return };
        if upstream.note(message.nodes) {
            self.tell_upstream_admin(None);
        }
        self.order_all();
    }

    /// Tells one admin of this cluster, or the one that has come, of one upstream.
    pub(crate) fn tell_upstream_admin(&mut self, came: Option<ConnectionId>) {
        let upstream = self.upstream.as_ref().and_then(|one| one.admins.values().next().cloned());
        let Some(address) = upstream else { return };
        let first =
            || self.cluster.members.identified(NodeType::Admin).first().map(|(_, one)| *one);
        if let Some(connection) = came.or_else(first) {
            self.links.notify(connection, NotifyUpstreamAdmin { address });
        }
    }

    fn upstream_table_told(
        &mut self,
        connection: ConnectionId,
        table: Option<PartitionTable>,
    ) -> Handled {
        let (own, other) =
            (self.cluster.table.partitions(), table.as_ref().map(PartitionTable::partitions));
        if let Some(other) = other.filter(|other| *other != own) {
            error!(
                own,
                upstream = other,
                "the upstream cluster has another number of partitions: a \
                backup cluster must be created with the same number"
            );
            self.close(connection);
            return Ok(());
        }
        if let Some(upstream) = &mut self.upstream {
            upstream.table = table;
        }
        self.order_all();
        Ok(())
    }
}
