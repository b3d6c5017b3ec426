//! A cluster: storage nodes of one program, and their master, which is this process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use zodium_neo::messages::{
    AcceptIdentification, AskLastIDs, Cell, CellChange, NodeInformation, NotifyNodeInformation,
    NotifyPartitionChanges, RequestIdentification, SendPartitionTable, StartOperation,
};
use zodium_neo::{
    Address, CellState, Extra, Message, NodeId, NodeState, NodeType, Partition, TableId,
};
use zodium_types::{Oid, Tid};

use super::CLUSTER;
use super::ids::Ids;
use super::program::Program;
use super::socket::Socket;
use crate::interrupt::Interrupt;
use crate::server::{Data, Server};

/// How long a storage node may take to dial its master.
const DIAL_PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// A running cluster. Each partition is on one storage node.
#[derive(Debug)]
pub(super) struct Cluster<'a> {
    program: &'a Program,
    interrupt: &'a Interrupt,
    folder: PathBuf,
    partitions: u32,
    listener: TcpListener,
    /// The storage nodes; the connection that each has made to its master.
    pub(super) servers: Vec<Server>,
    pub(super) masters: Vec<Socket>,
    numbers: Vec<u32>,
    /// The last number that a storage node got, and a client.
    last_storage: u32,
    last_client: u32,
    /// The nodes, in the order of their arrival.
    nodes: Vec<NodeInformation>,
    table: TableId,
    last_time: f64,
    pub(super) ids: Ids,
}

impl<'a> Cluster<'a> {
    /// Starts a cluster with its files in `folder`.
    pub(super) fn start(
        program: &'a Program,
        storages: usize,
        partitions: u32,
        (folder, interrupt): (&Path, &'a Interrupt),
    ) -> Result<Cluster<'a>> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let folder = tempfile::Builder::new().prefix("cluster-").tempdir_in(folder)?.keep();
        let mut cluster = Cluster {
            program,
            interrupt,
            folder,
            partitions,
            listener,
            servers: Vec::new(),
            masters: Vec::new(),
            numbers: Vec::new(),
            last_storage: 0,
            last_client: 0,
            nodes: Vec::new(),
            table: TableId(1),
            last_time: 0.0,
            ids: Ids::new(partitions, Tid::from_unix_nanos(now_nanos()), Oid(1 << 32)),
        };
        for _ in 0..storages {
            let (server, socket, _) = cluster.launch()?;
            cluster.servers.push(server);
            cluster.masters.push(socket);
            cluster.numbers.push(cluster.last_storage);
        }
        let timestamp = cluster.time();
        for index in 0..storages {
            let operates = cluster.set_up(index, timestamp);
            operates.with_context(|| cluster.servers[index].last_words())?;
        }
        Ok(cluster)
    }

    /// The place of the storage node that has a partition.
    pub(super) fn home(&self, partition: u64) -> usize {
        partition as usize % self.servers.len().max(1)
    }

    pub(super) fn partitions(&self) -> u32 {
        self.partitions
    }

    /// What the last lines of the logs are.
    pub(super) fn last_words(&self) -> String {
        self.servers.iter().map(Server::last_words).collect::<Vec<_>>().join("\n")
    }

    /// Starts a storage node, and identifies it. Also returns its id.
    pub(super) fn launch(&mut self) -> Result<(Server, Socket, NodeId)> {
        self.last_storage += 1;
        let number = self.last_storage;
        let id = NodeId::of(NodeType::Storage, number).context("too many storage nodes")?;
        let command = self.program.command(self.listener.local_addr()?, number);
        let folder = self.folder.join(number.to_string());
        std::fs::create_dir(&folder)?;
        let server = Server::start(&command, Data::New, &folder, self.interrupt)?;
        let socket = self.identify(id).with_context(|| server.last_words())?;
        let id_timestamp = Some(self.time());
        self.nodes.push(NodeInformation {
            node_type: NodeType::Storage,
            address: Some(Address::from(server.address)),
            id: Some(id),
            state: NodeState::Running,
            id_timestamp,
        });
        Ok((server, socket, id))
    }

    /// Waits until the storage node with this id has dialled.
    fn identify(&self, id: NodeId) -> Result<Socket> {
        let deadline = Instant::now() + DIAL_PATIENCE;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    let mut socket = Socket::over(stream)?;
                    socket.flush()?;
                    let asked = socket.wait(|packet| match packet.message {
                        Message::RequestIdentification(request) => {
                            Ok(Some((packet.id, request.id)))
                        }
                        other => bail!("{} before the identification", other.name()),
                    });
                    // One that was stopped may have dialled once more.
                    if let Ok((request, said)) = asked
                        && said.is_none_or(|said| said == id)
                    {
                        let node_type = NodeType::Master;
                        let own = NodeId::of(node_type, 1);
                        let your_id = Some(id);
                        let accepted = AcceptIdentification { node_type, id: own, your_id };
                        socket.answer(request, accepted)?;
                        return Ok(socket);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if Instant::now() > deadline {
                        bail!("the storage node has not dialled its master");
                    }
                    self.interrupt.sleep(POLL)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Has a storage node operate.
    fn set_up(&mut self, index: usize, timestamp: f64) -> Result<()> {
        let rows = self.rows();
        let (table, nodes) = (self.table, self.nodes_for(self.numbers[index]));
        let socket = &mut self.masters[index];
        prepare(socket, NotifyNodeInformation { timestamp, nodes }, table, 0, rows)?;
        socket.send(StartOperation { backup: false })?;
        socket.wait(|packet| Ok(matches!(packet.message, Message::NotifyReady(_)).then_some(())))
    }

    /// All nodes, the one with this number first.
    pub(super) fn nodes_for(&self, number: u32) -> Vec<NodeInformation> {
        let own = NodeId::of(NodeType::Storage, number);
        let (own, others): (Vec<_>, Vec<_>) =
            self.nodes.iter().cloned().partition(|node| node.id == own);
        own.into_iter().chain(others).collect()
    }

    /// The partition table.
    pub(super) fn rows(&self) -> Vec<Vec<Cell>> {
        let cell = |partition: u32| {
            let number = self.numbers.get(self.home(partition.into())).copied().unwrap_or(1);
            let node = NodeId::of(NodeType::Storage, number);
            node.map(|node| Cell { node, state: CellState::UpToDate }).into_iter().collect()
        };
        (0..self.partitions).map(cell).collect()
    }

    /// Changes all cells of a storage node; returns the change, for that node.
    pub(super) fn change_cells(
        &mut self,
        node: NodeId,
        replicas: u32,
        state: CellState,
    ) -> Result<NotifyPartitionChanges> {
        self.table = self.table.next();
        let change = |number| CellChange { partition: Partition(number), node, state };
        let changes = (0..self.partitions).map(change).collect();
        let change = NotifyPartitionChanges { table: self.table, replicas, changes };
        for master in &mut self.masters {
            master.send(change.clone())?;
        }
        Ok(change)
    }

    pub(super) fn table(&self) -> TableId {
        self.table
    }

    /// Tells the storage nodes of the node that has come last.
    pub(super) fn announce_last(&mut self) -> Result<()> {
        let timestamp = self.time();
        let nodes: Vec<_> = self.nodes.last().cloned().into_iter().collect();
        for master in &mut self.masters {
            master.send(NotifyNodeInformation { timestamp, nodes: nodes.clone() })?;
        }
        Ok(())
    }

    /// Adds a client, which is announced to the storage nodes here and to `other`.
    pub(super) fn client(&mut self, other: Option<&mut Socket>) -> Result<ClientIdentity> {
        self.last_client += 1;
        let id = NodeId::of(NodeType::Client, self.last_client).context("too many clients")?;
        let identity = ClientIdentity { id, id_timestamp: self.time() };
        let client = NodeInformation {
            node_type: NodeType::Client,
            address: None,
            id: Some(id),
            state: NodeState::Running,
            id_timestamp: Some(identity.id_timestamp),
        };
        let timestamp = self.time();
        for master in self.masters.iter_mut().chain(other) {
            master.send(NotifyNodeInformation { timestamp, nodes: vec![client.clone()] })?;
        }
        Ok(identity)
    }

    /// Connects a new client with all storage nodes.
    pub(super) fn connect(&mut self) -> Result<Vec<Socket>> {
        let client = self.client(None)?;
        self.servers.iter().map(|server| client.connect(server.address)).collect()
    }

    /// The time, which always grows.
    pub(super) fn time(&mut self) -> f64 {
        let now = now_nanos() as f64 / 1e9;
        self.last_time = now.max(self.last_time + 1e-3);
        self.last_time
    }
}

/// A client that the storage nodes have been told of.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientIdentity {
    id: NodeId,
    id_timestamp: f64,
}

impl ClientIdentity {
    /// Connects to a storage node.
    pub(super) fn connect(&self, address: SocketAddr) -> Result<Socket> {
        let mut socket = Socket::connect(address)?;
        socket.send(RequestIdentification {
            node_type: NodeType::Client,
            id: Some(self.id),
            address: None,
            cluster: CLUSTER,
            id_timestamp: Some(self.id_timestamp),
            extra: Extra::default(),
        })?;
        socket.wait(|packet| match packet.message {
            Message::AcceptIdentification(_) => Ok(Some(())),
            other => bail!("an identification was answered with {}", other.name()),
        })?;
        Ok(socket)
    }
}

/// Tells a storage node what it must know before it operates.
pub(super) fn prepare(
    socket: &mut Socket,
    nodes: NotifyNodeInformation,
    table: TableId,
    replicas: u32,
    rows: Vec<Vec<Cell>>,
) -> Result<()> {
    socket.put(nodes)?;
    socket.put(SendPartitionTable { table: Some(table), replicas, rows })?;
    socket.send(AskLastIDs {})?;
    socket.wait(|packet| Ok(matches!(packet.message, Message::AnswerLastIDs(_)).then_some(())))
}

fn now_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
