//! Connections between the processes of a run: messages in order, and partitions of the network.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};
use zodium_neo::{Message, encode};

use super::random::Random;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Master(usize),
    Storage(usize),
    Client(usize),
}

/// A connection; no number is used twice.
pub(crate) type Wire = u64;

/// What arrives.
#[derive(Debug)]
pub(crate) enum Item {
    /// The dialled process has been reached.
    Connected,
    Packet(Bytes),
    Closed,
}

#[derive(Debug)]
struct Ends {
    /// 0 has dialled, 1 was dialled.
    ends: [End; 2],
    inbound: [VecDeque<Item>; 2],
    /// Nothing more goes in.
    is_broken: bool,
    ids: [u32; 2],
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Net {
    wires: BTreeMap<Wire, Ends>,
    /// Attempts to connect.
    pub(crate) dials: Vec<(Wire, End, End)>,
    last: Wire,
    /// The part of the network in which each process is: others are not reached.
    parts: BTreeMap<End, u8>,
}

impl Net {
    pub(crate) fn dial(&mut self, from: End, to: End) -> Wire {
        self.last += 1;
        self.dials.push((self.last, from, to));
        self.last
    }

    pub(crate) fn is_reached(&self, one: End, other: End) -> bool {
        self.part(one) == self.part(other)
    }

    fn part(&self, end: End) -> u8 {
        self.parts.get(&end).copied().unwrap_or_default()
    }

    /// Divides the network. Connections over the border are cut, as by a firewall that answers.
    pub(crate) fn divide(&mut self, parts: BTreeMap<End, u8>, random: &mut Random) {
        self.parts = parts;
        let over = |ends: &Ends| self.part(ends.ends[0]) != self.part(ends.ends[1]);
        let cut: Vec<_> =
            self.wires.iter().filter(|(_, ends)| over(ends)).map(|(id, _)| *id).collect();
        cut.into_iter().for_each(|wire| self.cut(wire, random));
    }

    pub(crate) fn heal(&mut self) {
        self.parts.clear();
    }

    pub(crate) fn connect(&mut self, wire: Wire, from: End, to: End) {
        let inbound = [VecDeque::from([Item::Connected]), VecDeque::new()];
        let ends = Ends { ends: [from, to], inbound, is_broken: false, ids: [0; 2] };
        self.wires.insert(wire, ends);
    }

    /// Sends a message that is no answer; its id.
    pub(crate) fn tell<'a>(
        &mut self,
        from: End,
        wire: Wire,
        message: impl Into<Message<'a>>,
    ) -> u32 {
        let Some(ends) = self.wires.get_mut(&wire) else { return 0 };
        let side = usize::from(ends.ends[0] != from);
        let id = ends.ids[side];
        ends.ids[side] += 1;
        self.answer(from, wire, id, message);
        id
    }

    pub(crate) fn answer<'a>(
        &mut self,
        from: End,
        wire: Wire,
        id: u32,
        message: impl Into<Message<'a>>,
    ) {
        let mut bytes = BytesMut::new();
        encode(id, message, &mut bytes).unwrap();
        self.push(from, wire, bytes.freeze());
    }

    pub(crate) fn push(&mut self, from: End, wire: Wire, bytes: Bytes) {
        let Some(ends) = self.wires.get_mut(&wire) else { return };
        if !ends.is_broken {
            let other = usize::from(ends.ends[0] == from);
            ends.inbound[other].push_back(Item::Packet(bytes));
        }
    }

    /// Closes a connection after what was sent.
    pub(crate) fn close(&mut self, from: End, wire: Wire) {
        let before = self.dials.len();
        self.dials.retain(|(dialled, ..)| *dialled != wire);
        let Some(ends) = self.wires.get_mut(&wire) else {
            if self.dials.len() < before {
                // It was being made: its end is told all the same.
                let inbound = [VecDeque::from([Item::Closed]), VecDeque::new()];
                let ends = Ends { ends: [from, from], inbound, is_broken: true, ids: [0; 2] };
                self.wires.insert(wire, ends);
            }
            return;
        };
        let side = usize::from(ends.ends[0] != from);
        if !std::mem::replace(&mut ends.is_broken, true) {
            ends.inbound[side].clear();
            ends.inbound.iter_mut().for_each(|inbound| inbound.push_back(Item::Closed));
        }
    }

    /// Cuts a connection: an end of what is on its way is lost in each direction.
    pub(crate) fn cut(&mut self, wire: Wire, random: &mut Random) {
        let Some(ends) = self.wires.get_mut(&wire) else { return };
        if std::mem::replace(&mut ends.is_broken, true) {
            return;
        }
        for inbound in &mut ends.inbound {
            inbound.truncate(random.below(inbound.len() + 1));
            inbound.push_back(Item::Closed);
        }
    }

    /// A process has ended.
    pub(crate) fn end(&mut self, end: End, random: &mut Random) {
        self.dials.retain(|(_, from, _)| *from != end);
        for wire in self.of(end) {
            self.cut(wire, random);
            let Some(ends) = self.wires.get_mut(&wire) else { continue };
            let side = usize::from(ends.ends[0] != end);
            ends.inbound[side].clear();
        }
    }

    fn of(&self, end: End) -> Vec<Wire> {
        let all = self.wires.iter().filter(|(_, ends)| ends.ends.contains(&end));
        all.map(|(wire, _)| *wire).collect()
    }

    pub(crate) fn all(&self) -> Vec<Wire> {
        self.wires.keys().copied().collect()
    }

    /// The ends that something is on its way to.
    pub(crate) fn arriving(&self) -> Vec<(Wire, usize)> {
        let ends = self.wires.iter();
        let sides = ends.flat_map(|(wire, ends)| {
            (0..2).filter(|side| !ends.inbound[*side].is_empty()).map(|side| (*wire, side))
        });
        sides.collect()
    }

    /// Takes the next item for an end.
    pub(crate) fn take(&mut self, wire: Wire, side: usize) -> Option<(End, Item)> {
        let ends = self.wires.get_mut(&wire)?;
        let item = ends.inbound[side].pop_front()?;
        let end = ends.ends[side];
        if ends.is_broken && ends.inbound.iter().all(VecDeque::is_empty) {
            self.wires.remove(&wire);
        }
        Some((end, item))
    }
}
