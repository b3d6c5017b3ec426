//! Any sequence of messages to a NEO storage node, from its master, from clients and from storages.
//!
//! An input is a state to begin in and steps: messages as they are on the wire, connections that
//! open and close, and jobs of the database that are done. The database is a model in memory.

use std::collections::BTreeMap;

use bytes::BytesMut;
use sha1::{Digest, Sha1};
use zodium_neo::messages::*;
use zodium_neo::{
    Address, CellState, Checksum, ErrorCode, Extra, Frame, Kind, LinkTask, Message, NodeId,
    NodeState, NodeType, Packet, Scan, Scanner, TableId, encode,
};
use zodium_neo_storage::{
    Completion, ConnectionId, Node, Output, RECORDS_BYTES_MAX, ReadJob, Saved, Settings, WriteJob,
};
use zodium_types::{Oid, Tid};

use super::neo_database::Model;
use super::{Target, linear};

const CLUSTER: &str = "test";
/// The messages of the initial inputs are those of tests, with this name of the cluster.
const MESSAGES: &str = include_str!("../../../neo/tests/messages.txt");
/// Steps that are no message.
const WORK: u8 = 0;
const READ: u8 = 1;
const WRITE: u8 = 2;
const ACCEPT: u8 = 3;
const CLOSE: u8 = 4;
const CONNECT: u8 = 5;
const REFUSE: u8 = 6;
const MESSAGE: u8 = 7;
/// Places of the first connections.
const MASTER: u8 = 0;
const CLIENT: u8 = 1;
const STORAGE: u8 = 2;
/// Data of a transaction in memory, in bytes: so few that many inputs have it use a spool.
const DATA_BYTES_MAX: usize = 20;
/// States to begin in: not operating, operating, and replicating.
const STATES: u8 = 3;

pub(super) const NODE: Target = Target {
    name: "neo-node",
    seeds,
    check,
    // Tables of partitions and messages that wait are copied.
    memory_bytes_max: |length| (16 << 20) + 64 * linear(length),
};

/// Each message from each peer in each state, and conversations.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let messages = MESSAGES.lines().filter_map(|line| line.split(' ').next());
    for message in messages.map(super::neo::bytes_of).filter(|message| !message.is_empty()) {
        for (state, peer) in (0..STATES).flat_map(|state| (0..3).map(move |peer| (state, peer))) {
            let step = [&[state, MESSAGE, peer][..], &message, &[WORK, CLOSE, peer, WORK]];
            seeds.push(step.concat());
        }
    }
    seeds.extend(conversations());
    seeds
}

fn conversations() -> Vec<Vec<u8>> {
    let store = |ttid, oid, serial| -> Message<'static> {
        let (data, ttid) = (&b"data"[..], Some(Tid(ttid)));
        let checksum = Checksum(Sha1::digest(data).into());
        let (oid, serial, compression, data_serial) = (Oid(oid), Tid(serial), 0, None);
        AskStoreObject { oid, serial, compression, checksum, data, data_serial, ttid }.into()
    };
    let vote = |ttid| -> Message<'static> {
        let (user, description, extension) = (&b"user"[..], &b""[..], &b""[..]);
        let pack = Some(PackRequest { oids: None, tid: Tid(5) });
        let oids = vec![Oid(2)];
        AskStoreTransaction { ttid: Tid(ttid), user, description, extension, oids, pack }.into()
    };
    let lock = |ttid, tid| -> Message<'static> {
        AskLockInformation { ttid: Tid(ttid), tid: Tid(tid), pack_approved: true }.into()
    };
    let unlock = |ttid| -> Message<'static> { NotifyUnlockInformation { ttid: Tid(ttid) }.into() };
    let load = || -> Message<'static> { AskObject { oid: Oid(2), at: None, before: None }.into() };
    let relock = AskRelockObject { ttid: Tid(20), oid: Oid(2) };
    let commit = [
        (CLIENT, store(10, 2, 0)),
        (CLIENT, store(20, 2, 0)),
        (CLIENT, vote(10)),
        (MASTER, lock(10, 12)),
        (CLIENT, load()),
        (MASTER, unlock(10)),
        (MASTER, NotifyPackSigned { approved: vec![Tid(12)], rejected: Vec::new() }.into()),
    ];
    let deadlock = [
        (CLIENT, store(20, 2, 0)),
        (CLIENT, store(10, 2, 0)),
        (CLIENT, relock.into()),
        (CLIENT, vote(10)),
        (CLIENT, AbortTransaction { ttid: Tid(20), nodes: Vec::new() }.into()),
        (MASTER, lock(10, 12)),
        (MASTER, StopOperation {}.into()),
        (MASTER, AskLockedTransactions {}.into()),
        (MASTER, ValidateTransaction { ttid: Tid(10), tid: Tid(12) }.into()),
        (MASTER, AskLastIDs {}.into()),
        (MASTER, StartOperation { backup: false }.into()),
    ];
    (0..STATES).flat_map(|state| [script(state, &commit), script(state, &deadlock)]).collect()
}

fn script(state: u8, messages: &[(u8, Message<'static>)]) -> Vec<u8> {
    let mut input = vec![state];
    for (number, (peer, message)) in (1..).zip(messages) {
        input.extend([MESSAGE, *peer]);
        let mut packet = BytesMut::new();
        assert_eq!(encode(number, message.clone(), &mut packet), Ok(()));
        input.extend_from_slice(&packet);
        input.push(WORK);
    }
    input
}

fn check(input: &[u8]) {
    let Some((state, mut rest)) = input.split_first() else { return };
    let mut bench = Bench::begin(state % STATES);
    while let Some((step, after)) = rest.split_first() {
        rest = after;
        match step % 8 {
            WORK => bench.work(),
            READ => bench.run_read(),
            WRITE => bench.run_write(),
            ACCEPT => bench.accept(),
            step => {
                let Some((place, after)) = rest.split_first() else { break };
                rest = after;
                let connection = bench.connections[usize::from(*place) % bench.connections.len()];
                match step {
                    CLOSE => bench.close(connection),
                    CONNECT => bench.dialled(connection, true),
                    REFUSE => bench.dialled(connection, false),
                    _ => match bench.packet(connection, rest) {
                        Some(length) => rest = &rest[length..],
                        None => break,
                    },
                }
            }
        }
    }
    bench.work();
}

/// What a connection may still say.
#[derive(Debug, Default)]
struct Line {
    /// Messages that came, by id, and were not answered.
    open: BTreeMap<u32, u32>,
    is_dialling: bool,
    is_closed: bool,
}

/// A node, its database, and what was heard of it.
struct Bench {
    node: Node,
    model: Model,
    connections: Vec<ConnectionId>,
    lines: BTreeMap<ConnectionId, Line>,
    reads: Vec<ReadJob>,
    writes: Vec<WriteJob>,
    done: Vec<Completion>,
}

impl Bench {
    fn begin(state: u8) -> Bench {
        let settings = Settings {
            cluster: CLUSTER.to_owned(),
            masters: vec![address(0)],
            address: address(1),
            topology: vec!["here".to_owned()],
            packs: true,
            drops_partitions: true,
            transaction_bytes_max: DATA_BYTES_MAX,
            records_bytes_max: RECORDS_BYTES_MAX,
        };
        let saved = Saved { node: storage(1), ..Saved::default() };
        let mut bench = Bench {
            node: Node::new(settings, saved),
            model: Model::default(),
            connections: Vec::new(),
            lines: BTreeMap::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            done: Vec::new(),
        };
        bench.node.start();
        bench.work();
        let master = bench.connections[usize::from(MASTER)];
        bench.dialled(master, true);
        let accepted = AcceptIdentification {
            node_type: NodeType::Master,
            id: NodeId::of(NodeType::Master, 1),
            your_id: storage(1),
        };
        bench.says(MASTER, 0, accepted);
        bench.accept();
        bench.accept();
        if state > 0 {
            bench.operate(state == 2);
        }
        bench
    }

    fn operate(&mut self, is_replicating: bool) {
        let own = if is_replicating { CellState::OutOfDate } else { CellState::UpToDate };
        let row = |other| -> Row {
            let cells = [(1, own), (2, other)];
            let cell = |(number, state)| Some(Cell { node: storage(number)?, state });
            cells.into_iter().filter_map(cell).collect()
        };
        let rows = vec![row(CellState::UpToDate), row(CellState::Feeding)];
        let kinds = [(NodeType::Storage, 1), (NodeType::Storage, 2), (NodeType::Client, 1)];
        let nodes = kinds.into_iter().map(|(kind, number)| NodeInformation {
            node_type: kind,
            address: (kind == NodeType::Storage).then(|| address(number as u16)),
            id: NodeId::of(kind, number),
            state: NodeState::Running,
            id_timestamp: Some(f64::from(number)),
        });
        let nodes = nodes.collect();
        self.says(MASTER, 1, NotifyNodeInformation { timestamp: 9.0, nodes });
        self.says(MASTER, 2, SendPartitionTable { table: Some(TableId(1)), replicas: 1, rows });
        self.says(MASTER, 3, StartOperation { backup: false });
        for (peer, kind, number) in
            [(CLIENT, NodeType::Client, 1), (STORAGE, NodeType::Storage, 2_u32)]
        {
            let request = RequestIdentification {
                node_type: kind,
                id: NodeId::of(kind, number),
                address: None,
                cluster: CLUSTER,
                id_timestamp: Some(f64::from(number)),
                extra: Extra::default(),
            };
            self.says(peer, 0, request);
        }
    }

    fn says(&mut self, peer: u8, id: u32, message: impl Into<Message<'static>>) {
        let connection = self.connections[usize::from(peer)];
        self.receive(connection, Packet { id, message: message.into() });
        self.work();
    }

    fn receive(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        // The driver hands nothing in before a connection is there, and after its end.
        if line.is_dialling || line.is_closed {
            return;
        }
        *line.open.entry(packet.id).or_default() += 1;
        self.node.received(connection, packet);
        self.take();
    }

    /// Hands in the packet that the bytes begin with; its length.
    fn packet(&mut self, connection: ConnectionId, bytes: &[u8]) -> Option<usize> {
        let mut scanner = Scanner::default();
        let Ok(Scan::Complete(frame)) = scanner.scan(bytes) else { return None };
        let length = Frame::bytes(frame).len();
        match Packet::decode(frame) {
            Ok(packet) => self.receive(connection, packet),
            // As the driver does.
            Err(_) => self.close(connection),
        }
        Some(length)
    }

    fn accept(&mut self) {
        let connection = self.node.accepted("a peer".to_owned());
        self.connections.push(connection);
        self.lines.insert(connection, Line::default());
        self.take();
    }

    fn dialled(&mut self, connection: ConnectionId, is_there: bool) {
        let Some(line) = self.lines.get_mut(&connection).filter(|line| line.is_dialling) else {
            return;
        };
        line.is_dialling = false;
        match is_there {
            true => self.node.connected(connection),
            false => {
                line.is_closed = true;
                self.node.closed(connection);
            }
        }
        self.take();
    }

    fn close(&mut self, connection: ConnectionId) {
        let Some(line) = self.lines.get_mut(&connection) else { return };
        if !line.is_closed && !line.is_dialling {
            line.is_closed = true;
            self.node.closed(connection);
            self.take();
        }
    }

    fn run_read(&mut self) {
        if let Some(job) = self.reads.pop() {
            self.done.push(job.run(&self.model));
        }
    }

    fn run_write(&mut self) {
        if self.writes.is_empty() {
            return;
        }
        if let Ok(done) = self.writes.remove(0).run(&mut self.model) {
            self.node.completed(done);
            self.take();
        }
    }

    /// Runs all jobs.
    fn work(&mut self) {
        self.take();
        while self.reads.len() + self.writes.len() + self.done.len() > 0 {
            self.run_read();
            self.run_write();
            if let Some(done) = self.done.pop() {
                self.node.completed(done);
                self.take();
            }
        }
    }

    /// Takes what the node asks for, and checks what it says.
    fn take(&mut self) {
        for output in self.node.take_outputs() {
            match output {
                Output::Link(LinkTask::Dial { connection, .. }) => {
                    self.connections.push(connection);
                    let line = Line { is_dialling: true, ..Line::default() };
                    assert!(self.lines.insert(connection, line).is_none());
                }
                Output::Link(LinkTask::Send { connection, packet }) => {
                    self.sent(connection, &packet)
                }
                Output::Link(LinkTask::Close { connection }) => self.closed_by_node(connection),
                Output::Read { job, .. } => self.reads.push(job),
                Output::Write { job, .. } => self.writes.push(job),
                Output::Exit(_) => {}
            }
        }
    }

    fn closed_by_node(&mut self, connection: ConnectionId) {
        let line = self.lines.get_mut(&connection);
        assert!(line.is_some(), "it closes a connection that it does not have");
        let Some(line) = line else { return };
        if !std::mem::replace(&mut line.is_closed, true) {
            line.is_dialling = false;
            self.node.closed(connection);
        }
    }

    /// What is sent is whole, and each answer belongs to a message that was not answered.
    fn sent(&mut self, connection: ConnectionId, mut bytes: &[u8]) {
        let Some(line) = self.lines.get_mut(&connection) else {
            unreachable!("it sends to a connection that it does not have");
        };
        assert!(!line.is_dialling, "it sends before a connection is there");
        while !bytes.is_empty() {
            let mut scanner = Scanner::default();
            let Ok(Scan::Complete(frame)) = scanner.scan(bytes) else {
                unreachable!("it sends what is no message: {bytes:?}");
            };
            bytes = &bytes[Frame::bytes(frame).len()..];
            let Ok(Packet { id, message }) = Packet::decode(frame) else {
                unreachable!("it sends what cannot be decoded: {:?}", Frame::bytes(frame));
            };
            if message.kind() == Kind::Answer {
                let open = line.open.get_mut(&id).filter(|open| **open > 0);
                assert!(open.is_some(), "{} answers nothing", message.name());
                open.into_iter().for_each(|open| *open -= 1);
            }
            if let Message::Error(error) = &message
                && error.code == ErrorCode::ProtocolError
            {
                assert!(!error.message.is_empty(), "it refuses without a reason");
            }
        }
    }
}

fn storage(number: u32) -> Option<NodeId> {
    NodeId::of(NodeType::Storage, number)
}

fn address(number: u16) -> Address {
    Address { host: "127.0.0.1".to_owned(), port: 1000 + number }
}
