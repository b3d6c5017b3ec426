//! Connections between the simulated processes: packets in order, and their ends.
//!
//! A packet is delivered when the world says so, so packets of different connections arrive in any
//! order. A connection that is cut loses an end of what is on its way, in each direction. Processes
//! may be apart: all connections between them are cut, and none can be made.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use zodium_neo::{Message, MessageIds, encode};

use crate::random::Chance;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Master(usize),
    Storage(usize),
    Client(usize),
    Operator,
}

impl End {
    /// The model master.
    pub(super) const MODEL: End = End::Master(0);
}

/// The name of a connection; none is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WireId(pub(super) u64);

/// What arrives at an end.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Packet(Bytes),
    Closed,
}

/// An end of a connection: 0 has dialled, 1 has accepted.
pub(super) type Side = usize;

/// A connection that is being made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dial {
    pub(super) wire: WireId,
    pub(super) from: End,
    pub(super) to: End,
}

#[derive(Debug)]
struct Wire {
    ends: [End; 2],
    ids: [MessageIds; 2],
    inbound: [VecDeque<Item>; 2],
    /// Ends that have not been told of the end.
    is_open: [bool; 2],
    /// Nothing more goes in.
    is_broken: bool,
    is_slow: bool,
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Net {
    wires: BTreeMap<WireId, Wire>,
    pub(super) dials: Vec<Dial>,
    last: u64,
    /// Pairs of processes that do not reach each other, in order.
    apart: BTreeSet<(End, End)>,
}

impl Net {
    /// Begins a connection.
    pub(super) fn dial(&mut self, from: End, to: End) -> WireId {
        self.last += 1;
        let wire = WireId(self.last);
        self.dials.push(Dial { wire, from, to });
        wire
    }

    /// Gives up a connection that is being made; whether it was.
    pub(super) fn forget_dial(&mut self, wire: WireId) -> bool {
        let before = self.dials.len();
        self.dials.retain(|dial| dial.wire != wire);
        self.dials.len() < before
    }

    /// Makes a connection.
    pub(super) fn connect(&mut self, dial: Dial, is_slow: bool) {
        let wire = Wire {
            ends: [dial.from, dial.to],
            ids: Default::default(),
            inbound: Default::default(),
            is_open: [true; 2],
            is_broken: false,
            is_slow,
        };
        self.wires.insert(dial.wire, wire);
    }

    /// The ends that something is on its way to, and whether it is slow.
    pub(super) fn arriving(&self) -> impl Iterator<Item = (WireId, Side, bool)> {
        self.wires.iter().flat_map(|(id, wire)| {
            let has_items = |side: &Side| !wire.inbound[*side].is_empty();
            (0..2).filter(has_items).map(|side| (*id, side, wire.is_slow))
        })
    }

    /// Takes the next item for an end.
    pub(super) fn take(&mut self, id: WireId, side: Side) -> Option<(End, Item)> {
        let wire = self.wires.get_mut(&id)?;
        let item = wire.inbound[side].pop_front()?;
        let end = wire.ends[side];
        if matches!(item, Item::Closed) {
            wire.is_open[side] = false;
            if wire.is_open == [false; 2] {
                self.wires.remove(&id);
            }
        }
        Some((end, item))
    }

    /// Sends a request or a notification; its id.
    pub(super) fn send<'a>(
        &mut self,
        from: End,
        id: WireId,
        message: impl Into<Message<'a>>,
    ) -> u32 {
        let Some(wire) = self.wires.get_mut(&id) else { return 0 };
        let side = usize::from(wire.ends[0] != from);
        let number = wire.ids[side].take();
        self.answer(from, id, number, message);
        number
    }

    /// Sends an answer.
    pub(super) fn answer<'a>(
        &mut self,
        from: End,
        id: WireId,
        number: u32,
        message: impl Into<Message<'a>>,
    ) {
        let mut packet = BytesMut::new();
        // Simulated messages are small.
        if encode(number, message, &mut packet).is_ok() {
            self.push(from, id, packet.freeze());
        }
    }

    /// Sends the bytes of one packet.
    pub(super) fn push(&mut self, from: End, id: WireId, packet: Bytes) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if !wire.is_broken {
            let other = usize::from(wire.ends[0] == from);
            wire.inbound[other].push_back(Item::Packet(packet));
        }
    }

    /// Closes a connection after what was sent.
    pub(super) fn close(&mut self, end: End, id: WireId) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        let side = usize::from(wire.ends[0] != end);
        if !wire.is_open[side] {
            return;
        }
        wire.inbound[side].clear();
        wire.inbound[side].push_back(Item::Closed);
        if !std::mem::replace(&mut wire.is_broken, true) {
            wire.inbound[1 - side].push_back(Item::Closed);
        }
    }

    /// Cuts a connection: an end of what is on its way is lost.
    pub(super) fn cut(&mut self, id: WireId, chance: &Chance) {
        let Some(wire) = self.wires.get_mut(&id) else { return };
        if std::mem::replace(&mut wire.is_broken, true) {
            return;
        }
        for inbound in &mut wire.inbound {
            inbound.truncate(chance.place(inbound.len() + 1));
            inbound.push_back(Item::Closed);
        }
    }

    /// Ends all connections of a process that has ended.
    pub(super) fn end_process(&mut self, end: End, chance: &Chance) {
        self.dials.retain(|dial| dial.from != end);
        for id in self.of(end) {
            self.cut(id, chance);
            let Some(wire) = self.wires.get_mut(&id) else { continue };
            let side = usize::from(wire.ends[0] != end);
            wire.is_open[side] = false;
            wire.inbound[side].clear();
            if wire.is_open == [false; 2] {
                self.wires.remove(&id);
            }
        }
    }

    fn of(&self, end: End) -> Vec<WireId> {
        let found = self.wires.iter().filter(|(_, wire)| wire.ends.contains(&end));
        found.map(|(id, _)| *id).collect()
    }

    /// All connections that are whole.
    pub(super) fn whole(&self) -> Vec<WireId> {
        let found = self.wires.iter().filter(|(_, wire)| !wire.is_broken);
        found.map(|(id, _)| *id).collect()
    }

    /// Parts two processes.
    pub(super) fn part(&mut self, one: End, other: End, chance: &Chance) {
        let pair = (one.min(other), one.max(other));
        self.apart.insert(pair);
        let between = |wire: &Wire| wire.ends.contains(&pair.0) && wire.ends.contains(&pair.1);
        let found = self.wires.iter().filter(|(_, wire)| between(wire));
        let found: Vec<_> = found.map(|(id, _)| *id).collect();
        found.into_iter().for_each(|id| self.cut(id, chance));
    }

    /// All processes reach each other again.
    pub(super) fn heal(&mut self) {
        self.apart.clear();
    }

    pub(super) fn has_parts(&self) -> bool {
        !self.apart.is_empty()
    }

    /// Whether two processes reach each other.
    pub(super) fn is_reached(&self, one: End, other: End) -> bool {
        !self.apart.contains(&(one.min(other), one.max(other)))
    }

    /// Whether nothing is on its way.
    pub(super) fn is_still(&self) -> bool {
        self.dials.is_empty() && self.arriving().next().is_none()
    }
}
