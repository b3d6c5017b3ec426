//! Nodes that introduce themselves.

use tracing::{info, warn};
use zodium_neo::messages::{AcceptIdentification, CellChange, RequestIdentification};
use zodium_neo::{
    CellState, ClusterState, ConnectionId, ErrorCode, Message, NodeId, NodeState, NodeType,
    Partition, Value,
};

use crate::Master;
use crate::Phase;
use crate::handling::{Handled, Refusal};
use crate::members::{About, Node};
use crate::peer::Role;

/// A node that comes too early tries again.
const NOT_READY: &str = "Retry Later";
const BACKING_UP: &str = "read-write access requested but cluster is backing up";

impl Master {
    /// Handles a message of a node that has not introduced itself.
    pub(crate) fn stranger_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::RequestIdentification(request) => self.identify(connection, id, &request),
            Message::Ping(_) => self.any_says(connection, id, &message),
            other => Err(Refusal::unexpected(&other)),
        }
    }

    fn identify(
        &mut self,
        connection: ConnectionId,
        id: u32,
        request: &RequestIdentification<'_>,
    ) -> Handled {
        if request.cluster != self.cluster.settings.cluster {
            let (peer, cluster) = (self.links.name_of(connection), request.cluster);
            warn!(peer, cluster, "a node of another cluster is refused");
            return Err(Refusal::protocol("invalid cluster name"));
        }
        if request.address.as_ref() == Some(&self.cluster.settings.address) {
            return Err(Refusal::protocol("address conflict"));
        }
        match self.phase {
            Phase::Secondary(_) => {
                self.redirect(connection, request);
                return Ok(());
            }
            Phase::Stopping if request.node_type != NodeType::Client => {
                return Err(Refusal::not_ready(NOT_READY));
            }
            _ => {}
        }
        match request.node_type {
            NodeType::Master => self.identify_master(connection, id, request),
            NodeType::Storage => self.identify_storage(connection, id, request),
            NodeType::Client => self.identify_client(connection, id, request),
            NodeType::Admin => self.identify_admin(connection, id, request),
        }
    }

    fn identify_master(
        &mut self,
        connection: ConnectionId,
        id: u32,
        request: &RequestIdentification<'_>,
    ) -> Handled {
        let Some(address) = request.address.clone() else {
            return Err(Refusal::protocol("a master without an address"));
        };
        if self.cluster.members.master(&address).is_some_and(|known| known.connection.is_some()) {
            return Err(Refusal::protocol("already connected"));
        }
        if self.is_won_by(request.id_timestamp, &address) {
            self.become_secondary(address, None);
            return Ok(());
        }
        self.cluster.members.add_master(&address);
        let known = self.cluster.members.master(&address).and_then(|master| master.id);
        if let Some(master) = self.cluster.members.master_mut(&address) {
            master.id = None;
        }
        let wanted = request.id.or(known);
        let own = self.cluster.id;
        let given =
            self.cluster.members.free_id(NodeType::Master, wanted, |other| Some(other) == own);
        let stamp = self.cluster.clock.stamp();
        let Some(master) = self.cluster.members.master_mut(&address) else { return Ok(()) };
        (master.id, master.state, master.id_timestamp) = (given, NodeState::Running, Some(stamp));
        let told = master.told();
        self.cluster.tell_nodes(&mut self.links, std::slice::from_ref(&told));
        if let Some(master) = self.cluster.members.master_mut(&address) {
            master.connection = Some(connection);
        }
        // The connection that this one has made to it is not needed.
        let is_rival =
            |role: &Role| matches!(role, Role::Rival { address: other } if *other == address);
        self.links.with(is_rival).into_iter().for_each(|rival| self.close(rival));
        info!(master = ?given, %address, "accepting a secondary master");
        self.links.set_role(connection, Role::Secondary { address });
        self.accept(connection, id, given);
        self.cluster.tell_all_nodes(&mut self.links, connection, told, None);
        Ok(())
    }

    fn identify_client(
        &mut self,
        connection: ConnectionId,
        id: u32,
        request: &RequestIdentification<'_>,
    ) -> Handled {
        match (&self.phase, self.cluster.state()) {
            (Phase::Service, _) => {}
            (Phase::Backup, ClusterState::BackingUp) if request.is_read_only() => {}
            (Phase::Backup, ClusterState::BackingUp) => {
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
        let client = self.admit(connection, id, request.id, node)?;
        self.links.set_role(connection, Role::Client(client));
        self.links.notify(connection, self.cluster.table.message());
        Ok(())
    }

    fn identify_admin(
        &mut self,
        connection: ConnectionId,
        id: u32,
        request: &RequestIdentification<'_>,
    ) -> Handled {
        self.refuse_taken_address(request)?;
        let about = About { backups: names(request, "backup"), ..About::default() };
        let address = request.address.clone();
        let node = Node { about, ..Node::new(NodeType::Admin, address, NodeState::Running) };
        let admin = self.admit(connection, id, request.id, node)?;
        self.links.set_role(connection, Role::Admin(admin));
        self.links.notify(connection, self.cluster.table.message());
        self.backup.tell_upstream_admin(&self.cluster, &mut self.links, Some(connection));
        Ok(())
    }

    fn identify_storage(
        &mut self,
        connection: ConnectionId,
        id: u32,
        request: &RequestIdentification<'_>,
    ) -> Handled {
        if matches!(self.phase, Phase::Backup)
            && self.cluster.state() == ClusterState::StoppingBackup
        {
            return Err(Refusal::not_ready(NOT_READY));
        }
        let cloned = partitions(request, "new_nid");
        if request.address.is_none() {
            if matches!(self.phase, Phase::Recovery) {
                return Err(Refusal::not_ready(NOT_READY));
            }
            if request.id.is_some() || cloned.is_empty() {
                return Err(Refusal::protocol("a storage without an address"));
            }
        }
        self.refuse_taken_address(request)?;
        let known = request.id.and_then(|one| self.cluster.members.get(one));
        if known.is_some_and(|node| node.connection.is_some() || node.kind != NodeType::Storage) {
            return Err(Refusal::protocol("already connected"));
        }
        let has_cells = request.id.is_some_and(|one| self.cluster.table.has_member(one));
        let state = match (&self.phase, has_cells) {
            // It ends as soon as it has its id.
            _ if request.address.is_none() => NodeState::Down,
            (Phase::Recovery, _) | (_, false) => NodeState::Pending,
            (_, true) => NodeState::Running,
        };
        let about = About { device: names(request, "devpath"), ..About::default() };
        let node = Node { about, ..Node::new(NodeType::Storage, request.address.clone(), state) };
        if let Some(address) = &request.address {
            self.release_address(address, request.id);
        }
        let storage = self.admit(connection, id, request.id, node)?;
        self.links.set_role(connection, Role::Storage(storage));
        self.assign_clone(storage, &cloned);
        if let Phase::Recovery = self.phase {
            self.recovery.ask(&mut self.links, connection);
        } else {
            self.links.notify(connection, self.cluster.table.message());
            self.cluster.ask_known_by(&mut self.links, connection);
            if matches!(self.phase, Phase::Service | Phase::Backup) && state == NodeState::Running {
                self.start_storage(storage);
            }
        }
        Ok(())
    }

    /// The copy of another storage's database gets its cells, which lack what was committed since.
    fn assign_clone(&mut self, storage: NodeId, partitions: &[Partition]) {
        let state = CellState::OutOfDate;
        let changes = partitions.iter().filter(|one| one.0 < self.cluster.table.partitions());
        let changes: Vec<_> = changes
            .map(|partition| CellChange { partition: *partition, node: storage, state })
            .collect();
        for change in &changes {
            self.cluster.table.set(change.partition, storage, state);
        }
        self.cluster.tell_cells(&mut self.links, changes, false);
    }

    fn refuse_taken_address(&self, request: &RequestIdentification<'_>) -> Handled {
        let Some(address) = &request.address else { return Ok(()) };
        let node = self.cluster.members.by_address(address);
        let is_node = node.is_some_and(|(_, node)| node.connection.is_some());
        let is_master =
            self.cluster.members.master(address).is_some_and(|one| one.connection.is_some());
        if is_node || is_master {
            return Err(Refusal::protocol("already connected"));
        }
        Ok(())
    }

    /// A storage that is away had this address: another one has it now.
    fn release_address(&mut self, address: &zodium_neo::Address, id: Option<NodeId>) {
        let old = self.cluster.members.by_address(address).map(|(old, _)| old);
        if let Some(old) = old.filter(|old| Some(*old) != id)
            && let Some(node) = self.cluster.members.get_mut(old)
        {
            node.address = None;
            self.cluster.tell_node(&mut self.links, old);
        }
    }

    /// Takes a node in, and tells it and the others.
    fn admit(
        &mut self,
        connection: ConnectionId,
        request: u32,
        wanted: Option<NodeId>,
        mut node: Node,
    ) -> Result<NodeId, Refusal> {
        let kind = node.kind;
        let is_own =
            |id: NodeId| self.cluster.members.get(id).is_some_and(|known| known.kind == kind);
        let returns = wanted.filter(|id| kind == NodeType::Storage && is_own(*id));
        // Storages keep their ids: those of the table belong to them.
        let is_reserved = |id| self.cluster.table.has_member(id) && Some(id) != wanted;
        let free = returns.or_else(|| self.cluster.members.free_id(kind, wanted, is_reserved));
        let id = free.ok_or_else(|| Refusal::protocol("there is no free id"))?;
        node.id_timestamp = Some(self.cluster.clock.stamp());
        if let Some(known) = self.cluster.members.get(id) {
            node.completed_pack = known.completed_pack;
        }
        let (told, backup) = (node.told(id), node.about.backup.clone());
        info!(node = %id, state = %node.state, peer = self.links.name_of(connection), "accepting a node");
        self.cluster.members.insert(id, node);
        self.cluster.tell_nodes(&mut self.links, std::slice::from_ref(&told));
        if let Some(node) = self.cluster.members.get_mut(id) {
            node.connection = Some(connection);
        }
        self.accept(connection, request, Some(id));
        self.cluster.tell_all_nodes(&mut self.links, connection, told, backup.as_ref());
        Ok(id)
    }

    fn accept(&mut self, connection: ConnectionId, request: u32, your_id: Option<NodeId>) {
        let (node_type, id) = (NodeType::Master, self.cluster.id);
        self.links.answer(connection, request, AcceptIdentification { node_type, id, your_id });
    }

    /// An admin has left.
    pub(crate) fn admin_left(&mut self, admin: NodeId) {
        self.cluster.members.remove(admin);
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
