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
use zodium_neo::{ConnectionId, Message, NodeId, NodeType, TableId};
use zodium_types::{Oid, Tid};

use crate::cluster::Cluster;
use crate::handling::{Handled, Refusal};
use crate::old_copies::{self, OldCopies, Said};
use crate::packs::{self, Packs};
use crate::peer::{Asked, Links};
use crate::transactions::Transactions;

/// How far the verification is.
#[derive(Debug, Default)]
pub(crate) struct Verification {
    step: Step,
    is_backup: bool,
    /// The partition tables that storages had before the start.
    tables: BTreeMap<NodeId, TableId>,
    /// Connections that have to answer, with the number of answers.
    waiting: BTreeMap<ConnectionId, usize>,
    /// Storages that have a transaction, by ttid.
    voted: BTreeMap<Tid, BTreeSet<NodeId>>,
    /// The tids of those that are to be committed.
    tids: BTreeMap<Tid, Tid>,
    /// What storages say of their databases.
    said: BTreeMap<NodeId, Said>,
    old_copies: Option<OldCopies>,
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

impl Verification {
    /// Begins: storages learn the table, and say what they have locked.
    pub(crate) fn begin(
        cluster: &mut Cluster,
        links: &mut Links,
        is_backup: bool,
        tables: BTreeMap<NodeId, TableId>,
    ) -> Verification {
        let mut verification = Verification { is_backup, tables, ..Verification::default() };
        for (_, storage) in cluster.members.identified(NodeType::Storage) {
            links.notify(storage, cluster.table.message());
        }
        cluster.ask_known(links);
        // Cells that are out of date count for nothing: what they had locked, others have, too.
        // Nothing is locked in a backup cluster.
        if !is_backup {
            for storage in readable_connections(cluster) {
                let asked = Asked::Locked;
                verification.ask_and_wait(links, storage, AskLockedTransactions {}, asked);
            }
        }
        verification
    }

    fn ask_and_wait<'a>(
        &mut self,
        links: &mut Links,
        connection: ConnectionId,
        message: impl Into<Message<'a>>,
        asked: Asked,
    ) {
        *self.waiting.entry(connection).or_default() += 1;
        links.ask(connection, message, asked);
    }

    /// Handles the answer of a storage.
    pub(crate) fn told(
        &mut self,
        transactions: &mut Transactions,
        packs: &mut Packs,
        (connection, storage): (ConnectionId, NodeId),
        asked: Option<Asked>,
        message: Message<'_>,
    ) -> Handled {
        match (asked, message) {
            (Some(Asked::Locked), Message::AnswerLockedTransactions(answer)) => {
                for (ttid, tid) in answer.transactions.0 {
                    self.voted.entry(ttid).or_default().insert(storage);
                    tid.map(|tid| self.tids.insert(ttid, tid));
                }
            }
            (Some(Asked::FinalTid(ttid)), Message::AnswerFinalTID(answer)) => {
                answer.tid.map(|tid| self.tids.insert(ttid, tid));
            }
            (Some(Asked::Committed), Message::Pong(_)) => {}
            (Some(Asked::LastIds), Message::AnswerLastIDs(answer)) => {
                let last_tid = answer.last_tid.unwrap_or_default();
                let table = self.tables.get(&storage).copied();
                self.said.insert(storage, Said { last_tid, table });
                self.last_oid = self.last_oid.max(answer.last_oid);
                transactions.note_first(answer.first_tid);
            }
            (Some(Asked::Packs), Message::AnswerPackOrders(answer)) => {
                answer.orders.into_iter().for_each(|order| packs.add(order));
            }
            // From before the recovery.
            (_, Message::AnswerInformationLocked(_)) => return Ok(()),
            (Some(Asked::Recovery(_) | Asked::Table(_) | Asked::Known(_)), _) => return Ok(()),
            (Some(Asked::OldPacks(_) | Asked::Cut), _) => return Ok(()),
            (_, other) => return Err(Refusal::unexpected(&other)),
        }
        self.answer_counted(connection);
        Ok(())
    }

    fn answer_counted(&mut self, connection: ConnectionId) {
        if let Some(count) = self.waiting.get_mut(&connection) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&connection);
            }
        }
    }

    /// A storage does not answer any more.
    pub(crate) fn left(&mut self, connection: ConnectionId) {
        self.waiting.remove(&connection);
    }

    /// Whether storages have to answer.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Goes on when all have answered; `false` if that was the last step.
    pub(crate) fn advance(
        &mut self,
        cluster: &mut Cluster,
        links: &mut Links,
        (transactions, packs): (&mut Transactions, &mut Packs),
    ) -> bool {
        match self.step {
            Step::Locked => {
                self.step = Step::Outcomes;
                self.ask_outcomes(cluster, links);
            }
            Step::Outcomes => {
                self.step = Step::Metadata;
                for connection in self.validate(cluster, links, true) {
                    self.ask_and_wait(links, connection, Ping {}, Asked::Committed);
                }
            }
            Step::Metadata => {
                self.step = Step::LastIds;
                self.validate(cluster, links, false);
                // A storage that is to be cut is cut before it answers. Those without cells decide
                // nothing, and are not waited for.
                let nodes = cluster.table.nodes();
                for (node, storage) in cluster.members.identified(NodeType::Storage) {
                    if nodes.contains(&node) {
                        self.ask_and_wait(links, storage, AskLastIDs {}, Asked::LastIds);
                    } else {
                        links.ask(storage, AskLastIDs {}, Asked::Cut);
                    }
                }
            }
            Step::LastIds => {
                self.step = Step::Packs;
                let last_tid = self.said.values().map(|said| said.last_tid).max();
                cluster.last_tid = last_tid.unwrap_or_default();
                self.last_oid.into_iter().for_each(|oid| transactions.begin_after_oid(oid));
                transactions.begin_after(cluster.last_tid);
                // In a backup each cell is as far as its storage has fetched.
                if !self.is_backup {
                    self.old_copies = old_copies::outdate(cluster, links, &self.said);
                }
                self.ask_packs(cluster, links, packs);
            }
            Step::Packs => return false,
        }
        true
    }

    /// Whether storages have said their last ids: those that were to be cut are cut.
    pub(crate) fn knows_last_ids(&self) -> bool {
        self.step == Step::Packs
    }

    /// The older copies that lack what no other storage has.
    pub(crate) fn take_old_copies(&mut self) -> Option<OldCopies> {
        self.old_copies.take()
    }

    /// Some storages may have committed what others have only voted.
    fn ask_outcomes(&mut self, cluster: &Cluster, links: &mut Links) {
        let open = self.voted.iter().filter(|(ttid, _)| !self.tids.contains_key(ttid));
        let mut questions = Vec::new();
        for (ttid, voted) in open {
            let Some(partition) = cluster.table.partition_of_tid(*ttid) else { continue };
            let cells = cluster.table.row(partition).iter();
            let others = cells.filter(|cell| cell.is_readable() && !voted.contains(&cell.node));
            let connected = others.filter_map(|cell| cluster.members.connection_of(cell.node));
            questions.extend(connected.map(|connection| (connection, *ttid)));
        }
        for (connection, ttid) in questions {
            self.ask_and_wait(links, connection, AskFinalTID { ttid }, Asked::FinalTid(ttid));
        }
    }

    /// Has storages commit what others have locked or committed: those with the metadata, or those
    /// without. Gives their connections.
    fn validate(
        &self,
        cluster: &Cluster,
        links: &mut Links,
        has_metadata: bool,
    ) -> BTreeSet<ConnectionId> {
        let mut orders = Vec::new();
        for (ttid, tid) in &self.tids {
            let row =
                cluster.table.partition_of_tid(*ttid).map(|partition| cluster.table.row(partition));
            let is_holder =
                |node: NodeId| row.is_some_and(|row| row.iter().any(|cell| cell.node == node));
            let voted = self.voted.get(ttid).into_iter().flatten();
            let voted = voted.filter(|node| is_holder(**node) == has_metadata);
            let connected = voted.filter_map(|storage| cluster.members.connection_of(*storage));
            orders.extend(connected.map(|connection| (connection, *ttid, *tid)));
        }
        for (connection, ttid, tid) in &orders {
            info!(%ttid, %tid, storage = links.name_of(*connection), "committing a transaction");
            links.notify(*connection, ValidateTransaction { ttid: *ttid, tid: *tid });
        }
        orders.into_iter().map(|(connection, ..)| connection).collect()
    }

    fn ask_packs(&mut self, cluster: &Cluster, links: &mut Links, packs: &mut Packs) {
        let completed = packs::completed_by_all(cluster);
        completed.into_iter().for_each(|id| packs.note_completed(id));
        let id = completed.map_or(Tid::ZERO, Tid::next);
        for storage in readable_connections(cluster) {
            self.ask_and_wait(links, storage, AskPackOrders { id }, Asked::Packs);
        }
    }
}

/// The connections of storages with readable cells.
fn readable_connections(cluster: &Cluster) -> Vec<ConnectionId> {
    let nodes = cluster.table.readable_nodes();
    nodes.iter().filter_map(|node| cluster.members.connection_of(*node)).collect()
}
