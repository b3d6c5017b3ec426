//! A storage process: a node, its database, and the jobs between them.
//!
//! Jobs that read run in any order, and what they found waits before the node hears of it. Jobs
//! that write run in order, some in one transaction. A process that is killed loses all of that.
//! With a power cut, its database is as it was at the last durable commit.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zodium_neo::{NodeId, NodeType, Packet};
use zodium_neo_storage::{
    Completion, Exit, Node, Output, ReadJob, Saved, Settings, Store, WriteJob,
};
use zodium_sql::{NodeDatabase, NodeOptions};

use super::addresses::address_of;
use super::context::{CLUSTER, Context};
use super::faulty;
use super::net::{End, WireId};
use super::plan::ClusterBug;
use super::wires::Wires;

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
    wires: Wires,
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
            masters: context.plan.master_addresses(),
            address: address_of(self.end()),
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
            wires: Wires::default(),
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
        process.wires.add(connection, wire);
        self.apply(context);
    }

    /// A connection that the node dialled is there, or cannot be made.
    pub(super) fn dialled(&mut self, context: &mut Context, wire: WireId, is_there: bool) {
        let Some(process) = &mut self.process else { return };
        let Some(connection) = process.wires.connection(wire) else { return };
        match is_there {
            true => process.node.connected(connection),
            false => {
                process.wires.forget(wire);
                process.node.closed(connection);
            }
        }
        self.apply(context);
    }

    /// A connection has ended.
    pub(super) fn closed(&mut self, context: &mut Context, wire: WireId) {
        let Some(process) = &mut self.process else { return };
        if let Some(connection) = process.wires.forget(wire) {
            process.node.closed(connection);
        }
        self.apply(context);
    }

    /// A packet has arrived.
    pub(super) fn received(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        let Some(process) = &mut self.process else { return };
        let Some(connection) = process.wires.connection(wire) else { return };
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
                    Output::Link(task) => {
                        if let Some(over) = process.wires.apply(context, end, task) {
                            process.node.closed(over);
                        }
                    }
                    Output::Read { job, .. } => process.reads.push(job),
                    Output::Write { job, is_durable } => {
                        process.writes.push_back((job, is_durable))
                    }
                    Output::Exit(exit) => self.exit(context, exit),
                }
            }
        }
    }

    /// The master ends the process, or removes the storage.
    fn exit(&mut self, context: &mut Context, exit: Exit) {
        if context.plan.masters == 0 {
            context.violate(format!("storage {} ends: {exit:?}", self.place));
        }
        self.kill(context, false);
        if exit == Exit::Erase {
            context.event("erase", &[self.place as u64]);
            if let Err(error) = NodeDatabase::erase(&self.path().into()) {
                context.violate(format!("a database cannot be erased: {error}"));
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
