//! The world of a run: all processes, and what happens next.

use std::io;

use zodium_neo::{Packet, PartitionTable, Scan, Scanner};

use super::client::Client;
use super::context::Context;
use super::masters::{Master, Operator, Wish, look};
use super::net::{End, Item, Side, WireId};
use super::plan::Plan;
use super::storage::{Storage, Task};
use crate::random::Chance;

/// Times that something slow is passed over for something else.
const RETRIES: usize = 6;
/// Processes that do not reach each other do again after about so many steps.
const HEALING_STEPS: u64 = 300;

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Next {
    Deliver { wire: WireId, side: Side, is_slow: bool },
    Work(usize, Task),
    Connect(usize),
    Begin(usize),
    Operate,
    Wake(usize),
    StartStorage(usize),
    StartMaster(usize),
}

/// All processes of a run.
pub(super) struct World {
    pub(super) context: Context,
    pub(super) masters: Vec<Option<Master>>,
    pub(super) storages: Vec<Storage>,
    pub(super) clients: Vec<Client>,
    /// Of a cluster with real masters.
    operator: Option<Operator>,
}

impl World {
    pub(super) fn new(plan: Plan, chance: Chance, prints: bool) -> io::Result<World> {
        let storages = (0..plan.storages).map(Storage::new).collect::<io::Result<_>>()?;
        let clients = (0..plan.clients).map(Client::new).collect();
        let operator = (plan.masters > 0).then(Operator::default);
        let masters = plan.masters.max(1);
        let mut context = Context::new(plan, chance, prints);
        let masters = (0..masters).map(|place| Some(Master::start(&mut context, place))).collect();
        Ok(World { context, masters, storages, clients, operator })
    }

    /// One step: something that may happen now happens.
    pub(super) fn step(&mut self) {
        if self.operator.is_some() {
            self.context.pass_time();
        }
        if !self.context.is_calm {
            self.fail();
        }
        self.happen();
        if let Some(place) = self.context.started.take() {
            self.look(place);
        }
    }

    /// Something that may happen now happens.
    fn happen(&mut self) {
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
            Next::Operate => {
                if let Some(operator) = &mut self.operator {
                    operator.act(&mut self.context);
                }
            }
            Next::Wake(place) => {
                if let Some(master) = &mut self.masters[place] {
                    master.wake(&mut self.context);
                }
            }
            Next::StartMaster(place) => {
                self.context.event("master", &[place as u64]);
                self.masters[place] = Some(Master::start(&mut self.context, place));
            }
        }
    }

    /// A real master begins to serve, or the run ends: what storages have is looked at.
    fn look(&mut self, place: usize) {
        let World { context, masters, storages, .. } = self;
        let Some(table) = masters[place].as_ref().and_then(Master::table) else { return };
        if let Err(error) = look(context, table, storages) {
            context.violate(error);
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
        for (place, master) in self.masters.iter().enumerate() {
            match master {
                None => all.push(Next::StartMaster(place)),
                Some(master) if master.has_alarm() && !self.context.is_calm => {
                    all.push(Next::Wake(place));
                }
                Some(_) => {}
            }
        }
        if self.operator.as_ref().is_some_and(Operator::is_free) {
            all.push(Next::Operate);
        }
        all
    }

    /// What would happen seldom.
    fn is_passed_over(&self, next: Next) -> bool {
        let chance = &self.context.chance;
        match next {
            Next::Deliver { is_slow, .. } => is_slow && chance.permille(900),
            Next::Work(..) | Next::Begin(_) => false,
            Next::Connect(_) | Next::Operate => chance.permille(300),
            Next::StartStorage(_) | Next::StartMaster(_) | Next::Wake(_) => chance.permille(900),
        }
    }

    fn deliver(&mut self, wire: WireId, side: Side) {
        let Some((end, item)) = self.context.net.take(wire, side) else { return };
        let bytes = match item {
            Item::Packet(bytes) => bytes,
            Item::Closed => {
                self.context.event("closed", &[wire.0, side as u64]);
                return self.closed(end, wire);
            }
        };
        let World { context, masters, storages, clients, operator } = self;
        let mut scanner = Scanner::default();
        let Ok(Scan::Complete(frame)) = scanner.scan(&bytes) else { return };
        let Ok(packet) = Packet::decode(frame) else {
            return context.violate("a packet cannot be decoded".to_owned());
        };
        let (name, code, id) = (packet.message.name(), packet.message.code(), packet.id);
        context.event(name, &[wire.0, side as u64, code.into(), id.into()]);
        match end {
            End::Master(place) => {
                if let Some(master) = &mut masters[place] {
                    master.received(context, wire, packet);
                }
            }
            End::Storage(place) => storages[place].received(context, wire, packet),
            End::Client(place) => clients[place].received(context, wire, packet),
            End::Operator => {
                if let Some(operator) = operator {
                    operator.received(context, wire, packet);
                }
            }
        }
    }

    fn closed(&mut self, end: End, wire: WireId) {
        let World { context, masters, storages, clients, operator } = self;
        match end {
            End::Master(place) => {
                if let Some(master) = &mut masters[place] {
                    master.closed(context, wire);
                }
            }
            End::Storage(place) => storages[place].closed(context, wire),
            End::Client(place) => clients[place].closed(context, wire),
            End::Operator => {
                if let Some(operator) = operator {
                    operator.closed(wire);
                }
            }
        }
    }

    /// Makes a connection, if there is a process to connect to.
    fn connect(&mut self, place: usize) {
        let World { context, masters, storages, clients, operator } = self;
        let dial = context.net.dials.remove(place);
        let is_up = match dial.to {
            End::Master(place) => masters.get(place).is_some_and(Option::is_some),
            End::Storage(place) => storages[place].process.is_some(),
            End::Client(_) | End::Operator => false,
        };
        let is_there = is_up && context.net.is_reached(dial.from, dial.to);
        context.event("dial", &[dial.wire.0, is_there.into()]);
        if is_there {
            let is_slow = context.chance.permille(context.plan.slow);
            context.net.connect(dial, is_slow);
            match dial.to {
                End::Master(place) => {
                    if let Some(master) = &mut masters[place] {
                        master.accepted(context, dial.wire);
                    }
                }
                End::Storage(place) => storages[place].accepted(context, dial.wire),
                End::Client(_) | End::Operator => {}
            }
        }
        match dial.from {
            End::Storage(place) => storages[place].dialled(context, dial.wire, is_there),
            End::Client(place) => clients[place].dialled(context, dial.wire, is_there),
            End::Master(place) => {
                if let Some(master) = &mut masters[place] {
                    master.dialled(context, dial.wire, is_there);
                }
            }
            End::Operator => {
                if let Some(operator) = operator {
                    operator.dialled(context, dial.wire, is_there);
                }
            }
        }
    }

    /// Processes and connections fail, and the operator acts.
    fn fail(&mut self) {
        let World { context, masters, storages, clients, .. } = self;
        let plan = context.plan.clone();
        if happens(context, plan.storage_kills) {
            let place = context.chance.place(storages.len());
            let is_power_cut = plan.power_cuts && context.chance.permille(500);
            storages[place].kill(context, is_power_cut);
        }
        if happens(context, plan.master_kills) {
            let place = context.chance.place(masters.len());
            if masters[place].take().is_some() {
                context.event("master killed", &[place as u64]);
                context.net.end_process(End::Master(place), &context.chance);
            }
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
        self.part();
        self.operate();
    }

    /// Processes do not reach each other, or do again.
    fn part(&mut self) {
        let ends = self.ends();
        let context = &mut self.context;
        if context.net.has_parts() && context.chance.number(1..=HEALING_STEPS) == 1 {
            context.event("healed", &[]);
            context.net.heal();
        }
        if !happens(context, context.plan.parts) {
            return;
        }
        if context.chance.permille(500) {
            let [one, other] = [(); 2].map(|()| ends[context.chance.place(ends.len())]);
            if one != other {
                context.event("pair parted", &[]);
                context.net.part(one, other, &context.chance);
            }
            return;
        }
        context.event("parted", &[]);
        let (left, right): (Vec<_>, Vec<_>) =
            ends.into_iter().partition(|_| context.chance.permille(500));
        for one in &left {
            right.iter().for_each(|other| context.net.part(*one, *other, &context.chance));
        }
    }

    fn ends(&self) -> Vec<End> {
        let masters = (0..self.masters.len()).map(End::Master);
        let storages = (0..self.storages.len()).map(End::Storage);
        masters.chain(storages).chain((0..self.clients.len()).map(End::Client)).collect()
    }

    /// Cells move, and so on: the model master does so by itself.
    fn operate(&mut self) {
        let World { context, masters, operator, .. } = self;
        let Plan { moves, truncations, operations, .. } = context.plan;
        let wishes =
            [(Wish::Move, moves), (Wish::Truncate, truncations), (Wish::Change, operations)];
        for (wish, in_10_000) in wishes {
            if !happens(context, in_10_000) {
                continue;
            }
            match (&mut *operator, &mut masters[0], wish) {
                (Some(operator), ..) => operator.wish(wish),
                (None, Some(Master::Model(master)), Wish::Move) => master.move_cell(context),
                (None, Some(Master::Model(master)), Wish::Truncate) => master.truncate(context),
                _ => {}
            }
        }
    }

    /// No fault happens any more, and no task begins.
    pub(super) fn calm_down(&mut self) {
        self.context.is_calm = true;
        self.context.net.heal();
        self.context.event("calm", &[]);
    }

    /// Faults happen again.
    pub(super) fn go_on(&mut self) {
        self.context.is_calm = false;
        self.context.event("go on", &[]);
    }

    /// Whether nothing is left to do.
    pub(super) fn is_at_rest(&mut self) -> bool {
        let World { context, masters, storages, clients, operator } = self;
        context.net.is_still()
            && masters.iter().filter_map(Option::as_ref).filter_map(Master::table).count() == 1
            && masters.iter_mut().all(|one| one.as_mut().is_some_and(|one| one.is_idle(context)))
            && clients.iter().all(Client::is_idle)
            && storages.iter().all(Storage::is_idle)
            && operator.as_ref().is_none_or(Operator::is_idle)
    }

    /// Has replicas compared, if there is an operator that can; whether it was done before.
    pub(super) fn check(&mut self) -> bool {
        let World { context, operator, .. } = self;
        operator.as_mut().is_none_or(|operator| operator.check(context))
    }

    /// The partition table, when the cluster serves clients.
    pub(super) fn table(&self) -> Option<&PartitionTable> {
        self.masters.iter().flatten().find_map(Master::table)
    }

    /// The last look at what storages have.
    pub(super) fn look_at_end(&mut self) {
        if self.operator.is_some() {
            let place = self
                .masters
                .iter()
                .position(|one| one.as_ref().is_some_and(|one| one.table().is_some()));
            place.into_iter().for_each(|place| self.look(place));
        }
    }

    pub(super) fn describe(&mut self) -> String {
        let clients = self.clients.iter().filter(|client| !client.is_idle());
        let clients: Vec<_> = clients.map(Client::describe).collect();
        let masters: Vec<_> = self.masters.iter_mut().flatten().map(Master::describe).collect();
        let busy = self.storages.iter().enumerate().filter(|(_, storage)| !storage.is_idle());
        let busy: Vec<_> = busy.map(|(place, storage)| storage.describe(place)).collect();
        let operator = self.operator.as_ref().map(|one| format!("{one:?}")).unwrap_or_default();
        let (clients, masters, busy) = (clients.join("; "), masters.join("; "), busy.join("; "));
        format!("{clients}; {masters}; {busy}; {operator}")
    }
}

fn happens(context: &Context, in_10_000: u64) -> bool {
    in_10_000 > 0 && context.chance.number(1..=10_000) <= in_10_000
}
