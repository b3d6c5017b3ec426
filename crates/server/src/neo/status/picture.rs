//! What an admin knows of its cluster, at one time.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use zodium_neo::messages::NodeInformation;
use zodium_neo::{CellState, ClusterState, NodeId, NodeState, NodeType, TableId};
use zodium_neo_server::AskError;
use zodium_types::Tid;

use crate::neo::asking::{Asking, Report, Rows};
use crate::neo::ctl::json;

/// How long the admin may take to ask the primary master, or the admins of backup clusters.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(3);
/// What is said of a primary master that takes longer.
const MASTER_SILENT: &str = "the primary master does not answer: if it hangs, restart it. Another \
                             master takes over only when it has ended";
/// What is said when the report takes longer.
const BACKUP_SILENT: &str = "the admin of a backup cluster does not answer, so nothing is known of \
                             the backup clusters: look at them there";

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
    /// What is not as it should be, in sentences: the master and the admin know more of it.
    pub(super) notes: Vec<String>,
    /// What the admins of backup clusters say, line by line.
    pub(super) backups: Vec<String>,
    /// Backup clusters that are not well.
    pub(super) unwell_backups: Vec<String>,
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
        let (notes, backups, unwell_backups) = Default::default();
        let (last_tid, backup_tid) = (None, None);
        let mut picture = Picture {
            state,
            primary,
            nodes,
            table,
            last_tid,
            backup_tid,
            notes,
            backups,
            unwell_backups,
        };
        // What is answered too late must not be taken for another answer: nothing more is asked.
        match timeout(ANSWER_TIME_MAX, picture.ask_last_ids(ask)).await {
            Ok(answered) => answered?,
            Err(_) => {
                picture.notes.push(MASTER_SILENT.to_owned());
                return Ok(picture);
            }
        }
        match timeout(ANSWER_TIME_MAX, ask.report()).await {
            Ok(report) => picture.take_report(report?),
            Err(_) => picture.notes.push(BACKUP_SILENT.to_owned()),
        }
        Ok(picture)
    }

    async fn ask_last_ids(&mut self, ask: &mut Asking) -> Result<(), AskError> {
        if matches!(self.state, Some(ClusterState::Running | ClusterState::BackingUp)) {
            self.last_tid = Some(ask.last_transaction().await?);
        }
        if self.state == Some(ClusterState::BackingUp) {
            self.backup_tid = ask.recovery().await?.backup_tid;
        }
        // An operator may be about to cut off what is between the two. Other masters may refuse.
        if self.state == Some(ClusterState::StartingBackup) {
            self.last_tid = ask.last_transaction().await.ok();
            self.backup_tid = ask.recovery().await.ok().and_then(|answer| answer.backup_tid);
        }
        Ok(())
    }

    /// Takes what the report has. Its first part is on the cluster itself: a line on what
    /// is known anyway, and a line for each note, which NEO/py's admins do not have.
    pub(super) fn take_report(&mut self, report: Report) {
        let Report { warnings, problems, summary } = report;
        let (own, backups) = summary.split_once("\n\n").unwrap_or((&summary, ""));
        self.notes.extend(own.lines().skip(1).map(|line| line.trim().to_owned()));
        let backups = backups.lines().filter(|line| !line.is_empty());
        self.backups = backups.map(str::to_owned).collect();
        self.unwell_backups = problems.into_iter().chain(warnings).flatten().collect();
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
