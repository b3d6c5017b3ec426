//! The election: all masters dial each other, and the one that is primary for longest wins.
//!
//! A master begins as primary in the recovery. One that hears of an earlier primary, or is accepted
//! by one, becomes a secondary of it. Equal times are decided by addresses.

use std::time::Duration;

use zodium_neo::messages::RequestIdentification;
use zodium_neo::{Address, ConnectionId, Extra, LoggedRefusals, NodeState, NodeType};

use crate::cluster::Cluster;
use crate::members::Told;
use crate::peer::{Asked, Links, Role};

/// Pause before masters are dialled again.
const DIAL_PAUSE: Duration = Duration::from_millis(200);

/// What this master enters elections with.
#[derive(Debug, Default)]
pub(crate) struct Election {
    /// When this master began to be primary: the earliest one wins.
    began: f64,
    /// What other masters have refused this one for.
    pub(crate) refusals: LoggedRefusals,
}

impl Election {
    /// This master begins to be primary. No node is connected then.
    pub(crate) fn begin(&mut self, cluster: &mut Cluster) {
        cluster.members.clear();
        if cluster.id.is_none() {
            cluster.id = cluster.members.free_id(NodeType::Master, None, |_| false);
        }
        let (id, own) = (cluster.id, cluster.settings.address.clone());
        for master in cluster.members.masters_mut() {
            let is_own = master.address == own;
            master.state = if is_own { NodeState::Running } else { NodeState::Down };
            (master.id_timestamp, master.connection) = (None, None);
            if is_own {
                master.id = id;
            } else if master.id == id {
                master.id = None;
            }
        }
        self.began = cluster.clock.stamp();
    }

    /// Introduces this master to another one, as one that takes part in an election.
    pub(crate) fn challenge(&self, cluster: &Cluster, links: &mut Links, connection: ConnectionId) {
        identify(cluster, links, connection, Some(self.began));
    }

    /// Whether a master that introduces itself in the recovery wins against this one.
    pub(crate) fn is_won_by(
        &self,
        cluster: &Cluster,
        election: Option<f64>,
        address: &Address,
    ) -> bool {
        let own = (self.began, &cluster.settings.address);
        election.is_some_and(|election| (election, address) < own)
    }
}

/// Introduces this master to another one; `election` takes part in an election.
pub(crate) fn identify(
    cluster: &Cluster,
    links: &mut Links,
    connection: ConnectionId,
    election: Option<f64>,
) {
    let request = RequestIdentification {
        node_type: NodeType::Master,
        id: cluster.id,
        address: Some(cluster.settings.address.clone()),
        cluster: &cluster.settings.cluster,
        id_timestamp: election,
        extra: Extra::default(),
    };
    links.ask(connection, request, Asked::Identification);
}

/// Dials all masters that are not connected.
pub(crate) fn dial_rivals(cluster: &Cluster, links: &mut Links) {
    dial_rivals_after(cluster, links, Duration::ZERO);
}

/// Dials all masters that are not connected after a pause.
///
/// Each pair of masters has to meet before the recovery ends.
pub(crate) fn challenge_again(cluster: &Cluster, links: &mut Links) {
    dial_rivals_after(cluster, links, DIAL_PAUSE);
}

fn dial_rivals_after(cluster: &Cluster, links: &mut Links, after: Duration) {
    let own = &cluster.settings.address;
    for master in cluster.members.masters() {
        let address = &master.address;
        let is_rival =
            |role: &Role| matches!(role, Role::Rival { address: other } if other == address);
        if address != own && master.connection.is_none() && links.with(is_rival).is_empty() {
            links.dial(Role::Rival { address: address.clone() }, address.clone(), after);
        }
    }
}

/// The recovery has ended: masters that were not met are down. Gives those that were not before.
pub(crate) fn end(cluster: &mut Cluster, links: &mut Links) -> Vec<Told> {
    let own = cluster.settings.address.clone();
    let mut changed = Vec::new();
    for master in cluster.members.masters_mut() {
        let is_met = master.address == own || master.connection.is_some();
        if !is_met && master.state != NodeState::Down {
            master.state = NodeState::Down;
            changed.push(master.told());
        }
    }
    for connection in links.with(|role| matches!(role, Role::Rival { .. })) {
        links.forget(connection);
    }
    changed
}
