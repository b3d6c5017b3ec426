//! What an admin knows of its cluster, at one time.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use zodium_neo::messages::NodeInformation;
use zodium_neo::{CellState, ClusterState, NodeId, NodeState, NodeType, TableId};
use zodium_neo_server::AskError;
use zodium_types::Tid;

use crate::neo::asking::{Asking, Rows};
use crate::neo::ctl::json;

/// How long the admin may take to ask the admins of backup clusters.
const REPORT_TIME_MAX: Duration = Duration::from_secs(3);

/// A cluster at one time.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    pub(super) state: Option<ClusterState>,
    pub(super) primary: NodeId,
    /// Sorted as commands print them.
    pub(super) nodes: Vec<NodeInformation>,
    pub(super) table: Rows,
    /// The last transaction, while the cluster operates.
    pub(super) last_tid: Option<Tid>,
    /// Of a backup cluster: the last transaction that is complete.
    pub(super) backup_tid: Option<Tid>,
    /// What the admins of backup clusters say, line by line.
    pub(super) backups: Vec<String>,
}

/// Cells of a storage that are not what they are to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cells {
    pub(super) node: NodeId,
    pub(super) partitions: Vec<u32>,
}

impl Picture {
    /// Asks an admin.
    ///
    /// The master is asked only while the cluster operates: that of NEO/py fails if it is asked
    /// before it knows a backup's last transaction.
    pub(super) async fn take(ask: &mut Asking) -> Result<Picture, AskError> {
        let state = ask.cluster_state().await?;
        let primary = ask.primary().await?;
        let mut nodes = ask.nodes(None).await?;
        crate::neo::ctl::sort(&mut nodes);
        let table = ask.rows(0, 0, None).await?;
        let (mut last_tid, mut backup_tid) = (None, None);
        if matches!(state, Some(ClusterState::Running | ClusterState::BackingUp)) {
            last_tid = Some(ask.last_transaction().await?);
        }
        if state == Some(ClusterState::BackingUp) {
            backup_tid = ask.recovery().await?.backup_tid;
        }
        let report = timeout(REPORT_TIME_MAX, ask.report()).await;
        let report = report.ok().transpose()?.map(|report| report.summary).unwrap_or_default();
        // The first line is on the cluster itself.
        let backups = report.lines().skip(1).filter(|line| !line.is_empty());
        let backups = backups.map(str::to_owned).collect();
        Ok(Picture { state, primary, nodes, table, last_tid, backup_tid, backups })
    }

    /// The storages.
    pub(super) fn storages(&self) -> impl Iterator<Item = &NodeInformation> {
        self.nodes.iter().filter(|node| node.node_type == NodeType::Storage)
    }

    pub(super) fn state_of(&self, id: NodeId) -> NodeState {
        let node = self.nodes.iter().find(|node| node.id == Some(id));
        node.map_or(NodeState::Unknown, |node| node.state)
    }

    /// Whether a storage can serve.
    pub(super) fn is_up(&self, id: NodeId) -> bool {
        matches!(self.state_of(id), NodeState::Running | NodeState::Pending)
    }

    /// The storages with cells that are like that, with the partitions of these.
    pub(super) fn cells(&self, is_like: impl Fn(NodeId, CellState) -> bool) -> Vec<Cells> {
        let mut found: Vec<Cells> = Vec::new();
        for (partition, row) in (0..).zip(&self.table.rows) {
            for cell in row.iter().filter(|cell| is_like(cell.node, cell.state)) {
                match found.iter_mut().find(|cells| cells.node == cell.node) {
                    Some(cells) => cells.partitions.push(partition),
                    None => {
                        found.push(Cells { node: cell.node, partitions: vec![partition] });
                    }
                }
            }
        }
        found.sort_unstable_by_key(|cells| cells.node);
        found
    }

    /// The cells that are being replicated.
    pub(super) fn replicating(&self) -> Vec<Cells> {
        self.cells(|node, state| {
            state == CellState::OutOfDate && self.state_of(node) == NodeState::Running
        })
    }

    pub(super) fn to_json(&self, advice: &[String]) -> Value {
        let tid = |tid: Option<Tid>| tid.map(|tid| tid.to_string());
        let replicating = self
            .replicating()
            .into_iter()
            .map(|cells| json!({ "node": cells.node.to_string(), "partitions": cells.partitions }));
        json!({
            "state": self.state.map(ClusterState::name),
            "primary": self.primary.to_string(),
            "last_tid": tid(self.last_tid),
            "backup_tid": tid(self.backup_tid),
            "ptid": self.table.table.map(|TableId(number)| number),
            "replicas": self.table.replicas,
            "nodes": json::nodes(&self.nodes),
            "partitions": json::rows(&self.table.rows, 0),
            "replicating": replicating.collect::<Vec<_>>(),
            "backups": self.backups,
            "is_well": advice.is_empty(),
            "advice": advice,
        })
    }
}
