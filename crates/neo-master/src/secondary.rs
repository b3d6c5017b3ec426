//! The life of a secondary master: it waits for the end of the primary one.

use std::time::Duration;

use tracing::{info, warn};
use zodium_neo::messages::{NotPrimaryMaster, RequestIdentification};
use zodium_neo::{Address, ClusterState, ConnectionId, Message, NodeId, NodeState, NodeType};

use crate::Master;
use crate::Phase;
use crate::handling::{Handled, Refusal};
use crate::packs::Packs;
use crate::peer::Role;

/// Pause before the primary master that has closed the connection is dialled again.
const DIAL_PAUSE: Duration = Duration::from_millis(50);

/// What a secondary master knows.
#[derive(Debug, Default)]
pub(crate) struct Secondary {
    /// The primary master, or the one that may be it; `None` before the start.
    primary: Option<Address>,
    /// Whether that one has accepted this one.
    is_accepted: bool,
    /// Masters that were no primary since one was lost.
    failed: Vec<Address>,
    connection: Option<ConnectionId>,
}

impl Secondary {
    /// The primary master, once it has accepted this one.
    pub(crate) fn primary(&self) -> Option<&Address> {
        self.primary.as_ref().filter(|_| self.is_accepted)
    }
}

impl Master {
    /// Another master is primary. `connection` leads to it, if there is one.
    pub(crate) fn become_secondary(&mut self, primary: Address, connection: Option<ConnectionId>) {
        info!(%primary, "playing a secondary master");
        self.links.forget_all_but(connection);
        self.cluster.members.clear();
        for master in self.cluster.members.masters_mut() {
            (master.state, master.connection) = (NodeState::Down, None);
        }
        self.cluster.members.add_master(&primary);
        self.transactions.reset();
        self.readiness.reset();
        self.packs = Packs::default();
        self.stops = None;
        self.cluster.forget_told_state();
        self.backup.forget(&mut self.links);
        let failed = vec![self.cluster.settings.address.clone()];
        let secondary = Secondary { primary: None, is_accepted: false, failed, connection };
        self.phase = Phase::Secondary(secondary);
        self.follow(primary, connection, Duration::ZERO);
    }

    /// Dials a master that may be primary, unless it is connected.
    fn follow(&mut self, primary: Address, known: Option<ConnectionId>, after: Duration) {
        let role = Role::Primary { address: primary.clone(), is_accepted: false };
        let connection = known.unwrap_or_else(|| self.links.dial(role, primary.clone(), after));
        if let Phase::Secondary(secondary) = &mut self.phase {
            if !secondary.failed.contains(&primary) {
                secondary.failed.push(primary.clone());
            }
            (secondary.primary, secondary.is_accepted) = (Some(primary), false);
            secondary.connection = Some(connection);
        }
    }

    /// Handles a message of the master that may be primary.
    pub(crate) fn primary_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::AcceptIdentification(accepted) => {
                let Some(own) = accepted.your_id.filter(|_| accepted.node_type == NodeType::Master)
                else {
                    return Err(Refusal::protocol("the identification was accepted by no master"));
                };
                self.cluster.id = Some(own);
                self.accepted_by_primary(connection, accepted.id);
            }
            Message::NotifyNodeInformation(message) => {
                for node in &message.nodes {
                    let Some(address) = &node.address else { continue };
                    if node.id == self.cluster.id && node.state == NodeState::Down {
                        info!("an operator has stopped this master");
                        self.links.exit();
                    } else if node.node_type == NodeType::Master {
                        self.master_told(address, node.id, node.state);
                    }
                }
            }
            Message::NotifyClusterInformation(message) => {
                if message.state == ClusterState::Stopping {
                    info!("the cluster stops");
                    self.links.exit();
                }
            }
            Message::NotPrimaryMaster(message) => {
                message.masters.iter().for_each(|known| self.cluster.members.add_master(known));
                let primary = message.primary.and_then(|at| message.masters.get(at as usize));
                match primary.filter(|primary| **primary != self.cluster.settings.address) {
                    Some(primary) => self.redirected(connection, primary.clone()),
                    None => self.close(connection),
                }
            }
            Message::Error(error) => {
                let primary = self.links.name_of(connection);
                info!(primary, code = %error.code, reason = error.message, "not accepted by the \
                    primary master");
                self.close(connection);
            }
            other => return self.any_says(connection, id, &other),
        }
        Ok(())
    }

    fn accepted_by_primary(&mut self, connection: ConnectionId, id: Option<NodeId>) {
        if let Some(Role::Primary { address, .. }) = self.links.role(connection) {
            let role = Role::Primary { address: address.clone(), is_accepted: true };
            self.links.set_role(connection, role);
        }
        let Phase::Secondary(secondary) = &mut self.phase else { return };
        secondary.is_accepted = true;
        let Some(primary) = secondary.primary.clone() else { return };
        info!(%primary, master = ?self.cluster.id, "identified to the primary master");
        self.master_told(&primary, id, NodeState::Running);
    }

    /// The id of a master is known after its end, too: operators name it by that.
    fn master_told(&mut self, address: &Address, id: Option<NodeId>, state: NodeState) {
        if state == NodeState::Unknown && *address != self.cluster.settings.address {
            return self.cluster.members.remove_master(address);
        }
        self.cluster.members.add_master(address);
        for master in self.cluster.members.masters_mut() {
            if master.address == *address {
                (master.id, master.state) = (id, state);
            } else if master.id == id {
                master.id = None;
            }
        }
    }

    /// The master names another one as primary.
    fn redirected(&mut self, connection: ConnectionId, primary: Address) {
        let Phase::Secondary(secondary) = &mut self.phase else { return };
        if secondary.primary.as_ref() == Some(&primary) {
            return self.close(connection);
        }
        secondary.connection = None;
        self.close(connection);
        self.follow(primary, None, Duration::ZERO);
    }

    /// The connection to the master that may be primary has ended.
    pub(crate) fn primary_left(&mut self, connection: ConnectionId, was_accepted: bool) {
        let own = self.cluster.settings.address.clone();
        let Phase::Secondary(secondary) = &mut self.phase else { return };
        if secondary.connection != Some(connection) {
            return;
        }
        secondary.connection = None;
        if was_accepted && let Some(primary) = secondary.primary.clone() {
            warn!(%primary, "the connection to the primary master has ended");
            secondary.failed = vec![own];
            return self.follow(primary, None, DIAL_PAUSE);
        }
        let others = self.cluster.members.addresses().iter();
        let next = others.filter(|address| !secondary.failed.contains(address)).min().cloned();
        match next {
            Some(next) => self.follow(next, None, Duration::ZERO),
            // All others are down, or secondary as well.
            None => self.play_primary(),
        }
    }

    /// A node introduces itself to a secondary master: it learns where the primary one is.
    pub(crate) fn redirect(
        &mut self,
        connection: ConnectionId,
        request: &RequestIdentification<'_>,
    ) {
        let Phase::Secondary(secondary) = &self.phase else { return };
        let primary = secondary.primary().filter(|one| request.address.as_ref() != Some(one));
        let is_rival = request.node_type == NodeType::Master && request.id_timestamp.is_some();
        let is_known = secondary.primary() == request.address.as_ref();
        if let (Some(rival), true) = (&request.address, is_rival)
            && secondary.primary().is_none()
            && secondary.primary.as_ref() != Some(rival)
        {
            let (rival, old) = (rival.clone(), secondary.connection);
            self.cluster.members.add_master(&rival);
            self.close(connection);
            if let Phase::Secondary(secondary) = &mut self.phase {
                secondary.connection = None;
            }
            old.into_iter().for_each(|old| self.close(old));
            return self.follow(rival, None, Duration::ZERO);
        }
        let masters = self.cluster.members.addresses().to_vec();
        let place = primary.and_then(|one| masters.iter().position(|known| known == one));
        let primary = place.and_then(|place| u32::try_from(place).ok()).filter(|_| !is_known);
        self.links.notify(connection, NotPrimaryMaster { primary, masters });
        self.close(connection);
    }
}
