//! The world of a run: all processes, and what happens next.

use std::io;

use zodium_neo::{Packet, Scan, Scanner};

use super::client::Client;
use super::context::Context;
use super::master::Master;
use super::net::{End, Item, Side, WireId};
use super::plan::Plan;
use super::storage::{Storage, Task};
use crate::random::Chance;

/// Times that something slow is passed over for something else.
const RETRIES: usize = 6;

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Deliver { wire: WireId, side: Side, is_slow: bool },
    Work(usize, Task),
    Connect(usize),
    Begin(usize),
    StartStorage(usize),
    StartMaster,
}

/// All processes of a run.
pub(super) struct World {
    pub(super) context: Context,
    pub(super) master: Option<Master>,
    pub(super) storages: Vec<Storage>,
    pub(super) clients: Vec<Client>,
}

impl World {
    pub(super) fn new(plan: Plan, chance: Chance, prints: bool) -> io::Result<World> {
        let storages = (0..plan.storages).map(Storage::new).collect::<io::Result<_>>()?;
        let clients = (0..plan.clients).map(Client::new).collect();
        let context = Context::new(plan, chance, prints);
        Ok(World { context, master: Some(Master::new()), storages, clients })
    }

    /// One step: something that may happen now happens.
    pub(super) fn step(&mut self) {
        if !self.context.is_calm {
            self.fail();
        }
        let all = self.possible();
        if all.is_empty() {
            return;
        }
        let mut next = all[self.context.chance.place(all.len())];
        for _ in 0..RETRIES {
            if !self.is_passed_over(next) {
                break;
            }
            next = all[self.context.chance.place(all.len())];
        }
        match next {
            Next::Deliver { wire, side, .. } => self.deliver(wire, side),
            Next::Work(place, task) => self.storages[place].work(&mut self.context, task),
            Next::Connect(place) => self.connect(place),
            Next::Begin(place) => self.clients[place].begin(&mut self.context),
            Next::StartStorage(place) => self.storages[place].start(&mut self.context),
            Next::StartMaster => {
                self.context.event("master", &[]);
                self.master = Some(Master::new());
            }
        }
    }

    fn possible(&self) -> Vec<Next> {
        let arriving = self.context.net.arriving();
        let mut all: Vec<_> =
            arriving.map(|(wire, side, is_slow)| Next::Deliver { wire, side, is_slow }).collect();
        for (place, storage) in self.storages.iter().enumerate() {
            match storage.process {
                Some(_) => all.extend(storage.tasks().map(|task| Next::Work(place, task))),
                None => all.push(Next::StartStorage(place)),
            }
        }
        all.extend((0..self.context.net.dials.len()).map(Next::Connect));
        for (place, client) in self.clients.iter().enumerate() {
            if client.is_free() && !(self.context.is_calm && client.is_idle()) {
                all.push(Next::Begin(place));
            }
        }
        if self.master.is_none() {
            all.push(Next::StartMaster);
        }
        all
    }

    /// What would happen seldom.
    fn is_passed_over(&self, next: Next) -> bool {
        let chance = &self.context.chance;
        match next {
            Next::Deliver { is_slow, .. } => is_slow && chance.permille(900),
            Next::Work(..) | Next::Begin(_) => false,
            Next::Connect(_) => chance.permille(300),
            Next::StartStorage(_) | Next::StartMaster => chance.permille(900),
        }
    }

    fn deliver(&mut self, wire: WireId, side: Side) {
        let World { context, master, storages, clients } = self;
        let Some((end, item)) = context.net.take(wire, side) else { return };
        let bytes = match item {
            Item::Packet(bytes) => bytes,
            Item::Closed => {
                context.event("closed", &[wire.0, side as u64]);
                return match end {
                    End::Master => {
                        if let Some(master) = master {
                            master.closed(context, wire);
                        }
                    }
                    End::Storage(place) => storages[place].closed(context, wire),
                    End::Client(place) => clients[place].closed(context, wire),
                };
            }
        };
        let mut scanner = Scanner::default();
        let Ok(Scan::Complete(frame)) = scanner.scan(&bytes) else { return };
        let Ok(packet) = Packet::decode(frame) else {
            return context.violate("a packet cannot be decoded".to_owned());
        };
        let (name, code, id) = (packet.message.name(), packet.message.code(), packet.id);
        context.event(name, &[wire.0, side as u64, code.into(), id.into()]);
        match end {
            End::Master => {
                if let Some(master) = master {
                    master.received(context, wire, packet);
                }
            }
            End::Storage(place) => storages[place].received(context, wire, packet),
            End::Client(place) => clients[place].received(context, wire, packet),
        }
    }

    /// Makes a connection, if there is a process to connect to.
    fn connect(&mut self, place: usize) {
        let World { context, master, storages, clients } = self;
        let dial = context.net.dials.remove(place);
        let is_there = match dial.to {
            End::Master => master.is_some(),
            End::Storage(place) => storages[place].process.is_some(),
            End::Client(_) => false,
        };
        context.event("dial", &[dial.wire.0, is_there.into()]);
        if is_there {
            let is_slow = context.chance.permille(context.plan.slow);
            context.net.connect(dial, is_slow);
            match dial.to {
                End::Master => {
                    if let Some(master) = master {
                        master.accepted(dial.wire);
                    }
                }
                End::Storage(place) => storages[place].accepted(context, dial.wire),
                End::Client(_) => {}
            }
        }
        match dial.from {
            End::Storage(place) => storages[place].dialled(context, dial.wire, is_there),
            End::Client(place) => clients[place].dialled(context, dial.wire, is_there),
            End::Master => {}
        }
    }

    /// Processes and connections fail, and the operator acts.
    fn fail(&mut self) {
        let World { context, master, storages, clients } = self;
        let plan = context.plan.clone();
        let happens = |context: &Context, in_10_000: u64| {
            in_10_000 > 0 && context.chance.number(1..=10_000) <= in_10_000
        };
        if happens(context, plan.storage_kills) {
            let place = context.chance.place(storages.len());
            let is_power_cut = plan.power_cuts && context.chance.permille(500);
            storages[place].kill(context, is_power_cut);
        }
        if happens(context, plan.master_kills) && master.take().is_some() {
            context.event("master killed", &[]);
            context.net.end_process(End::Master, &context.chance);
        }
        if happens(context, plan.client_kills) {
            let place = context.chance.place(clients.len());
            clients[place].kill(context);
        }
        if happens(context, plan.cuts) {
            let whole = context.net.whole();
            if let Some(wire) = whole.get(context.chance.place(whole.len())) {
                context.event("cut", &[wire.0]);
                context.net.cut(*wire, &context.chance);
            }
        }
        let Some(master) = master else { return };
        if happens(context, plan.moves) {
            master.move_cell(context);
        }
        if happens(context, plan.truncations) {
            master.truncate(context);
        }
    }

    /// Whether nothing is left to do.
    pub(super) fn is_at_rest(&self) -> bool {
        let World { context, master, storages, clients } = self;
        context.net.is_still()
            && master.as_ref().is_some_and(|master| master.is_idle(context))
            && clients.iter().all(Client::is_idle)
            && storages.iter().all(Storage::is_idle)
    }

    pub(super) fn describe(&self) -> String {
        let clients = self.clients.iter().filter(|client| !client.is_idle());
        let clients: Vec<_> = clients.map(Client::describe).collect();
        let master = self.master.as_ref().map(Master::describe);
        let busy = self.storages.iter().enumerate().filter(|(_, storage)| !storage.is_idle());
        let busy: Vec<_> = busy.map(|(place, storage)| storage.describe(place)).collect();
        format!("{}; {}; {}", clients.join("; "), master.unwrap_or_default(), busy.join("; "))
    }
}
