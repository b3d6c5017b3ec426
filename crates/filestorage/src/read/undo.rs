//! Finds transactions that can be undone, and their records.

use rustc_hash::FxHashSet;
use zodium_storage::{Transaction, UndoneRecord};
use zodium_types::{Tid, TransactionStatus};

use super::iterate::{self, step_scan};
use super::reader::Reader;
use crate::FileStorageError;
use crate::reading::Reading;
use crate::scan::Step;

impl Reader {
    /// The records of transaction `tid`, for an undo.
    pub fn records_to_undo(&self, tid: Tid) -> Result<Vec<UndoneRecord>, FileStorageError> {
        let refused = |reason| Err(FileStorageError::NotUndoable { tid, reason });
        let log = self.log();
        let position = match log.find_transaction(tid)? {
            Some(entry) => entry.position,
            // What is there instead tells why.
            None => log.first_at_or_after(tid)?,
        };
        let mut scan = step_scan(&log);
        let Step::Transaction(entry) = scan.transaction(position)? else {
            return refused("there is no such transaction");
        };
        match entry.status() {
            Some(TransactionStatus::Packed) => return refused("it was packed"),
            _ if entry.tid() != tid => return refused("there is no such transaction"),
            Some(TransactionStatus::Undone) => return refused("it was undone"),
            Some(TransactionStatus::Normal) | None => {}
        }
        let (mut records, mut seen) = (Vec::new(), FxHashSet::default());
        scan.each_record(&entry, |record| {
            let header = &record.header;
            // Records of one object in a transaction have the same previous revision.
            if seen.insert(header.oid) {
                records.push((header.oid, header.previous));
            }
        })?;
        let previous = |(oid, position)| {
            let link = match position {
                0 => None,
                _ => log.link(position, oid, Reading::Blocking)?,
            };
            Ok(UndoneRecord { oid, previous: link.map(|link| link.tid) })
        };
        records.into_iter().map(previous).collect()
    }

    /// Passes transactions that can be undone to `accept`, newest first, until it returns false.
    pub fn undo_log(
        &self,
        mut accept: impl FnMut(&Transaction) -> bool,
    ) -> Result<(), FileStorageError> {
        let log = self.log();
        let mut scan = step_scan(&log);
        let mut end = scan.end();
        while let Some(entry) = scan.transaction_before(end)? {
            match entry.status() {
                Some(TransactionStatus::Normal) => {
                    if !accept(&iterate::transaction(&mut scan, &entry)?) {
                        break;
                    }
                }
                Some(TransactionStatus::Packed) => break,
                Some(TransactionStatus::Undone) | None => {}
            }
            end = entry.position;
        }
        Ok(())
    }
}
