//! A master, and the nodes that a test plays.

use std::time::Duration;

use zodium_neo::messages::*;
use zodium_neo::{
    Address, CellState, ClusterState, ConnectionId, Extra, LinkTask, Map, Message, NodeId,
    NodeType, Packet, Scan, Scanner, TableId, encode,
};
use zodium_neo_master::{Master, Output, Settings};
use zodium_types::{Oid, Tid};

pub(crate) const CLUSTER: &str = "test";

/// A master on the test's thread.
pub(crate) struct Bench {
    pub(crate) master: Master,
    now: Duration,
    /// What was sent and not taken yet.
    sent: Vec<(ConnectionId, Vec<u8>)>,
    pub(crate) closed: Vec<ConnectionId>,
    /// Connections that the master makes.
    pub(crate) dialled: Vec<ConnectionId>,
    /// The pause before the last of them.
    pub(crate) pause: Duration,
    /// Alarms that the master has set.
    alarms: Vec<u64>,
    pub(crate) has_ended: bool,
}

pub(crate) fn address(port: u16) -> Address {
    Address { host: "127.0.0.1".to_owned(), port }
}

pub(crate) fn storage(number: u32) -> NodeId {
    NodeId::of(NodeType::Storage, number).unwrap()
}

pub(crate) fn settings(port: u16) -> Settings {
    Settings {
        cluster: CLUSTER.to_owned(),
        masters: vec![address(port)],
        address: address(port),
        node: None,
        replicas: 0,
        partitions: 2,
        autostart: None,
        upstream: None,
        begins_as_backup: false,
    }
}

impl Bench {
    pub(crate) fn new(settings: Settings) -> Bench {
        let mut master = Master::new(settings);
        let now = Duration::from_secs(1_700_000_000);
        master.set_time(now);
        master.start();
        let (sent, closed, dialled, pause, alarms) = Default::default();
        let mut bench =
            Bench { master, now, sent, closed, dialled, pause, alarms, has_ended: false };
        bench.work();
        bench
    }

    /// A running cluster of storages with a cell in each partition, and their connections.
    pub(crate) fn running(storages: u32) -> (Bench, Vec<ConnectionId>) {
        let mut bench = Bench::new(Settings { replicas: storages - 1, ..settings(101) });
        let storages = bench.verifying(storages);
        for storage in &storages {
            bench.answer(
                *storage,
                "AskLockedTransactions",
                AnswerLockedTransactions { transactions: Map::default() },
            );
        }
        bench.serve(&storages);
        (bench, storages)
    }

    /// Storages with the same table, which have come. The verification has begun.
    pub(crate) fn verifying(&mut self, count: u32) -> Vec<ConnectionId> {
        let storages: Vec<_> = (1..=count).map(|number| self.storage(number)).collect();
        let row =
            (1..=count).map(|number| Cell { node: storage(number), state: CellState::UpToDate });
        let rows = vec![row.collect::<Vec<_>>(); 2];
        for storage in &storages {
            let table = Some(TableId(7));
            let answer = AnswerRecovery { table, backup_tid: None, truncate_tid: None };
            self.answer(*storage, "AskRecovery", answer);
        }
        let answer = AnswerPartitionTable { table: TableId(7), replicas: count - 1, rows };
        self.answer(storages[0], "AskPartitionTable", answer);
        storages
    }

    /// Answers the pings of a storage: it has written the tables that it was told.
    pub(crate) fn acknowledge(&mut self, storage: ConnectionId) {
        while self.names(storage).contains(&"Ping") {
            self.answer(storage, "Ping", Pong {});
        }
    }

    /// Goes on from the questions for locked transactions to operation.
    pub(crate) fn serve(&mut self, storages: &[ConnectionId]) {
        self.serve_after(storages, Oid(50));
    }

    /// As [`Bench::serve`], of a database with this largest oid.
    pub(crate) fn serve_after(&mut self, storages: &[ConnectionId], last_oid: Oid) {
        for storage in storages {
            self.acknowledge(*storage);
        }
        for storage in storages {
            let (last_tid, last_oid) = (Some(Tid(1000)), Some(last_oid));
            let answer = AnswerLastIDs { last_tid, last_oid, first_tid: Tid(10) };
            self.answer(*storage, "AskLastIDs", answer);
        }
        for storage in storages {
            self.answer(*storage, "AskPackOrders", AnswerPackOrders { orders: Vec::new() });
        }
        for storage in storages {
            self.take(*storage, "StartOperation");
            self.tell(*storage, 99, NotifyReady {});
        }
        assert_eq!(self.master.status().state, Some(ClusterState::Running));
        self.sent.clear();
    }

    /// A node identifies itself.
    pub(crate) fn node(
        &mut self,
        node_type: NodeType,
        id: Option<NodeId>,
        address: Option<Address>,
    ) -> ConnectionId {
        self.node_with(node_type, id, address, Extra::default())
    }

    /// A node identifies itself, and says more of itself.
    pub(crate) fn node_with(
        &mut self,
        node_type: NodeType,
        id: Option<NodeId>,
        address: Option<Address>,
        extra: Extra<'_>,
    ) -> ConnectionId {
        let connection = self.master.accepted("a node".to_owned());
        let cluster = CLUSTER;
        let request =
            RequestIdentification { node_type, id, address, cluster, id_timestamp: None, extra };
        self.tell(connection, 0, request);
        connection
    }

    pub(crate) fn storage(&mut self, number: u32) -> ConnectionId {
        let address = address(200 + u16::try_from(number).unwrap());
        self.node(NodeType::Storage, Some(storage(number)), Some(address))
    }

    pub(crate) fn client(&mut self) -> ConnectionId {
        let client = self.node(NodeType::Client, None, None);
        self.sent.clear();
        client
    }

    /// A client begins a transaction.
    pub(crate) fn begin(&mut self, client: ConnectionId) -> Tid {
        self.tell(client, 1, AskBeginTransaction { tid: None });
        self.take_with(client, "AnswerBeginTransaction", |message| match message {
            Message::AnswerBeginTransaction(answer) => answer.ttid,
            _ => unreachable!(),
        })
    }

    /// A client asks to commit an object.
    pub(crate) fn finish(&mut self, client: ConnectionId, ttid: Tid) {
        let (oids, deleted, checked) = (vec![Oid(3)], Vec::new(), Vec::new());
        self.tell(client, 2, AskFinishTransaction { ttid, oids, deleted, checked, pack: None });
    }

    /// Hands a message in, over the wire. Time goes on.
    pub(crate) fn tell<'a>(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: impl Into<Message<'a>>,
    ) {
        let mut bytes = bytes::BytesMut::new();
        encode(id, message, &mut bytes).unwrap();
        self.hand_in(connection, &bytes);
    }

    pub(crate) fn hand_in(&mut self, connection: ConnectionId, bytes: &[u8]) {
        let Ok(Scan::Complete(frame)) = Scanner::default().scan(bytes) else { panic!() };
        self.now += Duration::from_micros(50);
        self.master.set_time(self.now);
        self.master.received(connection, Packet::decode(frame).unwrap());
        self.work();
    }

    /// A connection that the master makes is there.
    pub(crate) fn connect(&mut self, connection: ConnectionId) {
        self.master.connected(connection);
        self.work();
    }

    /// A connection has ended.
    pub(crate) fn lose(&mut self, connection: ConnectionId) {
        self.master.closed(connection);
        self.work();
    }

    /// The times of all alarms have come.
    pub(crate) fn wake(&mut self) {
        for alarm in std::mem::take(&mut self.alarms) {
            self.master.woken(alarm);
        }
        self.work();
    }

    fn work(&mut self) {
        for output in self.master.take_outputs() {
            match output {
                Output::Link(LinkTask::Send { connection, packet }) => {
                    self.sent.push((connection, packet.to_vec()));
                }
                Output::Link(LinkTask::Close { connection }) => self.closed.push(connection),
                Output::Exit => self.has_ended = true,
                Output::Link(LinkTask::Dial { connection, after, .. }) => {
                    self.dialled.push(connection);
                    self.pause = after;
                }
                Output::Wake { alarm, .. } => self.alarms.push(alarm),
            }
        }
    }

    /// Answers the oldest question of this name.
    pub(crate) fn answer<'a>(
        &mut self,
        connection: ConnectionId,
        question: &str,
        answer: impl Into<Message<'a>>,
    ) {
        let id = self.take(connection, question);
        self.tell(connection, id, answer);
    }

    /// Takes the oldest message of this name to a node; its id.
    pub(crate) fn take(&mut self, connection: ConnectionId, name: &str) -> u32 {
        let place = self.place(connection, name);
        let place = place.unwrap_or_else(|| panic!("no {name}: {:?}", self.names(connection)));
        packet(&self.sent.remove(place).1).id
    }

    pub(crate) fn take_with<T>(
        &mut self,
        connection: ConnectionId,
        name: &str,
        read: impl FnOnce(Message<'_>) -> T,
    ) -> T {
        let place = self.place(connection, name);
        let place = place.unwrap_or_else(|| panic!("no {name}: {:?}", self.names(connection)));
        let (_, bytes) = self.sent.remove(place);
        read(packet(&bytes).message)
    }

    fn place(&self, connection: ConnectionId, name: &str) -> Option<usize> {
        let mut sent = self.sent.iter();
        sent.position(|(to, bytes)| *to == connection && packet(bytes).message.name() == name)
    }

    /// The names of what was sent to a node and not taken.
    pub(crate) fn names(&self, connection: ConnectionId) -> Vec<&'static str> {
        let sent = self.sent.iter().filter(|(to, _)| *to == connection);
        sent.map(|(_, bytes)| packet(bytes).message.name()).collect()
    }

    /// Forgets what was sent to others.
    pub(crate) fn forget_sent_but(&mut self, kept: ConnectionId) {
        self.sent.retain(|(connection, _)| *connection == kept);
    }

    /// Forgets what was sent.
    pub(crate) fn forget_sent(&mut self) {
        self.sent.clear();
    }
}

fn packet(bytes: &[u8]) -> Packet<'_> {
    let Ok(Scan::Complete(frame)) = Scanner::default().scan(bytes) else { panic!() };
    Packet::decode(frame).unwrap()
}
