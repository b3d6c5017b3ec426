//! Transactions that can be undone.

use zodium_neo::Message;
use zodium_neo::messages::{AskPackOrders, PackOrder};
use zodium_storage::{Read, StorageError, Transaction, Undo, UndoneRecord};
use zodium_types::{Oid, Tid, TransactionStatus};

use super::NeoStorage;
use super::cursor::transaction;
use super::tids::Tids;
use crate::NeoError;
use crate::reads::Loaded;

/// Whether a pack drops what was before a transaction. One that is not approved may be later.
fn may_drop(order: &PackOrder, oid: Oid, tid: Tid) -> bool {
    let is_meant = order.oids.as_ref().is_none_or(|oids| oids.0.contains(&oid));
    is_meant && order.tid >= tid && order.approved != Some(false)
}

impl NeoStorage {
    /// The packs that were ordered after a transaction.
    fn orders_since(&self, tid: Tid) -> Result<Vec<PackOrder>, NeoError> {
        let session = self.cluster.session(self.cluster.deadline())?;
        let asked = session.master.ask(AskPackOrders { id: tid }, |answer| match answer {
            Message::AnswerPackOrders(answer) => Some(answer.orders),
            _ => None,
        })?;
        asked.wait()
    }
}

impl Undo for NeoStorage {
    fn records_to_undo(&self, tid: Tid) -> Result<Vec<UndoneRecord>, StorageError> {
        let refused = |reason| Err(StorageError::NotUndoable { tid, reason });
        let reads = self.reads();
        let found = if tid > self.last_tid() { None } else { reads.transaction(tid)? };
        let Some(found) = found else { return refused("there is no such transaction") };
        if found.is_packed {
            return refused("it was packed");
        }
        let mut records = Vec::with_capacity(found.oids.len());
        let mut orders = None;
        for oid in found.oids {
            let Loaded::Found(_) = reads.load(oid, Some(tid), None)? else {
                return refused("it was packed");
            };
            let previous = match reads.load(oid, None, Some(tid))? {
                Loaded::Found(record) => Some(record.serial),
                // It may have been packed. An undo would delete the object then.
                Loaded::NotThen | Loaded::Never => {
                    let orders = match &orders {
                        Some(orders) => orders,
                        None => orders.insert(self.orders_since(tid)?),
                    };
                    if orders.iter().any(|order| may_drop(order, oid, tid)) {
                        return refused("it was packed");
                    }
                    None
                }
            };
            records.push(UndoneRecord { oid, previous });
        }
        Ok(records)
    }

    fn undo_log(&self, accept: &mut dyn FnMut(&Transaction) -> bool) -> Result<(), StorageError> {
        let reads = self.reads();
        let mut tids = Tids::new(&reads, (Tid::ZERO, self.last_tid()), true)?;
        while let Some(tid) = tids.peek(&reads)? {
            tids.take(tid);
            let Some(found) = reads.transaction(tid)? else { continue };
            let found = transaction(tid, found);
            if found.status != TransactionStatus::Normal || !accept(&found) {
                break;
            }
        }
        Ok(())
    }
}
