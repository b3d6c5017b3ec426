//! All processes of a run, and what happens next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use zodium_neo::messages::{
    AddPendingNodes, RequestIdentification, SetNumReplicas, TweakPartitionTable,
};
use zodium_neo::{
    CellState, ClusterState, ConnectionId, Extra, LinkTask, Message, NodeId, NodeType, Packet,
    Partition, Scan, Scanner,
};
use zodium_neo_master::{Master, Output, Settings};
use zodium_types::Tid;

use super::client::{Client, Step};
use super::net::{End, Item, Net, Wire};
use super::random::Random;
use super::storage::Storage;
use crate::support::{CLUSTER, address, settings, storage};

/// Steps without faults within which everything must come to rest.
const CALM_STEPS_MAX: usize = 400_000;
const MASTER_PORT: u16 = 100;
const ADMIN_PORT: u16 = 300;

/// How large a cluster is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) masters: usize,
    pub(crate) storages: usize,
    pub(crate) partitions: u32,
    pub(crate) replicas: u32,
    pub(crate) clients: usize,
    /// Operators tweak the table, and change the number of replicas.
    pub(crate) has_operators: bool,
}

/// A master that runs.
struct Process {
    master: Master,
    wires: BTreeMap<ConnectionId, Wire>,
    connections: BTreeMap<Wire, ConnectionId>,
    was_primary: bool,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Deliver(Wire, usize),
    Connect(usize),
    Begin(usize),
    Vote(usize),
    Replicate(usize),
}

pub(crate) struct World {
    pub(crate) shape: Shape,
    random: Random,
    net: Net,
    /// Nothing fails any more, and clients do not begin.
    is_calm: bool,
    is_traced: bool,
    now: Duration,
    masters: Vec<Option<Process>>,
    storages: Vec<Storage>,
    clients: Vec<Client>,
    /// How often a master began to serve as the primary one.
    pub(crate) primaries: u64,
    pub(crate) digest: u64,
}

impl World {
    pub(crate) fn new(seed: u64, shape: Shape) -> World {
        let mut world = World {
            shape,
            random: Random::new(seed),
            net: Net::default(),
            is_calm: false,
            is_traced: std::env::var_os("TRACE").is_some(),
            now: Duration::from_secs(1_700_000_000),
            masters: (0..shape.masters).map(|_| None).collect(),
            storages: (0..shape.storages).map(Storage::new).collect(),
            clients: (0..shape.clients).map(Client::new).collect(),
            primaries: 0,
            digest: 0,
        };
        world.start_all();
        let World { clients, net, .. } = &mut world;
        clients.iter_mut().for_each(|client| client.dial(net, shape.masters));
        world
    }

    fn start_all(&mut self) {
        for place in 0..self.shape.masters {
            self.start_master(place);
        }
        for storage in self.storages.iter_mut().filter(|storage| !storage.is_running) {
            storage.start(&mut self.net, self.shape.masters);
        }
    }

    fn start_master(&mut self, place: usize) {
        if self.masters[place].is_some() {
            return;
        }
        let port = |place: usize| MASTER_PORT + 1 + place as u16;
        let own = settings(port(place));
        let masters = (0..self.shape.masters).map(|other| address(port(other))).collect();
        let Shape { partitions, replicas, .. } = self.shape;
        let autostart = Some(self.shape.storages as u32);
        let mut master = Master::new(Settings { masters, partitions, replicas, autostart, ..own });
        master.set_time(self.now);
        master.start();
        let (wires, connections) = (BTreeMap::new(), BTreeMap::new());
        self.masters[place] = Some(Process { master, wires, connections, was_primary: false });
        self.apply(place);
    }

    pub(crate) fn run(&mut self, steps: usize) {
        self.is_calm = false;
        for _ in 0..steps {
            self.fail();
            self.step();
        }
    }

    /// Everything is reached again, and nothing fails any more.
    pub(crate) fn come_to_rest(&mut self) -> Result<(), String> {
        self.is_calm = true;
        self.net.heal();
        for step in 0..CALM_STEPS_MAX {
            self.start_all();
            self.step();
            if step % 50 == 0 && self.is_at_rest() {
                return Ok(());
            }
        }
        let states = self.masters.iter_mut().flatten().map(|one| one.master.status());
        let states: Vec<_> = states.collect();
        let storages = self.storages.iter().map(|one| (one.is_operating, &one.wanted, &one.voted));
        let clients: Vec<_> = self.clients.iter().map(|one| &one.step).collect();
        let storages: Vec<_> = storages.collect();
        Err(format!("something waits for ever: {states:?} {storages:?} {clients:?}"))
    }

    fn is_at_rest(&mut self) -> bool {
        let running = self.masters.iter_mut().flatten();
        let running = running.filter_map(|one| one.master.status().state);
        let is_up_to_date = |storage: &Storage| {
            let table = storage.table.as_ref();
            let mut rows = table.map(|table| table.rows()).unwrap_or_default().iter();
            // One without cells is pending when it comes back, until an operator adds it. What it
            // has voted goes when it operates.
            let has_cells =
                table.is_some_and(|table| table.cells_of(storage.id()).next().is_some());
            (storage.is_operating && !storage.has_votes() || !has_cells)
                && storage.wanted.is_empty()
                && rows.all(|row| row.iter().all(|cell| cell.state == CellState::UpToDate))
        };
        running.collect::<Vec<_>>() == [ClusterState::Running]
            && self.storages.iter().all(is_up_to_date)
            && self.clients.iter().all(|client| client.step == Step::Idle)
            && self.net.arriving().is_empty()
    }

    /// What clients were told is in all cells, and all cells of a partition have the same.
    pub(crate) fn judge(&self) -> Result<(), String> {
        let table = self.storages[0].table.as_ref().ok_or("no table")?;
        let mut tids = BTreeMap::new();
        for (ttid, tid, partitions) in self.clients.iter().flat_map(|one| &one.acknowledged) {
            if let Some(other) = tids.insert(*tid, *ttid) {
                return Err(format!("{tid} was given to {other} and {ttid}"));
            }
            for partition in partitions {
                for cell in table.row(*partition) {
                    let held = &self.storages[cell.node.number() as usize - 1].committed;
                    if held.get(&(*partition, *tid)) != Some(ttid) {
                        return Err(format!("{} lacks {tid} of {partition}", cell.node));
                    }
                }
            }
        }
        for partition in (0..table.partitions()).map(Partition) {
            let held = |node: NodeId| -> BTreeSet<_> {
                let all = &self.storages[node.number() as usize - 1].committed;
                all.range((partition, Tid::ZERO)..=(partition, Tid::MAX)).collect()
            };
            let [first, others @ ..] = table.row(partition) else { continue };
            for other in others {
                let (one, two) = (held(first.node), held(other.node));
                let different: Vec<_> = one.symmetric_difference(&two).collect();
                if !different.is_empty() {
                    let (first, other) = (first.node, other.node);
                    return Err(format!("only one of {first} and {other} has {different:?}"));
                }
            }
        }
        Ok(())
    }

    /// With `TRACE` in the environment: prints each event.
    fn trace(&self, event: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:?} {}", self.now, event());
        }
    }

    pub(crate) fn commits(&self) -> usize {
        self.clients.iter().map(|client| client.acknowledged.len()).sum()
    }

    fn possible(&self) -> Vec<Next> {
        let arriving = self.net.arriving().into_iter();
        let mut all: Vec<_> = arriving.map(|(wire, side)| Next::Deliver(wire, side)).collect();
        all.extend((0..self.net.dials.len()).map(Next::Connect));
        for (place, client) in self.clients.iter().enumerate() {
            match client.step {
                Step::Idle if !self.is_calm => all.push(Next::Begin(place)),
                Step::Voting(_) => all.push(Next::Vote(place)),
                _ => {}
            }
        }
        let storages = self.storages.iter().enumerate();
        let ready = storages.filter(|(_, storage)| storage.replicable().is_some());
        all.extend(ready.map(|(place, _)| Next::Replicate(place)));
        all
    }

    fn step(&mut self) {
        self.now += Duration::from_micros(self.random.next() % 300);
        let all = self.possible();
        if all.is_empty() {
            return;
        }
        let next = all[self.random.below(all.len())];
        self.digest = self.digest.wrapping_mul(31).wrapping_add(all.len() as u64);
        match next {
            Next::Deliver(wire, side) => self.deliver(wire, side),
            Next::Connect(place) => self.connect(place),
            // Others get on meanwhile.
            Next::Begin(place) if self.random.permille(100) => {
                self.clients[place].begin(&mut self.net);
            }
            Next::Begin(_) => {}
            Next::Vote(place) => self.vote(place),
            Next::Replicate(place) => self.replicate(place),
        }
    }

    fn connect(&mut self, place: usize) {
        let (wire, from, to) = self.net.dials.remove(place);
        let is_there = match to {
            End::Master(place) => self.masters[place].is_some(),
            End::Storage(_) | End::Client(_) => false,
        };
        if !is_there || !self.net.is_reached(from, to) {
            return self.closed(from, wire);
        }
        self.net.connect(wire, from, to);
        if let End::Master(place) = to
            && let Some(process) = &mut self.masters[place]
        {
            let connection = process.master.accepted(format!("{from:?}"));
            process.wires.insert(connection, wire);
            process.connections.insert(wire, connection);
        }
    }

    fn deliver(&mut self, wire: Wire, side: usize) {
        let Some((end, item)) = self.net.take(wire, side) else { return };
        self.trace(|| match &item {
            Item::Packet(bytes) => match Scanner::default().scan(bytes) {
                Ok(Scan::Complete(frame)) => {
                    format!("{end:?} <{wire}< {:?}", Packet::decode(frame))
                }
                _ => String::new(),
            },
            other => format!("{end:?} <{wire}< {other:?}"),
        });
        match item {
            Item::Closed => self.closed(end, wire),
            Item::Connected => match end {
                End::Master(place) => self.with_master(place, wire, |master, connection| {
                    master.connected(connection);
                }),
                End::Storage(place) => self.storages[place].connected(&mut self.net, wire),
                End::Client(place) => self.clients[place].connected(&mut self.net, wire),
            },
            Item::Packet(bytes) => {
                let Ok(Scan::Complete(frame)) = Scanner::default().scan(&bytes) else { panic!() };
                let packet = Packet::decode(frame).unwrap();
                match end {
                    End::Master(place) => self.with_master(place, wire, |master, connection| {
                        master.received(connection, packet);
                    }),
                    End::Storage(place) => self.storages[place].says(&mut self.net, wire, packet),
                    End::Client(place) => self.clients[place].says(&mut self.net, wire, packet),
                }
            }
        }
    }

    fn closed(&mut self, end: End, wire: Wire) {
        let masters = self.shape.masters;
        match end {
            End::Master(place) => {
                self.with_master(place, wire, |master, connection| master.closed(connection));
                if let Some(process) = &mut self.masters[place]
                    && let Some(connection) = process.connections.remove(&wire)
                {
                    process.wires.remove(&connection);
                }
            }
            End::Storage(place) if self.storages[place].is_running => {
                self.storages[place].closed(&mut self.net, wire, masters);
            }
            End::Storage(_) => {}
            End::Client(place) => self.clients[place].closed(&mut self.net, wire, masters),
        }
    }

    fn with_master(
        &mut self,
        place: usize,
        wire: Wire,
        act: impl FnOnce(&mut Master, ConnectionId),
    ) {
        let Some(process) = &mut self.masters[place] else { return };
        let Some(connection) = process.connections.get(&wire).copied() else { return };
        process.master.set_time(self.now);
        act(&mut process.master, connection);
        self.apply(place);
    }

    /// Does what a master asks for.
    fn apply(&mut self, place: usize) {
        let end = End::Master(place);
        let Some(process) = &mut self.masters[place] else { return };
        for output in process.master.take_outputs() {
            match output {
                Output::Link(LinkTask::Dial { connection, address, .. }) => {
                    let to = End::Master((address.port - MASTER_PORT - 1) as usize);
                    let wire = self.net.dial(end, to);
                    process.wires.insert(connection, wire);
                    process.connections.insert(wire, connection);
                }
                Output::Link(LinkTask::Send { connection, packet }) => {
                    if let Some(wire) = process.wires.get(&connection) {
                        self.net.push(end, *wire, packet);
                    }
                }
                Output::Link(LinkTask::Close { connection }) => {
                    if let Some(wire) = process.wires.get(&connection) {
                        self.net.close(end, *wire);
                    }
                }
                // The look at storages: a run takes less time.
                Output::Wake { .. } => {}
                Output::Exit => panic!("a master ends by itself"),
            }
        }
        let is_primary = process.master.status().state == Some(ClusterState::Running);
        if is_primary && !process.was_primary {
            self.primaries += 1;
        }
        process.was_primary = is_primary;
    }

    /// A client stores on all storages that it reaches.
    fn vote(&mut self, place: usize) {
        let Step::Voting(ttid) = self.clients[place].step else { return };
        let count = self.shape.partitions;
        let mut partitions = BTreeSet::from([Partition((ttid.0 % u64::from(count)) as u32)]);
        partitions.insert(Partition(self.random.below(count as usize) as u32));
        let client = &mut self.clients[place];
        let Some(identity) = client.identity else { return };
        let (mut failed, mut checked) = (Vec::new(), BTreeSet::<Partition>::new());
        for node in client.writable(&partitions) {
            let other = node.number() as usize - 1;
            let is_reached = self.net.is_reached(End::Client(place), End::Storage(other));
            // A connection may fail at any time.
            let is_lucky = !self.random.permille(10);
            let storage = &mut self.storages[other];
            if is_reached && is_lucky && storage.vote(identity, ttid, &partitions) {
                let reads = partitions.iter().filter(|one| storage.reads(**one));
                checked.extend(reads.filter(|one| client.is_readable(**one, node)));
            } else {
                failed.push(node);
            }
        }
        self.trace(|| format!("client {place} votes {ttid} in {partitions:?}, failed {failed:?}"));
        if checked.len() < partitions.len() || self.random.permille(50) {
            self.clients[place].abort(&mut self.net, ttid);
        } else if failed.is_empty() {
            self.clients[place].finish(&mut self.net, ttid, partitions);
        } else {
            self.clients[place].report(&mut self.net, ttid, partitions, failed);
        }
    }

    /// A storage fetches a partition from one that has it.
    fn replicate(&mut self, place: usize) {
        let Some((partition, until)) = self.storages[place].replicable() else { return };
        let own = End::Storage(place);
        let reached = (0..self.storages.len())
            .filter(|other| *other != place && self.net.is_reached(own, End::Storage(*other)));
        // Both must be in the same cluster: sources know replicas by what the master says.
        let rows = reached.into_iter().find_map(|other| {
            let is_source = self.storages[place].sees_source(partition, other);
            (is_source && self.is_same_master(place, other))
                .then(|| self.storages[other].give(partition, until))
                .flatten()
        });
        if let Some(rows) = rows {
            self.trace(|| format!("storage {place} replicates {partition} until {until}"));
            self.storages[place].replicated(&mut self.net, (partition, until), rows);
        }
    }

    fn is_same_master(&self, one: usize, other: usize) -> bool {
        let master = |place: usize| {
            let wire = self.storages[place].wire?;
            self.masters.iter().position(|process| {
                process.as_ref().is_some_and(|process| process.connections.contains_key(&wire))
            })
        };
        master(one).is_some() && master(one) == master(other)
    }

    /// An operator asks the primary masters to move cells, as admins relay it.
    fn operate(&mut self) {
        let excluded = (0..self.shape.storages).filter(|_| self.random.permille(200));
        let excluded: Vec<_> = excluded.map(|place| storage(place as u32 + 1)).collect();
        let replicas = self.random.below(self.shape.replicas as usize + 1) as u32;
        let storages = self.shape.storages as u32;
        self.trace(|| format!("an operator tweaks without {excluded:?}, {replicas} replicas"));
        for place in 0..self.shape.masters {
            let Some(process) = &mut self.masters[place] else { continue };
            let admin = process.master.accepted("an admin".to_owned());
            let mut ask = |id, message: Message<'_>| {
                process.master.received(admin, Packet { id, message });
            };
            let identification = RequestIdentification {
                node_type: NodeType::Admin,
                id: None,
                address: Some(address(ADMIN_PORT)),
                cluster: CLUSTER,
                id_timestamp: None,
                extra: Extra::default(),
            };
            ask(0, identification.into());
            ask(1, AddPendingNodes { ids: (1..=storages).map(storage).collect() }.into());
            ask(2, SetNumReplicas { replicas }.into());
            ask(3, TweakPartitionTable { dry_run: false, excluded: excluded.clone() }.into());
            process.master.closed(admin);
            self.apply(place);
        }
    }

    /// Processes and connections fail, and the network falls into parts.
    fn fail(&mut self) {
        if self.shape.has_operators && self.random.permille(10) {
            self.operate();
        }
        if self.random.permille(3) {
            let place = self.random.below(self.shape.masters);
            self.trace(|| format!("master {place} ends or starts"));
            match self.masters[place].take() {
                Some(_) => self.net.end(End::Master(place), &mut self.random),
                None => self.start_master(place),
            }
        }
        if self.random.permille(4) {
            let place = self.random.below(self.shape.storages);
            self.trace(|| format!("storage {place} ends or starts"));
            if self.storages[place].is_running {
                self.storages[place].kill();
                self.net.end(End::Storage(place), &mut self.random);
            } else {
                self.storages[place].start(&mut self.net, self.shape.masters);
            }
        }
        if self.random.permille(5) {
            let all = self.net.all();
            if !all.is_empty() {
                let wire = all[self.random.below(all.len())];
                self.net.cut(wire, &mut self.random);
            }
        }
        if self.random.permille(3) {
            self.divide();
        }
        if self.random.permille(6) {
            self.net.heal();
            self.start_all();
        }
    }

    fn divide(&mut self) {
        let masters = (0..self.shape.masters).map(End::Master);
        let storages = (0..self.shape.storages).map(End::Storage);
        let clients = (0..self.shape.clients).map(End::Client);
        let all: Vec<_> = masters.chain(storages).chain(clients).collect();
        let in_ten = self.random.below(5) as u64 * 100;
        let parts = all.into_iter().map(|end| (end, u8::from(self.random.permille(100 + in_ten))));
        let parts = parts.collect();
        self.trace(|| format!("the network falls apart: {parts:?}"));
        self.net.divide(parts, &mut self.random);
    }
}
