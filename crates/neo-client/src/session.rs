//! A connection to the primary master that has accepted this client.

use std::sync::Arc;
use std::time::Duration;

use zodium_neo::messages::{AskClusterState, AskLastTransaction};
use zodium_neo::{ClusterState, Message, NodeId};
use zodium_types::Tid;

use crate::NeoError;
use crate::connection::Connection;

/// Longest time for a node to accept this client.
pub(crate) const IDENTIFICATION_TIME_MAX: Duration = Duration::from_secs(15);

/// From the identification at the primary master to the end of its connection.
pub(crate) struct Session {
    /// The primary master.
    pub(crate) master: Arc<Connection>,
    /// The id of this client.
    pub(crate) id: NodeId,
    /// When the master identified this client; storages compare it.
    pub(crate) id_timestamp: Option<f64>,
    /// Whether the cluster is a backup: it tells of no commits.
    pub(crate) is_backup: bool,
}

impl Session {
    /// Fails when the master is lost.
    pub(crate) fn check(&self) -> Result<(), NeoError> {
        match self.master.has_ended() {
            true => Err(NeoError::MasterLost),
            false => Ok(()),
        }
    }
}

/// The last transaction of the cluster.
pub(crate) fn ask_last(master: &Arc<Connection>) -> Result<Tid, NeoError> {
    let last = master.ask(AskLastTransaction {}, |answer| match answer {
        Message::AnswerLastTransaction(last) => Some(last.tid),
        _ => None,
    })?;
    last.wait_for(IDENTIFICATION_TIME_MAX).ok_or_else(|| slow(master))?
}

/// Whether the cluster is a backup.
pub(crate) fn is_backup(master: &Arc<Connection>) -> Result<bool, NeoError> {
    let state = master.ask(AskClusterState {}, |answer| match answer {
        Message::AnswerClusterState(answer) => Some(answer.state),
        _ => None,
    })?;
    let state = state.wait_for(IDENTIFICATION_TIME_MAX).ok_or_else(|| slow(master))??;
    Ok(state == Some(ClusterState::BackingUp))
}

/// The error of a master that takes too long.
pub(crate) fn slow(master: &Connection) -> NeoError {
    NeoError::lost(master.peer(), "it did not accept this client in time")
}
