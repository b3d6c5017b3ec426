//! The election: all masters dial each other, and the one that is primary for longest wins.
//!
//! A master begins as primary in the recovery. One that hears of an earlier primary, or is accepted
//! by one, becomes a secondary of it. Equal times are decided by addresses.

use std::time::Duration;

use tracing::{debug, info};
use zodium_neo::messages::RequestIdentification;
use zodium_neo::{Address, ConnectionId, Extra, Message, NodeState, NodeType};

use crate::Master;
use crate::Phase;
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::links::Links;
use crate::members::Told;
use crate::peer::{Asked, Role};

/// Pause before masters are dialled again.
const DIAL_PAUSE: Duration = Duration::from_millis(200);

impl Master {
    /// Begins to be primary. No node is connected then.
    pub(crate) fn play_primary(&mut self) {
        self.links.forget_all_but(None);
        self.cluster.members.clear();
        if self.cluster.id.is_none() {
            self.cluster.id = self.cluster.members.free_id(NodeType::Master, None, |_| false);
        }
        let (id, own) = (self.cluster.id, self.cluster.settings.address.clone());
        for master in self.cluster.members.masters_mut() {
            let is_own = master.address == own;
            master.state = if is_own { NodeState::Running } else { NodeState::Down };
            (master.id_timestamp, master.connection) = (None, None);
            if is_own {
                master.id = id;
            } else if master.id == id {
                master.id = None;
            }
        }
        self.election = self.cluster.clock.stamp();
        // With a partition of the network in two, each part would start without the other.
        self.recovery.forbid_start();
        info!(master = ?self.cluster.id, "playing the primary master, recovering the cluster");
        self.begin_recovery();
        self.dial_rivals(Duration::ZERO);
    }

    /// Dials all masters that are not connected.
    fn dial_rivals(&mut self, after: Duration) {
        let is_there = |address: &Address, links: &Links| {
            !links
                .with(|role| matches!(role, Role::Rival { address: other } if other == address))
                .is_empty()
        };
        let missing: Vec<_> = self
            .cluster
            .members
            .masters()
            .iter()
            .filter(|master| {
                master.address != self.cluster.settings.address && master.connection.is_none()
            })
            .map(|master| master.address.clone())
            .filter(|address| !is_there(address, &self.links))
            .collect();
        for address in missing {
            self.links.dial(Role::Rival { address: address.clone() }, address, after);
        }
    }

    /// An attempt to reach another master is over.
    pub(crate) fn rival_left(&mut self) {
        self.challenge_again();
    }

    /// Each pair of masters has to meet before the recovery ends.
    pub(crate) fn challenge_again(&mut self) {
        if matches!(self.phase, Phase::Recovery) {
            self.dial_rivals(DIAL_PAUSE);
        }
    }

    /// Introduces this master to another one; `election` takes part in an election.
    pub(crate) fn identify_as_master(&mut self, connection: ConnectionId, election: Option<f64>) {
        let (cluster, address) =
            (self.cluster.settings.cluster.clone(), self.cluster.settings.address.clone());
        let request = RequestIdentification {
            node_type: NodeType::Master,
            id: self.cluster.id,
            address: Some(address),
            cluster: &cluster,
            id_timestamp: election,
            extra: Extra::default(),
        };
        self.links.ask(connection, request, Asked::Identification);
    }

    /// Whether a master that introduces itself wins against this one.
    pub(crate) fn is_won_by(&self, election: Option<f64>, address: &Address) -> bool {
        let own = (self.election, &self.cluster.settings.address);
        let is_electing = matches!(self.phase, Phase::Recovery);
        is_electing && election.is_some_and(|election| (election, address) < own)
    }

    /// Handles a message of a master that this one dialled in an election.
    pub(crate) fn rival_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        let Some(Role::Rival { address }) = self.links.role(connection) else { return Ok(()) };
        let address = address.clone();
        match message {
            Message::AcceptIdentification(accepted) => {
                if accepted.node_type != NodeType::Master || accepted.your_id.is_none() {
                    return Err(Refusal::protocol("the identification was accepted by no master"));
                }
                info!(primary = %address, "accepted by the primary master");
                let role = Role::Primary { address: address.clone(), is_accepted: false };
                self.links.set_role(connection, role);
                self.become_secondary(address, Some(connection));
                self.primary_says(connection, id, accepted.into())
            }
            Message::NotPrimaryMaster(message) => {
                message.masters.iter().for_each(|known| self.cluster.members.add_master(known));
                let primary = message.primary.and_then(|at| message.masters.get(at as usize));
                let primary = primary.filter(|primary| {
                    let known = self.cluster.members.master(primary);
                    // It may not know yet that this one has won against its primary.
                    **primary != self.cluster.settings.address
                        && known.is_none_or(|master| master.connection.is_none())
                });
                match primary.cloned() {
                    Some(primary) => self.become_secondary(primary, None),
                    None => self.close(connection),
                }
                Ok(())
            }
            Message::Error(error) => {
                debug!(master = %address, code = %error.code, reason = error.message,
                    "not accepted by a master, trying again");
                self.close(connection);
                Ok(())
            }
            other => self.any_says(connection, id, &other),
        }
    }

    /// A secondary master has left.
    pub(crate) fn secondary_left(&mut self, address: &Address) {
        let Some(master) = self.cluster.members.master_mut(address) else { return };
        (master.connection, master.state) = (None, NodeState::Down);
        let told = master.told();
        if !matches!(self.phase, Phase::Secondary(_)) {
            self.cluster.tell_nodes(&mut self.links, &[told]);
            self.challenge_again();
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
