//! A storage process: a node, its database, and the jobs between them.
//!
//! Jobs that read run in any order, and what they found waits before the node hears of it. Jobs
//! that write run in order, some in one transaction. A process that is killed loses all of that.
//! With a power cut, its database is as it was at the last durable commit.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;
use zodium_neo::{Address, Frame, LinkTask, NodeId, NodeType, Packet, Scan, Scanner};
use zodium_neo_storage::{
    Completion, ConnectionId, Node, Output, ReadJob, Saved, Settings, Store, WriteJob,
};
use zodium_sql::{NodeDatabase, NodeOptions};

use super::context::{CLUSTER, Context};
use super::faulty;
use super::net::{End, WireId};
use super::plan::ClusterBug;

/// The port of the master.
const MASTER_PORT: u16 = 1000;
/// The files of a database that hold content.
const FILES: [&str; 2] = ["node.sqlite", "node.sqlite-wal"];

/// A storage, which may be down.
pub(super) struct Storage {
    place: usize,
    folder: TempDir,
    pub(super) process: Option<Process>,
    /// Whether commits are not durable: the copy has the last durable state.
    has_copy: bool,
}

/// A running storage.
pub(super) struct Process {
    pub(super) node: Node,
    pub(super) database: NodeDatabase,
    wires: BTreeMap<ConnectionId, WireId>,
    connections: BTreeMap<WireId, ConnectionId>,
    reads: Vec<ReadJob>,
    found: Vec<Completion>,
    writes: VecDeque<(WriteJob, bool)>,
    written: VecDeque<Vec<Completion>>,
}

/// A step of a storage's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Read,
    Found,
    Write,
    Written,
}

/// The id of the storage at this place.
pub(super) fn id_of(place: usize) -> Option<NodeId> {
    NodeId::of(NodeType::Storage, place as u32 + 1)
}

fn address(port: u16) -> Address {
    Address { host: "127.0.0.1".to_owned(), port }
}

fn end_of(address: &Address) -> End {
    match address.port {
        MASTER_PORT => End::Master,
        port => End::Storage(usize::from(port - MASTER_PORT) - 1),
    }
}

impl Storage {
    pub(super) fn new(place: usize) -> io::Result<Storage> {
        // A database on a disk would only be slower.
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory)?,
            false => tempfile::tempdir()?,
        };
        std::fs::create_dir(folder.path().join("copy"))?;
        Ok(Storage { place, folder, process: None, has_copy: false })
    }

    fn end(&self) -> End {
        End::Storage(self.place)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(FILES[0])
    }

    /// Starts the process.
    pub(super) fn start(&mut self, context: &mut Context) {
        let path = self.path();
        let options = NodeOptions {
            location: &path.into(),
            cluster: CLUSTER,
            keep_equal_data_once: false,
            // A run is the same wherever it runs.
            room_bytes: 0,
        };
        let (database, saved) = match NodeDatabase::open(&options) {
            Ok(opened) => opened,
            Err(error) => return context.violate(format!("a database cannot be opened: {error}")),
        };
        context.event("start", &[self.place as u64]);
        let settings = Settings {
            cluster: CLUSTER.to_owned(),
            masters: vec![address(MASTER_PORT)],
            address: address(MASTER_PORT + 1 + self.place as u16),
            topology: vec![self.place.to_string()],
            packs: true,
            drops_partitions: true,
            transaction_bytes_max: context.plan.transaction_bytes_max(),
            records_bytes_max: context.plan.records_bytes_max(),
        };
        let saved = Saved { node: saved.node.or(id_of(self.place)), ..saved };
        let mut node = Node::new(settings, saved);
        node.start();
        self.process = Some(Process {
            node,
            database,
            wires: BTreeMap::new(),
            connections: BTreeMap::new(),
            reads: Vec::new(),
            found: Vec::new(),
            writes: VecDeque::new(),
            written: VecDeque::new(),
        });
        self.apply(context);
    }

    /// Kills the process; with a power cut its database loses what is not durable.
    pub(super) fn kill(&mut self, context: &mut Context, is_power_cut: bool) {
        let Some(process) = self.process.take() else { return };
        context.counts.add_process(&process.node.status().counts);
        context.event(if is_power_cut { "power cut" } else { "kill" }, &[self.place as u64]);
        context.net.end_process(self.end(), &context.chance);
        if is_power_cut && self.has_copy {
            let done = copy(&self.folder.path().join("copy"), self.folder.path());
            if let Err(error) = done {
                context.violate(format!("a database cannot be copied: {error}"));
            }
        }
        self.has_copy = false;
    }

    /// A process has connected to this one.
    pub(super) fn accepted(&mut self, context: &mut Context, wire: WireId) {
        let Some(process) = &mut self.process else { return };
        let connection = process.node.accepted(format!("connection {}", wire.0));
        process.wires.insert(connection, wire);
        process.connections.insert(wire, connection);
        self.apply(context);
    }

    /// A connection that the node dialled is there, or cannot be made.
    pub(super) fn dialled(&mut self, context: &mut Context, wire: WireId, is_there: bool) {
        let Some(process) = &mut self.process else { return };
        let Some(connection) = process.connections.get(&wire).copied() else { return };
        match is_there {
            true => process.node.connected(connection),
            false => {
                process.forget(wire);
                process.node.closed(connection);
            }
        }
        self.apply(context);
    }

    /// A connection has ended.
    pub(super) fn closed(&mut self, context: &mut Context, wire: WireId) {
        let Some(process) = &mut self.process else { return };
        if let Some(connection) = process.forget(wire) {
            process.node.closed(connection);
        }
        self.apply(context);
    }

    /// A packet has arrived.
    pub(super) fn received(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        let Some(process) = &mut self.process else { return };
        let Some(connection) = process.connections.get(&wire).copied() else { return };
        let Some(packet) = faulty::received(context, packet) else { return };
        process.node.received(connection, packet);
        self.apply(context);
    }

    /// What the storage can do by itself.
    pub(super) fn tasks(&self) -> impl Iterator<Item = Task> {
        let process = self.process.as_ref();
        let is_there = move |task: Task| {
            process.is_some_and(|process| match task {
                Task::Read => !process.reads.is_empty(),
                Task::Found => !process.found.is_empty(),
                Task::Write => !process.writes.is_empty(),
                Task::Written => !process.written.is_empty(),
            })
        };
        let all = [Task::Read, Task::Found, Task::Write, Task::Written];
        all.into_iter().filter(move |task| is_there(*task))
    }

    /// Does one step.
    pub(super) fn work(&mut self, context: &mut Context, task: Task) {
        let Some(process) = &mut self.process else { return };
        match task {
            Task::Read => {
                let job = process.reads.swap_remove(context.chance.place(process.reads.len()));
                match Store::read(&process.database, job) {
                    Ok(found) => process.found.push(found),
                    Err(error) => context.violate(format!("a read failed: {error}")),
                }
            }
            Task::Found => {
                let found = process.found.swap_remove(context.chance.place(process.found.len()));
                process.node.completed(found);
            }
            Task::Write => self.write(context),
            Task::Written => {
                let written = process.written.pop_front().unwrap_or_default();
                written.into_iter().for_each(|done| process.node.completed(done));
            }
        }
        self.apply(context);
    }

    fn write(&mut self, context: &mut Context) {
        let Some(process) = &mut self.process else { return };
        let most = process.writes.len().min(context.plan.batch as usize);
        let count = 1 + context.chance.place(most);
        let jobs: Vec<_> = process.writes.drain(..count.min(process.writes.len())).collect();
        let mut is_durable = jobs.iter().any(|(_, is_durable)| *is_durable);
        if context.plan.bug == ClusterBug::SyncsDoNothing {
            is_durable = context.chance.permille(50);
        }
        if context.plan.power_cuts && !is_durable && !self.has_copy {
            self.has_copy = true;
            if let Err(error) = copy(self.folder.path(), &self.folder.path().join("copy")) {
                context.violate(format!("a database cannot be copied: {error}"));
            }
        }
        // The files are in memory: what is durable, the copy says.
        match Store::write(&process.database, false, jobs.into_iter().map(|job| job.0).collect()) {
            Ok(done) => process.written.push_back(done),
            Err(error) => context.violate(format!("a write failed: {error}")),
        }
        if is_durable {
            self.has_copy = false;
        }
    }

    /// Does what the node asks for.
    fn apply(&mut self, context: &mut Context) {
        let end = self.end();
        while let Some(process) = &mut self.process {
            let outputs = process.node.take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                let Some(process) = &mut self.process else { return };
                match output {
                    Output::Link(LinkTask::Dial { connection, address, after }) => {
                        process.dial(context, end, (connection, &address), after);
                    }
                    Output::Link(LinkTask::Send { connection, packet }) => {
                        if let Some(wire) = process.wires.get(&connection) {
                            send(context, end, *wire, &packet);
                        }
                    }
                    Output::Link(LinkTask::Close { connection }) => {
                        process.close(context, end, connection)
                    }
                    Output::Read { job, .. } => process.reads.push(job),
                    Output::Write { job, is_durable } => {
                        process.writes.push_back((job, is_durable))
                    }
                    Output::Exit(exit) => {
                        context.violate(format!("storage {} ends: {exit:?}", self.place));
                        self.kill(context, false);
                    }
                }
            }
        }
    }

    pub(super) fn describe(&self, place: usize) -> String {
        let tasks: Vec<_> = self.tasks().collect();
        let node = self.process.as_ref().map(|process| format!("{:?}", process.node));
        format!("storage {place}: {tasks:?}, {}", node.unwrap_or_default())
    }

    /// Whether nothing is left to do, and nothing is locked.
    pub(super) fn is_idle(&self) -> bool {
        self.tasks().next().is_none()
            && self.process.as_ref().is_some_and(|process| process.node.is_unlocked())
    }
}

impl Process {
    fn dial(
        &mut self,
        context: &mut Context,
        end: End,
        (connection, address): (ConnectionId, &Address),
        _after: Duration,
    ) {
        let wire = context.net.dial(end, end_of(address));
        self.wires.insert(connection, wire);
        self.connections.insert(wire, connection);
    }

    fn close(&mut self, context: &mut Context, end: End, connection: ConnectionId) {
        let Some(wire) = self.wires.get(&connection).copied() else { return };
        if context.net.forget_dial(wire) {
            self.forget(wire);
            self.node.closed(connection);
        } else {
            context.net.close(end, wire);
        }
    }

    fn forget(&mut self, wire: WireId) -> Option<ConnectionId> {
        let connection = self.connections.remove(&wire)?;
        self.wires.remove(&connection);
        Some(connection)
    }
}

/// Sends packets one by one.
fn send(context: &mut Context, end: End, wire: WireId, bytes: &Bytes) {
    let (mut scanner, mut start) = (Scanner::default(), 0);
    while start < bytes.len() {
        let Ok(Scan::Complete(frame)) = scanner.scan(&bytes[start..]) else {
            return context.violate("a node sends what is no packet".to_owned());
        };
        let length = Frame::bytes(frame).len();
        let Ok(decoded) = Packet::decode(frame) else {
            return context.violate("a node sends what cannot be decoded".to_owned());
        };
        let packet = bytes.slice(start..start + length);
        if let Some(packet) = faulty::sent(context, packet, &decoded) {
            context.net.push(end, wire, packet);
        }
        start += length;
    }
}

/// Copies the content of a database to another folder, in place of what is there.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let shared = to.join("node.sqlite-shm");
    for name in FILES {
        let target = to.join(name);
        match std::fs::copy(from.join(name), &target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => remove(&target)?,
            done => drop(done?),
        }
    }
    remove(&shared)
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
