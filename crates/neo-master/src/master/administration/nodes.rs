//! Commands for nodes: taking them in, stopping and removing them, repairs.

use tracing::info;
use zodium_neo::messages::{CellChange, NotifyNodeInformation, NotifyRepair, Repair};
use zodium_neo::{ClusterState, ConnectionId, NodeId, NodeState, NodeType, Partition, Request};

use super::table::too_early;
use super::{acknowledge, require_operating};
use crate::backup::Backup;
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::peer::Links;
use crate::table::Table;

/// The end or the removal of a storage.
pub(super) struct StorageChange {
    storage: NodeId,
    state: NodeState,
    before: NodeState,
    /// The table without a storage that is removed.
    removal: Option<(Table, Vec<CellChange>)>,
    /// It had cells.
    is_removed: bool,
}

impl StorageChange {
    /// Refuses a change that the cluster cannot do with.
    pub(super) fn new(
        cluster: &Cluster,
        storage: NodeId,
        state: NodeState,
    ) -> Result<StorageChange, Refusal> {
        let Some(known) = cluster.members.get(storage) else {
            return Err(Refusal::denied("unknown node"));
        };
        let is_allowed = matches!(state, NodeState::Down | NodeState::Unknown);
        if known.kind != NodeType::Storage || !is_allowed {
            return Err(Refusal::denied(format!("can not switch node to {state} state")));
        }
        let before = known.state;
        // In the recovery storages are pending, and one with cells may be the last that has them.
        let is_used = known.connection.is_some() && cluster.table.has_member(storage);
        if state == NodeState::Unknown && (before == NodeState::Running || is_used) {
            return Err(Refusal::denied("a running node must be stopped before removal"));
        }
        let (mut table, members) = (cluster.table.clone(), &cluster.members);
        let changes = match state {
            NodeState::Unknown => table.remove(storage),
            _ => table.removal_of(storage),
        };
        let changes = changes.map_err(refused)?;
        if state == NodeState::Down {
            table.outdate(None, |id| id != storage && members.is_running(id));
        }
        if cluster.is_operating() && !table.may_follow() {
            return Err(too_early(if state == NodeState::Down { "kill" } else { "drop" }));
        }
        let is_removed = state == NodeState::Unknown && !changes.is_empty();
        let removal = (state == NodeState::Unknown).then_some((table, changes));
        Ok(StorageChange { storage, state, before, removal, is_removed })
    }

    /// Carries it out, and tells nodes of cells that change. Gives the connection of the storage.
    pub(super) fn carry_out(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
    ) -> Option<ConnectionId> {
        let removal = self.removal.take().map(|(table, changes)| {
            cluster.table = table;
            changes
        });
        info!(node = %self.storage, state = %self.state, "an operator changes a storage");
        let ended = end_storage(cluster, links, self.storage, self.state);
        let changes = removal.unwrap_or_else(|| outdated_without(cluster));
        cluster.tell_cells(links, changes, false);
        ended
    }

    /// Answers the command, and tells nodes of the storage.
    pub(super) fn acknowledge(self, cluster: &mut Cluster, links: &mut Links, request: Request) {
        let StorageChange { storage, state, before, is_removed, .. } = self;
        let text = match (is_removed, before == state) {
            (true, _) => "node permanently removed".to_owned(),
            (false, true) => format!("node already in {state} state"),
            (false, false) => "state changed".to_owned(),
        };
        acknowledge(links, request, &text);
        if before != state {
            cluster.tell_node(links, storage);
        }
        if state == NodeState::Unknown {
            cluster.members.remove(storage);
        }
    }
}

/// The cells that go out of date with the end of a storage.
fn outdated_without(cluster: &mut Cluster) -> Vec<CellChange> {
    // No storage runs in the recovery. Its end decides which cells are up to date.
    if cluster.state() == ClusterState::Recovering {
        return Vec::new();
    }
    let members = &cluster.members;
    cluster.table.outdate(None, |id| members.is_running(id))
}

/// Sets the state of a storage, which ends itself when it hears of it.
fn end_storage(
    cluster: &mut Cluster,
    links: &mut Links,
    storage: NodeId,
    state: NodeState,
) -> Option<ConnectionId> {
    let node = cluster.members.get_mut(storage)?;
    node.state = state;
    let (connection, told) = (node.connection.take()?, node.told(storage));
    let (timestamp, nodes) = (cluster.clock.stamp(), vec![told.information]);
    links.notify(connection, NotifyNodeInformation { timestamp, nodes });
    links.close(connection);
    Some(connection)
}

/// Stops a secondary master.
pub(super) fn set_master_state(
    cluster: &mut Cluster,
    links: &mut Links,
    request: Request,
    master: NodeId,
    state: NodeState,
) -> Handled {
    if state != NodeState::Down {
        return Err(Refusal::denied(format!("can not switch node to {state} state")));
    }
    if Some(master) == cluster.id {
        return Err(Refusal::denied("can not kill primary master node"));
    }
    let known = cluster.members.masters_mut().find(|known| known.id == Some(master));
    let Some(known) = known else { return Err(Refusal::denied("unknown node")) };
    let before = std::mem::replace(&mut known.state, state);
    let (other, told) = (known.connection, known.told());
    if before == state {
        acknowledge(links, request, &format!("node already in {state} state"));
        return Ok(());
    }
    acknowledge(links, request, "state changed");
    if other.is_some() {
        cluster.tell_nodes(links, &[told]);
    }
    Ok(())
}

/// Takes pending storages in: they get cells at the next tweak.
pub(super) fn add(
    cluster: &mut Cluster,
    links: &mut Links,
    backup: &Backup,
    request: Request,
    wanted: &[NodeId],
) -> Handled {
    require_operating(cluster, "addPendingNodes")?;
    let pending = cluster.members.of(NodeType::Storage);
    let pending =
        pending.filter(|(one, node)| node.state == NodeState::Pending && wanted.contains(one));
    let pending: Vec<_> = pending.map(|(one, _)| one).collect();
    let mut added = Vec::new();
    for storage in pending {
        if cluster.table.add_member(storage)
            && let Some(node) = cluster.members.get_mut(storage)
        {
            node.state = NodeState::Running;
            added.push(node.told(storage));
            backup.start_storage(cluster, links, storage);
        }
    }
    let names = added.iter().filter_map(|told| told.information.id).map(|id| id.to_string());
    let names: Vec<_> = names.collect();
    cluster.tell_nodes(links, &added);
    if names.is_empty() {
        acknowledge(links, request, "No node added");
    } else {
        acknowledge(links, request, &format!("Nodes added: {}", names.join(", ")));
    }
    Ok(())
}

/// Has storages repair their databases.
pub(super) fn repair(
    cluster: &Cluster,
    links: &mut Links,
    request: Request,
    message: &Repair,
) -> Handled {
    let mut storages = Vec::new();
    for node in &message.ids {
        storages.push(storage_connection(cluster, *node)?);
    }
    for storage in storages {
        links.notify(storage, NotifyRepair { dry_run: message.dry_run });
    }
    acknowledge(links, request, "");
    Ok(())
}

/// The connection of a storage that an operator has named.
pub(super) fn storage_connection(cluster: &Cluster, node: NodeId) -> Result<ConnectionId, Refusal> {
    let known = cluster.members.get(node).filter(|known| known.kind == NodeType::Storage);
    let connection = known.and_then(|known| known.connection);
    connection.ok_or_else(|| Refusal::denied(format!("invalid storage node {node}")))
}

fn refused(partition: Partition) -> Refusal {
    Refusal::denied(format!(
        "Refuse to drop nodes that contain the only readable copies of partition {partition}"
    ))
}
