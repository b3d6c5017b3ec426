//! The primary master: finding it, and answers to it before the cluster runs.

pub(crate) mod recovery;

use std::time::Duration;

use tracing::info;
use zodium_neo::messages::{NotPrimaryMaster, RequestIdentification};
use zodium_neo::{
    Address, Candidate, Extra, Masters, Message, NodeId, NodeState, NodeType, Partition,
    TELLS_CHECKS, Value,
};

use crate::cluster::Cluster;
use crate::handling::Refusal;
use crate::links::{Asked, Links, Role};
use crate::{ConnectionId, Settings};

/// Pause before a master is dialled again.
const DIAL_PAUSE: Duration = Duration::from_millis(50);

/// Pause after a disagreement that an operator has to end.
const DISAGREEMENT_PAUSE: Duration = Duration::from_secs(1);

/// The search for the primary master.
#[derive(Debug)]
pub(crate) struct Search {
    masters: Masters,
    /// While the master is asked for another id: the partitions that this node has a copy of.
    copied: Option<Vec<Partition>>,
    /// The master and this node cannot go on with each other.
    disagrees: bool,
}

impl Search {
    /// A search that begins with these masters.
    pub(crate) fn new(masters: Vec<Address>) -> Search {
        Search { masters: Masters::new(masters), copied: None, disagrees: false }
    }

    /// Has the node ask for another id: its database is a copy of these partitions.
    pub(crate) fn ask_new_id(&mut self, copied: Vec<Partition>) {
        self.copied = Some(copied);
    }

    /// The masters that are known.
    pub(crate) fn masters(&self) -> &[Address] {
        self.masters.addresses()
    }

    /// Dials the next master.
    pub(crate) fn dial(&mut self, links: &mut Links, after: Duration) {
        if let Some(address) = self.masters.take() {
            let role = Role::Master { address: address.clone(), is_primary: false };
            links.dial(role, address, after);
        }
    }

    /// Dials the next master when the connection to one has ended.
    pub(crate) fn dial_again(&mut self, links: &mut Links) {
        let disagrees = std::mem::take(&mut self.disagrees);
        let least = if disagrees { DISAGREEMENT_PAUSE } else { DIAL_PAUSE };
        let pause = self.masters.pause(least);
        self.dial(links, pause);
    }

    /// The primary master and this node cannot go on with each other, also when it is dialled anew.
    pub(crate) fn disagree(&mut self) {
        self.disagrees = true;
    }

    /// Introduces the node to a master.
    pub(crate) fn identify(&self, links: &mut Links, cluster: &Cluster, connection: ConnectionId) {
        let Settings { cluster: name, address, topology, .. } = cluster.settings().clone();
        let topology = topology.iter().map(|part| Value::Bytes(part.as_bytes())).collect();
        let copied = self.copied.iter().flatten();
        let copied = copied.map(|partition| Value::Int(partition.0.into())).collect();
        let extra = [
            ("devpath", Value::Array(topology)),
            ("new_nid", Value::Array(copied)),
            (TELLS_CHECKS, Value::Bool(true)),
        ];
        // The cluster does not use a node yet that asks for another id.
        let address = Some(address).filter(|_| self.copied.is_none());
        let request = RequestIdentification {
            node_type: NodeType::Storage,
            id: cluster.id(),
            address,
            cluster: &name,
            id_timestamp: None,
            extra: Extra::from_iter(extra),
        };
        links.ask(connection, request, Asked::Identification);
    }

    /// Handles a message of a master that has not accepted this node; the id that the primary
    /// master gives.
    pub(crate) fn candidate_says(
        &mut self,
        links: &mut Links,
        connection: ConnectionId,
        message: &Message<'_>,
    ) -> Result<Option<NodeId>, Refusal> {
        let name = links.name_of(connection);
        match Candidate::read(&mut self.masters, &name, message)? {
            Candidate::Primary { your_id, .. } => Ok(self.found(links, connection, your_id)),
            Candidate::Other => {
                links.close(connection);
                Ok(None)
            }
        }
    }

    fn found(&mut self, links: &mut Links, connection: ConnectionId, id: NodeId) -> Option<NodeId> {
        if let Role::Master { is_primary, address } = links.role_mut(connection)? {
            *is_primary = true;
            // When the connection is lost, it is probably still the primary, or again. The master
            // may have told of another address of its own.
            self.masters.prefer(address);
        }
        info!(master = links.name_of(connection), node = %id, "identified to the primary master");
        Some(id)
    }

    /// Notes what a master says that is not the primary any more.
    pub(crate) fn not_primary(&mut self, message: &NotPrimaryMaster) {
        self.masters.note(message);
    }

    /// Notes the state of a master.
    pub(crate) fn note(&mut self, address: &Address, state: NodeState) {
        match state {
            NodeState::Unknown => self.masters.remove(address),
            NodeState::Down | NodeState::Running | NodeState::Pending => self.masters.add(address),
        }
    }
}
