//! What a real master decides, as its messages show it.
//!
//! It is the truth that clients, storages and other masters are compared with: a transaction is
//! committed when the primary master tells a client or a storage so.

use zodium_neo::messages::{NotifyPartitionChanges, SendPartitionTable};
use zodium_neo::{CellState, ClusterState, Message, Packet, PartitionTable};
use zodium_types::Tid;

use crate::neo::context::Context;

/// What a master has decided.
pub(super) struct Watch {
    place: usize,
    table: Option<PartitionTable>,
    /// Clients are served.
    serves: bool,
}

impl Watch {
    pub(super) fn new(place: usize) -> Watch {
        Watch { place, table: None, serves: false }
    }

    /// The cluster does not run any more, as far as the master knows.
    pub(super) fn stops(&mut self) {
        self.serves = false;
    }

    /// The partition table, while clients are served.
    pub(super) fn table(&self) -> Option<&PartitionTable> {
        self.table.as_ref().filter(|_| self.serves)
    }

    /// Whether all cells are.
    pub(super) fn is_up_to_date(&self) -> bool {
        let rows = self.table.as_ref().map(PartitionTable::rows).unwrap_or_default();
        rows.iter().flatten().all(|cell| cell.state == CellState::UpToDate)
    }

    /// The master is told something.
    pub(super) fn hears(&mut self, context: &mut Context, message: &Message<'_>) {
        if let Message::NotifyPartitionCorrupted(message) = message {
            let (partition, nodes) = (message.partition, &message.nodes);
            context.violate(format!("copies of partition {partition} differ: {nodes:?}"));
        }
    }

    /// The master sends something.
    pub(super) fn sends(&mut self, context: &mut Context, packet: &Packet<'_>) {
        match &packet.message {
            Message::NotifyClusterInformation(message) => {
                let serves = message.state == ClusterState::Running;
                if serves && !self.serves {
                    context.event("serve", &[self.place as u64]);
                    context.started = Some(self.place);
                }
                self.serves = serves;
            }
            Message::SendPartitionTable(message) => self.table_sent(context, message),
            Message::NotifyPartitionChanges(message) => self.table_changed(context, message),
            Message::Truncate(message) if context.history.order_cut(message.tid) => {
                context.event("truncate", &[message.tid.0]);
            }
            Message::AnswerBeginTransaction(message) => {
                let given = context.history.give(message.ttid);
                given.unwrap_or_else(|error| context.violate(error));
            }
            Message::AskLockInformation(message) => {
                context.history.ask(message.ttid, message.tid);
            }
            Message::AnswerTransactionFinished(message) => {
                self.commits(context, message.ttid, Some(message.tid));
            }
            Message::NotifyUnlockInformation(message) => self.commits(context, message.ttid, None),
            Message::InvalidateObjects(message) => {
                if let Some(ttid) = context.history.asked_with(message.tid) {
                    self.commits(context, ttid, Some(message.tid));
                }
            }
            _ => {}
        }
    }

    fn commits(&self, context: &mut Context, ttid: Tid, tid: Option<Tid>) {
        match context.history.decide(ttid, tid) {
            Ok(true) => {
                let packs =
                    context.history.last_tid() == context.history.last_pack().unwrap_or_default();
                context.counts.packs += u64::from(packs);
                context.event("commit", &[ttid.0, context.history.last_tid().0]);
            }
            Ok(false) => {}
            Err(error) => context.violate(format!("master {}: {error}", self.place)),
        }
    }

    fn table_sent(&mut self, context: &mut Context, message: &SendPartitionTable) {
        match PartitionTable::from_message(message.clone()) {
            Ok(table) => self.table = table,
            Err(error) => context.violate(error.to_string()),
        }
    }

    fn table_changed(&mut self, context: &mut Context, message: &NotifyPartitionChanges) {
        let Some(table) = self.table.as_mut().filter(|table| table.id() < message.table) else {
            return;
        };
        let is_new = |state: CellState| state == CellState::UpToDate;
        let replicated = message.changes.iter().filter(|change| is_new(change.state)).count();
        context.counts.replicated += replicated as u64;
        if let Err(error) = table.apply(message) {
            context.violate(format!("master {}: {error}", self.place));
        }
    }
}
