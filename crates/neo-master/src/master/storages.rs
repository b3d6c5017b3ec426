//! What storages say, and what their ends mean.

use tracing::{info, warn};
use zodium_neo::messages::AnswerUnfinishedTransactions;
use zodium_neo::{
    Checked, ClusterState, ConnectionId, Kind, Message, NodeId, NodeState, Partition, Request,
};
use zodium_types::Tid;

use super::Master;
use crate::handling::{Handled, Refusal};
use crate::identification::Newcomer;
use crate::peer::Asked;
use crate::{Phase, Stop};

impl Master {
    /// A storage introduces itself.
    pub(super) fn identify_storage(&mut self, newcomer: &Newcomer<'_>) -> Handled {
        if matches!(self.phase, Phase::Recovery) {
            self.recovery.make_way(&mut self.cluster, &mut self.links, newcomer.request.id);
            self.handle_lost();
        }
        let Master { cluster, links, recovery, backup, .. } = self;
        let (storage, state) = newcomer.join_as_storage(cluster, links)?;
        let connection = newcomer.from.connection;
        if matches!(self.phase, Phase::Recovery) {
            recovery.ask(links, connection);
            return Ok(());
        }
        links.notify(connection, cluster.table.message());
        cluster.ask_known_by(links, connection);
        if cluster.is_operating() && state == NodeState::Running {
            backup.start_storage(cluster, links, storage);
        }
        Ok(())
    }

    /// Handles a message of a storage.
    pub(super) fn storage_says(
        &mut self,
        from: Request,
        storage: NodeId,
        message: Message<'_>,
    ) -> Handled {
        if let Message::Error(error) = &message {
            let asked = self.links.answered(from);
            return self.storage_failed(from.connection, storage, asked, error.for_log());
        }
        if let Message::NotifyPackCompleted(completed) = &message {
            if let Some(node) = self.cluster.members.get_mut(storage) {
                node.completed_pack = Some(completed.id);
            }
            if self.cluster.is_operating() {
                self.packs.may_be_completed(&self.cluster, &mut self.links);
            }
            return Ok(());
        }
        let is_serving = matches!(self.phase, Phase::Service | Phase::Backup | Phase::Stopping);
        match message {
            Message::AnswerInformationLocked(answer) if is_serving => {
                if self.transactions.locked(storage, answer.ttid)? {
                    self.commit_locked();
                }
                Ok(())
            }
            message if message.kind() == Kind::Answer => {
                let asked = self.links.answered(from);
                self.storage_answers(from.connection, storage, asked, message)
            }
            message if is_serving => self.storage_serves(from, storage, message),
            // From before the recovery.
            Message::NotifyReady(_)
            | Message::NotifyReplicationDone(_)
            | Message::NotifyMonitorInformation(_)
            | Message::NotifyPartitionCorrupted(_) => Ok(()),
            message => self.any_says(from, &message),
        }
    }

    fn storage_answers(
        &mut self,
        connection: ConnectionId,
        storage: NodeId,
        asked: Option<Asked>,
        message: Message<'_>,
    ) -> Handled {
        match (&mut self.phase, asked, message) {
            (_, Some(Asked::Alive), Message::Pong(_)) => {
                self.troubles.answered(storage);
                Ok(())
            }
            (_, Some(Asked::OldPacks(number)), Message::AnswerPackOrders(answer)) => {
                let Master { cluster, links, packs, .. } = self;
                packs.old_orders_told(cluster, links, (storage, number), answer.orders);
                Ok(())
            }
            // In the recovery it is about a table from before.
            (phase, Some(Asked::Known(id)), Message::Pong(_)) => {
                if !matches!(phase, Phase::Recovery) {
                    self.cluster.table.known(storage, id);
                    if self.cluster.is_operating() {
                        self.drop_fed_cells();
                    }
                    self.commit_locked();
                }
                Ok(())
            }
            (Phase::Recovery, asked, message) => {
                let Master { cluster, links, recovery, troubles, .. } = self;
                recovery.told(cluster, links, troubles, (connection, storage), asked, message)
            }
            (Phase::Verification(verification), asked, message) => {
                let (transactions, packs) = (&mut self.transactions, &mut self.packs);
                verification.told(transactions, packs, (connection, storage), asked, message)
            }
            // Answers to what was asked in the phase before.
            (_, Some(_), _) => Ok(()),
            (_, None, other) => Err(Refusal::unexpected(&other)),
        }
    }

    /// A storage has answered with an error. It cannot do what the cluster needs: it is cut off.
    fn storage_failed(
        &mut self,
        connection: ConnectionId,
        storage: NodeId,
        asked: Option<Asked>,
        reason: &str,
    ) -> Handled {
        if self.cluster.refused.note(storage, reason) {
            warn!(%storage, ?asked, reason, "a storage cannot answer, closing the connection");
        }
        self.close(connection);
        Ok(())
    }

    fn storage_serves(&mut self, from: Request, storage: NodeId, message: Message<'_>) -> Handled {
        match message {
            Message::NotifyReady(_) => self.storage_ready(storage),
            Message::AskUnfinishedTransactions(question) => {
                let ttids = self.transactions.notify_storage(storage);
                let max_tid = self.backup.common_tid(&self.cluster.table);
                let max_tid = max_tid.unwrap_or(self.cluster.last_tid);
                let answer = AnswerUnfinishedTransactions { max_tid, ttids };
                self.links.answer(from, answer);
                self.cluster.table.set_updatable(storage, &question.partitions);
            }
            Message::NotifyReplicationDone(done) => {
                let cell = (done.partition, storage);
                let Master { cluster, links, backup, .. } = &mut *self;
                backup.replicated(cluster, links, cell, done.tid);
                let Some(changes) = self.cluster.table.set_up_to_date(done.partition, storage)
                else {
                    return Err(Refusal::protocol("Non-assigned partition"));
                };
                if changes.is_empty() && !self.backup.is_there() {
                    let partition = done.partition;
                    info!(%storage, %partition, "ignoring a late end of a replication");
                }
                self.cluster.tell_cells(&mut self.links, changes, false);
                let Master { cluster, links, backup, .. } = self;
                backup.order(cluster, links, [done.partition].into_iter());
            }
            Message::NotifyPartitionCorrupted(message) => {
                self.corrupted(message.partition, &message.nodes);
            }
            Message::NotifyMonitorInformation(message) => {
                if let Some(checked) = Checked::read(&message) {
                    self.troubles.same(&self.cluster, &checked);
                }
            }
            Message::AskPackOrders(question) => {
                self.packs.tell_orders(&self.cluster, &mut self.links, from, question.id, true);
            }
            other => return self.any_says(from, &other),
        }
        Ok(())
    }

    /// Drops the cells that fed others, and had to stay until storages have the table.
    pub(super) fn drop_fed_cells(&mut self) {
        let changes = self.cluster.table.drop_all_fed();
        if !changes.is_empty() {
            self.cluster.tell_cells(&mut self.links, changes, false);
            self.order_all();
        }
    }

    /// A check has found a difference: an operator decides what is done. Or, without cells: a
    /// storage has a transaction that the upstream cluster lacks.
    fn corrupted(&mut self, partition: Partition, nodes: &[NodeId]) {
        if nodes.is_empty() {
            if self.cluster.state() == ClusterState::BackingUp {
                warn!(%partition, "the upstream cluster lacks a transaction of this backup, \
                    leaving backup mode: it was truncated, or an older copy was put back");
                self.leave_backup(None);
            }
            return;
        }
        self.troubles.differ(partition, nodes);
    }

    /// A storage does not answer any more, if it has been asked in the verification.
    pub(super) fn left_verification(&mut self, connection: ConnectionId) {
        if let Phase::Verification(verification) = &mut self.phase {
            verification.left(connection);
        }
    }

    /// The connection of a storage has ended.
    pub(super) fn storage_left(&mut self, connection: ConnectionId, storage: NodeId) {
        self.left_verification(connection);
        // Also of one that an operator has ended, whose connection is no longer the node's.
        self.troubles.storage_left(storage);
        let Some(node) = self.cluster.members.get_mut(storage) else { return };
        if node.connection != Some(connection) {
            return;
        }
        node.connection = None;
        if matches!(self.phase, Phase::Recovery) {
            let Master { cluster, links, recovery, .. } = self;
            return recovery.storage_left(cluster, links, storage);
        }
        let is_again = self.cluster.refused.has_again(storage);
        match node.state {
            // An operator has stopped it.
            NodeState::Down => return,
            NodeState::Pending => {
                if !is_again {
                    info!(%storage, "a pending storage has left");
                }
                node.state = NodeState::Unknown;
                self.cluster.tell_node(&mut self.links, storage);
                self.cluster.members.remove(storage);
            }
            NodeState::Running | NodeState::Unknown => {
                if !is_again {
                    warn!(%storage, "a storage has left");
                }
                node.state = NodeState::Down;
                self.cluster.tell_node(&mut self.links, storage);
            }
        }
        let is_new = matches!(self.phase, Phase::Verification(_)) && self.cluster.table.is_unused();
        if self.recovery.truncate_tid().is_some() || is_new {
            self.stops = Some(Stop::NotOperational);
            return;
        }
        let members = &self.cluster.members;
        if !self.backup.is_there() && !self.cluster.table.can_settle(|id| members.is_running(id)) {
            // Its cells stay: no start does without it.
            self.stops = Some(Stop::Unsettled);
            return;
        }
        let changes = self.cluster.table.outdate(Some(storage), |id| members.is_running(id));
        self.cluster.tell_cells(&mut self.links, changes, false);
        if !self.cluster.is_operational() {
            // No transaction is committed without it any more.
            self.stops = Some(Stop::NotOperational);
            return;
        }
        self.storage_gone(connection, storage);
    }

    /// A storage operates.
    pub(super) fn storage_ready(&mut self, storage: NodeId) {
        if !self.cluster.readiness.set_ready(storage) {
            return;
        }
        self.packs.tell_signed_to(&self.cluster, &mut self.links, storage, Tid::ZERO);
        self.retry_delayed();
        self.order_all();
    }

    /// A storage does not take part any more. The table says so already.
    pub(super) fn storage_gone(&mut self, connection: ConnectionId, storage: NodeId) {
        self.cluster.readiness.remove(storage);
        self.transactions.storage_left(storage);
        self.commit_locked();
        self.packs.left(&self.cluster, &mut self.links, connection);
        self.packs.may_be_completed(&self.cluster, &mut self.links);
        self.retry_delayed();
        self.order_all();
    }
}
