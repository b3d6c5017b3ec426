//! The verification: what was being committed when the cluster ended is committed or dropped.
//!
//! A transaction is committed if any storage has locked it, or has it already: its client may have
//! been told. All others are dropped by storages when they begin to operate.
//!
//! Storages with the metadata of a transaction commit it first. Only they can say afterwards that
//! they have, if a storage that had locked it has committed it and the verification ends there.

use std::collections::{BTreeMap, BTreeSet};

use tracing::info;
use zodium_neo::messages::{
    AskFinalTID, AskLastIDs, AskLockedTransactions, AskPackOrders, Ping, ValidateTransaction,
};
use zodium_neo::{ClusterState, ConnectionId, Message, NodeId, NodeType};
use zodium_types::{Oid, Tid};

use crate::Master;
use crate::Phase;
use crate::handling::{Handled, Refusal};
use crate::peer::Asked;

/// How far the verification is.
#[derive(Debug, Default)]
pub(crate) struct Verification {
    step: Step,
    /// Connections that have to answer, with the number of answers.
    waiting: BTreeMap<ConnectionId, usize>,
    /// Storages that have a transaction, by ttid.
    voted: BTreeMap<Tid, BTreeSet<NodeId>>,
    /// The tids of those that are to be committed.
    tids: BTreeMap<Tid, Tid>,
    last_tid: Tid,
    last_oid: Option<Oid>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// Storages say which transactions they have.
    #[default]
    Locked,
    /// Storages say which of these they have committed.
    Outcomes,
    /// Storages commit transactions whose metadata they have.
    Metadata,
    /// The others commit them, too. Storages say their last ids.
    LastIds,
    /// Storages say which packs are ordered.
    Packs,
}

impl Master {
    pub(crate) fn begin_verification(&mut self) {
        info!("verifying what was being committed");
        self.phase = Phase::Verification(Verification::default());
        self.cluster.set_state(&mut self.links, ClusterState::Verifying);
        self.transactions.reset();
        for (_, storage) in self.cluster.members.identified(NodeType::Storage) {
            self.links.notify(storage, self.cluster.table.message());
        }
        self.cluster.ask_known(&mut self.links);
        // Cells that are out of date count for nothing: what they had locked, others have, too.
        // Nothing is locked in a backup cluster.
        for storage in self.readable_connections() {
            if !self.backup.is_there() {
                self.ask_and_wait(storage, AskLockedTransactions {}, Asked::Locked);
            }
        }
    }

    fn readable_connections(&self) -> Vec<ConnectionId> {
        let nodes = self.cluster.table.readable_nodes();
        nodes.iter().filter_map(|node| self.cluster.members.connection_of(*node)).collect()
    }

    fn ask_and_wait<'a>(
        &mut self,
        connection: ConnectionId,
        message: impl Into<Message<'a>>,
        asked: Asked,
    ) {
        if let Phase::Verification(verification) = &mut self.phase {
            *verification.waiting.entry(connection).or_default() += 1;
            self.links.ask(connection, message, asked);
        }
    }

    /// Handles the answer of a storage in the verification.
    pub(crate) fn verification_told(
        &mut self,
        connection: ConnectionId,
        storage: NodeId,
        asked: Option<Asked>,
        message: Message<'_>,
    ) -> Handled {
        let Phase::Verification(verification) = &mut self.phase else { return Ok(()) };
        match (asked, message) {
            (Some(Asked::Locked), Message::AnswerLockedTransactions(answer)) => {
                for (ttid, tid) in answer.transactions.0 {
                    verification.voted.entry(ttid).or_default().insert(storage);
                    tid.map(|tid| verification.tids.insert(ttid, tid));
                }
            }
            (Some(Asked::FinalTid(ttid)), Message::AnswerFinalTID(answer)) => {
                answer.tid.map(|tid| verification.tids.insert(ttid, tid));
            }
            (Some(Asked::Committed), Message::Pong(_)) => {}
            (Some(Asked::LastIds), Message::AnswerLastIDs(answer)) => {
                verification.last_tid =
                    verification.last_tid.max(answer.last_tid.unwrap_or_default());
                verification.last_oid = verification.last_oid.max(answer.last_oid);
                self.transactions.note_first(answer.first_tid);
            }
            (Some(Asked::Packs), Message::AnswerPackOrders(answer)) => {
                answer.orders.into_iter().for_each(|order| self.packs.add(order));
            }
            // From before the recovery.
            (_, Message::AnswerInformationLocked(_)) => return Ok(()),
            (
                Some(Asked::Recovery(_) | Asked::Table(_) | Asked::Known(_) | Asked::OldPacks(_)),
                _,
            ) => return Ok(()),
            (_, other) => return Err(Refusal::unexpected(&other)),
        }
        self.answer_counted(connection);
        Ok(())
    }

    fn answer_counted(&mut self, connection: ConnectionId) {
        let Phase::Verification(verification) = &mut self.phase else { return };
        if let Some(count) = verification.waiting.get_mut(&connection) {
            *count -= 1;
            if *count == 0 {
                verification.waiting.remove(&connection);
            }
        }
    }

    /// A storage does not answer any more.
    pub(crate) fn left_verification(&mut self, connection: ConnectionId) {
        if let Phase::Verification(verification) = &mut self.phase {
            verification.waiting.remove(&connection);
        }
    }

    /// Goes on when all have answered; whether it has.
    pub(crate) fn advance_verification(&mut self) -> bool {
        let Phase::Verification(verification) = &mut self.phase else { return false };
        if !verification.waiting.is_empty() {
            return false;
        }
        match verification.step {
            Step::Locked => {
                verification.step = Step::Outcomes;
                self.ask_outcomes();
            }
            Step::Outcomes => {
                verification.step = Step::Metadata;
                for connection in self.validate(true) {
                    self.ask_and_wait(connection, Ping {}, Asked::Committed);
                }
            }
            Step::Metadata => {
                verification.step = Step::LastIds;
                self.validate(false);
                // A storage that is to be cut is cut before it answers.
                for (_, storage) in self.cluster.members.identified(NodeType::Storage) {
                    self.ask_and_wait(storage, AskLastIDs {}, Asked::LastIds);
                }
            }
            Step::LastIds => {
                verification.step = Step::Packs;
                self.cluster.last_tid = verification.last_tid;
                verification.last_oid.into_iter().for_each(|oid| self.transactions.note_oid(oid));
                self.transactions.begin_after(self.cluster.last_tid);
                self.truncate_tid = None;
                self.ask_packs();
            }
            Step::Packs => self.begin_operation(),
        }
        true
    }

    /// Some storages may have committed what others have only voted.
    fn ask_outcomes(&mut self) {
        let Phase::Verification(verification) = &self.phase else { return };
        let open =
            verification.voted.iter().filter(|(ttid, _)| !verification.tids.contains_key(ttid));
        let mut questions = Vec::new();
        for (ttid, voted) in open {
            let Some(partition) = self.cluster.table.partition_of_tid(*ttid) else { continue };
            let cells = self.cluster.table.row(partition).iter();
            let others = cells.filter(|cell| cell.is_readable() && !voted.contains(&cell.node));
            let connected = others.filter_map(|cell| self.cluster.members.connection_of(cell.node));
            questions.extend(connected.map(|connection| (connection, *ttid)));
        }
        for (connection, ttid) in questions {
            self.ask_and_wait(connection, AskFinalTID { ttid }, Asked::FinalTid(ttid));
        }
    }

    /// Has storages commit what others have locked or committed: those with the metadata, or those
    /// without. Gives their connections.
    fn validate(&mut self, has_metadata: bool) -> BTreeSet<ConnectionId> {
        let Phase::Verification(verification) = &self.phase else { return BTreeSet::new() };
        let mut orders = Vec::new();
        for (ttid, tid) in &verification.tids {
            let row = self
                .cluster
                .table
                .partition_of_tid(*ttid)
                .map(|partition| self.cluster.table.row(partition));
            let is_holder =
                |node: NodeId| row.is_some_and(|row| row.iter().any(|cell| cell.node == node));
            let voted = verification.voted.get(ttid).into_iter().flatten();
            let voted = voted.filter(|node| is_holder(**node) == has_metadata);
            let connected =
                voted.filter_map(|storage| self.cluster.members.connection_of(*storage));
            orders.extend(connected.map(|connection| (connection, *ttid, *tid)));
        }
        for (connection, ttid, tid) in &orders {
            info!(%ttid, %tid, storage = self.links.name_of(*connection), "committing a transaction");
            self.links.notify(*connection, ValidateTransaction { ttid: *ttid, tid: *tid });
        }
        orders.into_iter().map(|(connection, ..)| connection).collect()
    }

    fn ask_packs(&mut self) {
        let nodes = self.cluster.table.readable_nodes();
        let completed =
            nodes.iter().filter_map(|node| self.cluster.members.get(*node)?.completed_pack);
        let id = completed.min().map_or(Tid::ZERO, Tid::next);
        for storage in self.readable_connections() {
            self.ask_and_wait(storage, AskPackOrders { id }, Asked::Packs);
        }
    }
}
