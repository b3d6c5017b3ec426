//! The admins of backup clusters, which connect to this one and tell how their clusters are.

use tracing::info;
use zodium_neo::messages::{AcceptIdentification, Pong, RequestIdentification};
use zodium_neo::{ConnectionId, Kind, Message, NodeType};

use crate::Admin;
use crate::handling::{Handled, Refusal};
use crate::health::{Change, Health};
use crate::peer::Role;

/// A backup cluster.
#[derive(Debug, Default)]
pub(crate) struct Backup {
    /// The connection that its admin has made.
    pub(crate) connection: Option<ConnectionId>,
    pub(crate) health: Health,
}

impl Admin {
    /// An admin identifies itself.
    pub(crate) fn backup_identifies(
        &mut self,
        connection: ConnectionId,
        id: u32,
        request: &RequestIdentification<'_>,
    ) -> Handled {
        if request.node_type != NodeType::Admin {
            return Err(Refusal::protocol("only admins of backup clusters identify themselves"));
        }
        let name = request.cluster;
        let Some(place) = self.settings.backups.iter().position(|known| known == name) else {
            return Err(Refusal::protocol(format!(
                "{name:.100} is no backup cluster that this admin monitors: --monitor-backup names \
                 them"
            )));
        };
        if self.backups[place].connection.is_some() {
            return Err(Refusal::protocol("already connected"));
        }
        self.links.set_role(connection, Role::Backup { place });
        let peer = self.links.name_of(connection);
        info!(cluster = name, peer, "the admin of a backup cluster has connected");
        self.backups[place].connection = Some(connection);
        let node_type = NodeType::Admin;
        self.links
            .answer((connection, id), AcceptIdentification { node_type, id: None, your_id: None });
        Ok(())
    }

    /// Handles a message of the admin of a backup cluster.
    pub(crate) fn backup_says(
        &mut self,
        connection: ConnectionId,
        place: usize,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::Ping(_) => self.links.answer((connection, id), Pong {}),
            Message::CloseClient(_) => self.close(connection),
            Message::NotifyMonitorInformation(message) => {
                let change = Change::from_information(&message.information);
                let change = change.map_err(|part| {
                    Refusal::protocol(format!("{part} is not what the protocol says"))
                })?;
                self.backup_changed(place, change);
            }
            other if other.kind() == Kind::Answer => {
                return self.answer_told(connection, id, other);
            }
            other => return Err(Refusal::unexpected(&other)),
        }
        Ok(())
    }

    /// The admin of a backup cluster is lost, and with it what was known of the cluster.
    pub(crate) fn backup_lost(&mut self, connection: ConnectionId, place: usize) {
        self.backups[place] = Backup::default();
        self.end_of_wait(connection);
    }
}
