//! The admin of the upstream cluster, which that of a backup cluster tells how its cluster is.

use std::time::Duration;

use tracing::{debug, info, warn};
use zodium_neo::messages::{
    Error as ErrorMessage, NotifyMonitorInformation, Pong, RequestIdentification,
};
use zodium_neo::{Address, ConnectionId, ErrorCode, Extra, Message, NodeType};

use crate::Admin;
use crate::handling::{Handled, Refusal};
use crate::monitor::NOT_CONNECTED;
use crate::peer::{Asked, Role};

/// Pause before the upstream admin is dialled again.
const DIAL_PAUSE: Duration = Duration::from_secs(1);

/// The admin of the upstream cluster.
#[derive(Debug, Default)]
pub(crate) struct Upstream {
    /// Where it listens; `None` of a cluster that is no backup.
    pub(crate) address: Option<Address>,
    /// The connection, also one that is being made.
    connection: Option<ConnectionId>,
    /// The connection, when it is accepted.
    pub(crate) accepted: Option<ConnectionId>,
    /// Why it has refused this admin the last time.
    refused: Option<String>,
}

impl Upstream {
    /// Notes why it refuses this admin; whether that is another reason than the last time.
    fn is_new(&mut self, reason: &str) -> bool {
        let is_new = self.refused.as_deref() != Some(reason);
        self.refused = Some(reason.to_owned());
        is_new
    }
}

impl Admin {
    /// The master tells where the upstream admin is.
    pub(crate) fn upstream_told(&mut self, address: Address) {
        if self.upstream.address.as_ref() == Some(&address) {
            return;
        }
        self.members.add_upstream(self.upstream.address.as_ref(), &address);
        self.upstream.address = Some(address);
        match self.upstream.connection {
            // Its end dials the new address.
            Some(connection) => self.close(connection),
            None => self.dial_upstream(Duration::ZERO),
        }
    }

    fn dial_upstream(&mut self, after: Duration) {
        let Some(address) = self.upstream.address.clone() else { return };
        let connection = self.links.dial(Role::Upstream { is_accepted: false }, address, after);
        self.upstream.connection = Some(connection);
    }

    pub(crate) fn upstream_lost(&mut self) {
        (self.upstream.connection, self.upstream.accepted) = (None, None);
        self.dial_upstream(DIAL_PAUSE);
    }

    pub(crate) fn identify_to_upstream(&mut self, connection: ConnectionId) {
        let cluster = self.settings.cluster.clone();
        let request = RequestIdentification {
            node_type: NodeType::Admin,
            id: None,
            address: None,
            cluster: &cluster,
            id_timestamp: None,
            extra: Extra::default(),
        };
        self.links.ask(connection, request, Asked::Identification);
    }

    /// Handles a message of the upstream admin. It may ask what it reports, and nothing else.
    pub(crate) fn upstream_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::Ping(_) => self.links.answer((connection, id), Pong {}),
            Message::AcceptIdentification(_) => self.accepted_by_upstream(connection),
            Message::AskRecovery(_) | Message::AskLastTransaction(_) => {
                let Some(master) = self.primary else {
                    return Err(Refusal::not_ready(NOT_CONNECTED));
                };
                return self.relay(connection, id, message, master);
            }
            Message::Error(error) => self.refused_by_upstream(connection, &error),
            other => return Err(Refusal::unexpected(&other)),
        }
        Ok(())
    }

    /// Logs why, unless it is what was logged last: it is dialled again each second.
    fn refused_by_upstream(&mut self, connection: ConnectionId, error: &ErrorMessage<'_>) {
        let (peer, code, reason) = (self.links.name_of(connection), error.code, error.for_log());
        if !self.upstream.is_new(reason) {
            debug!(peer, %code, reason, "still not accepted by the upstream admin");
        } else if code == ErrorCode::NotReady {
            info!(peer, %code, reason, "not accepted by the upstream admin, trying again");
        } else {
            warn!(peer, %code, reason, "refused by the upstream admin, trying again; check its \
                --monitor-backup");
        }
        self.close(connection);
    }

    fn accepted_by_upstream(&mut self, connection: ConnectionId) {
        self.links.set_role(connection, Role::Upstream { is_accepted: true });
        let admin = self.links.name_of(connection);
        info!(admin, "identified to the admin of the upstream cluster");
        self.upstream.accepted = Some(connection);
        self.upstream.refused = None;
        let information = self.own.whole().to_information();
        self.links.notify(connection, NotifyMonitorInformation { information });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_new_once() {
        let mut upstream = Upstream::default();
        let reasons = ["a", "a", "b", "a"];
        assert_eq!(reasons.map(|reason| upstream.is_new(reason)), [true, false, true, true]);
    }
}
