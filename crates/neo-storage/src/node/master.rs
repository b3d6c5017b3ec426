//! What masters say, and the beginning and the end of operation.

use tracing::{info, warn};
use zodium_neo::messages::{
    NotifyNodeInformation, NotifyPartitionChanges, NotifyReady, Pong, SendPartitionTable,
};
use zodium_neo::{
    Address, ClusterState, ErrorCode, Message, NodeId, NodeState, NodeType, Partition, has_checks,
};
use zodium_types::Tid;

use super::Node;
use crate::ConnectionId;
use crate::database::{CellProgress, TableChange};
use crate::handling::{Handled, Refusal};
use crate::links::{Asked, Exit, Role};
use crate::master::recovery;
use crate::phase::Phase;

impl Node {
    /// Handles a message of a master that has not accepted this node.
    pub(super) fn candidate_says(
        &mut self,
        connection: ConnectionId,
        message: &Message<'_>,
    ) -> Handled {
        let Some(id) = self.search.candidate_says(&mut self.links, connection, message)? else {
            return Ok(());
        };
        self.cluster.begin_recovery();
        self.cluster.set_id(Some(id));
        self.save_id();
        Ok(())
    }

    fn save_id(&mut self) {
        if let Some(id) = self.cluster.id_to_save() {
            self.links.write(move |database| database.set_node(id), |_, ()| {});
        }
    }

    /// Handles a message of the primary master.
    pub(super) fn primary_says(
        &mut self,
        from: (ConnectionId, u32),
        message: Message<'_>,
    ) -> Handled {
        let (connection, id) = from;
        match message {
            Message::Ping(_) => {
                // The master asks whether this node has the table. A later start must find it.
                self.links.when_written(move |node| node.links.answer((connection, id), Pong {}));
                Ok(())
            }
            Message::NotifyNodeInformation(message) => self.nodes_told(message),
            Message::NotifyClusterInformation(message) => {
                self.cluster_state_told(message.state);
                Ok(())
            }
            Message::NotPrimaryMaster(message) => {
                self.search.not_primary(&message);
                self.links.close(connection);
                Ok(())
            }
            Message::SendPartitionTable(message) => self.table_told(message),
            Message::NotifyPartitionChanges(message) => self.table_changed(&message),
            Message::Error(error) => {
                let (code, reason) = (error.code, error.for_log());
                warn!(%code, reason, "the master refused a request");
                if code == ErrorCode::ProtocolError {
                    self.search.disagree();
                }
                self.links.answered((connection, id));
                Ok(())
            }
            Message::FlushLog(_) => Ok(()),
            other => self.primary_asks(from, other),
        }
    }

    /// Handles what the master asks of the database.
    fn primary_asks(&mut self, from: (ConnectionId, u32), message: Message<'_>) -> Handled {
        let (links, cluster) = (&mut self.links, &self.cluster);
        match message {
            Message::AskRecovery(_) => recovery::recovery_asked(links, cluster, from),
            Message::AskPartitionTable(_) => return recovery::table_asked(links, cluster, from),
            Message::AskLockedTransactions(_) => recovery::locked_asked(links, from),
            Message::AskFinalTID(message) => recovery::final_tid_asked(links, from, message.ttid),
            Message::ValidateTransaction(message) => {
                recovery::validate(links, message.ttid, message.tid);
            }
            Message::AskLastIDs(_) => recovery::last_ids_asked(links, cluster, from),
            Message::AskPackOrders(message) => {
                recovery::pack_orders_asked(links, cluster, from, message.id);
            }
            Message::Truncate(message) => recovery::truncation_ordered(links, message.tid),
            Message::NotifyRepair(message) => recovery::repair(links, message.dry_run),
            other => return self.primary_operates(from, other),
        }
        Ok(())
    }

    /// Handles what the master says while, or before, the cluster runs.
    fn primary_operates(&mut self, from: (ConnectionId, u32), message: Message<'_>) -> Handled {
        match message {
            Message::StartOperation(message) => self.start_operation(message.backup),
            Message::StopOperation(_) => self.stop_operation(),
            Message::NotifyPackSigned(message) => {
                let Node { links, cluster, packing, .. } = self;
                packing.packs_signed(links, cluster, message.approved, message.rejected);
            }
            Message::NotifyMonitorInformation(message) => {
                if has_checks(&message.information) {
                    self.checking.tell_master();
                }
            }
            other if self.cluster.phase() != Phase::Operating => return too_early(&other),
            Message::AskLockInformation(message) => {
                return self.commits.lock_asked(&mut self.links, from, &message);
            }
            Message::NotifyUnlockInformation(message) => {
                if self.commits.unlock(&mut self.links, message.ttid)? {
                    self.unlocked(message.ttid);
                }
            }
            Message::AbortTransaction(message) => self.end_unfinished(message.ttid, None),
            Message::NotifyTransactionFinished(message) => {
                self.end_unfinished(message.ttid, Some(message.max_tid));
            }
            Message::AnswerUnfinishedTransactions(message) => {
                if let Some(Asked::Unfinished(question)) = self.links.answered(from) {
                    self.unfinished_told(question, message.max_tid, &message.ttids);
                }
            }
            Message::AnswerPackOrders(message) => {
                let Node { links, cluster, packing, .. } = self;
                if let Some(Asked::PackOrders(after)) = links.answered(from) {
                    packing.orders_told(links, cluster, after, message.orders);
                }
            }
            Message::Replicate(message) => self.replicate_for_backup(&message),
            Message::CheckPartition(message) => {
                self.checking.order(&message);
                self.check_next();
            }
            other => return Err(Refusal::unexpected(&other)),
        }
        Ok(())
    }

    fn nodes_told(&mut self, message: NotifyNodeInformation) -> Handled {
        let NotifyNodeInformation { timestamp, nodes } = message;
        self.cluster.note_nodes(timestamp, &nodes);
        for node in nodes {
            if let (NodeType::Master, Some(address)) = (node.node_type, &node.address) {
                self.search.note(address, node.state);
            }
            let Some(id) = node.id else { continue };
            if Some(id) == self.cluster.id() {
                match node.state {
                    NodeState::Down => self.links.exit(Exit::Stopped),
                    NodeState::Unknown => self.links.exit(Exit::Erase),
                    NodeState::Running | NodeState::Pending => {}
                }
            } else if node.node_type == NodeType::Client && node.state != NodeState::Running {
                // The client does not come back under this id: its votes are worth nothing.
                self.abort_for(id);
            }
            if matches!(node.state, NodeState::Down | NodeState::Unknown) {
                // It may hang, so that its connections do not end by themselves.
                self.close_connections_of(id, node.address.as_ref());
            }
        }
        self.identify_waiting();
        self.replicate_next();
        self.packing.resume(&mut self.links, &self.cluster);
        Ok(())
    }

    fn close_connections_of(&mut self, id: NodeId, address: Option<&Address>) {
        let is_its = |role: &Role| match role {
            Role::Client { node } => *node == id,
            Role::Storage { node } => *node == Some(id),
            Role::Source { address: at, .. } => Some(at) == address,
            _ => false,
        };
        for connection in self.links.with(is_its) {
            self.links.close(connection);
            self.note_closed();
        }
    }

    /// Looks at the waiting requests for identification again.
    fn identify_waiting(&mut self) {
        for waiting in self.identification.take_waiting() {
            let (connection, id) = waiting.from();
            let Node { links, cluster, identification, .. } = self;
            if let Err(refusal) = identification.identify(links, cluster, waiting) {
                links.refuse((connection, id), "RequestIdentification", &refusal);
                self.note_closed();
            }
        }
    }

    fn cluster_state_told(&mut self, state: ClusterState) {
        info!(%state, "the state of the cluster");
        if state == ClusterState::StoppingBackup {
            self.replication.stop_backup();
            self.replicate_next();
        }
    }

    fn table_told(&mut self, message: SendPartitionTable) -> Handled {
        self.cluster.set_table(message).inspect_err(|_| self.search.disagree())?;
        self.save_id();
        self.save_table(None);
        Ok(())
    }

    fn table_changed(&mut self, message: &NotifyPartitionChanges) -> Handled {
        self.cluster.change_table(message)?;
        let changed = message.changes.iter().map(|change| change.partition).collect();
        self.save_table(Some(changed));
        if self.cluster.phase() == Phase::Operating {
            self.cells_changed(&message.changes);
        }
        Ok(())
    }

    fn save_table(&mut self, changed: Option<Vec<Partition>>) {
        let Some((table, node)) = self.cluster.own_table() else { return };
        let (backup_tid, last_pack) = (self.cluster.backup_tid(), self.packing.last());
        // Without cells it has no part in the cluster. What it was told when it had some would be
        // taken for the state of the cluster at a later start.
        let is_outside = changed.is_none() && table.cells_of(node).next().is_none();
        let change = TableChange { table: table.clone(), node, backup_tid, last_pack, changed };
        self.links.write(
            move |database| {
                database.set_table(&change)?;
                if is_outside {
                    database.set_backup_tid(None)?;
                    database.set_truncate_tid(None)?;
                }
                Ok(())
            },
            |_, ()| {},
        );
    }

    fn start_operation(&mut self, backup: bool) {
        let Some(own) = self.cluster.id() else { return };
        let readable = self.cluster.readable();
        if self.cluster.phase() == Phase::Recovering {
            self.cluster.set_phase(Phase::Starting);
        }
        let is_first = self.cluster.phase() == Phase::Starting;
        self.links.write(
            move |database| {
                let (saved, truncate) = database.pending()?;
                if let Some(after) = truncate {
                    // The node was away when the cluster was truncated, or the cluster was not.
                    // What its cells lack then, which are all out of date, they fetch.
                    info!(%after, "truncating the database, as was ordered before");
                    database.truncate(own, after)?;
                }
                let tid = match (backup, saved) {
                    (false, _) => None,
                    (true, Some(tid)) => Some(tid),
                    (true, None) => Some(database.last_ids(&readable)?.tid.unwrap_or(Tid::ZERO)),
                };
                if tid != saved {
                    database.set_backup_tid(tid)?;
                }
                if is_first {
                    database.drop_unfinished(None)?;
                }
                Ok((tid, database.cells(own)?, database.has_room()))
            },
            move |node, (backup_tid, cells, has_room)| {
                node.commits.note_room(has_room);
                node.cluster.set_backup_tid(backup_tid);
                if is_first {
                    node.operate(&cells);
                } else {
                    node.replication.enter_backup(&node.cluster, &cells);
                }
            },
        );
    }

    fn operate(&mut self, cells: &[CellProgress]) {
        info!("operating");
        self.cluster.set_phase(Phase::Operating);
        self.links.notify_master(NotifyReady {});
        self.begin_replication(cells);
        self.identify_waiting();
        self.packing.look(&mut self.links, &self.cluster);
    }

    fn stop_operation(&mut self) {
        info!("the master has stopped the operation of the cluster");
        self.end_operation(Phase::Recovering);
        self.cluster.set_backup_tid(None);
    }

    /// A transaction is over, in which this node may have no part.
    fn end_unfinished(&mut self, ttid: Tid, max_tid: Option<Tid>) {
        self.commits.note_end(ttid);
        self.abort(ttid);
        self.transaction_finished(ttid, max_tid);
    }
}

/// Messages of an operation that has ended here already are of no use.
fn too_early(message: &Message<'_>) -> Handled {
    match message {
        Message::AbortTransaction(_)
        | Message::NotifyTransactionFinished(_)
        | Message::NotifyUnlockInformation(_)
        | Message::AnswerUnfinishedTransactions(_)
        | Message::AnswerPackOrders(_) => Ok(()),
        other => Err(Refusal::unexpected(other)),
    }
}
