//! Peers that dial this node.

use tracing::debug;
use zodium_neo::messages::{AcceptIdentification, RequestIdentification};
use zodium_neo::{Message, NodeId, NodeType};

use crate::ConnectionId;
use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::links::{Links, Role};
use crate::members::Known;
use crate::phase::Phase;

/// Most requests for identification that wait for the master to tell of their node.
const WAITING_MAX: usize = 10_000;

/// A request for identification that the node cannot judge yet.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    connection: ConnectionId,
    id: u32,
    kind: NodeType,
    node: Option<NodeId>,
    id_timestamp: Option<f64>,
}

/// Requests for identification that came before the master told of the node.
#[derive(Debug, Default)]
pub(crate) struct Identification {
    waiting: Vec<Waiting>,
}

impl Waiting {
    /// Connection and id of the request.
    pub(crate) fn from(&self) -> (ConnectionId, u32) {
        (self.connection, self.id)
    }
}

impl Identification {
    /// Forgets all requests that wait.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Forgets the request of a connection that has ended.
    pub(crate) fn ended(&mut self, connection: ConnectionId) {
        self.waiting.retain(|waiting| waiting.connection != connection);
    }

    /// Takes all requests that wait, to look at them again.
    pub(crate) fn take_waiting(&mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.waiting)
    }

    /// Handles the first message of a peer.
    pub(crate) fn stranger_says(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        (connection, id): (ConnectionId, u32),
        message: Message<'_>,
    ) -> Handled {
        let Message::RequestIdentification(request) = message else {
            let text = format!("{} before an identification", message.name());
            return Err(Refusal::protocol(text));
        };
        let RequestIdentification {
            node_type: kind, id: node, cluster: name, id_timestamp, ..
        } = request;
        if name != cluster.settings().cluster {
            return Err(Refusal::other_cluster(name));
        }
        if self.waiting.iter().any(|waiting| waiting.connection == connection) {
            return Err(Refusal::protocol("a second identification"));
        }
        self.identify(links, cluster, Waiting { connection, id, kind, node, id_timestamp })
    }

    /// Accepts a peer, or has its request wait.
    pub(crate) fn identify(
        &mut self,
        links: &mut Links,
        cluster: &Cluster,
        waiting: Waiting,
    ) -> Handled {
        if !matches!(cluster.phase(), Phase::Starting | Phase::Operating) {
            return Err(Refusal::not_ready("not ready"));
        }
        let role = match (waiting.kind, waiting.node) {
            (NodeType::Storage, None) => Role::Storage { node: None },
            (_, None) => return Err(Refusal::protocol("a node without an id")),
            (_, Some(node)) if Some(node) == cluster.id() => {
                return Err(Refusal::protocol("the id of this node itself"));
            }
            (NodeType::Client, Some(node)) => Role::Client { node },
            (NodeType::Storage, node) => Role::Storage { node },
            _ => return Err(Refusal::protocol("neither a client nor a storage")),
        };
        let known = match waiting.node {
            None => Known::Yes,
            Some(node) => cluster.members().knows(node, waiting.kind, waiting.id_timestamp),
        };
        match known {
            Known::No => Err(Refusal::not_ready("unknown by master")),
            Known::Yes if cluster.phase() == Phase::Operating => {
                welcome(links, cluster.id(), &waiting, role);
                Ok(())
            }
            Known::Yes | Known::NotYet if self.waiting.len() < WAITING_MAX => {
                self.waiting.push(waiting);
                Ok(())
            }
            Known::Yes | Known::NotYet => Err(Refusal::not_ready("too many nodes wait")),
        }
    }
}

/// Accepts a peer.
fn welcome(links: &mut Links, own: Option<NodeId>, waiting: &Waiting, role: Role) {
    let Waiting { connection, id, node, .. } = *waiting;
    let Some(known) = links.role_mut(connection) else { return };
    *known = role.clone();
    debug!(peer = links.name_of(connection), ?role, "identified");
    let own = own.filter(|_| node.is_some());
    let node_type = NodeType::Storage;
    links.answer((connection, id), AcceptIdentification { node_type, id: own, your_id: node });
}
