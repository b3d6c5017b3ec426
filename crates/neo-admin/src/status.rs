//! What an admin says of itself, for its monitor.

use rustc_hash::FxHashMap;
use zodium_neo::messages::NodeInformation;
use zodium_neo::{Address, CellState, ClusterState, NodeId, NodeState, NodeType, TableId};

use crate::Admin;
use crate::peer::Role;
use crate::table::Table;

/// An admin at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its id; `None` until a master gives one.
    pub node: Option<NodeId>,
    /// The address of the primary master, if it is connected.
    pub master: Option<String>,
    /// The state of the cluster, if it is known.
    pub cluster_state: Option<ClusterState>,
    /// Storages with cells that are not running.
    pub storages_down: u64,
    /// For how many seconds the primary master has not answered, if it is long.
    pub master_silent_seconds: Option<u64>,
    /// What an operator should know of, in sentences.
    pub notes: Vec<String>,
    /// Connections of operators.
    pub operators: usize,
    /// The partition table, if the cluster has one.
    pub table: Option<TableId>,
    /// Its number of partitions.
    pub partitions: usize,
    /// Number of copies beside the first one.
    pub replicas: u32,
    /// The nodes of the cluster, by kind and id.
    pub members: Vec<MemberStatus>,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// Its id; `None` for a master that is not connected.
    pub id: Option<NodeId>,
    /// Its kind.
    pub kind: NodeType,
    /// Where it listens.
    pub address: Option<Address>,
    /// Its state.
    pub state: NodeState,
    /// Whether it is the primary master.
    pub is_primary: bool,
    /// Number of its cells in each state that it has some in.
    pub cells: Vec<(CellState, usize)>,
}

impl Admin {
    /// What the admin says of itself.
    pub fn status(&self) -> Status {
        Status {
            node: self.id,
            master: self.primary.map(|master| self.links.name_of(master)),
            cluster_state: self.own.state,
            storages_down: self.own.down,
            master_silent_seconds: self.notes.silent_seconds(),
            notes: self.own_notes().into_iter().chain(self.backup_notes()).collect(),
            operators: self.links.with(|role| *role == Role::Operator).len(),
            table: self.table.as_ref().and_then(|table| table.id),
            partitions: self.table.as_ref().map_or(0, |table| table.rows.len()),
            replicas: self.table.as_ref().map_or(0, |table| table.replicas),
            members: self.member_statuses(),
        }
    }

    fn member_statuses(&self) -> Vec<MemberStatus> {
        let mut cells: FxHashMap<NodeId, Vec<(CellState, usize)>> = FxHashMap::default();
        for cell in self.table.iter().flat_map(Table::cells) {
            let counts = cells.entry(cell.node).or_default();
            match counts.iter_mut().find(|(state, _)| *state == cell.state) {
                Some((_, count)) => *count += 1,
                None => counts.push((cell.state, 1)),
            }
        }
        let member = |node: NodeInformation| MemberStatus {
            id: node.id,
            kind: node.node_type,
            address: node.address,
            state: node.state,
            is_primary: node.id.is_some() && node.id == self.primary_id,
            cells: node.id.and_then(|id| cells.remove(&id)).unwrap_or_default(),
        };
        let mut members: Vec<_> = self.members.list(None).into_iter().map(member).collect();
        members.sort_by_key(|member| (member.kind.to_string(), member.id.map(|id| id.number())));
        members
    }
}
