//! An admin, and what it says.

use zodium_neo::messages::*;
use zodium_neo::{
    Address, CellState, ClusterState, ConnectionId, ErrorCode, Extra, LinkTask, Message, NodeId,
    NodeState, NodeType, Packet, Scan, Scanner, TableId, encode,
};
use zodium_neo_admin::{Admin, Output, Settings};
use zodium_types::Tid;

pub(crate) const CLUSTER: &str = "test";

/// An admin on the test's thread.
pub(crate) struct Bench {
    pub(crate) admin: Admin,
    pub(crate) master: ConnectionId,
    /// What was sent and not taken yet.
    sent: Vec<(ConnectionId, Vec<u8>)>,
    pub(crate) dialled: Vec<(ConnectionId, Address)>,
    pub(crate) closed: Vec<ConnectionId>,
    pub(crate) alarms: Vec<u64>,
    pub(crate) has_ended: bool,
}

pub(crate) fn address(port: u16) -> Address {
    Address { host: "127.0.0.1".to_owned(), port }
}

pub(crate) fn storage(number: u32) -> NodeId {
    NodeId::of(NodeType::Storage, number).unwrap()
}

pub(crate) fn master(number: u32) -> NodeId {
    NodeId::of(NodeType::Master, number).unwrap()
}

pub(crate) fn node(kind: NodeType, number: u32, state: NodeState) -> NodeInformation {
    NodeInformation {
        node_type: kind,
        address: Some(address(100 * (kind.number() as u16 + 1) + number as u16)),
        id: NodeId::of(kind, number),
        state,
        id_timestamp: Some(1.5),
    }
}

impl Bench {
    /// An admin that has dialled its first master.
    pub(crate) fn new(backups: &[&str]) -> Bench {
        let settings = Settings {
            cluster: CLUSTER.to_owned(),
            masters: vec![address(101), address(102)],
            address: address(401),
            node: None,
            backups: backups.iter().map(|name| (*name).to_owned()).collect(),
            lag_seconds_max: 0.0,
        };
        let mut admin = Admin::new(settings);
        let nothing = admin.accepted("replaced when it has dialled".to_owned());
        admin.start();
        let mut bench = Bench {
            admin,
            master: nothing,
            sent: Vec::new(),
            dialled: Vec::new(),
            closed: Vec::new(),
            alarms: Vec::new(),
            has_ended: false,
        };
        bench.work();
        bench
    }

    /// The admin of a running cluster of two storages with a cell each.
    pub(crate) fn running(backups: &[&str]) -> Bench {
        let mut bench = Bench::new(backups);
        bench.accept(1);
        bench.master_tells(NotifyClusterInformation { state: ClusterState::Running });
        bench.answer_last_tid(bench.master, 1);
        assert_eq!(bench.names(), Vec::<String>::new());
        bench
    }

    /// A master accepts the admin, and tells nodes and table.
    pub(crate) fn accept(&mut self, number: u32) {
        self.master = self.dialled.pop().unwrap().0;
        self.admin.connected(self.master);
        self.work();
        assert_eq!(self.names(), ["RequestIdentification"]);
        let accepted = AcceptIdentification {
            node_type: NodeType::Master,
            id: Some(master(number)),
            your_id: NodeId::of(NodeType::Admin, 1),
        };
        self.tell(self.master, 0, accepted);
        assert_eq!(self.names(), ["AskClusterState"]);
        let running = NodeState::Running;
        let nodes = vec![
            node(NodeType::Admin, 1, running),
            node(NodeType::Master, number, running),
            node(NodeType::Storage, 1, running),
            node(NodeType::Storage, 2, running),
        ];
        self.master_tells(NotifyNodeInformation { timestamp: 10.0, nodes });
        let cell = |number| vec![Cell { node: storage(number), state: CellState::UpToDate }];
        let rows = vec![cell(1), cell(2)];
        self.master_tells(SendPartitionTable { table: Some(TableId(7)), replicas: 0, rows });
    }

    /// An operator's command has connected.
    pub(crate) fn operator(&mut self) -> ConnectionId {
        self.admin.accepted("an operator".to_owned())
    }

    /// An admin has connected as that of a backup cluster.
    pub(crate) fn backup(&mut self, name: &str) -> ConnectionId {
        let connection = self.admin.accepted("an admin".to_owned());
        let request = RequestIdentification {
            node_type: NodeType::Admin,
            id: None,
            address: None,
            cluster: name,
            id_timestamp: None,
            extra: Extra::default(),
        };
        self.tell(connection, 0, request);
        connection
    }

    pub(crate) fn master_tells<'a>(&mut self, message: impl Into<Message<'a>>) {
        self.tell(self.master, 99, message);
    }

    /// Hands a message in, over the wire.
    pub(crate) fn tell<'a>(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: impl Into<Message<'a>>,
    ) {
        let mut bytes = bytes::BytesMut::new();
        encode(id, message, &mut bytes).unwrap();
        let Ok(Scan::Complete(frame)) = Scanner::default().scan(&bytes) else { panic!() };
        self.admin.received(connection, Packet::decode(frame).unwrap());
        self.work();
    }

    /// Answers the question for the last transaction, which must be the last one to a peer.
    pub(crate) fn answer_last_tid(&mut self, connection: ConnectionId, tid: u64) {
        let id = self.take(connection, "AskLastTransaction");
        self.tell(connection, id, AnswerLastTransaction { tid: Tid(tid) });
    }

    /// The connection of a peer ends.
    pub(crate) fn cut(&mut self, connection: ConnectionId) {
        self.admin.closed(connection);
        self.work();
    }

    /// Does what the admin asks for.
    pub(crate) fn work(&mut self) {
        for output in self.admin.take_outputs() {
            match output {
                Output::Link(LinkTask::Dial { connection, address, .. }) => {
                    self.dialled.push((connection, address))
                }
                Output::Link(LinkTask::Send { connection, packet }) => {
                    self.sent.push((connection, packet.to_vec()))
                }
                Output::Link(LinkTask::Close { connection }) => self.closed.push(connection),
                Output::Wake { alarm, .. } => self.alarms.push(alarm),
                Output::Exit => self.has_ended = true,
            }
        }
    }

    /// Takes all that was sent; the names.
    pub(crate) fn names(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.sent);
        sent.iter().map(|(_, bytes)| decoded(bytes).message.name().to_owned()).collect()
    }

    /// Takes the first message of this name to a peer; its id.
    pub(crate) fn take(&mut self, connection: ConnectionId, name: &str) -> u32 {
        let is_it = |(to, bytes): &(ConnectionId, Vec<u8>)| {
            *to == connection && decoded(bytes).message.name() == name
        };
        let place = self.sent.iter().position(is_it);
        let place = place.unwrap_or_else(|| panic!("no {name} among {:?}", self.names()));
        decoded(&self.sent.remove(place).1).id
    }

    /// Takes the only message that was sent: to this peer, with this id.
    pub(crate) fn answer(&mut self, connection: ConnectionId, id: u32) -> String {
        assert_eq!(self.sent.len(), 1, "{:?}", self.names());
        let (to, bytes) = self.sent.pop().unwrap();
        let packet = decoded(&bytes);
        assert_eq!((to, packet.id), (connection, id));
        format!("{:?}", packet.message)
    }

    /// Takes the refusal that was sent to this peer.
    pub(crate) fn refusal(&mut self, connection: ConnectionId, id: u32) -> (ErrorCode, String) {
        let (to, bytes) = self.sent.pop().unwrap();
        let packet = decoded(&bytes);
        assert_eq!((to, packet.id), (connection, id));
        let Message::Error(error) = packet.message else { panic!("{packet:?}") };
        (error.code, error.message.to_owned())
    }
}

fn decoded(bytes: &[u8]) -> Packet<'_> {
    let Ok(Scan::Complete(frame)) = Scanner::default().scan(bytes) else { panic!() };
    Packet::decode(frame).unwrap()
}
