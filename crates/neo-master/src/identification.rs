//! Nodes that introduce themselves.

use tracing::{debug, info};
use zodium_neo::messages::{AcceptIdentification, CellChange, RequestIdentification};
use zodium_neo::{
    Address, CellState, ClusterState, ErrorCode, NodeId, NodeState, NodeType, Partition, Request,
    Value, has_checks,
};

use crate::backup::Backup;
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::members::{About, Node, Told};
use crate::peer::{Links, Role};

/// A node that comes too early tries again.
const NOT_READY: &str = "Retry Later";
const BACKING_UP: &str = "read-write access requested but cluster is backing up";
/// Its own backup would stay where it began.
const IS_BACKUP: &str = "the cluster is a backup, which tells of no commits: follow its upstream \
    cluster instead";

/// A node that introduces itself.
#[derive(Debug)]
pub(crate) struct Newcomer<'a> {
    /// Its request to be accepted.
    pub(crate) from: Request,
    /// What it says of itself.
    pub(crate) request: &'a RequestIdentification<'a>,
}

impl Newcomer<'_> {
    /// Refuses a node of another cluster, or with an address of no node: that of this master, or
    /// one that is not numeric.
    pub(crate) fn check(&self, cluster: &Cluster) -> Handled {
        if self.request.cluster != cluster.settings.cluster {
            return Err(Refusal::other_cluster(self.request.cluster));
        }
        if self.request.address.as_ref() == Some(&cluster.settings.address) {
            return Err(Refusal::protocol("address conflict"));
        }
        let address = self.request.address.as_ref();
        if address.is_some_and(|address| address.to_socket_address().is_none()) {
            // No node could dial it, and all nodes are told of it. It may have any length.
            return Err(Refusal::protocol("an address that is not numeric"));
        }
        Ok(())
    }

    /// Refuses a node other than a client while the cluster stops: it tries again.
    pub(crate) fn check_state(&self, cluster: &Cluster) -> Handled {
        let is_client = self.request.node_type == NodeType::Client;
        if cluster.state() == ClusterState::Stopping && !is_client {
            return Err(Refusal::not_ready(NOT_READY));
        }
        Ok(())
    }

    /// The address of a master.
    pub(crate) fn master_address(&self, cluster: &Cluster) -> Result<Address, Refusal> {
        let Some(address) = self.request.address.clone() else {
            return Err(Refusal::protocol("a master without an address"));
        };
        if cluster.members.master(&address).is_some_and(|known| known.connection.is_some()) {
            return Err(Refusal::protocol("already connected"));
        }
        Ok(address)
    }

    /// Takes a secondary master in, and tells others of it. Gives what they are told.
    pub(crate) fn admit_master(
        &self,
        cluster: &mut Cluster,
        links: &mut Links,
        address: &Address,
    ) -> Option<Told> {
        cluster.members.add_master(address);
        let known = cluster.members.master(address).and_then(|master| master.id);
        if let Some(master) = cluster.members.master_mut(address) {
            master.id = None;
        }
        let (wanted, own) = (self.request.id.or(known), cluster.id);
        let given = cluster.members.free_id(NodeType::Master, wanted, |other| Some(other) == own);
        let stamp = cluster.clock.stamp();
        let master = cluster.members.master_mut(address)?;
        (master.id, master.state, master.id_timestamp) = (given, NodeState::Running, Some(stamp));
        let told = master.told();
        cluster.tell_nodes(links, std::slice::from_ref(&told));
        if let Some(master) = cluster.members.master_mut(address) {
            master.connection = Some(self.from.connection);
        }
        Some(told)
    }

    /// Accepts a secondary master that was taken in.
    pub(crate) fn accept_master(
        &self,
        cluster: &mut Cluster,
        links: &mut Links,
        address: Address,
        told: Told,
    ) {
        let given = told.information.id;
        info!(master = ?given, %address, "accepting a secondary master");
        links.set_role(self.from.connection, Role::Secondary { address });
        self.accept(cluster, links, given);
        cluster.tell_all_nodes(links, self.from.connection, told, None);
    }

    /// Takes a client in, if clients are served.
    pub(crate) fn join_as_client(&self, cluster: &mut Cluster, links: &mut Links) -> Handled {
        let request = self.request;
        match cluster.state() {
            ClusterState::Running => {}
            ClusterState::BackingUp if request.backup().is_some() => {
                return Err(Refusal::not_ready(IS_BACKUP));
            }
            ClusterState::BackingUp if request.is_read_only() => {}
            ClusterState::BackingUp => {
                return Err(Refusal::answer(ErrorCode::ReadOnlyAccess, BACKING_UP));
            }
            _ => return Err(Refusal::not_ready(NOT_READY)),
        }
        let about = About {
            backup: request.backup().map(<[u8]>::to_vec),
            is_read_only: request.is_read_only(),
            ..About::default()
        };
        let node = Node { about, ..Node::new(NodeType::Client, None, NodeState::Running) };
        let client = self.admit(cluster, links, node)?;
        links.set_role(self.from.connection, Role::Client(client));
        links.notify(self.from.connection, cluster.table.message());
        Ok(())
    }

    /// Takes an admin in.
    pub(crate) fn join_as_admin(
        &self,
        cluster: &mut Cluster,
        links: &mut Links,
        backup: &Backup,
    ) -> Handled {
        let request = self.request;
        self.refuse_taken_address(cluster)?;
        let wants_notes = request.extra.get(&"notes").and_then(Value::as_bool) == Some(true);
        let backups = names(request, "backup");
        let about = About { backups, wants_notes, ..About::default() };
        let address = request.address.clone();
        let node = Node { about, ..Node::new(NodeType::Admin, address, NodeState::Running) };
        let admin = self.admit(cluster, links, node)?;
        let connection = self.from.connection;
        links.set_role(connection, Role::Admin(admin));
        links.notify(connection, cluster.table.message());
        backup.tell_upstream_admin(cluster, links, Some(connection));
        Ok(())
    }

    /// Takes a storage in. Gives its id and its state.
    pub(crate) fn join_as_storage(
        &self,
        cluster: &mut Cluster,
        links: &mut Links,
    ) -> Result<(NodeId, NodeState), Refusal> {
        let request = self.request;
        if cluster.state() == ClusterState::StoppingBackup {
            return Err(Refusal::not_ready(NOT_READY));
        }
        let is_recovering = cluster.state() == ClusterState::Recovering;
        let cloned = partitions(request, "new_nid");
        if request.address.is_none() {
            if is_recovering {
                return Err(Refusal::not_ready(NOT_READY));
            }
            if request.id.is_some() || cloned.is_empty() {
                return Err(Refusal::protocol("a storage without an address"));
            }
        }
        self.refuse_taken_address(cluster)?;
        let known = request.id.and_then(|one| cluster.members.get(one));
        if known.is_some_and(|node| node.connection.is_some() || node.kind != NodeType::Storage) {
            return Err(Refusal::protocol("already connected"));
        }
        let has_cells = request.id.is_some_and(|one| cluster.table.has_member(one));
        let state = if request.address.is_none() {
            // It ends as soon as it has its id.
            NodeState::Down
        } else if is_recovering || !has_cells {
            NodeState::Pending
        } else {
            NodeState::Running
        };
        let (device, tells_checks) = (names(request, "devpath"), has_checks(&request.extra));
        let about = About { device, tells_checks, ..About::default() };
        let node = Node { about, ..Node::new(NodeType::Storage, request.address.clone(), state) };
        if let Some(address) = &request.address {
            release_address(cluster, links, address, request.id);
        }
        let storage = self.admit(cluster, links, node)?;
        links.set_role(self.from.connection, Role::Storage(storage));
        assign_clone(cluster, links, storage, &cloned);
        Ok((storage, state))
    }

    fn refuse_taken_address(&self, cluster: &Cluster) -> Handled {
        let Some(address) = &self.request.address else { return Ok(()) };
        let node = cluster.members.by_address(address);
        let is_node = node.is_some_and(|(_, node)| node.connection.is_some());
        let is_master = cluster.members.master(address).is_some_and(|one| one.connection.is_some());
        if is_node || is_master {
            return Err(Refusal::protocol("already connected"));
        }
        Ok(())
    }

    /// Takes a node in, and tells it and the others.
    fn admit(
        &self,
        cluster: &mut Cluster,
        links: &mut Links,
        mut node: Node,
    ) -> Result<NodeId, Refusal> {
        let (connection, wanted) = (self.from.connection, self.request.id);
        let kind = node.kind;
        let is_own = |id: NodeId| cluster.members.get(id).is_some_and(|known| known.kind == kind);
        let returns = wanted.filter(|id| kind == NodeType::Storage && is_own(*id));
        // Storages keep their ids: those of the table belong to them.
        let is_reserved = |id| cluster.table.has_member(id) && Some(id) != wanted;
        let free = returns.or_else(|| cluster.members.free_id(kind, wanted, is_reserved));
        let id = free.ok_or_else(|| Refusal::protocol("there is no free id"))?;
        node.id_timestamp = Some(cluster.clock.stamp());
        node.is_id_given = wanted != Some(id);
        if let Some(known) = cluster.members.get(id) {
            node.completed_pack = known.completed_pack;
        }
        let (told, backup) = (node.told(id), node.about.backup.clone());
        let peer = links.name_of(connection);
        match cluster.refused.has(id) {
            true => debug!(node = %id, state = %node.state, peer, "accepting a node"),
            false => info!(node = %id, state = %node.state, peer, "accepting a node"),
        }
        cluster.members.insert(id, node);
        cluster.tell_nodes(links, std::slice::from_ref(&told));
        if let Some(node) = cluster.members.get_mut(id) {
            node.connection = Some(connection);
        }
        self.accept(cluster, links, Some(id));
        cluster.tell_all_nodes(links, connection, told, backup.as_ref());
        Ok(id)
    }

    fn accept(&self, cluster: &Cluster, links: &mut Links, your_id: Option<NodeId>) {
        let (node_type, id) = (NodeType::Master, cluster.id);
        links.answer(self.from, AcceptIdentification { node_type, id, your_id });
    }
}

/// The copy of another storage's database gets its cells, which lack what was committed since.
fn assign_clone(
    cluster: &mut Cluster,
    links: &mut Links,
    storage: NodeId,
    partitions: &[Partition],
) {
    let state = CellState::OutOfDate;
    let changes = partitions.iter().filter(|one| one.0 < cluster.table.partitions());
    let changes: Vec<_> = changes
        .map(|partition| CellChange { partition: *partition, node: storage, state })
        .collect();
    for change in &changes {
        cluster.table.set(change.partition, storage, state);
    }
    cluster.tell_cells(links, changes, false);
}

/// A storage that is away had this address: another one has it now.
fn release_address(
    cluster: &mut Cluster,
    links: &mut Links,
    address: &Address,
    id: Option<NodeId>,
) {
    let old = cluster.members.by_address(address).map(|(old, _)| old);
    if let Some(old) = old.filter(|old| Some(*old) != id)
        && let Some(node) = cluster.members.get_mut(old)
    {
        node.address = None;
        cluster.tell_node(links, old);
    }
}

/// A property that is a list of names.
fn names(request: &RequestIdentification<'_>, key: &str) -> Vec<Vec<u8>> {
    let items = request.extra.get(&key).and_then(Value::as_array).unwrap_or_default();
    items.iter().filter_map(|item| item.as_bytes().map(<[u8]>::to_vec)).collect()
}

/// A property that is a list of partitions.
fn partitions(request: &RequestIdentification<'_>, key: &str) -> Vec<Partition> {
    let items = request.extra.get(&key).and_then(Value::as_array).unwrap_or_default();
    let numbers = items.iter().filter_map(Value::as_int);
    numbers.filter_map(|number| u32::try_from(number).ok()).map(Partition).collect()
}
