//! Recovery: which partition table is the last one, and what was committed.

use std::collections::{BTreeMap, BTreeSet};

use zodium_neo::messages::{
    AnswerLockedTransactions, AnswerPartitionTable, AnswerRecovery, AskFinalTID, AskLastIDs,
    AskLockedTransactions, AskPackOrders, AskPartitionTable, AskRecovery, Cell, Truncate,
    ValidateTransaction,
};
use zodium_neo::{CellState, ClusterState, Message, NodeId, NodeState, PartitionTable, TableId};
use zodium_types::Tid;

use super::{Master, Phase};
use crate::neo::context::Context;
use crate::neo::history::History;
use crate::neo::net::{End, WireId};
use crate::neo::storage::id_of;

/// What storages say of their databases.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    /// The id of the partition table, and the order to truncate.
    answers: BTreeMap<NodeId, (Option<TableId>, Option<Tid>)>,
    /// The storage that was asked for its table.
    asked: Option<NodeId>,
}

/// A question to all storages, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Question {
    #[default]
    Locked,
    Final,
    LastIds,
    Orders,
}

/// Which transactions were left unfinished, and what became of them.
#[derive(Debug, Default)]
pub(super) struct Verification {
    question: Question,
    /// Answers that are missing: of AskFinalTID, for which transaction.
    asked: BTreeMap<(WireId, u32), Tid>,
    found: BTreeMap<Tid, Unfinished>,
    truncate: Option<Tid>,
    last_tid: Tid,
}

#[derive(Debug, Default)]
struct Unfinished {
    tid: Option<Tid>,
    nodes: BTreeSet<NodeId>,
}

impl Recovery {
    pub(super) fn forget(&mut self, node: NodeId) {
        self.answers.remove(&node);
        self.asked = self.asked.filter(|asked| *asked != node);
    }
}

impl Master {
    /// Handles what a storage answers before the cluster runs. Late answers are ignored.
    pub(super) fn recovery_says(
        &mut self,
        context: &mut Context,
        wire: WireId,
        node: NodeId,
        id: u32,
        message: Message<'_>,
    ) {
        match (self.phase, message) {
            (Phase::Recovering, Message::AnswerRecovery(answer)) => {
                let AnswerRecovery { table, truncate_tid, .. } = answer;
                self.recovery.answers.insert(node, (table, truncate_tid));
                self.recover(context);
            }
            (Phase::Recovering, Message::AnswerPartitionTable(answer)) => {
                self.table_recovered(context, node, answer);
            }
            (Phase::Verifying, message) => self.verify(context, (wire, id), node, message),
            (_, Message::AnswerRecovery(_) | Message::AnswerPartitionTable(_)) => {}
            // Of a verification that was given up.
            (
                Phase::Recovering,
                Message::AnswerLockedTransactions(_)
                | Message::AnswerFinalTID(_)
                | Message::AnswerLastIDs(_)
                | Message::AnswerPackOrders(_),
            ) => {}
            (phase, other) => {
                context.violate(format!("{} from {node} while {phase:?}", other.name()));
            }
        }
    }

    /// Whether all storages must be there: some may be truncated, or may have been told to.
    fn needs_all(&self, context: &Context) -> bool {
        let History { is_truncating, is_cut, .. } = context.history;
        let is_ordered = self.recovery.answers.values().any(|(_, truncate)| truncate.is_some());
        // A cluster that has packed since cannot be truncated, as a late order might have it.
        is_ordered || is_cut || (is_truncating && context.plan.packs > 0)
    }

    /// Begins with the table, if the storages that have the last one are there.
    fn recover(&mut self, context: &mut Context) {
        let Recovery { answers, asked } = &self.recovery;
        if asked.is_some() {
            return;
        }
        let last = answers.values().filter_map(|(table, _)| *table).max();
        let are_all_here = answers.len() == context.plan.storages;
        let may_start = are_all_here
            || (!self.needs_all(context)
                && last.is_some()
                && last == context.history.last_table
                && context.chance.permille(500));
        if !may_start {
            return;
        }
        let Some(last) = last else {
            self.table = new_table(context);
            return self.begin_verification(context);
        };
        let newest = answers.iter().find(|(_, (table, _))| *table == Some(last));
        let Some(node) = newest.map(|(node, _)| *node) else { return };
        let Some(wire) = self.wire_of(node) else { return };
        self.recovery.asked = Some(node);
        context.net.send(End::MODEL, wire, AskPartitionTable {});
    }

    fn table_recovered(
        &mut self,
        context: &mut Context,
        node: NodeId,
        answer: AnswerPartitionTable,
    ) {
        if self.recovery.asked != Some(node) {
            return;
        }
        self.recovery.asked = None;
        match PartitionTable::new(answer.table, answer.replicas, answer.rows) {
            Ok(table) => self.table = Some(table),
            Err(error) => return context.violate(format!("the table of {node}: {error}")),
        }
        let answers = &self.recovery.answers;
        let is_here = |node| answers.contains_key(&node);
        if answers.len() < context.plan.storages && self.needs_all(context) {
            // One has gone since.
            return;
        }
        if self.table.as_ref().is_some_and(|table| table.is_operational(is_here))
            && !self.order_truncation(context)
        {
            self.begin_verification(context);
        }
    }

    /// Orders the storages to truncate that have not noted it; whether there are any. No storage
    /// truncates before all have noted it, so the order is not lost with any of them.
    fn order_truncation(&mut self, context: &mut Context) -> bool {
        let answers = self.recovery.answers.iter();
        let Some(tid) = answers.clone().filter_map(|(_, (_, truncate))| *truncate).max() else {
            return false;
        };
        let lacking = answers.filter(|(_, (_, truncate))| *truncate != Some(tid));
        let lacking: Vec<_> = lacking.map(|(node, _)| *node).collect();
        for node in &lacking {
            self.recovery.forget(*node);
            let Some(wire) = self.wire_of(*node) else { continue };
            context.net.send(End::MODEL, wire, Truncate { tid });
            context.net.send(End::MODEL, wire, AskRecovery {});
        }
        !lacking.is_empty()
    }

    fn begin_verification(&mut self, context: &mut Context) {
        context.event("verify", &[]);
        let truncate = self.recovery.answers.values().filter_map(|(_, truncate)| *truncate).max();
        self.verification = Verification { truncate, ..Verification::default() };
        self.phase = Phase::Verifying;
        for (_, node) in self.storages() {
            if let Some(information) = self.nodes.get_mut(&node) {
                information.state = NodeState::Running;
            }
        }
        let nodes: Vec<_> = self.nodes.values().cloned().collect();
        self.tell_nodes(context, &nodes, None);
        self.tell_phase(context, ClusterState::Verifying);
        let changes = self.outdated_by_absence();
        if let Some(table) = self.table.as_mut().filter(|_| !changes.is_empty()) {
            let change = super::cells::change_of(table, changes);
            if let Err(error) = table.apply(&change) {
                context.violate(error.to_string());
            }
        }
        context.history.last_table = self.table.as_ref().map(PartitionTable::id);
        for (wire, node) in self.storages() {
            self.send_table(context, wire);
            if self.has_readable(node) {
                let id = context.net.send(End::MODEL, wire, AskLockedTransactions {});
                self.verification.asked.insert((wire, id), Tid::ZERO);
            }
        }
    }

    fn verify(
        &mut self,
        context: &mut Context,
        request: (WireId, u32),
        node: NodeId,
        message: Message<'_>,
    ) {
        let name = message.name();
        let Some(ttid) = self.verification.asked.remove(&request) else {
            // Of the recovery, or of a verification before.
            return;
        };
        let verification = &mut self.verification;
        match (verification.question, message) {
            (Question::Locked, Message::AnswerLockedTransactions(answer)) => {
                let AnswerLockedTransactions { transactions } = answer;
                for (ttid, tid) in transactions.0 {
                    let found = verification.found.entry(ttid).or_default();
                    found.nodes.insert(node);
                    found.tid = found.tid.or(tid);
                }
            }
            (Question::Final, Message::AnswerFinalTID(answer)) => {
                let found = verification.found.entry(ttid).or_default();
                found.tid = found.tid.or(answer.tid);
            }
            (Question::LastIds, Message::AnswerLastIDs(answer)) => {
                let last = answer.last_tid.unwrap_or(Tid::ZERO);
                verification.last_tid = verification.last_tid.max(last);
            }
            (Question::Orders, Message::AnswerPackOrders(answer)) => {
                self.packs.learn(answer.orders);
            }
            (question, _) => {
                return context.violate(format!("{name} from {node} answers {question:?}"));
            }
        }
        while self.phase == Phase::Verifying && self.verification.asked.is_empty() {
            self.ask_next(context);
        }
    }

    fn ask_next(&mut self, context: &mut Context) {
        match self.verification.question {
            Question::Locked => {
                self.verification.question = Question::Final;
                self.ask_final_tids(context);
            }
            Question::Final => {
                self.verification.question = Question::LastIds;
                self.validate(context);
                self.truncate_and_ask(context);
            }
            Question::LastIds => {
                self.verification.question = Question::Orders;
                for (wire, node) in self.storages() {
                    if self.has_readable(node) {
                        let message = AskPackOrders { id: Tid::ZERO };
                        let id = context.net.send(End::MODEL, wire, message);
                        self.verification.asked.insert((wire, id), Tid::ZERO);
                    }
                }
            }
            Question::Orders => self.run(context),
        }
    }

    /// Asks whether others have committed what some have only voted.
    ///
    /// A storage that decides alone commits with its lock, and says nothing of such transactions. A
    /// master need not know of them. This one asks for all that are open: the history must know.
    fn ask_final_tids(&mut self, context: &mut Context) {
        let Some(table) = &self.table else { return };
        for ttid in context.history.open() {
            self.verification.found.entry(ttid).or_default();
        }
        let open = self.verification.found.iter().filter(|(_, found)| found.tid.is_none());
        let mut questions = Vec::new();
        for (ttid, found) in open {
            let Some(partition) = table.partition_of_tid(*ttid) else { continue };
            let others = table.readable(partition).filter(|node| !found.nodes.contains(node));
            questions.extend(others.map(|node| (node, *ttid)));
        }
        for (node, ttid) in questions {
            let Some(wire) = self.wire_of(node) else { continue };
            let id = context.net.send(End::MODEL, wire, AskFinalTID { ttid });
            self.verification.asked.insert((wire, id), ttid);
        }
    }

    /// Has what is locked anywhere committed everywhere.
    fn validate(&mut self, context: &mut Context) {
        let mut found = BTreeMap::new();
        for (ttid, unfinished) in &self.verification.found {
            let Some(tid) = unfinished.tid else { continue };
            found.insert(tid, *ttid);
            for node in &unfinished.nodes {
                let Some(wire) = self.wire_of(*node) else { continue };
                context.net.send(End::MODEL, wire, ValidateTransaction { ttid: *ttid, tid });
            }
        }
        for (tid, ttid) in found {
            let is_known = context.history.committed.contains_key(&tid);
            // What is to be truncated may have been validated before.
            if is_known || self.verification.truncate.is_some_and(|last| last < tid) {
                continue;
            }
            context.counts.validated += 1;
            context.event("validated", &[ttid.0, tid.0]);
            if let Err(error) = context.history.commit(ttid, tid) {
                context.violate(error);
            }
        }
        context.history.settle();
    }

    fn truncate_and_ask(&mut self, context: &mut Context) {
        let truncate = self.verification.truncate;
        if let Some(tid) = truncate {
            context.event("truncated", &[tid.0]);
            context.history.truncate(tid);
            context.history.is_cut = true;
        }
        for (wire, _) in self.storages() {
            let id = context.net.send(End::MODEL, wire, AskLastIDs {});
            self.verification.asked.insert((wire, id), Tid::ZERO);
        }
    }

    fn run(&mut self, context: &mut Context) {
        context.event("run", &[]);
        self.phase = Phase::Running;
        self.last_tid = self.verification.last_tid;
        (context.history.is_truncating, context.history.is_cut) = (false, false);
        let (last, committed) = (self.last_tid, context.history.last_tid());
        if last != committed {
            context.violate(format!(
                "the last transaction of the storages is {last}, the last committed one {committed}"
            ));
        }
        self.tell_phase(context, ClusterState::Running);
        for (wire, node) in self.storages() {
            self.start_storage(context, wire, node);
        }
    }

    fn has_readable(&self, node: NodeId) -> bool {
        let Some(table) = &self.table else { return false };
        table.cells_of(node).any(|(_, state)| state.is_readable())
    }

    /// Orders all storages to truncate, and recovers.
    pub(in crate::neo) fn truncate(&mut self, context: &mut Context) {
        let first = context.history.last_pack().unwrap_or(Tid::ZERO);
        let tids: Vec<_> = context.history.committed.keys().copied().collect();
        let tids: Vec<_> = tids.into_iter().filter(|tid| *tid >= first).collect();
        if self.phase != Phase::Running
            || tids.is_empty()
            || self.storages().len() < context.plan.storages
        {
            return;
        }
        let tid = tids[context.chance.place(tids.len())];
        context.event("truncate", &[tid.0]);
        context.history.is_truncating = true;
        self.stop(context, Some(tid));
    }
}

/// The table of a new cluster.
fn new_table(context: &Context) -> Option<PartitionTable> {
    let plan = &context.plan;
    let row = |partition: u32| -> Vec<Cell> {
        let places = (0..=plan.replicas).map(|copy| (partition + copy) as usize % plan.storages);
        let nodes = places.filter_map(id_of);
        nodes.map(|node| Cell { node, state: CellState::UpToDate }).collect()
    };
    let rows = (0..plan.partitions).map(row).collect();
    PartitionTable::new(TableId(1), plan.replicas, rows).ok()
}
