//! The state of a cluster, and an operator's commands for all of it.

use zodium_types::Tid;

use crate::values::{ClusterState, NodeId};
use crate::wire::record;

record! {
    /// Begins operation: from now on other nodes connect. M to S.
    pub struct StartOperation {
        /// Whether the cluster is a backup of another one.
        backup: bool,
    }

    /// Ends operation: what is under way between nodes is aborted. M to S, C.
    pub struct StopOperation {}

    /// The storage serves requests. S to M.
    pub struct NotifyReady {}

    /// Asks the master to change the cluster's state. ctl to A to M.
    pub struct SetClusterState {
        /// The state asked for.
        state: ClusterState,
    }

    /// Tells of the cluster's state. M to any.
    pub struct NotifyClusterInformation {
        /// The new state.
        state: ClusterState,
    }

    /// Asks for the cluster's state. ctl to A, A to M.
    pub struct AskClusterState {}

    /// The cluster's state.
    pub struct AnswerClusterState {
        /// The state; `None` if the admin has no primary master.
        state: Option<ClusterState>,
    }

    /// Asks for the last committed transaction. C to M, ctl to A to M.
    pub struct AskLastTransaction {}

    /// The last committed transaction.
    pub struct AnswerLastTransaction {
        /// Its tid.
        tid: Tid,
    }

    /// Removes all transactions after one. ctl to A to M as a command; M to S as a notification,
    /// which is not answered.
    pub struct Truncate {
        /// The last transaction that stays.
        tid: Tid,
    }

    /// Makes storages repair their databases. ctl to A to M.
    pub struct Repair {
        /// The storages.
        ids: Vec<NodeId>,
        /// Only report what would be done.
        dry_run: bool,
    }

    /// Makes a storage repair its database: it removes data that no record refers to. M to S.
    pub struct NotifyRepair {
        /// Only report what would be done.
        dry_run: bool,
    }

    /// Makes all nodes write out their logs. ctl to A to M to any.
    pub struct FlushLog {}
}
