//! The metrics of a storage node of a NEO cluster. A server has none of their samples.

use std::fmt;

use super::{BYTES, Families, NO_LABELS, SECONDS};
use crate::node::Node;

/// The states that a cell can have.
const CELL_STATES: [&str; 4] = ["UP_TO_DATE", "OUT_OF_DATE", "FEEDING", "CORRUPTED"];

type Gauge = (&'static str, &'static str, fn(&Node) -> u64);

const GAUGES: [Gauge; 5] = [
    ("zodium_node_operating", "1 while the node serves other nodes, else 0", |node| {
        node.is_operating.into()
    }),
    ("zodium_node_cells_behind", "Cells for which something is to be fetched", |node| {
        node.cells.iter().filter(|cell| cell.replicated.is_some()).count() as u64
    }),
    ("zodium_node_delayed_reads", "Reads that wait for a transaction to be unlocked", |node| {
        node.delayed_reads
    }),
    ("zodium_node_replicating", "1 while a partition is being fetched, else 0", |node| {
        node.replicating.is_some().into()
    }),
    ("zodium_node_checking", "1 while a partition is being compared, else 0", |node| {
        node.checking.is_some().into()
    }),
];

const COUNTERS: [Gauge; 12] = [
    ("zodium_node_loads", "Objects loaded for clients", |node| node.totals.loads),
    ("zodium_node_remembered_loads", "Loads answered from memory, not by the database", |node| {
        node.totals.remembered_loads
    }),
    ("zodium_node_stores", "Records received from clients", |node| node.totals.stores),
    ("zodium_node_votes", "Transactions voted", |node| node.totals.votes),
    ("zodium_node_commits", "Transactions committed", |node| node.totals.commits),
    ("zodium_node_aborts", "Transactions given up", |node| node.totals.aborts),
    ("zodium_node_conflicts", "Stores of objects that had changed meanwhile", |node| {
        node.totals.conflicts
    }),
    ("zodium_node_deadlocks", "Locks that clients were asked to give back", |node| {
        node.totals.deadlocks
    }),
    ("zodium_node_fetched_transactions", "Transactions fetched from other storages", |node| {
        node.totals.fetched_transactions
    }),
    ("zodium_node_fetched_records", "Records fetched from other storages", |node| {
        node.totals.fetched_records
    }),
    ("zodium_node_checked_partitions", "Partitions compared with their replicas", |node| {
        node.totals.checked_partitions
    }),
    ("zodium_node_differing_cells", "Cells that a comparison has reported", |node| {
        node.totals.differing_cells
    }),
];

pub(super) fn encode(families: &mut Families<'_, '_>, node: Option<&Node>) -> fmt::Result {
    let info = node.map(|node| {
        [
            ("cluster", &*node.cluster),
            ("node", node.id.as_deref().unwrap_or("")),
            ("state", node.state),
        ]
    });
    families.gauge(
        "zodium_node_info",
        "Always 1; its labels have the cluster, the id of the node, and its state",
        None,
        info.iter().map(|labels| (labels, 1_u64)),
    )?;
    for (name, help, value) in GAUGES {
        families.gauge(name, help, None, node.map(|node| (&NO_LABELS, value(node))))?;
    }
    encode_labelled(families, node)?;
    families.gauge(
        "zodium_node_database",
        "Size of the database with its log",
        BYTES,
        node.map(|node| (&NO_LABELS, node.database_bytes)),
    )?;
    families.gauge(
        "zodium_node_unvoted",
        "Data in memory of transactions that are not voted",
        BYTES,
        node.map(|node| (&NO_LABELS, node.unvoted_bytes)),
    )?;
    families.gauge(
        "zodium_node_replication_lag",
        "Time from the last replicated transaction to the last one to fetch, of the worst cell",
        SECONDS,
        node.map(|node| (&NO_LABELS, node.replication_lag_seconds)),
    )?;
    for (name, help, value) in COUNTERS {
        families.counter(name, help, None, node.map(|node| (&NO_LABELS, value(node))))?;
    }
    families.counter(
        "zodium_node_fed",
        "Bytes sent to other storages that replicate",
        BYTES,
        node.map(|node| (&NO_LABELS, node.totals.fed_bytes)),
    )
}

/// Gauges with one label.
fn encode_labelled(families: &mut Families<'_, '_>, node: Option<&Node>) -> fmt::Result {
    let cells = node.iter().flat_map(|node| {
        CELL_STATES.map(|state| {
            let count = node.cells.iter().filter(|cell| cell.state == state).count();
            ([("state", state)], count as u64)
        })
    });
    let cells: Vec<_> = cells.collect();
    let cells = cells.iter().map(|(labels, count)| (labels, *count));
    families.gauge("zodium_node_cells", "Cells of the node, by state", None, cells)?;
    let transactions = node.iter().flat_map(|node| {
        [
            ([("state", "open")], node.open_transactions),
            ([("state", "voted")], node.voted_transactions),
            ([("state", "locked")], node.locked_transactions),
        ]
    });
    let transactions: Vec<_> = transactions.collect();
    let help = "Transactions in progress: open, voted, or locked and not yet unlocked";
    let samples = transactions.iter().map(|(labels, count)| (labels, *count));
    families.gauge("zodium_node_transactions", help, None, samples)?;
    let connections = node.iter().flat_map(|node| {
        [
            ([("kind", "client")], node.client_connections),
            ([("kind", "storage")], node.storage_connections),
            ([("kind", "master")], node.master_connections),
        ]
    });
    let connections: Vec<_> = connections.collect();
    let samples = connections.iter().map(|(labels, count)| (labels, *count));
    families.gauge("zodium_node_connections", "Connections to other nodes", None, samples)
}
