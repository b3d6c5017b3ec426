//! The beginning and the end of operation, and what the master says during it.

use tracing::info;
use zodium_neo::Message;
use zodium_neo::messages::NotifyReady;
use zodium_types::Tid;

use super::unexpected;
use crate::database::CellProgress;
use crate::handling::Handled;
use crate::phase::Phase;
use crate::{ConnectionId, Node};

impl Node {
    /// Handles what the master says while, or before, the cluster runs.
    pub(super) fn primary_operates(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::StartOperation(message) => self.start_operation(message.backup),
            Message::StopOperation(_) => self.stop_operation(),
            Message::NotifyPackSigned(message) => {
                self.packs_signed(message.approved, message.rejected);
            }
            other if self.phase != Phase::Operating => return self.too_early(&other),
            Message::AskLockInformation(message) => {
                return self.lock_asked((connection, id), &message);
            }
            Message::NotifyUnlockInformation(message) => return self.unlock(message.ttid),
            Message::AbortTransaction(message) => self.end_unfinished(message.ttid, None),
            Message::NotifyTransactionFinished(message) => {
                self.end_unfinished(message.ttid, Some(message.max_tid));
            }
            Message::AnswerUnfinishedTransactions(message) => {
                let asked = self.answered(connection, id);
                self.unfinished_told(asked, message.max_tid, &message.ttids);
            }
            Message::AnswerPackOrders(message) => {
                let asked = self.answered(connection, id);
                self.pack_orders_told(asked, message.orders);
            }
            Message::Replicate(message) => return self.replicate_for_backup(&message),
            Message::CheckPartition(message) => self.check_ordered(&message),
            other => return Err(unexpected(&other)),
        }
        Ok(())
    }

    /// Messages of an operation that has ended here already are of no use.
    fn too_early(&self, message: &Message<'_>) -> Handled {
        match message {
            Message::AbortTransaction(_)
            | Message::NotifyTransactionFinished(_)
            | Message::NotifyUnlockInformation(_)
            | Message::AnswerUnfinishedTransactions(_)
            | Message::AnswerPackOrders(_) => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    fn start_operation(&mut self, backup: bool) {
        let Some(own) = self.id else { return };
        let readable = self.readable();
        if self.phase == Phase::Recovering {
            self.phase = Phase::Starting;
        }
        let is_first = self.phase == Phase::Starting;
        self.write(
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
                node.has_room = has_room;
                node.backup_tid = backup_tid;
                if is_first {
                    node.operate(&cells);
                } else {
                    node.enter_backup(&cells);
                }
            },
        );
    }

    fn operate(&mut self, cells: &[CellProgress]) {
        info!("operating");
        self.phase = Phase::Operating;
        self.notify_master(NotifyReady {});
        self.begin_replication(cells);
        self.identify_waiting();
        self.look_for_packs();
    }

    fn stop_operation(&mut self) {
        info!("the master has stopped the operation of the cluster");
        self.end_operation(Phase::Recovering);
        self.backup_tid = None;
    }

    /// A transaction is over, in which this node may have no part.
    fn end_unfinished(&mut self, ttid: Tid, max_tid: Option<Tid>) {
        self.transactions.note_end(ttid);
        self.abort(ttid);
        self.transaction_finished(ttid, max_tid);
    }
}
