//! What masters say: those of this cluster, and those of the upstream one.

use tracing::{error, warn};
use zodium_neo::{ClusterState, ConnectionId, Message, NodeType};

use crate::Master;
use crate::handling::Handled;
use crate::peer::Asked;

impl Master {
    /// Handles a message of a master of the upstream cluster.
    pub(crate) fn upstream_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        let Master { cluster, links, readiness, packs, backup, .. } = self;
        let left = backup.upstream_says(cluster, links, readiness, packs, connection, message)?;
        let Some(message) = left else { return Ok(()) };
        match (links.answered(connection, id), message) {
            (Some(Asked::UpstreamLast), Message::AnswerLastTransaction(answer)) => {
                if answer.tid < cluster.last_tid {
                    let (upstream, here) = (answer.tid, cluster.last_tid);
                    warn!(%upstream, %here, "the upstream cluster was truncated, leaving backup \
                        mode in case this one must be truncated as well");
                    self.stop_backup();
                } else {
                    backup.upstream_is_at(cluster, links, readiness, answer.tid);
                }
                Ok(())
            }
            (Some(Asked::UpstreamPacks(from)), Message::AnswerPackOrders(answer)) => {
                let told = (from, answer.orders);
                backup.upstream_packs_told(cluster, links, readiness, packs, told);
                Ok(())
            }
            (_, other) => self.any_says(connection, id, &other),
        }
    }

    /// The connection to the upstream cluster has ended. Clients would not notice that they read
    /// old data.
    pub(crate) fn upstream_left(&mut self, connection: ConnectionId) {
        if self.backup.upstream_left(connection) && self.cluster.state() == ClusterState::BackingUp
        {
            error!("the connection to the upstream cluster has ended, connecting again");
            self.close_clients();
            self.backup.begin(&mut self.cluster, &mut self.links);
        }
    }

    /// The cluster will not be a backup any more. Cells that are behind others catch up first.
    pub(crate) fn stop_backup(&mut self) {
        self.backup.begin_stop(&self.cluster, &mut self.links);
        self.close_clients();
        self.cluster.set_state(&mut self.links, ClusterState::StoppingBackup);
        self.order_all();
    }

    /// Orders what storages of a backup lack, in all partitions.
    pub(crate) fn order_all(&mut self) {
        self.backup.order_all(&self.cluster, &mut self.links, &self.readiness);
    }

    fn close_clients(&mut self) {
        for (_, client) in self.cluster.members.identified(NodeType::Client) {
            self.close(client);
        }
    }
}
