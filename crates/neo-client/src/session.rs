//! A connection to the primary master that has accepted this client.

use std::sync::Arc;

use zodium_neo::NodeId;

use crate::NeoError;
use crate::connection::Connection;

/// From the identification at the primary master to the end of its connection.
pub(crate) struct Session {
    /// The primary master.
    pub(crate) master: Arc<Connection>,
    /// The id of this client.
    pub(crate) id: NodeId,
    /// When the master identified this client; storages compare it.
    pub(crate) id_timestamp: Option<f64>,
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
