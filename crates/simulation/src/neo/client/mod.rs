//! A model client: connections to the master and to storages, and one task at a time.

mod commit;
mod orders;
mod reading;

use std::collections::BTreeMap;

use sha1::{Digest, Sha1};
use zodium_neo::messages::{AskLastTransaction, NodeInformation, RequestIdentification};
use zodium_neo::{
    Checksum, Extra, Message, NodeId, NodeState, NodeType, Packet, Partition, PartitionTable,
};
use zodium_types::{Oid, Tid};

use self::commit::Commit;
use self::orders::{Link, Order};
use super::addresses;
use super::context::{CLUSTER, Context};
use super::net::{End, WireId};
use super::storage::id_of;

/// A client, which may be down.
pub(super) struct Client {
    place: usize,
    /// The master that it dials next, by its place.
    next_master: usize,
    master: Option<WireId>,
    is_connected: bool,
    /// What the master knows of it.
    own: Option<NodeInformation>,
    nodes: BTreeMap<NodeId, NodeState>,
    table: Option<PartitionTable>,
    last_tid: Option<Tid>,
    links: BTreeMap<NodeId, Link>,
    /// Requests to storages that are not answered.
    asked: BTreeMap<(WireId, u32), (NodeId, Order)>,
    doing: Doing,
}

/// What a client does.
#[derive(Debug)]
enum Doing {
    Nothing,
    /// Reads an object, as a client that knows of this transaction.
    Reading {
        known: Tid,
        /// How often the history had been truncated.
        cuts: u64,
    },
    Committing(Box<Commit>),
    /// Asks what became of a transaction, when there is a master.
    Resolving(Tid),
}

impl Client {
    pub(super) fn new(place: usize) -> Client {
        Client {
            place,
            next_master: place,
            master: None,
            is_connected: false,
            own: None,
            nodes: BTreeMap::new(),
            table: None,
            last_tid: None,
            links: BTreeMap::new(),
            asked: BTreeMap::new(),
            doing: Doing::Nothing,
        }
    }

    fn end(&self) -> End {
        End::Client(self.place)
    }

    /// The process ends, and another one takes its place.
    pub(super) fn kill(&mut self, context: &mut Context) {
        context.event("client killed", &[self.place as u64]);
        context.net.end_process(self.end(), &context.chance);
        *self = Client::new(self.place);
    }

    /// Whether it can dial the master, or begin a task.
    pub(super) fn is_free(&self) -> bool {
        match self.master {
            None => true,
            Some(_) => self.last_tid.is_some() && matches!(self.doing, Doing::Nothing),
        }
    }

    /// Whether it does nothing, and waits for nothing.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.doing, Doing::Nothing) && self.last_tid.is_some()
    }

    /// Dials the master, or begins a task.
    pub(super) fn begin(&mut self, context: &mut Context) {
        if self.master.is_none() {
            let masters = context.plan.masters.max(1);
            let to = End::Master(self.next_master % masters);
            self.next_master = (self.next_master + 1) % masters;
            self.master = Some(context.net.dial(self.end(), to));
        } else if !context.is_calm {
            match context.chance.permille(300) {
                true => self.begin_reading(context),
                false => self.begin_commit(context),
            }
        }
    }

    /// A connection that it dialled is there, or cannot be made.
    pub(super) fn dialled(&mut self, context: &mut Context, wire: WireId, is_there: bool) {
        let is_master = self.master == Some(wire);
        match is_there {
            true => {
                let own = self.own.as_ref().filter(|_| !is_master);
                context.net.send(self.end(), wire, identification(own));
            }
            false if is_master => self.master = None,
            false => self.link_lost(context, wire),
        }
    }

    /// A connection has ended.
    pub(super) fn closed(&mut self, context: &mut Context, wire: WireId) {
        if self.master == Some(wire) {
            self.master_lost(context);
        } else {
            self.link_lost(context, wire);
        }
    }

    /// A packet has arrived.
    pub(super) fn received(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        if self.master == Some(wire) {
            self.master_says(context, packet);
        } else {
            self.storage_says(context, wire, packet);
        }
    }

    fn master_says(&mut self, context: &mut Context, packet: Packet<'_>) {
        let Packet { message, .. } = packet;
        match message {
            Message::AcceptIdentification(_) => self.is_connected = true,
            Message::NotifyNodeInformation(message) => {
                if self.own.is_none() {
                    self.own = message.nodes.first().cloned();
                }
                for node in message.nodes {
                    if let Some(id) = node.id {
                        self.nodes.insert(id, node.state);
                    }
                }
            }
            Message::SendPartitionTable(message) => {
                self.table = PartitionTable::from_message(message).ok().flatten();
                if let Some(master) = self.master {
                    context.net.send(self.end(), master, AskLastTransaction {});
                }
            }
            Message::NotifyPartitionChanges(message) => {
                let applied = self.table.as_mut().map(|table| table.apply(&message));
                if let Some(Err(error)) = applied {
                    context.violate(error.to_string());
                }
            }
            Message::AnswerLastTransaction(message) => {
                self.last_tid = Some(message.tid);
                self.resolve(context);
            }
            Message::InvalidateObjects(message) => {
                self.last_tid = self.last_tid.map(|last| last.max(message.tid));
            }
            // The connection is closed after it.
            Message::Error(_) if !self.is_connected => {}
            Message::StopOperation(_) => {}
            Message::NotPrimaryMaster(message) => {
                let primary = message.primary.and_then(|at| message.masters.get(at as usize));
                if let Some(End::Master(place)) = primary.map(addresses::end_of) {
                    self.next_master = place;
                }
            }
            other => self.commit_told(context, other),
        }
    }

    /// Without a master a client gives up what it does, but for a commit that may be done.
    fn master_lost(&mut self, context: &mut Context) {
        let doing = std::mem::replace(&mut self.doing, Doing::Nothing);
        let open = match doing {
            Doing::Committing(commit) if commit.is_finishing() => commit.ttid(),
            Doing::Resolving(ttid) => Some(ttid),
            Doing::Committing(_) | Doing::Reading { .. } | Doing::Nothing => None,
        };
        for link in self.links.values() {
            if !context.net.forget_dial(link.wire) {
                context.net.close(self.end(), link.wire);
            }
        }
        *self = Client { next_master: self.next_master, ..Client::new(self.place) };
        if let Some(ttid) = open {
            self.doing = Doing::Resolving(ttid);
        }
    }

    fn partition_of(&self, oid: Oid) -> Option<Partition> {
        self.table.as_ref().and_then(|table| table.partition_of_oid(oid))
    }

    fn is_node_running(&self, node: NodeId) -> bool {
        self.nodes.get(&node) == Some(&NodeState::Running)
    }

    /// The running storages with a readable cell.
    fn readable(&self, partition: Partition) -> Vec<NodeId> {
        let Some(table) = &self.table else { return Vec::new() };
        table.readable(partition).filter(|node| self.is_node_running(*node)).collect()
    }

    /// The running storages that take part in commits to a partition.
    fn writable(&self, partition: Partition) -> Vec<NodeId> {
        let Some(table) = &self.table else { return Vec::new() };
        table.writable(partition).filter(|node| self.is_node_running(*node)).collect()
    }

    pub(super) fn describe(&self) -> String {
        let Client { place, doing, links, asked, master, last_tid, .. } = self;
        format!(
            "client {place}: master {master:?}, last {last_tid:?}, {doing:?}, links {links:?}, \
             asked {asked:?}"
        )
    }
}

fn identification(own: Option<&NodeInformation>) -> RequestIdentification<'static> {
    RequestIdentification {
        node_type: NodeType::Client,
        id: own.and_then(|own| own.id),
        address: None,
        cluster: CLUSTER,
        id_timestamp: own.and_then(|own| own.id_timestamp),
        extra: Extra::default(),
    }
}

/// The process of a storage.
fn end_of(node: NodeId) -> End {
    let place = node.number() as usize - 1;
    debug_assert_eq!(id_of(place), Some(node));
    End::Storage(place)
}

fn checksum(data: &[u8]) -> Checksum {
    Checksum(Sha1::digest(data).into())
}
