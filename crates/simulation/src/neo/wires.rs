//! The connections of a process, by the names that its node and the network have for them.

use std::collections::BTreeMap;

use bytes::Bytes;
use zodium_neo::{ConnectionId, Frame, LinkTask, Packet, Scan, Scanner};

use super::addresses::end_of;
use super::context::Context;
use super::faulty;
use super::net::{End, WireId};

/// The connections of a process.
#[derive(Debug, Default)]
pub(super) struct Wires {
    wires: BTreeMap<ConnectionId, WireId>,
    connections: BTreeMap<WireId, ConnectionId>,
}

impl Wires {
    /// A connection is there, or being made.
    pub(super) fn add(&mut self, connection: ConnectionId, wire: WireId) {
        self.wires.insert(connection, wire);
        self.connections.insert(wire, connection);
    }

    /// What the node calls a connection.
    pub(super) fn connection(&self, wire: WireId) -> Option<ConnectionId> {
        self.connections.get(&wire).copied()
    }

    /// A connection has ended. Gives its name.
    pub(super) fn forget(&mut self, wire: WireId) -> Option<ConnectionId> {
        let connection = self.connections.remove(&wire)?;
        self.wires.remove(&connection);
        Some(connection)
    }

    /// Does what a node asks for. Gives a connection that is over at once, and of whose end nothing
    /// else tells: it was closed while it was still being made.
    #[must_use]
    pub(super) fn apply(
        &mut self,
        context: &mut Context,
        end: End,
        task: LinkTask,
    ) -> Option<ConnectionId> {
        match task {
            LinkTask::Dial { connection, address, .. } => {
                let wire = context.net.dial(end, end_of(&address));
                self.add(connection, wire);
            }
            LinkTask::Send { connection, packet } => {
                if let Some(wire) = self.wires.get(&connection) {
                    send(context, end, *wire, &packet);
                }
            }
            LinkTask::Close { connection } => {
                let wire = self.wires.get(&connection).copied()?;
                if context.net.forget_dial(wire) {
                    return self.forget(wire);
                }
                context.net.close(end, wire);
            }
        }
        None
    }
}

/// Sends packets one by one.
fn send(context: &mut Context, end: End, wire: WireId, bytes: &Bytes) {
    each_packet(context, bytes, |context, packet, decoded| {
        if let Some(packet) = faulty::sent(context, packet, decoded) {
            context.net.push(end, wire, packet);
        }
    });
}

/// Hands on the packets that a node sends at once.
pub(super) fn each_packet(
    context: &mut Context,
    bytes: &Bytes,
    mut take: impl FnMut(&mut Context, Bytes, &Packet<'_>),
) {
    let (mut scanner, mut start) = (Scanner::default(), 0);
    while start < bytes.len() {
        let Ok(Scan::Complete(frame)) = scanner.scan(&bytes[start..]) else {
            return context.violate("a node sends what is no packet".to_owned());
        };
        let length = Frame::bytes(frame).len();
        let Ok(decoded) = Packet::decode(frame) else {
            return context.violate("a node sends what cannot be decoded".to_owned());
        };
        take(context, bytes.slice(start..start + length), &decoded);
        start += length;
    }
}
