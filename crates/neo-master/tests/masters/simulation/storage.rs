//! A model of a storage: it keeps which transactions it has, by partition, and loses nothing.

use std::collections::{BTreeMap, BTreeSet};

use zodium_neo::messages::*;
use zodium_neo::{
    CellState, Extra, Map, Message, NodeId, NodeState, NodeType, Packet, Partition, PartitionTable,
};
use zodium_types::{Oid, Tid};

use super::net::{End, Net, Wire};
use crate::support::{CLUSTER, address, storage};

/// The ports of storages.
pub(crate) const PORT: u16 = 200;

/// A transaction that is voted.
#[derive(Clone, Debug)]
pub(crate) struct Voted {
    client: NodeId,
    partitions: BTreeSet<Partition>,
    tid: Option<Tid>,
}

/// Cells that are being replicated.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    /// Transactions that must end first.
    waits_for: BTreeSet<Tid>,
    /// The answer of the master has come.
    until: Option<Tid>,
}

/// A storage: what its database has, and what its process knows.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) place: usize,
    pub(crate) table: Option<PartitionTable>,
    /// By partition and tid, the ttid.
    pub(crate) committed: BTreeMap<(Partition, Tid), Tid>,
    pub(crate) voted: BTreeMap<Tid, Voted>,
    pub(crate) is_running: bool,
    pub(crate) is_operating: bool,
    pub(crate) wire: Option<Wire>,
    master: usize,
    /// Clients that the master has told of, with the times when it met them.
    clients: BTreeMap<NodeId, f64>,
    pub(crate) wanted: BTreeMap<Partition, Wanted>,
    /// By request: the partitions, and the transactions that were voted here then.
    asked: BTreeMap<u32, (Vec<Partition>, BTreeSet<Tid>)>,
}

impl Storage {
    pub(crate) fn new(place: usize) -> Storage {
        Storage {
            place,
            table: None,
            committed: BTreeMap::new(),
            voted: BTreeMap::new(),
            is_running: false,
            is_operating: false,
            wire: None,
            master: place,
            clients: BTreeMap::new(),
            wanted: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    pub(crate) fn id(&self) -> NodeId {
        storage(self.place as u32 + 1)
    }

    fn end(&self) -> End {
        End::Storage(self.place)
    }

    pub(crate) fn start(&mut self, net: &mut Net, masters: usize) {
        self.is_running = true;
        self.dial(net, masters);
    }

    pub(crate) fn kill(&mut self) {
        (self.is_running, self.wire) = (false, None);
        self.stop();
    }

    fn stop(&mut self) {
        self.is_operating = false;
        self.clients.clear();
        self.wanted.clear();
        self.asked.clear();
    }

    fn dial(&mut self, net: &mut Net, masters: usize) {
        self.master = (self.master + 1) % masters;
        self.wire = Some(net.dial(self.end(), End::Master(self.master)));
    }

    pub(crate) fn connected(&mut self, net: &mut Net, wire: Wire) {
        let request = RequestIdentification {
            node_type: NodeType::Storage,
            id: Some(self.id()),
            address: Some(address(PORT + 1 + self.place as u16)),
            cluster: CLUSTER,
            id_timestamp: None,
            extra: Extra::default(),
        };
        net.tell(self.end(), wire, request);
    }

    pub(crate) fn closed(&mut self, net: &mut Net, wire: Wire, masters: usize) {
        if self.wire == Some(wire) {
            self.stop();
            self.dial(net, masters);
        }
    }

    pub(crate) fn says(&mut self, net: &mut Net, wire: Wire, packet: Packet<'_>) {
        if self.wire != Some(wire) {
            return;
        }
        let (end, Packet { id, message }) = (self.end(), packet);
        match message {
            Message::AskRecovery(_) => {
                let table = self.table.as_ref().map(PartitionTable::id);
                let answer = AnswerRecovery { table, backup_tid: None, truncate_tid: None };
                net.answer(end, wire, id, answer);
            }
            Message::AskPartitionTable(_) => {
                let table = self.table.as_ref().unwrap();
                let rows = table.rows().to_vec();
                let (table, replicas) = (table.id(), table.replicas());
                net.answer(end, wire, id, AnswerPartitionTable { table, replicas, rows });
            }
            Message::SendPartitionTable(message) => {
                self.table = PartitionTable::from_message(message).unwrap().or(self.table.take());
            }
            Message::NotifyPartitionChanges(message) => self.cells_changed(net, wire, &message),
            Message::NotifyNodeInformation(message) => self.nodes_told(&message.nodes),
            Message::AskLockedTransactions(_) => {
                let all = self.voted.iter().map(|(ttid, voted)| (*ttid, voted.tid));
                let transactions = Map(all.collect());
                net.answer(end, wire, id, AnswerLockedTransactions { transactions });
            }
            Message::AskFinalTID(message) => {
                let tid = self.tid_of(message.ttid);
                net.answer(end, wire, id, AnswerFinalTID { tid });
            }
            Message::ValidateTransaction(message) => self.commit(message.ttid, message.tid),
            Message::AskLastIDs(_) => {
                let last_tid = self.committed.keys().map(|(_, tid)| *tid).max();
                let answer = AnswerLastIDs { last_tid, last_oid: Some(Oid(9)), first_tid: Tid(1) };
                net.answer(end, wire, id, answer);
            }
            Message::Ping(_) => net.answer(end, wire, id, Pong {}),
            Message::AskPackOrders(_) => {
                net.answer(end, wire, id, AnswerPackOrders { orders: Vec::new() });
            }
            other => self.operates(net, wire, id, other),
        }
    }

    fn operates(&mut self, net: &mut Net, wire: Wire, id: u32, message: Message<'_>) {
        let end = self.end();
        match message {
            Message::StartOperation(_) => {
                self.is_operating = true;
                self.voted.clear();
                net.tell(end, wire, NotifyReady {});
                let id = self.id();
                let table = self.table.as_ref().unwrap();
                let outdated =
                    table.cells_of(id).filter(|(_, state)| *state == CellState::OutOfDate);
                let outdated = outdated.map(|(partition, _)| partition).collect();
                self.ask_unfinished(net, wire, outdated);
            }
            Message::StopOperation(_) => self.stop(),
            Message::AnswerUnfinishedTransactions(answer) => {
                let (partitions, known) = self.asked.remove(&id).unwrap_or_default();
                for partition in partitions {
                    let waits_for = answer.ttids.iter().copied().collect();
                    let wanted = Wanted { waits_for, until: Some(answer.max_tid) };
                    self.wanted.insert(partition, wanted);
                }
                // Others ended before this node was ready for them, as real storages see it, too.
                let may_be_over = |ttid: &Tid| *ttid <= answer.max_tid || known.contains(ttid);
                self.voted.retain(|ttid, voted| {
                    voted.tid.is_some() || answer.ttids.contains(ttid) || !may_be_over(ttid)
                });
            }
            Message::NotifyTransactionFinished(message) => {
                // It has not got the whole of it.
                self.voted.remove(&message.ttid);
                for wanted in self.wanted.values_mut() {
                    wanted.waits_for.remove(&message.ttid);
                    // Without the master's answer it is not known what it waits for.
                    wanted.until = wanted.until.map(|until| until.max(message.max_tid));
                }
            }
            Message::AbortTransaction(message) => {
                self.voted.remove(&message.ttid);
                for wanted in self.wanted.values_mut() {
                    wanted.waits_for.remove(&message.ttid);
                }
            }
            Message::AskLockInformation(message) => match self.voted.get_mut(&message.ttid) {
                Some(voted) => {
                    voted.tid = Some(message.tid);
                    net.answer(end, wire, id, AnswerInformationLocked { ttid: message.ttid });
                }
                None => panic!("{} is to be locked, and was never stored", message.ttid),
            },
            Message::NotifyUnlockInformation(message) => {
                if let Some(tid) = self.voted.get(&message.ttid).and_then(|voted| voted.tid) {
                    self.commit(message.ttid, tid);
                }
            }
            Message::Error(_) | Message::NotPrimaryMaster(_) => net.close(end, wire),
            _ => {}
        }
    }

    fn ask_unfinished(&mut self, net: &mut Net, wire: Wire, partitions: Vec<Partition>) {
        if partitions.is_empty() || !self.is_operating {
            return;
        }
        partitions.iter().for_each(|one| drop(self.wanted.insert(*one, Wanted::default())));
        let asked = AskUnfinishedTransactions { partitions: partitions.clone() };
        let id = net.tell(self.end(), wire, asked);
        self.asked.insert(id, (partitions, self.voted.keys().copied().collect()));
    }

    fn cells_changed(&mut self, net: &mut Net, wire: Wire, message: &NotifyPartitionChanges) {
        let Some(table) = &mut self.table else { return };
        if table.apply(message).is_err() {
            return net.close(self.end(), wire);
        }
        let own = self.id();
        let own = message.changes.iter().filter(|change| change.node == own);
        let own: Vec<_> = own.collect();
        for (partitions, _) in self.asked.values_mut() {
            partitions.retain(|one| own.iter().all(|change| change.partition != *one));
        }
        for change in own.iter().filter(|change| change.state == CellState::Discarded) {
            self.wanted.remove(&change.partition);
            self.committed.retain(|(partition, _), _| *partition != change.partition);
        }
        let own = own.into_iter();
        let outdated = own.filter(|change| change.state == CellState::OutOfDate);
        let outdated = outdated.map(|change| change.partition).collect();
        self.ask_unfinished(net, wire, outdated);
    }

    fn nodes_told(&mut self, nodes: &[NodeInformation]) {
        for node in nodes.iter().filter(|node| node.node_type == NodeType::Client) {
            let Some(id) = node.id else { continue };
            match (node.state, node.id_timestamp) {
                (NodeState::Running, Some(stamp)) => {
                    self.clients.insert(id, stamp);
                }
                _ => {
                    self.clients.remove(&id);
                    self.voted.retain(|_, voted| voted.client != id || voted.tid.is_some());
                }
            }
        }
    }

    /// A client votes a transaction; whether the storage has it.
    pub(crate) fn vote(
        &mut self,
        (client, stamp): (NodeId, f64),
        ttid: Tid,
        partitions: &BTreeSet<Partition>,
    ) -> bool {
        let Some(table) = self.table.as_ref().filter(|_| self.is_operating) else { return false };
        if self.clients.get(&client) != Some(&stamp) {
            return false;
        }
        let has =
            |one: &Partition| table.state(*one, self.id()).is_some_and(CellState::is_writable);
        let partitions: BTreeSet<_> = partitions.iter().copied().filter(has).collect();
        self.voted.insert(ttid, Voted { client, partitions, tid: None });
        true
    }

    /// Whether a cell checks what it is given.
    pub(crate) fn reads(&self, partition: Partition) -> bool {
        let state = self.table.as_ref().and_then(|table| table.state(partition, self.id()));
        self.is_operating && state.is_some_and(CellState::is_readable)
    }

    /// Whether it has something that must end. A vote for a cell that had just been taken away goes
    /// with its client's connection.
    pub(crate) fn has_votes(&self) -> bool {
        self.voted
            .values()
            .any(|voted| voted.tid.is_some() || voted.partitions.iter().any(|one| self.reads(*one)))
    }

    fn commit(&mut self, ttid: Tid, tid: Tid) {
        if let Some(voted) = self.voted.remove(&ttid) {
            self.committed.extend(voted.partitions.iter().map(|one| ((*one, tid), ttid)));
        }
    }

    fn tid_of(&self, ttid: Tid) -> Option<Tid> {
        let mut all = self.committed.iter();
        all.find(|(_, other)| **other == ttid).map(|((_, tid), _)| *tid)
    }

    /// Whether a partition can be had from a storage, by the table that is known here.
    pub(crate) fn sees_source(&self, partition: Partition, place: usize) -> bool {
        let source = storage(place as u32 + 1);
        let state = self.table.as_ref().and_then(|table| table.state(partition, source));
        state.is_some_and(CellState::is_readable)
    }

    /// A partition that can be replicated now, and until when.
    pub(crate) fn replicable(&self) -> Option<(Partition, Tid)> {
        let mut wanted = self.wanted.iter().filter(|(_, one)| one.waits_for.is_empty());
        wanted.find_map(|(partition, one)| Some((*partition, one.until?)))
    }

    /// Gives a partition to a replica; `None` while something of it is not committed here.
    pub(crate) fn give(
        &self,
        partition: Partition,
        until: Tid,
    ) -> Option<BTreeMap<(Partition, Tid), Tid>> {
        let is_locked = |voted: &Voted| {
            voted.partitions.contains(&partition) && voted.tid.is_some_and(|tid| tid <= until)
        };
        if !self.reads(partition) || self.voted.values().any(is_locked) {
            return None;
        }
        let rows = self.committed.range((partition, Tid::ZERO)..=(partition, until));
        Some(rows.map(|(key, ttid)| (*key, *ttid)).collect())
    }

    pub(crate) fn replicated(
        &mut self,
        net: &mut Net,
        (partition, tid): (Partition, Tid),
        rows: BTreeMap<(Partition, Tid), Tid>,
    ) {
        self.wanted.remove(&partition);
        self.committed.retain(|(other, old), _| *other != partition || *old > tid);
        self.committed.extend(rows);
        if let Some(wire) = self.wire {
            net.tell(self.end(), wire, NotifyReplicationDone { partition, tid });
        }
    }
}
