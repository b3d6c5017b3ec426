//! Connections to storages, and what a client asks of them.

use zodium_neo::messages::{
    AskCheckCurrentSerial, AskFinalTID, AskObject, AskRelockObject, AskStoreObject,
    AskStoreTransaction, AskVoteTransaction, PackRequest,
};
use zodium_neo::{Checksum, ErrorCode, Message, NodeId, Packet};
use zodium_types::{Oid, Tid, TransactionMetadata};

use super::{Client, Doing, checksum, end_of};
use crate::neo::context::Context;
use crate::neo::history::{Change, metadata_of};
use crate::neo::net::WireId;

/// A connection to a storage.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) wire: WireId,
    pub(super) is_ready: bool,
    /// Sent when the storage has accepted the client.
    pub(super) waiting: Vec<Order>,
}

/// A request to a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Read {
        oid: Oid,
        before: Tid,
    },
    /// Of a version of the change: the one before was in conflict.
    Store {
        oid: Oid,
        version: u32,
    },
    Relock {
        oid: Oid,
        version: u32,
    },
    StoreTransaction,
    Vote,
    Outcome(Tid),
}

impl Client {
    /// Asks a storage, and connects to it if need be.
    pub(super) fn order(&mut self, context: &mut Context, node: NodeId, order: Order) {
        let end = self.end();
        let link = self.links.entry(node).or_insert_with(|| {
            let wire = context.net.dial(end, end_of(node));
            Link { wire, is_ready: false, waiting: Vec::new() }
        });
        link.waiting.push(order);
        if link.is_ready {
            self.send_waiting(context, node);
        }
    }

    /// Whether a storage has not answered.
    pub(super) fn is_waiting(&self) -> bool {
        !self.asked.is_empty() || self.links.values().any(|link| !link.waiting.is_empty())
    }

    /// Forgets what was asked.
    pub(super) fn forget_orders(&mut self) {
        self.asked.clear();
        self.links.values_mut().for_each(|link| link.waiting.clear());
    }

    fn send_waiting(&mut self, context: &mut Context, node: NodeId) {
        let Some(link) = self.links.get_mut(&node) else { return };
        let (wire, orders) = (link.wire, std::mem::take(&mut link.waiting));
        for order in orders {
            if let Some(id) = self.send_order(context, wire, order) {
                self.asked.insert((wire, id), (node, order));
            }
        }
    }

    fn send_order(&self, context: &mut Context, wire: WireId, order: Order) -> Option<u32> {
        let commit = match &self.doing {
            Doing::Committing(commit) => Some(commit),
            _ => None,
        };
        let metadata;
        let message: Message<'_> = match order {
            Order::Read { oid, before } => AskObject { oid, at: None, before: Some(before) }.into(),
            Order::Outcome(ttid) => AskFinalTID { ttid }.into(),
            Order::Store { oid, .. } => {
                let (ttid, wish) = (commit?.ttid()?, commit?.objects.get(&oid)?);
                let serial = wish.serial;
                match &wish.change {
                    Change::Check => AskCheckCurrentSerial { ttid, oid, serial }.into(),
                    Change::Delete => store(oid, serial, ttid, &[], Checksum::ZERO),
                    Change::Store(data) => store(oid, serial, ttid, data, checksum(data)),
                }
            }
            Order::Relock { oid, .. } => AskRelockObject { ttid: commit?.ttid()?, oid }.into(),
            Order::Vote => AskVoteTransaction { ttid: commit?.ttid()? }.into(),
            Order::StoreTransaction => {
                let pack = commit?.pack.as_ref();
                let pack =
                    pack.map(|pack| PackRequest { oids: pack.oids.clone(), tid: pack.until });
                let ttid = commit?.ttid()?;
                metadata = metadata_of(ttid);
                let TransactionMetadata { user, description, extension } = &metadata;
                AskStoreTransaction {
                    ttid,
                    user,
                    description,
                    extension,
                    oids: commit?.stored(),
                    pack,
                }
                .into()
            }
        };
        Some(context.net.send(self.end(), wire, message))
    }

    fn node_of(&self, wire: WireId) -> Option<NodeId> {
        self.links.iter().find(|(_, link)| link.wire == wire).map(|(node, _)| *node)
    }

    /// A storage cannot be reached any more: what it was asked fails.
    pub(super) fn link_lost(&mut self, context: &mut Context, wire: WireId) {
        let Some(node) = self.node_of(wire) else { return };
        let waiting = self.links.remove(&node).map(|link| link.waiting).unwrap_or_default();
        let asked = self.asked.iter().filter(|((other, _), _)| *other == wire);
        let failed: Vec<_> = asked.map(|(_, (_, order))| *order).chain(waiting).collect();
        self.asked.retain(|(other, _), _| *other != wire);
        if let Doing::Committing(commit) = &mut self.doing {
            commit.node_failed(node);
            return self.go_on(context);
        }
        for order in failed {
            self.ask_another(context, order);
        }
    }

    /// Handles what a storage says.
    pub(super) fn storage_says(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        let Some(node) = self.node_of(wire) else { return };
        let Packet { id, message } = packet;
        match message {
            Message::AcceptIdentification(_) => {
                if let Some(link) = self.links.get_mut(&node) {
                    link.is_ready = true;
                }
                return self.send_waiting(context, node);
            }
            Message::NotifyDeadlock(message) => {
                return self.deadlock(context, node, message.ttid, message.oid);
            }
            _ => {}
        }
        let order = self.asked.remove(&(wire, id)).map(|(_, order)| order);
        if let Message::Error(error) = &message {
            self.note_refusal(context, (node, order), error.code, error.message);
        }
        let Some(order) = order else { return };
        match (order, message) {
            (Order::Read { oid, before }, message) => {
                self.read_answered(context, (oid, before), message);
            }
            (Order::Outcome(ttid), Message::AnswerFinalTID(answer)) => {
                self.resolved(context, ttid, answer.tid);
            }
            (Order::Outcome(_), _) => self.ask_another(context, order),
            (_, Message::Error(_)) => {
                if let Doing::Committing(commit) = &mut self.doing {
                    commit.node_failed(node);
                }
                self.go_on(context);
            }
            (order, message) => self.commit_answered(context, node, order, message),
        }
    }

    /// Without faults no request is refused, but those that come before the storage is told. One
    /// that has accepted the client is ready, unless its cell is taken away.
    fn note_refusal(
        &self,
        context: &mut Context,
        (node, order): (NodeId, Option<Order>),
        code: ErrorCode,
        text: &str,
    ) {
        *context.refusals.entry(format!("{code}")).or_default() += 1;
        let is_usual = match code {
            ErrorCode::NotReady => match order {
                Some(Order::Store { .. } | Order::Relock { .. }) => {
                    context.plan.moves + context.plan.operations > 0
                }
                Some(_) => false,
                None => true,
            },
            ErrorCode::NonReadableCell | ErrorCode::OidNotFound | ErrorCode::OidDoesNotExist => {
                true
            }
            _ => !context.plan.is_quiet(),
        };
        if !is_usual {
            context.violate(format!("{node} refuses {order:?} of a client: {code}: {text}"));
        }
    }
}

fn store(oid: Oid, serial: Tid, ttid: Tid, data: &[u8], checksum: Checksum) -> Message<'_> {
    let (compression, data_serial) = (0, None);
    AskStoreObject { oid, serial, compression, checksum, data, data_serial, ttid: Some(ttid) }
        .into()
}
