//! The master's questions before the cluster runs, and its orders for the database.
//!
//! All of them go to the database in the order of their arrival, also those that only read: a
//! question after an order sees its effect.

use std::collections::BTreeMap;

use tracing::info;
use zodium_neo::messages::{
    AnswerFinalTID, AnswerLastIDs, AnswerLockedTransactions, AnswerPackOrders,
    AnswerPartitionTable, AnswerRecovery, NotifyPackCompleted, PackOrder,
};
use zodium_neo::{ErrorCode, Map, Message, Partition, PartitionTable};
use zodium_types::Tid;

use crate::database::PackRow;
use crate::handling::{Handled, Refusal};
use crate::{ConnectionId, Node};

impl Node {
    /// Handles what the master asks of the database.
    pub(super) fn primary_asks(
        &mut self,
        connection: ConnectionId,
        id: u32,
        message: Message<'_>,
    ) -> Handled {
        match message {
            Message::AskRecovery(_) => self.recovery_asked(connection, id),
            Message::AskPartitionTable(_) => return self.table_asked(connection, id),
            Message::AskLockedTransactions(_) => self.locked_asked(connection, id),
            Message::AskFinalTID(message) => self.final_tid_asked(connection, id, message.ttid),
            Message::ValidateTransaction(message) => self.validate(message.ttid, message.tid),
            Message::AskLastIDs(_) => self.last_ids_asked(connection, id),
            Message::AskPackOrders(message) => self.pack_orders_asked(connection, id, message.id),
            Message::Truncate(message) => self.truncation_ordered(message.tid),
            Message::NotifyRepair(message) => self.repair(message.dry_run),
            other => return self.primary_operates(connection, id, other),
        }
        Ok(())
    }

    fn recovery_asked(&mut self, connection: ConnectionId, id: u32) {
        let table = self.table.as_ref().map(PartitionTable::id);
        self.write(
            |database| database.pending(),
            move |node, (backup_tid, truncate_tid)| {
                node.answer(connection, id, AnswerRecovery { table, backup_tid, truncate_tid });
            },
        );
    }

    fn table_asked(&mut self, connection: ConnectionId, id: u32) -> Handled {
        let Some(table) = &self.table else {
            let text = "this node has no partition table";
            return Err(Refusal::answer(ErrorCode::NotReady, text));
        };
        let answer = AnswerPartitionTable {
            table: table.id(),
            replicas: table.replicas(),
            rows: table.rows().to_vec(),
        };
        self.when_written(move |node| node.answer(connection, id, answer));
        Ok(())
    }

    fn locked_asked(&mut self, connection: ConnectionId, id: u32) {
        self.write(
            |database| database.unfinished(),
            move |node, mut found: BTreeMap<Tid, Option<Tid>>| {
                for (ttid, tid) in &mut found {
                    // A cell of the metadata that lacks data decides nothing: the one that has all
                    // data may have lost the transaction before its lock.
                    tid.take_if(|_| node.readable_partition_of_tid(*ttid).is_err());
                }
                let transactions = Map::from_iter(found);
                node.answer(connection, id, AnswerLockedTransactions { transactions });
            },
        );
    }

    fn final_tid_asked(&mut self, connection: ConnectionId, id: u32, ttid: Tid) {
        self.write(
            move |database| database.reads().final_tid(ttid),
            move |node, tid| node.answer(connection, id, AnswerFinalTID { tid }),
        );
    }

    /// Commits a transaction that was voted, and perhaps locked, before a crash.
    fn validate(&mut self, ttid: Tid, tid: Tid) {
        info!(%ttid, %tid, "committing a transaction that was left unfinished");
        self.write(
            move |database| {
                database.lock(ttid, tid, true)?;
                database.unlock(ttid, tid)
            },
            |_, ()| {},
        );
    }

    fn last_ids_asked(&mut self, connection: ConnectionId, id: u32) {
        let Some(own) = self.id else { return };
        let (readable, packs) = (self.readable(), self.settings.packs);
        self.write(
            move |database| {
                if let (_, Some(tid)) = database.pending()? {
                    info!(after = %tid, "truncating the database");
                    database.truncate(own, tid)?;
                }
                let cells = if packs { database.cells(own)? } else { Vec::new() };
                let packed = cells.iter().map(|cell| cell.packed).min();
                Ok((database.last_ids(&readable)?, packed))
            },
            move |node, (last, packed)| {
                if let Some(id) = packed {
                    node.packing.note_completed(id);
                    node.notify(connection, NotifyPackCompleted { id });
                }
                let first_tid = last.first_tid.unwrap_or(Tid::MAX);
                let answer = AnswerLastIDs { last_tid: last.tid, last_oid: last.oid, first_tid };
                node.answer(connection, id, answer);
            },
        );
    }

    fn pack_orders_asked(&mut self, connection: ConnectionId, id: u32, from: Tid) {
        let readable = self.readable();
        self.write(
            move |database| database.reads().pack_orders(from, &readable),
            move |node, rows| {
                let orders = rows.into_iter().map(order_of).collect();
                node.answer(connection, id, AnswerPackOrders { orders });
            },
        );
    }

    fn truncation_ordered(&mut self, tid: Tid) {
        self.write(
            move |database| {
                database.set_backup_tid(None)?;
                database.set_truncate_tid(Some(tid))
            },
            |_, ()| {},
        );
    }

    fn repair(&mut self, dry_run: bool) {
        self.write(
            move |database| database.prune_orphans(dry_run),
            move |_, count| info!(count, dry_run, "looked for data that no record refers to"),
        );
    }

    /// The partitions that this node serves reads of.
    pub(crate) fn readable(&self) -> Vec<Partition> {
        let (Some(table), Some(id)) = (&self.table, self.id) else { return Vec::new() };
        let readable = table.cells_of(id).filter(|(_, state)| state.is_readable());
        readable.map(|(partition, _)| partition).collect()
    }
}

/// An order as the protocol says it.
fn order_of(row: PackRow) -> PackOrder {
    let PackRow { id, approved, oids, until } = row;
    let partial = oids.is_some();
    PackOrder { id, approved, partial, oids: oids.map(zodium_neo::messages::OidList), tid: until }
}
