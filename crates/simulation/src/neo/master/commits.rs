//! Transactions: begun, locked in the order of their tids, unlocked.

use std::collections::BTreeSet;

use zodium_neo::messages::{
    AbortTransaction, AnswerBeginTransaction, AnswerFinalTID, AnswerLastTransaction,
    AnswerTransactionFinished, AskFinishTransaction, AskLockInformation, Error as ErrorMessage,
    FailedVote, InvalidateObjects, NotifyTransactionFinished, NotifyUnlockInformation, OidList,
    PackOrder, PackRequest,
};
use zodium_neo::{ErrorCode, Message, NodeId, NodeState, Packet, Partition};
use zodium_types::{Oid, Tid};

use super::{Master, Peer, Phase};
use crate::neo::context::Context;
use crate::neo::history::Outcome;
use crate::neo::net::{End, WireId};

/// A transaction in progress.
#[derive(Debug)]
pub(super) struct Transaction {
    client: WireId,
    client_id: NodeId,
    /// How many had begun before it.
    number: u64,
    failed: BTreeSet<NodeId>,
    finish: Option<Finish>,
}

/// A transaction that is being locked.
#[derive(Debug)]
struct Finish {
    request: u32,
    tid: Tid,
    oids: Vec<Oid>,
    pack: Option<PackRequest>,
    involved: BTreeSet<WireId>,
    waiting: BTreeSet<WireId>,
}

impl Transaction {
    /// A storage is gone.
    pub(super) fn forget(&mut self, wire: WireId) {
        if let Some(finish) = &mut self.finish {
            finish.involved.remove(&wire);
            finish.waiting.remove(&wire);
        }
    }
}

impl Master {
    pub(super) fn client_says(&mut self, context: &mut Context, wire: WireId, packet: Packet<'_>) {
        let Packet { id, message } = packet;
        match message {
            Message::AskLastTransaction(_) => {
                let answer = AnswerLastTransaction { tid: self.last_tid };
                context.net.answer(End::MODEL, wire, id, answer);
            }
            Message::AskBeginTransaction(_) => {
                self.waiting_begins.push((wire, id));
                self.begin_waiting(context);
            }
            Message::FailedVote(message) => self.vote_failed(context, wire, id, message),
            Message::AskFinishTransaction(message) => self.finish(context, wire, id, message),
            Message::AbortTransaction(message) => {
                let AbortTransaction { ttid, nodes } = message;
                self.give_up(context, ttid, &nodes);
            }
            Message::AskFinalTID(message) => {
                self.waiting_outcomes.push((wire, id, message.ttid));
                self.tell_outcomes(context);
            }
            other => context.violate(format!("a client sends {}", other.name())),
        }
    }

    /// Begins the transactions that waited for storages to start.
    pub(super) fn begin_waiting(&mut self, context: &mut Context) {
        if !self.starting.is_empty() {
            return;
        }
        for (wire, id) in std::mem::take(&mut self.waiting_begins) {
            let Some(Peer::Client(client_id)) = self.peers.get(&wire).copied() else { continue };
            let ttid = context.tid();
            self.begun += 1;
            let transaction = Transaction {
                client: wire,
                client_id,
                number: self.begun,
                failed: BTreeSet::new(),
                finish: None,
            };
            self.transactions.insert(ttid, transaction);
            context.net.answer(End::MODEL, wire, id, AnswerBeginTransaction { ttid });
        }
    }

    /// Storages have failed a transaction: whether it may be finished without them.
    fn vote_failed(&mut self, context: &mut Context, wire: WireId, id: u32, message: FailedVote) {
        let FailedVote { ttid, failed } = message;
        let all: BTreeSet<NodeId> = self
            .transactions
            .values()
            .flat_map(|transaction| transaction.failed.iter().copied())
            .chain(failed.iter().copied())
            .collect();
        let can_go_on = self.could_lose(|node| all.contains(&node));
        let transaction = self.transactions.get_mut(&ttid).filter(|_| can_go_on);
        let code = match transaction {
            Some(transaction) => {
                transaction.failed = failed.into_iter().collect();
                ErrorCode::Ack
            }
            None => ErrorCode::IncompleteTransaction,
        };
        context.net.answer(End::MODEL, wire, id, ErrorMessage { code, message: "" });
    }

    fn finish(
        &mut self,
        context: &mut Context,
        wire: WireId,
        id: u32,
        message: AskFinishTransaction,
    ) {
        let AskFinishTransaction { ttid, oids, deleted, checked, pack } = message;
        let Some(transaction) = self.transactions.get(&ttid) else {
            return context.violate(format!("a client finishes the unknown transaction {ttid}"));
        };
        let (number, failed) = (transaction.number, transaction.failed.clone());
        if !self.could_lose(|node| failed.contains(&node)) {
            // The client says nothing more to the storages that it has lost.
            let all: Vec<_> = self.storages().into_iter().map(|(_, node)| node).collect();
            self.give_up(context, ttid, &all);
            let code = ErrorCode::IncompleteTransaction;
            context.net.answer(End::MODEL, wire, id, ErrorMessage { code, message: "" });
            return;
        }
        // Before anything is locked: a recovery must not take a storage for complete that lacks it.
        self.disconnect(context, &failed, number);
        if self.phase != Phase::Running {
            return;
        }
        let tid = context.tid_like(ttid);
        context.history.ask(ttid, tid);
        let objects = oids.iter().filter_map(|oid| self.partition_of(*oid));
        let own = Partition(tid.0.checked_rem(context.plan.partitions.into()).unwrap_or(0) as u32);
        let partitions: BTreeSet<_> =
            objects.chain(deleted).chain(checked).chain(std::iter::once(own)).collect();
        let involved: BTreeSet<_> = self
            .storages()
            .into_iter()
            .filter(|(_, node)| !failed.contains(node))
            .filter(|(_, node)| self.knows(*node, number, &partitions))
            .map(|(wire, _)| wire)
            .collect();
        context.event("lock", &[ttid.0, tid.0]);
        let pack_approved = pack.is_some();
        for storage in &involved {
            let message = AskLockInformation { ttid, tid, pack_approved };
            context.net.send(End::MODEL, *storage, message);
        }
        let waiting = involved.clone();
        let finish = Finish { request: id, tid, oids, pack, involved, waiting };
        if let Some(transaction) = self.transactions.get_mut(&ttid) {
            transaction.finish = Some(finish);
        }
        self.queue.push(ttid);
        self.advance(context);
    }

    fn partition_of(&self, oid: Oid) -> Option<Partition> {
        self.table.as_ref().and_then(|table| table.partition_of_oid(oid))
    }

    /// Whether a storage has heard of a transaction with objects in some partitions.
    fn knows(&self, node: NodeId, number: u64, partitions: &BTreeSet<Partition>) -> bool {
        let Some(table) = &self.table else { return false };
        let is_before = |since: Option<&u64>| since.is_none_or(|since| *since < number);
        let has_cell = |partition: &&Partition| {
            table.writable(**partition).any(|other| other == node)
                && is_before(self.cell_since.get(&(**partition, node)))
        };
        is_before(self.node_since.get(&node)) && partitions.iter().any(|one| has_cell(&one))
    }

    /// Ends the connections to storages that have failed a transaction that they know.
    fn disconnect(&mut self, context: &mut Context, failed: &BTreeSet<NodeId>, number: u64) {
        for (wire, node) in self.storages() {
            let is_new = self.node_since.get(&node).is_some_and(|since| *since >= number);
            if failed.contains(&node) && !is_new && self.phase == Phase::Running {
                context.event("disconnected", &[node.value() as u64]);
                context.net.close(End::MODEL, wire);
                self.closed(context, wire);
            }
        }
    }

    pub(super) fn locked(&mut self, context: &mut Context, wire: WireId, ttid: Tid) {
        let transaction = self.transactions.get_mut(&ttid);
        let finish = transaction.and_then(|transaction| transaction.finish.as_mut());
        match finish.map(|finish| finish.waiting.remove(&wire)) {
            Some(true) => self.advance(context),
            // Of an operation that was stopped.
            None if self.phase != Phase::Running => {}
            None if context.history.outcome(ttid) != Some(Outcome::Open) => {}
            _ => context.violate(format!("{ttid} is locked without a question")),
        }
    }

    /// Commits what is locked everywhere, in the order of tids.
    pub(super) fn advance(&mut self, context: &mut Context) {
        while self.phase == Phase::Running
            && let Some(ttid) = self.queue.first().copied()
        {
            let transaction = self.transactions.get(&ttid);
            let finish = transaction.and_then(|transaction| transaction.finish.as_ref());
            if finish.is_none_or(|finish| !finish.waiting.is_empty()) {
                return;
            }
            self.queue.remove(0);
            if let Some(transaction) = self.transactions.remove(&ttid) {
                self.commit(context, ttid, transaction);
            }
        }
    }

    fn commit(&mut self, context: &mut Context, ttid: Tid, transaction: Transaction) {
        let Transaction { client, finish: Some(finish), .. } = transaction else { return };
        let Finish { request, tid, oids, pack, involved, .. } = finish;
        context.event("commit", &[ttid.0, tid.0]);
        if let Err(error) = context.history.commit(ttid, tid) {
            return context.violate(error);
        }
        self.last_tid = tid;
        self.outcomes.insert(ttid, Some(tid));
        if self.peers.contains_key(&client) {
            let answer = AnswerTransactionFinished { ttid, tid };
            context.net.answer(End::MODEL, client, request, answer);
        }
        for other in self.clients().into_iter().filter(|other| *other != client) {
            let message = InvalidateObjects { tid, oids: oids.clone() };
            context.net.send(End::MODEL, other, message);
        }
        for storage in involved {
            context.net.send(End::MODEL, storage, NotifyUnlockInformation { ttid });
        }
        if let Some(PackRequest { oids, tid: until }) = pack {
            let partial = oids.is_some();
            let (approved, oids) = (Some(true), oids.map(OidList));
            self.order_pack(context, PackOrder { id: tid, approved, partial, oids, tid: until });
        }
        for node in self.watchers(ttid) {
            let message = NotifyTransactionFinished { ttid, max_tid: tid };
            context.net.send(End::MODEL, node, message);
        }
        self.tell_outcomes(context);
    }

    /// The storages that want to know the end of a transaction; they do not any more.
    fn watchers(&mut self, ttid: Tid) -> Vec<WireId> {
        let watching = self.watched.iter_mut().filter_map(|(node, ttids)| {
            let is_watching = ttids.remove(&ttid);
            is_watching.then_some(*node)
        });
        let nodes: Vec<_> = watching.collect();
        nodes.into_iter().filter_map(|node| self.wire_of(node)).collect()
    }

    /// Aborts a transaction, unless it is being locked.
    fn give_up(&mut self, context: &mut Context, ttid: Tid, nodes: &[NodeId]) {
        if self.transactions.get(&ttid).is_none_or(|transaction| transaction.finish.is_some()) {
            return;
        }
        self.transactions.remove(&ttid);
        self.outcomes.insert(ttid, None);
        context.history.abort(ttid);
        let mut told: BTreeSet<_> = nodes.iter().filter_map(|node| self.wire_of(*node)).collect();
        told.extend(self.watchers(ttid));
        for wire in told {
            let message = AbortTransaction { ttid, nodes: Vec::new() };
            context.net.send(End::MODEL, wire, message);
        }
        self.tell_outcomes(context);
    }

    pub(super) fn client_lost(&mut self, context: &mut Context, node: NodeId) {
        self.set_state(context, node, NodeState::Unknown);
        self.nodes.remove(&node);
        let own = self.transactions.iter().filter(|(_, one)| one.client_id == node);
        let own: Vec<_> = own.map(|(ttid, _)| *ttid).collect();
        own.into_iter().for_each(|ttid| self.give_up(context, ttid, &[]));
    }

    /// Tells clients what became of transactions that are not open any more.
    fn tell_outcomes(&mut self, context: &mut Context) {
        for (wire, id, ttid) in std::mem::take(&mut self.waiting_outcomes) {
            if self.transactions.contains_key(&ttid) {
                self.waiting_outcomes.push((wire, id, ttid));
                continue;
            }
            // A master that was not there does not know.
            let tid = self.outcomes.get(&ttid).copied().unwrap_or(Some(Tid::MAX));
            context.net.answer(End::MODEL, wire, id, AnswerFinalTID { tid });
        }
    }
}
