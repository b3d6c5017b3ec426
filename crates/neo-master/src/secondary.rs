//! The life of a secondary master: it waits for the end of the primary one.

use std::time::Duration;

use tracing::{info, warn};
use zodium_neo::messages::{NotPrimaryMaster, NotifyNodeInformation, RequestIdentification};
use zodium_neo::{Address, ClusterState, ConnectionId, Message, NodeId, NodeState, NodeType};

use crate::Output;
use crate::cluster::Cluster;
use crate::handling::Refusal;
use crate::peer::{Links, Role};

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
    /// The life after another master has turned out to be primary. `connection` leads to that one,
    /// if there is one.
    pub(crate) fn new(
        cluster: &Cluster,
        links: &mut Links,
        primary: Address,
        connection: Option<ConnectionId>,
    ) -> Secondary {
        let failed = vec![cluster.settings.address.clone()];
        let mut secondary = Secondary { failed, ..Secondary::default() };
        secondary.follow(links, primary, connection, Duration::ZERO);
        secondary
    }

    /// The primary master, once it has accepted this one.
    pub(crate) fn primary(&self) -> Option<&Address> {
        self.primary.as_ref().filter(|_| self.is_accepted)
    }

    /// Dials a master that may be primary, unless it is connected.
    fn follow(
        &mut self,
        links: &mut Links,
        primary: Address,
        known: Option<ConnectionId>,
        after: Duration,
    ) {
        let role = Role::Primary { address: primary.clone(), is_accepted: false };
        let connection = known.unwrap_or_else(|| links.dial(role, primary.clone(), after));
        if !self.failed.contains(&primary) {
            self.failed.push(primary.clone());
        }
        (self.primary, self.is_accepted) = (Some(primary), false);
        self.connection = Some(connection);
    }

    /// Handles a message of the master that may be primary, unless any node may send it: it gives
    /// that back.
    pub(crate) fn primary_says<'a>(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        connection: ConnectionId,
        message: Message<'a>,
    ) -> Result<Option<Message<'a>>, Refusal> {
        match message {
            Message::AcceptIdentification(accepted) => {
                let Some(own) = accepted.your_id.filter(|_| accepted.node_type == NodeType::Master)
                else {
                    return Err(Refusal::protocol("the identification was accepted by no master"));
                };
                cluster.id = Some(own);
                self.accepted(cluster, links, connection, accepted.id);
            }
            Message::NotifyNodeInformation(message) => nodes_told(cluster, links, &message),
            Message::NotifyClusterInformation(message) => {
                if message.state == ClusterState::Stopping {
                    info!("the cluster stops");
                    links.push(Output::Exit);
                }
            }
            Message::NotPrimaryMaster(message) => {
                message.masters.iter().for_each(|known| cluster.members.add_master(known));
                let primary = message.primary.and_then(|at| message.masters.get(at as usize));
                match primary.filter(|primary| **primary != cluster.settings.address) {
                    Some(primary) => self.redirected(links, connection, primary.clone()),
                    None => links.close(connection),
                }
            }
            Message::Error(error) => {
                let primary = links.name_of(connection);
                info!(primary, code = %error.code, reason = error.for_log(), "not accepted by the \
                    primary master");
                links.close(connection);
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    fn accepted(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        connection: ConnectionId,
        id: Option<NodeId>,
    ) {
        if let Some(Role::Primary { address, .. }) = links.role(connection) {
            let role = Role::Primary { address: address.clone(), is_accepted: true };
            links.set_role(connection, role);
        }
        self.is_accepted = true;
        let Some(primary) = &self.primary else { return };
        info!(%primary, master = ?cluster.id, "identified to the primary master");
        master_told(cluster, primary, id, NodeState::Running);
    }

    /// The master names another one as primary.
    fn redirected(&mut self, links: &mut Links, connection: ConnectionId, primary: Address) {
        if self.primary.as_ref() == Some(&primary) {
            return links.close(connection);
        }
        self.connection = None;
        links.close(connection);
        self.follow(links, primary, None, Duration::ZERO);
    }

    /// The connection to the master that may be primary has ended. `false` if there is no other
    /// one to follow: all others are down, or secondary as well.
    pub(crate) fn primary_left(
        &mut self,
        cluster: &Cluster,
        links: &mut Links,
        connection: ConnectionId,
        was_accepted: bool,
    ) -> bool {
        if self.connection != Some(connection) {
            return true;
        }
        self.connection = None;
        if was_accepted && let Some(primary) = self.primary.clone() {
            warn!(%primary, "the connection to the primary master has ended");
            self.failed = vec![cluster.settings.address.clone()];
            self.follow(links, primary, None, DIAL_PAUSE);
            return true;
        }
        let others = cluster.members.addresses().iter();
        let next = others.filter(|address| !self.failed.contains(address)).min().cloned();
        let is_any = next.is_some();
        if let Some(next) = next {
            self.follow(links, next, None, Duration::ZERO);
        }
        is_any
    }

    /// A node introduces itself to a secondary master: it learns where the primary one is.
    pub(crate) fn redirect(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        connection: ConnectionId,
        request: &RequestIdentification<'_>,
    ) {
        let primary = self.primary().filter(|one| request.address.as_ref() != Some(one));
        let is_rival = request.node_type == NodeType::Master && request.id_timestamp.is_some();
        let is_known = self.primary() == request.address.as_ref();
        if let (Some(rival), true) = (&request.address, is_rival)
            && self.primary().is_none()
            && self.primary.as_ref() != Some(rival)
        {
            let (rival, old) = (rival.clone(), self.connection.take());
            cluster.members.add_master(&rival);
            links.close(connection);
            old.into_iter().for_each(|old| links.close(old));
            return self.follow(links, rival, None, Duration::ZERO);
        }
        let masters = cluster.members.addresses().to_vec();
        let place = primary.and_then(|one| masters.iter().position(|known| known == one));
        let primary = place.and_then(|place| u32::try_from(place).ok()).filter(|_| !is_known);
        links.notify(connection, NotPrimaryMaster { primary, masters });
        links.close(connection);
    }
}

/// The primary master tells nodes, maybe this one.
fn nodes_told(cluster: &mut Cluster, links: &mut Links, message: &NotifyNodeInformation) {
    for node in &message.nodes {
        let Some(address) = &node.address else { continue };
        if node.id == cluster.id && node.state == NodeState::Down {
            info!("an operator has stopped this master");
            links.push(Output::Exit);
        } else if node.node_type == NodeType::Master {
            master_told(cluster, address, node.id, node.state);
        }
    }
}

/// The id of a master is known after its end, too: operators name it by that.
fn master_told(cluster: &mut Cluster, address: &Address, id: Option<NodeId>, state: NodeState) {
    if state == NodeState::Unknown && *address != cluster.settings.address {
        return cluster.members.remove_master(address);
    }
    cluster.members.add_master(address);
    for master in cluster.members.masters_mut() {
        if master.address == *address {
            (master.id, master.state) = (id, state);
        } else if master.id == id {
            master.id = None;
        }
    }
}
