//! Which storages to ask: the nodes and the partition table, as the primary master tells them.
//!
//! No I/O. Reads of one object go to the same storage as long as it answers, so that each replica's
//! caches have other objects; different objects go to different replicas.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use zodium_neo::messages::{
    NodeInformation, NotifyNodeInformation, NotifyPartitionChanges, SendPartitionTable,
};
use zodium_neo::{NodeId, NodeState, NodeType, Partition, PartitionTable, TableError};
use zodium_types::{Address, Oid, Tid};

/// A storage that failed is asked last for so long, unless the master says that it runs again.
const FAILURE_TIME: Duration = Duration::from_secs(60);

/// The cluster, as the primary master tells it.
#[derive(Debug, Default)]
pub(crate) struct Routing {
    table: Option<PartitionTable>,
    nodes: FxHashMap<NodeId, NodeInformation>,
    failures: FxHashMap<NodeId, Instant>,
}

impl Routing {
    /// Forgets everything, for another primary master.
    pub(crate) fn reset(&mut self) {
        *self = Routing::default();
    }

    /// Takes a list of nodes; gives those that connections must not be kept to.
    pub(crate) fn nodes_told(&mut self, told: NotifyNodeInformation) -> Vec<NodeId> {
        let mut stopped = Vec::new();
        for node in told.nodes {
            let Some(id) = node.id else { continue };
            match node.state {
                NodeState::Running => drop(self.failures.remove(&id)),
                _ => stopped.push(id),
            }
            match node.state {
                NodeState::Unknown => drop(self.nodes.remove(&id)),
                _ => drop(self.nodes.insert(id, node)),
            }
        }
        stopped
    }

    /// Takes the whole table.
    pub(crate) fn table_told(&mut self, told: SendPartitionTable) -> Result<(), TableError> {
        self.table = PartitionTable::from_message(told)?;
        Ok(())
    }

    /// Takes a change of the table.
    ///
    /// # Errors
    /// When it does not follow the table. Another connection gets the whole table.
    pub(crate) fn changes_told(&mut self, told: &NotifyPartitionChanges) -> Result<(), TableError> {
        match &mut self.table {
            Some(table) => table.apply(told),
            None => Ok(()),
        }
    }

    /// The timestamp that a node says when it connects to others.
    pub(crate) fn id_timestamp(&self, node: NodeId) -> Option<f64> {
        self.nodes.get(&node)?.id_timestamp
    }

    /// Where a storage listens, if it runs.
    pub(crate) fn address(&self, node: NodeId) -> Option<Address> {
        let node = self.nodes.get(&node)?;
        if node.node_type != NodeType::Storage || node.state != NodeState::Running {
            return None;
        }
        let address = node.address.as_ref()?;
        Some(Address::Tcp { host: address.host.clone(), port: address.port })
    }

    /// Whether a storage runs, as the master says.
    pub(crate) fn is_running(&self, node: NodeId) -> bool {
        self.address(node).is_some()
    }

    /// Number of partitions; 0 without a table.
    pub(crate) fn partitions(&self) -> u32 {
        self.table.as_ref().map_or(0, PartitionTable::partitions)
    }

    /// The partition of an object; `None` without a table.
    pub(crate) fn of_oid(&self, oid: Oid) -> Option<Partition> {
        self.table.as_ref()?.partition_of_oid(oid)
    }

    /// The number of an object within its partition, by which reads are spread over replicas: oids
    /// of one partition have the same remainder.
    pub(crate) fn spread_of(&self, oid: Oid) -> u64 {
        oid.0 / u64::from(self.partitions().max(1))
    }

    /// The partition of a transaction; `None` without a table.
    pub(crate) fn of_tid(&self, tid: Tid) -> Option<Partition> {
        self.table.as_ref()?.partition_of_tid(tid)
    }

    /// Whether each partition can be read from a storage that runs.
    pub(crate) fn is_operational(&self) -> bool {
        self.table.as_ref().is_some_and(|table| table.is_operational(|node| self.is_running(node)))
    }

    /// The running storages that serve reads of a partition, in the order in which to ask them.
    /// `spread` chooses the first one.
    pub(crate) fn readable(&self, partition: Partition, spread: u64, now: Instant) -> Vec<NodeId> {
        let Some(table) = &self.table else { return Vec::new() };
        let mut nodes: Vec<NodeId> =
            table.readable(partition).filter(|node| self.is_running(*node)).collect();
        if !nodes.is_empty() {
            // The remainder is below a length.
            let first = (spread % nodes.len() as u64) as usize;
            nodes.rotate_left(first);
        }
        // Stable: those that did not fail keep their order.
        nodes.sort_by_key(|node| self.failed_lately(*node, now));
        nodes
    }

    /// The storages that take part in commits to a partition, whether they run or not.
    pub(crate) fn writable(&self, partition: Partition) -> Vec<NodeId> {
        self.table.as_ref().map_or_else(Vec::new, |table| table.writable(partition).collect())
    }

    /// Notes that a storage did not answer.
    pub(crate) fn failed(&mut self, node: NodeId, now: Instant) {
        self.failures.insert(node, now);
    }

    /// Notes that a storage answers.
    pub(crate) fn answered(&mut self, node: NodeId) {
        self.failures.remove(&node);
    }

    fn failed_lately(&self, node: NodeId, now: Instant) -> bool {
        let failed = self.failures.get(&node);
        failed.is_some_and(|failed| now.saturating_duration_since(*failed) < FAILURE_TIME)
    }
}

#[cfg(test)]
mod tests {
    use zodium_neo::messages::{Cell, CellChange};
    use zodium_neo::{CellState, TableId};

    use super::*;

    fn storage(number: u32) -> NodeId {
        NodeId::of(NodeType::Storage, number).unwrap()
    }

    fn node(number: u32, state: NodeState) -> NodeInformation {
        NodeInformation {
            node_type: NodeType::Storage,
            address: Some(zodium_neo::Address { host: "127.0.0.1".to_owned(), port: 1 }),
            id: Some(storage(number)),
            state,
            id_timestamp: Some(f64::from(number)),
        }
    }

    fn told(nodes: Vec<NodeInformation>) -> NotifyNodeInformation {
        NotifyNodeInformation { timestamp: 1.0, nodes }
    }

    fn cell(number: u32, state: CellState) -> Cell {
        Cell { node: storage(number), state }
    }

    /// Storages 1 to 3; partition 0 on all, not to be read on the third, and 1 on the first.
    fn routing() -> Routing {
        let mut routing = Routing::default();
        let nodes = (1..=3).map(|number| node(number, NodeState::Running)).collect();
        assert_eq!(routing.nodes_told(told(nodes)), []);
        let rows = vec![
            vec![
                cell(1, CellState::UpToDate),
                cell(2, CellState::Feeding),
                cell(3, CellState::OutOfDate),
            ],
            vec![cell(1, CellState::UpToDate)],
        ];
        let table = SendPartitionTable { table: Some(TableId(7)), replicas: 2, rows };
        routing.table_told(table).unwrap();
        routing
    }

    #[test]
    fn reads_are_spread_over_readable_cells_and_prefer_those_that_did_not_fail() {
        let (mut routing, now) = (routing(), Instant::now());
        let zero = Partition(0);
        assert_eq!(routing.readable(zero, 0, now), [storage(1), storage(2)]);
        assert_eq!(routing.readable(zero, 5, now), [storage(2), storage(1)]);
        assert_eq!(routing.writable(zero), [storage(1), storage(2), storage(3)]);
        routing.failed(storage(1), now);
        assert_eq!(routing.readable(zero, 0, now), [storage(2), storage(1)]);
        assert_eq!(routing.readable(zero, 0, now + FAILURE_TIME), [storage(1), storage(2)]);
        routing.answered(storage(1));
        assert_eq!(routing.readable(zero, 0, now), [storage(1), storage(2)]);
        assert_eq!(routing.readable(Partition(9), 0, now), []);
    }

    #[test]
    fn stopped_nodes_are_not_asked_and_changes_of_the_table_apply() {
        let (mut routing, now) = (routing(), Instant::now());
        assert!(routing.is_operational());
        let stopped = routing.nodes_told(told(vec![node(1, NodeState::Down)]));
        assert_eq!(stopped, [storage(1)]);
        assert_eq!(routing.readable(Partition(0), 0, now), [storage(2)]);
        assert!(!routing.is_operational(), "the second partition was on the first storage only");
        let change =
            CellChange { partition: Partition(1), node: storage(2), state: CellState::UpToDate };
        let change =
            NotifyPartitionChanges { table: TableId(8), replicas: 2, changes: vec![change] };
        routing.changes_told(&change).unwrap();
        assert!(routing.is_operational());
        assert!(routing.changes_told(&change).is_err(), "the same change again");
        assert_eq!(routing.nodes_told(told(vec![node(2, NodeState::Unknown)])), [storage(2)]);
        assert_eq!((routing.address(storage(2)), routing.partitions()), (None, 2));
    }

    #[test]
    fn ids_lead_to_partitions() {
        let routing = routing();
        assert_eq!(routing.of_oid(Oid(5)), Some(Partition(1)));
        assert_eq!(routing.of_tid(Tid(4)), Some(Partition(0)));
        assert_eq!(routing.id_timestamp(storage(3)), Some(3.0));
        assert_eq!(Routing::default().of_oid(Oid(5)), None);
    }
}
