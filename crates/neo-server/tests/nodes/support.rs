//! A node, its database, and what it says.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use sha1::{Digest, Sha1};
use tempfile::TempDir;
use zodium_neo::messages::*;
use zodium_neo::{
    Address, CellState, Checksum, Extra, Frame, LinkTask, Message, NodeId, NodeState, NodeType,
    Packet, Scan, Scanner, TableId,
};
use zodium_neo_storage::{
    ConnectionId, Exit, Node, Output, RECORDS_BYTES_MAX, ReadJob, Saved, Settings, Store,
    TRANSACTION_BYTES_MAX, WriteJob,
};
use zodium_sql::{NodeDatabase, NodeOptions};
use zodium_types::{Oid, Tid};

pub(crate) const CLUSTER: &str = "test";

/// A node that runs on the test's thread: jobs are done at once.
pub(crate) struct Bench {
    pub(crate) node: Node,
    pub(crate) database: NodeDatabase,
    pub(crate) master: ConnectionId,
    /// What was sent and not taken yet.
    sent: VecDeque<(ConnectionId, Vec<u8>)>,
    pub(crate) dialled: Vec<(ConnectionId, Address)>,
    /// Before the last of these.
    pub(crate) pause: Duration,
    pub(crate) closed: Vec<ConnectionId>,
    pub(crate) exit: Option<Exit>,
    /// Changes that are not made until [`Bench::release`].
    pub(crate) held: Option<Vec<WriteJob>>,
    /// Changes of the database so far.
    pub(crate) writes: u64,
    /// Changes that had to be durable.
    pub(crate) durable_writes: u64,
    /// Whether reads wait for [`Bench::release`], too.
    holds_reads: bool,
    held_reads: Vec<ReadJob>,
    folder: TempDir,
}

pub(crate) fn storage(number: u32) -> NodeId {
    NodeId::of(NodeType::Storage, number).unwrap()
}

pub(crate) fn client(number: u32) -> NodeId {
    NodeId::of(NodeType::Client, number).unwrap()
}

pub(crate) fn address(number: u32) -> Address {
    Address { host: "127.0.0.1".to_owned(), port: 1000 + number as u16 }
}

/// What the master gives a node as its time.
pub(crate) fn time_of(number: u32) -> f64 {
    f64::from(number)
}

impl Bench {
    /// A node that has dialled its master and has been accepted as the storage of this number.
    pub(crate) fn accepted(number: u32) -> Bench {
        Bench::accepted_with_room(number, 0)
    }

    /// As [`Bench::accepted`], on a disk that is nearly full with fewer free bytes.
    pub(crate) fn accepted_with_room(number: u32, room_bytes: u64) -> Bench {
        Bench::accepted_with(number, room_bytes, |saved| saved)
    }

    /// As [`Bench::accepted`], for what is saved in the database changed by a function.
    pub(crate) fn accepted_with(
        number: u32,
        room_bytes: u64,
        change: impl FnOnce(Saved) -> Saved,
    ) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.sqlite");
        let options = NodeOptions {
            location: &path.into(),
            cluster: CLUSTER,
            keep_equal_data_once: false,
            room_bytes,
        };
        let (database, saved) = NodeDatabase::open(&options).unwrap();
        let settings = Settings {
            cluster: CLUSTER.to_owned(),
            masters: vec![address(0)],
            address: address(number),
            topology: vec!["here".to_owned()],
            packs: true,
            drops_partitions: true,
            transaction_bytes_max: TRANSACTION_BYTES_MAX,
            records_bytes_max: RECORDS_BYTES_MAX,
        };
        let mut node = Node::new(settings, change(saved));
        // Replaced when the node has dialled.
        let node_connection = node.accepted("a peer".to_owned());
        node.start();
        let mut bench = Bench {
            node,
            database,
            master: node_connection,
            sent: VecDeque::new(),
            dialled: Vec::new(),
            pause: Duration::ZERO,
            closed: Vec::new(),
            exit: None,
            held: None,
            writes: 0,
            durable_writes: 0,
            holds_reads: false,
            held_reads: Vec::new(),
            folder,
        };
        bench.work();
        bench.master = bench.dialled.pop().unwrap().0;
        bench.node.connected(bench.master);
        bench.work();
        assert_eq!(bench.names(), ["RequestIdentification"]);
        let accepted = AcceptIdentification {
            node_type: NodeType::Master,
            id: NodeId::of(NodeType::Master, 1),
            your_id: Some(storage(number)),
        };
        bench.tell(bench.master, 0, accepted);
        bench
    }

    /// A node that operates, in a cluster with these cells of each partition.
    pub(crate) fn operating(number: u32, rows: &[Vec<(u32, CellState)>]) -> Bench {
        Bench::accepted(number).operate(rows)
    }

    /// The same node, which operates.
    pub(crate) fn operate(self, rows: &[Vec<(u32, CellState)>]) -> Bench {
        let mut bench = self;
        let nodes = (1..=3).map(|other| information(NodeType::Storage, other));
        let clients = (1..=3).map(|other| information(NodeType::Client, other));
        let nodes = nodes.chain(clients).collect();
        bench.master_tells(NotifyNodeInformation { timestamp: 10.0, nodes });
        bench.master_tells(table(rows));
        bench.master_tells(StartOperation { backup: false });
        assert_eq!(bench.names().first().map(String::as_str), Some("NotifyReady"));
        bench
    }

    /// A client that is connected.
    pub(crate) fn client(&mut self, number: u32) -> ConnectionId {
        let connection = self.node.accepted(format!("client {number}"));
        let identification = RequestIdentification {
            node_type: NodeType::Client,
            id: Some(client(number)),
            address: None,
            cluster: CLUSTER,
            id_timestamp: Some(time_of(number)),
            extra: Extra::default(),
        };
        self.tell(connection, 0, identification);
        assert_eq!(self.names(), ["AcceptIdentification"]);
        connection
    }

    /// Another storage that has connected.
    pub(crate) fn storage(&mut self, number: u32) -> ConnectionId {
        let connection = self.node.accepted(format!("storage {number}"));
        let identification = RequestIdentification {
            node_type: NodeType::Storage,
            id: Some(storage(number)),
            address: Some(address(number)),
            cluster: CLUSTER,
            id_timestamp: Some(time_of(number)),
            extra: Extra::default(),
        };
        self.tell(connection, 0, identification);
        self.names();
        connection
    }

    pub(crate) fn master_tells<'a>(&mut self, message: impl Into<Message<'a>>) {
        self.tell(self.master, 7, message);
    }

    /// A packet arrives, and everything that follows is done.
    pub(crate) fn tell<'a>(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: impl Into<Message<'a>>,
    ) {
        self.node.received(connection, Packet { id, message: message.into() });
        self.work();
    }

    /// Does what the node asks for.
    pub(crate) fn work(&mut self) {
        loop {
            let outputs = self.node.take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Link(LinkTask::Dial { connection, address, after }) => {
                        self.dialled.push((connection, address));
                        self.pause = after;
                    }
                    Output::Link(LinkTask::Send { connection, packet }) => {
                        self.sent.push_back((connection, packet.to_vec()));
                    }
                    Output::Link(LinkTask::Close { connection }) => self.closed.push(connection),
                    Output::Read { job, .. } if self.holds_reads => self.held_reads.push(job),
                    Output::Read { job, .. } => {
                        let done = Store::read(&self.database, job).unwrap();
                        self.node.completed(done);
                    }
                    Output::Write { job, .. } if self.held.is_some() => {
                        self.held.as_mut().unwrap().push(job);
                    }
                    Output::Write { job, is_durable } => {
                        self.writes += 1;
                        self.durable_writes += u64::from(is_durable);
                        // No test here cuts the power.
                        let done = Store::write(&self.database, false, vec![job]).unwrap();
                        done.into_iter().for_each(|done| self.node.completed(done));
                    }
                    Output::Exit(exit) => self.exit = Some(exit),
                }
            }
        }
    }

    /// Has all jobs wait for [`Bench::release`].
    pub(crate) fn hold(&mut self) {
        self.held = Some(Vec::new());
        self.holds_reads = true;
    }

    /// Has reads wait for [`Bench::release`].
    pub(crate) fn hold_reads(&mut self) {
        self.holds_reads = true;
    }

    /// Makes the changes that were held, and everything that follows.
    pub(crate) fn release(&mut self) {
        for job in self.held.take().unwrap_or_default() {
            let done = Store::write(&self.database, false, vec![job]).unwrap();
            done.into_iter().for_each(|done| self.node.completed(done));
        }
        self.holds_reads = false;
        for job in std::mem::take(&mut self.held_reads) {
            let done = Store::read(&self.database, job).unwrap();
            self.node.completed(done);
        }
        self.work();
    }

    /// The files of the database.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// The nameless files that are open beside the database.
    pub(crate) fn spools(&self) -> usize {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let is_spool = |target: &PathBuf| {
            target.starts_with(self.folder.path()) && target.to_string_lossy().contains("deleted")
        };
        targets.filter(is_spool).count()
    }

    /// Removes the folder of the database, whose files stay open.
    pub(crate) fn remove_folder(&self) {
        std::fs::remove_dir_all(self.folder.path()).unwrap();
    }

    /// Takes what was sent: connection and bytes of packets.
    pub(crate) fn take_sent(&mut self) -> Vec<(ConnectionId, Vec<u8>)> {
        self.sent.drain(..).collect()
    }

    /// Takes what was sent, as text.
    pub(crate) fn take(&mut self) -> Vec<(ConnectionId, String)> {
        let sent = self.take_sent();
        let mut all = Vec::new();
        for (connection, bytes) in sent {
            each_packet(&bytes, |packet| all.push((connection, format!("{:?}", packet.message))));
        }
        all
    }

    /// The id of the last message of this name that was sent; what was sent is taken.
    pub(crate) fn asked(&mut self, name: &str) -> u32 {
        let mut id = None;
        for (_, bytes) in self.take_sent() {
            each_packet(&bytes, |packet| {
                if packet.message.name() == name {
                    id = Some(packet.id);
                }
            });
        }
        id.unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// The source that storage 2 has dialled, which accepts it as storage 1.
    pub(crate) fn source(&mut self) -> ConnectionId {
        let (connection, _) = self.dialled.pop().unwrap();
        self.node.connected(connection);
        self.work();
        let (id, your_id) = (Some(storage(1)), Some(storage(2)));
        let accepted = AcceptIdentification { node_type: NodeType::Storage, id, your_id };
        self.tell(connection, 0, accepted);
        connection
    }

    /// Takes the names of the messages that were sent.
    pub(crate) fn names(&mut self) -> Vec<String> {
        let sent = self.take_sent();
        let mut names = Vec::new();
        for (_, bytes) in sent {
            each_packet(&bytes, |packet| names.push(packet.message.name().to_owned()));
        }
        names
    }

    /// Stores an object; the answer as text.
    pub(crate) fn store(
        &mut self,
        connection: ConnectionId,
        ttid: u64,
        oid: u64,
        serial: u64,
        data: &[u8],
    ) -> Vec<String> {
        let message = AskStoreObject {
            oid: Oid(oid),
            serial: Tid(serial),
            compression: 0,
            checksum: checksum(data),
            data,
            data_serial: None,
            ttid: Some(Tid(ttid)),
        };
        self.tell(connection, 1, message);
        self.take().into_iter().map(|(_, text)| text).collect()
    }

    /// Votes, locks and unlocks a transaction.
    pub(crate) fn commit(&mut self, connection: ConnectionId, ttid: u64, tid: u64, oids: &[u64]) {
        self.vote_and_lock(connection, ttid, tid, oids);
        self.master_tells(NotifyUnlockInformation { ttid: Tid(ttid) });
    }

    /// Votes and locks a transaction.
    pub(crate) fn vote_and_lock(
        &mut self,
        connection: ConnectionId,
        ttid: u64,
        tid: u64,
        oids: &[u64],
    ) {
        let vote = AskStoreTransaction {
            ttid: Tid(ttid),
            user: b"user",
            description: b"",
            extension: b"",
            oids: oids.iter().map(|oid| Oid(*oid)).collect(),
            pack: None,
        };
        self.tell(connection, 2, vote);
        assert_eq!(self.names(), ["AnswerStoreTransaction"]);
        let (ttid, tid) = (Tid(ttid), Tid(tid));
        self.master_tells(AskLockInformation { ttid, tid, pack_approved: false });
        assert_eq!(self.names(), ["AnswerInformationLocked"]);
    }

    /// Loads the current record of an object; the answer as text.
    pub(crate) fn load(&mut self, connection: ConnectionId, oid: u64) -> String {
        self.tell(connection, 3, AskObject { oid: Oid(oid), at: None, before: None });
        self.take().into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
    }
}

pub(crate) fn checksum(data: &[u8]) -> Checksum {
    Checksum(Sha1::digest(data).into())
}

/// Calls `each` with every packet of some bytes.
pub(crate) fn each_packet(bytes: &[u8], mut each: impl FnMut(Packet<'_>)) {
    let (mut scanner, mut rest) = (Scanner::default(), bytes);
    while !rest.is_empty() {
        let Scan::Complete(frame) = scanner.scan(rest).unwrap() else { panic!("half a packet") };
        rest = &rest[Frame::bytes(frame).len()..];
        each(Packet::decode(frame).unwrap());
    }
}

pub(crate) fn information(kind: NodeType, number: u32) -> NodeInformation {
    NodeInformation {
        node_type: kind,
        address: (kind == NodeType::Storage).then(|| address(number)),
        id: NodeId::of(kind, number),
        state: NodeState::Running,
        id_timestamp: Some(time_of(number)),
    }
}

pub(crate) fn table(rows: &[Vec<(u32, CellState)>]) -> SendPartitionTable {
    let cell = |(number, state): &(u32, CellState)| Cell { node: storage(*number), state: *state };
    let rows = rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    SendPartitionTable { table: Some(TableId(1)), replicas: 0, rows }
}
