//! A model of a client: it commits transactions of one or two partitions, one after the other.

use std::collections::BTreeSet;

use zodium_neo::messages::*;
use zodium_neo::{
    CellState, ErrorCode, Extra, Message, NodeId, NodeType, Packet, Partition, PartitionTable,
};
use zodium_types::{Oid, Tid};

use super::net::{End, Net, Wire};
use crate::support::CLUSTER;

/// What a client waits for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// A master that accepts it.
    Identification,
    Idle,
    /// AnswerBeginTransaction.
    Begin,
    /// It votes next.
    Voting(Tid),
    /// The answer to FailedVote.
    Failed(Tid, BTreeSet<Partition>),
    /// AnswerTransactionFinished.
    Finish(Tid, BTreeSet<Partition>),
}

#[derive(Debug)]
pub(crate) struct Client {
    place: usize,
    pub(crate) wire: Option<Wire>,
    master: usize,
    /// Its id, and when the master met it.
    pub(crate) identity: Option<(NodeId, f64)>,
    pub(crate) table: Option<PartitionTable>,
    pub(crate) step: Step,
    /// Commits that were acknowledged: ttid, tid, partitions.
    pub(crate) acknowledged: Vec<(Tid, Tid, BTreeSet<Partition>)>,
}

impl Client {
    pub(crate) fn new(place: usize) -> Client {
        Client {
            place,
            wire: None,
            master: place,
            identity: None,
            table: None,
            step: Step::Identification,
            acknowledged: Vec::new(),
        }
    }

    fn end(&self) -> End {
        End::Client(self.place)
    }

    pub(crate) fn dial(&mut self, net: &mut Net, masters: usize) {
        self.master = (self.master + 1) % masters;
        (self.step, self.identity, self.table) = (Step::Identification, None, None);
        self.wire = Some(net.dial(self.end(), End::Master(self.master)));
    }

    pub(crate) fn connected(&mut self, net: &mut Net, wire: Wire) {
        let (node_type, cluster, extra) = (NodeType::Client, CLUSTER, Extra::default());
        let (id, address, id_timestamp) = (None, None, None);
        let request =
            RequestIdentification { node_type, id, address, cluster, id_timestamp, extra };
        net.tell(self.end(), wire, request);
    }

    pub(crate) fn closed(&mut self, net: &mut Net, wire: Wire, masters: usize) {
        if self.wire == Some(wire) {
            self.dial(net, masters);
        }
    }

    pub(crate) fn begin(&mut self, net: &mut Net) {
        if let Some(wire) = self.wire {
            net.tell(self.end(), wire, AskBeginTransaction { tid: None });
            self.step = Step::Begin;
        }
    }

    pub(crate) fn says(&mut self, net: &mut Net, wire: Wire, packet: Packet<'_>) {
        if self.wire != Some(wire) {
            return;
        }
        match packet.message {
            Message::NotifyNodeInformation(message) if self.identity.is_none() => {
                let itself = &message.nodes[0];
                self.identity = itself.id.zip(itself.id_timestamp);
            }
            Message::SendPartitionTable(message) => {
                self.table = PartitionTable::from_message(message).unwrap();
                self.step = Step::Idle;
            }
            Message::NotifyPartitionChanges(message) => {
                if let Some(table) = &mut self.table {
                    table.apply(&message).unwrap();
                }
            }
            Message::AnswerBeginTransaction(answer) => self.step = Step::Voting(answer.ttid),
            Message::AnswerTransactionFinished(answer) => {
                if let Step::Finish(ttid, partitions) = &self.step {
                    assert_eq!(*ttid, answer.ttid);
                    self.acknowledged.push((*ttid, answer.tid, partitions.clone()));
                }
                self.step = Step::Idle;
            }
            Message::Error(error) => match (&self.step, error.code) {
                (Step::Failed(ttid, partitions), ErrorCode::Ack) => {
                    let (ttid, partitions) = (*ttid, partitions.clone());
                    self.finish(net, ttid, partitions);
                }
                (Step::Failed(ttid, _), _) => {
                    let ttid = *ttid;
                    self.abort(net, ttid);
                }
                (Step::Finish(..), _) => self.step = Step::Idle,
                _ => net.close(self.end(), wire),
            },
            Message::NotPrimaryMaster(_) | Message::StopOperation(_) => net.close(self.end(), wire),
            _ => {}
        }
    }

    /// The storages that get a transaction, as the client knows them.
    pub(crate) fn writable(&self, partitions: &BTreeSet<Partition>) -> BTreeSet<NodeId> {
        let Some(table) = &self.table else { return BTreeSet::new() };
        partitions.iter().flat_map(|one| table.writable(*one)).collect()
    }

    /// Whether a cell checks stores, as the client knows it.
    pub(crate) fn is_readable(&self, partition: Partition, node: NodeId) -> bool {
        let state = self.table.as_ref().and_then(|table| table.state(partition, node));
        state.is_some_and(CellState::is_readable)
    }

    pub(crate) fn abort(&mut self, net: &mut Net, ttid: Tid) {
        if let Some(wire) = self.wire {
            let nodes = self.table.as_ref().map(PartitionTable::nodes).unwrap_or_default();
            net.tell(self.end(), wire, AbortTransaction { ttid, nodes });
        }
        self.step = Step::Idle;
    }

    pub(crate) fn report(
        &mut self,
        net: &mut Net,
        ttid: Tid,
        partitions: BTreeSet<Partition>,
        failed: Vec<NodeId>,
    ) {
        if let Some(wire) = self.wire {
            net.tell(self.end(), wire, FailedVote { ttid, failed });
        }
        self.step = Step::Failed(ttid, partitions);
    }

    pub(crate) fn finish(&mut self, net: &mut Net, ttid: Tid, partitions: BTreeSet<Partition>) {
        if let Some(wire) = self.wire {
            let oids = partitions.iter().map(|partition| Oid(partition.0.into())).collect();
            let (deleted, checked) = (Vec::new(), Vec::new());
            let message = AskFinishTransaction { ttid, oids, deleted, checked, pack: None };
            net.tell(self.end(), wire, message);
        }
        self.step = Step::Finish(ttid, partitions);
    }
}
