//! The node: what it holds, and how events reach its parts.

use std::time::Duration;

use bytes::Bytes;
use tracing::{error, info};
use zodium_neo::{Address, Masters, Message, NodeId, Packet, Partition, PartitionTable};
use zodium_types::Tid;

use crate::checking::Checking;
use crate::counts::Counts;
use crate::database::{DatabaseError, ReadResult, Reads, Writes};
use crate::handling::{Handled, Refusal};
use crate::identification::Waiting;
use crate::job::{Completion, ReadJob, WriteJob};
use crate::members::Members;
use crate::packing::Packing;
use crate::peer::{Asked, Peer, Peers, Role, primary};
use crate::phase::Phase;
use crate::records::Records;
use crate::replication::Replication;
use crate::settings::{Saved, Settings};
use crate::transactions::Transactions;
use crate::{ConnectionId, Exit, Output};

/// A storage node of a NEO cluster.
#[derive(Debug)]
pub struct Node {
    pub(crate) settings: Settings,
    /// The id, from the database or from the master.
    pub(crate) id: Option<NodeId>,
    pub(crate) table: Option<PartitionTable>,
    /// Whether the database may refuse data when they are written.
    pub(crate) may_refuse_data: bool,
    /// Whether the disk of the database had room when it was written last.
    pub(crate) has_room: bool,
    /// While the master is asked for another id: the partitions that this node has a copy of.
    pub(crate) copied: Option<Vec<Partition>>,
    /// While operating in a backup cluster: the last transaction that is complete.
    pub(crate) backup_tid: Option<Tid>,
    pub(crate) masters: Masters,
    pub(crate) peers: Peers,
    pub(crate) members: Members,
    pub(crate) phase: Phase,
    /// Counts the times that operation ended: what was asked for before is not answered any more.
    epoch: u64,
    /// Requests for identification that came before the master told of the node.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) transactions: Transactions,
    pub(crate) records: Records,
    /// Bytes of records that were answered from memory since the driver took the outputs.
    pub(crate) remembered_bytes: usize,
    pub(crate) replication: Replication,
    pub(crate) packing: Packing,
    pub(crate) checking: Checking,
    pub(crate) counts: Counts,
    outputs: Vec<Output>,
}

impl Node {
    /// Creates a node. It does nothing until [`Node::start`].
    pub fn new(settings: Settings, saved: Saved) -> Node {
        let Saved { node, table, may_refuse_data } = saved;
        let masters = Masters::new(settings.masters.clone());
        let records = Records::new(settings.records_bytes_max);
        Node {
            settings,
            id: node,
            table,
            may_refuse_data,
            has_room: false,
            copied: None,
            backup_tid: None,
            masters,
            peers: Peers::default(),
            members: Members::default(),
            phase: Phase::Alone,
            epoch: 0,
            waiting: Vec::new(),
            transactions: Transactions::default(),
            records,
            remembered_bytes: 0,
            replication: Replication::default(),
            packing: Packing::default(),
            checking: Checking::default(),
            counts: Counts::default(),
            outputs: Vec::new(),
        }
    }

    /// Has the node ask for another id: its database is a copy of another node's. The cluster
    /// notes the copy as out of date, and the master ends the node.
    pub fn ask_new_id(&mut self) {
        let (Some(table), Some(own)) = (&self.table, self.id.take()) else { return };
        self.copied = Some(table.cells_of(own).map(|(partition, _)| partition).collect());
    }

    /// Begins to look for the primary master.
    pub fn start(&mut self) {
        self.dial_master(Duration::ZERO);
    }

    /// A peer has connected. `name` is its address, for log lines.
    pub fn accepted(&mut self, name: String) -> ConnectionId {
        self.peers.add(Peer::new(name, Role::Stranger))
    }

    /// A connection that was dialled is there.
    pub fn connected(&mut self, connection: ConnectionId) {
        match self.peers.get(connection).map(|peer| &peer.role) {
            Some(Role::Master { .. }) => self.identify_to_master(connection),
            Some(Role::Source { .. }) => self.identify_to_source(connection),
            _ => {}
        }
    }

    /// A connection has ended, or could not be made.
    pub fn closed(&mut self, connection: ConnectionId) {
        let Some(peer) = self.peers.remove(connection) else { return };
        self.waiting.retain(|waiting| waiting.connection != connection);
        self.peer_lost(connection, &peer.role);
    }

    /// A packet has arrived.
    pub fn received(&mut self, connection: ConnectionId, packet: Packet<'_>) {
        let Packet { id, message } = packet;
        let Some(peer) = self.peers.get(connection) else { return };
        let name = message.name();
        let handled = match peer.role {
            Role::Leaving => return,
            Role::Master { is_primary: true, .. } => self.primary_says(connection, id, message),
            Role::Master { .. } => self.candidate_says(connection, message),
            Role::Stranger => self.stranger_says(connection, id, message),
            Role::Client { .. } => self.client_says(connection, id, message),
            Role::Storage { .. } => self.storage_says(connection, id, message),
            Role::Source { .. } => self.source_says(connection, id, message),
        };
        if let Err(refusal) = handled {
            self.refuse(connection, id, name, &refusal);
        }
    }

    /// A job is done.
    pub fn completed(&mut self, completion: Completion) {
        completion.tell(self);
    }

    /// What is to be done now, in order.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        self.remembered_bytes = 0;
        std::mem::take(&mut self.outputs)
    }

    /// Whether nothing is locked, and no request waits for a lock or an unlock.
    pub fn is_unlocked(&self) -> bool {
        self.transactions.is_unlocked()
    }

    /// The address that a peer was accepted or dialled under.
    pub(crate) fn name_of(&self, connection: ConnectionId) -> String {
        self.peers.name_of(connection)
    }

    /// Refuses a message.
    pub(crate) fn refuse(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: &str,
        refusal: &Refusal,
    ) {
        self.answer(connection, id, refusal.message());
        if refusal.is_end {
            refusal.log(&self.name_of(connection), message);
            self.close(connection);
        }
    }

    /// Answers a request.
    pub(crate) fn answer<'a>(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: impl Into<Message<'a>>,
    ) {
        self.send_with(connection, id, message.into());
    }

    /// Sends a notification.
    pub(crate) fn notify<'a>(&mut self, connection: ConnectionId, message: impl Into<Message<'a>>) {
        let Some(id) = self.peers.take_id(connection) else { return };
        self.send_with(connection, id, message.into());
    }

    /// Sends a request; its id.
    pub(crate) fn ask<'a>(
        &mut self,
        connection: ConnectionId,
        message: impl Into<Message<'a>>,
        asked: Asked,
    ) -> Option<u32> {
        let id = self.peers.expect(connection, asked)?;
        self.send_with(connection, id, message.into());
        Some(id)
    }

    /// Takes the request that an answer belongs to.
    pub(crate) fn answered(&mut self, connection: ConnectionId, id: u32) -> Option<Asked> {
        self.peers.answered(connection, id)
    }

    fn send_with(&mut self, connection: ConnectionId, id: u32, message: Message<'_>) {
        let is_there = self.peers.get(connection).is_some_and(|peer| peer.role != Role::Leaving);
        if !is_there {
            return;
        }
        match self.peers.encode(id, message) {
            Ok(packet) => self.send_packet(connection, packet),
            Err(error) => {
                let peer = self.name_of(connection);
                error!(peer, %error, "cannot send, closing the connection");
                self.close(connection);
            }
        }
    }

    /// Sends a packet that is encoded already.
    pub(crate) fn send_packet(&mut self, connection: ConnectionId, packet: Bytes) {
        self.outputs.push(Output::Send { connection, packet });
    }

    /// Sends a notification to the primary master.
    pub(crate) fn notify_master<'a>(&mut self, message: impl Into<Message<'a>>) {
        if let Some(master) = primary(&self.peers) {
            self.notify(master, message);
        }
    }

    /// Asks the primary master.
    pub(crate) fn ask_master<'a>(&mut self, message: impl Into<Message<'a>>, asked: Asked) {
        if let Some(master) = primary(&self.peers) {
            self.ask(master, message, asked);
        }
    }

    /// Dials a node.
    pub(crate) fn dial(&mut self, role: Role, address: Address, after: Duration) -> ConnectionId {
        let connection = self.peers.add(Peer::new(address.to_string(), role));
        self.outputs.push(Output::Dial { connection, address, after });
        connection
    }

    /// Closes a connection after what was sent. The driver reports its end later.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        let Some(peer) = self.peers.get_mut(connection) else { return };
        if peer.role == Role::Leaving {
            return;
        }
        let role = std::mem::replace(&mut peer.role, Role::Leaving);
        self.outputs.push(Output::Close { connection });
        self.peer_lost(connection, &role);
    }

    /// What the end of a connection means for the parts of the node.
    fn peer_lost(&mut self, connection: ConnectionId, role: &Role) {
        match role {
            Role::Master { is_primary, .. } => self.master_lost(*is_primary),
            Role::Client { .. } => self.client_lost(connection),
            // Either side of a connection may fetch from the other.
            Role::Source { .. } | Role::Storage { .. } => {
                self.source_lost(connection);
                self.check_lost(connection);
            }
            Role::Stranger | Role::Leaving => {}
        }
    }

    /// Ends the process.
    pub(crate) fn exit(&mut self, exit: Exit) {
        info!(?exit, "the master ends this node");
        self.outputs.push(Output::Exit(exit));
    }

    /// Reads from the database, and goes on with the result unless operation ended meanwhile.
    pub(crate) fn read<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) {
        self.read_after(None, read, done);
    }

    /// As [`Node::read`], when most of what was sent to a connection is on its way.
    pub(crate) fn read_after<T: Send + 'static>(
        &mut self,
        after_sending: Option<ConnectionId>,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) {
        let job = self.read_job(read, done);
        self.outputs.push(Output::Read { job, after_sending });
    }

    /// As [`Node::read_after`], for another storage: clients come first.
    pub(crate) fn read_in_background<T: Send + 'static>(
        &mut self,
        connection: ConnectionId,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) {
        let job = self.read_job(read, done).in_background();
        self.outputs.push(Output::Read { job, after_sending: Some(connection) });
    }

    /// As [`Node::read`], of a row or two.
    pub(crate) fn read_shortly<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) {
        let job = self.read_job(read, done).short();
        self.outputs.push(Output::Read { job, after_sending: None });
    }

    fn read_job<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, ReadResult<T>) + Send + 'static,
    ) -> ReadJob {
        let epoch = self.epoch;
        ReadJob::new(move |database| {
            let result = read(database);
            Completion::new(move |node| {
                if node.epoch == epoch {
                    done(node, result);
                }
            })
        })
    }

    /// Reads for a request; a failure of the database ends the connection.
    pub(crate) fn read_for<T: Send + 'static>(
        &mut self,
        from: (ConnectionId, u32),
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) -> Handled + Send + 'static,
    ) {
        self.read_after(Some(from.0), read, move |node, result| node.go_on(from, result, done));
    }

    /// As [`Node::read_for`], of a row or two.
    pub(crate) fn read_shortly_for<T: Send + 'static>(
        &mut self,
        from: (ConnectionId, u32),
        read: impl FnOnce(&dyn Reads) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) -> Handled + Send + 'static,
    ) {
        let job = self.read_job(read, move |node, result| node.go_on(from, result, done)).short();
        self.outputs.push(Output::Read { job, after_sending: Some(from.0) });
    }

    /// Goes on with what was read for a request.
    fn go_on<T>(
        &mut self,
        (connection, id): (ConnectionId, u32),
        result: ReadResult<T>,
        done: impl FnOnce(&mut Node, T) -> Handled,
    ) {
        let handled = match result {
            Ok(found) => done(self, found),
            Err(error) => return self.read_failed(connection, &error),
        };
        if let Err(refusal) = handled {
            self.refuse(connection, id, "a request", &refusal);
        }
    }

    /// Ends a connection whose request the database failed: a replica may serve it.
    pub(crate) fn read_failed(&mut self, connection: ConnectionId, error: &DatabaseError) {
        error!(peer = self.name_of(connection), %error, "the database failed a request, closing \
            the connection");
        self.close(connection);
    }

    /// Writes to the database, durably, and goes on with the result unless operation ended
    /// meanwhile.
    pub(crate) fn write<T: Send + 'static>(
        &mut self,
        write: impl FnOnce(&mut dyn Writes) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) + Send + 'static,
    ) {
        self.write_as(true, write, done);
    }

    /// As [`Node::write`], for what another durable commit or a restart would bring back.
    pub(crate) fn write_lazily<T: Send + 'static>(
        &mut self,
        write: impl FnOnce(&mut dyn Writes) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) + Send + 'static,
    ) {
        self.write_as(false, write, done);
    }

    /// Goes on when every durable write before is on disk, also if operation has ended meanwhile.
    pub(crate) fn when_written(&mut self, done: impl FnOnce(&mut Node) + Send + 'static) {
        let job = WriteJob::new(move |_| Ok(Completion::new(done)));
        self.outputs.push(Output::Write { job, is_durable: true });
    }

    pub(crate) fn write_as<T: Send + 'static>(
        &mut self,
        is_durable: bool,
        write: impl FnOnce(&mut dyn Writes) -> ReadResult<T> + Send + 'static,
        done: impl FnOnce(&mut Node, T) + Send + 'static,
    ) {
        let epoch = self.epoch;
        let job = WriteJob::new(move |database| {
            let result = write(database)?;
            Ok(Completion::new(move |node| {
                if node.epoch == epoch {
                    done(node, result);
                }
            }))
        });
        self.outputs.push(Output::Write { job, is_durable });
    }

    /// Forgets everything that was under way: transactions, replication, peers but the master.
    pub(crate) fn end_operation(&mut self, phase: Phase) {
        self.epoch += 1;
        self.phase = phase;
        self.waiting.clear();
        self.transactions = Transactions::default();
        self.records.clear();
        self.replication = Replication::default();
        self.packing = Packing::default();
        self.checking = Checking::default();
        for connection in self.peers.with(|role| !matches!(role, Role::Master { .. })) {
            self.close(connection);
        }
    }
}
