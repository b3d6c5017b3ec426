//! Peers that dial this node.

use tracing::debug;
use zodium_neo::messages::{AcceptIdentification, RequestIdentification};
use zodium_neo::{Message, NodeId, NodeType};

use crate::handling::{Handled, Refusal};
use crate::members::Known;
use crate::peer::Role;
use crate::phase::Phase;
use crate::{ConnectionId, Node};

/// Most requests for identification that wait for the master to tell of their node.
const WAITING_MAX: usize = 10_000;

/// A request for identification that the node cannot judge yet.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) connection: ConnectionId,
    id: u32,
    kind: NodeType,
    node: Option<NodeId>,
    id_timestamp: Option<f64>,
}

impl Node {
    /// Handles the first message of a peer.
    pub(crate) fn stranger_says(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        let Message::RequestIdentification(request) = message else {
            let text = format!("{} before an identification", message.name());
            return Err(Refusal::protocol(text));
        };
        let RequestIdentification { node_type: kind, id: node, cluster, id_timestamp, .. } =
            request;
        if cluster != self.settings.cluster {
            return Err(Refusal::protocol("invalid cluster name"));
        }
        if self.waiting.iter().any(|waiting| waiting.connection == connection) {
            return Err(Refusal::protocol("a second identification"));
        }
        self.identify(Waiting { connection, id, kind, node, id_timestamp })
    }

    fn identify(&mut self, waiting: Waiting) -> Handled {
        if !matches!(self.phase, Phase::Starting | Phase::Operating) {
            return Err(Refusal::not_ready("not ready"));
        }
        let role = match (waiting.kind, waiting.node) {
            (NodeType::Storage, None) => Role::Storage { node: None },
            (_, None) => return Err(Refusal::protocol("a node without an id")),
            (_, Some(node)) if Some(node) == self.id => {
                return Err(Refusal::protocol("the id of this node itself"));
            }
            (NodeType::Client, Some(node)) => Role::Client { node },
            (NodeType::Storage, node) => Role::Storage { node },
            _ => return Err(Refusal::protocol("neither a client nor a storage")),
        };
        let known = match waiting.node {
            None => Known::Yes,
            Some(node) => self.members.knows(node, waiting.kind, waiting.id_timestamp),
        };
        match known {
            Known::No => Err(Refusal::not_ready("unknown by master")),
            Known::Yes if self.phase == Phase::Operating => {
                self.welcome(&waiting, role);
                Ok(())
            }
            Known::Yes | Known::NotYet if self.waiting.len() < WAITING_MAX => {
                self.waiting.push(waiting);
                Ok(())
            }
            Known::Yes | Known::NotYet => Err(Refusal::not_ready("too many nodes wait")),
        }
    }

    fn welcome(&mut self, waiting: &Waiting, role: Role) {
        let Waiting { connection, id, node, .. } = *waiting;
        let Some(peer) = self.peers.get_mut(connection) else { return };
        debug!(peer = peer.name, ?role, "identified");
        peer.role = role;
        let own = self.id.filter(|_| node.is_some());
        let node_type = NodeType::Storage;
        self.answer(connection, id, AcceptIdentification { node_type, id: own, your_id: node });
    }

    /// Looks at the waiting requests again.
    pub(crate) fn identify_waiting(&mut self) {
        for waiting in std::mem::take(&mut self.waiting) {
            let (connection, id) = (waiting.connection, waiting.id);
            if let Err(refusal) = self.identify(waiting) {
                self.refuse(connection, id, "RequestIdentification", &refusal);
            }
        }
    }
}
