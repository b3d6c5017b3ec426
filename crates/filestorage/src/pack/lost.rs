//! The damaged records that a pack drops, if its options say so.
//!
//! Key decision: an object whose current record is lost is gone. An older revision in its place
//! might be inconsistent with other objects. A deletion takes the place of the lost record. So no
//! older revision becomes current, and no new object gets the oid. A client that has the object
//! can store it again over the same serial.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use zodium_types::{Oid, Tid};

use crate::FileStorageError;
use crate::format::DataHeader;
use crate::scan::{DataEntry, Scan, TransactionEntry};

/// A record that a pack has left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedRecord {
    /// Where it begins in the file from before.
    pub position: u64,
    /// Its object, if something that is sound names it: the index, or a later record.
    pub oid: Option<Oid>,
    /// The transaction that it stands in.
    pub tid: Tid,
    /// What is wrong with it.
    pub what: String,
    /// Whether it was the current record: the object is gone.
    pub is_current: bool,
}

/// A record that cannot be read.
#[derive(Debug)]
pub(super) struct LostRecord {
    pub(super) told: DroppedRecord,
    /// Where it ends.
    pub(super) end: u64,
    /// The record before it in the history of its object, 0 when there is none; `None` when that is
    /// not known.
    pub(super) previous: Option<u64>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Lost {
    records: BTreeMap<u64, LostRecord>,
    gone: FxHashSet<Oid>,
}

impl Lost {
    pub(super) fn new(records: BTreeMap<u64, LostRecord>) -> Lost {
        let current = records.values().filter(|lost| lost.told.is_current);
        let gone = current.filter_map(|lost| lost.told.oid).collect();
        Lost { records, gone }
    }

    pub(super) fn set_previous(&mut self, position: u64, previous: u64) {
        if let Some(lost) = self.records.get_mut(&position) {
            lost.previous = Some(previous);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// In the order of the file.
    pub(super) fn records(&self) -> impl Iterator<Item = &LostRecord> {
        self.records.values()
    }

    pub(super) fn count(&self) -> u64 {
        self.records.len() as u64
    }

    /// Objects that the packed file does not have any more.
    pub(super) fn gone(&self) -> &FxHashSet<Oid> {
        &self.gone
    }

    /// Visits the records of a transaction in file order, and the lost ones among them.
    pub(super) fn try_each<'s>(
        &self,
        scan: &mut Scan<'s>,
        transaction: &TransactionEntry,
        mut visit: impl FnMut(&mut Scan<'s>, Part<'_>) -> Result<(), FileStorageError>,
    ) -> Result<(), FileStorageError> {
        let mut position = transaction.records_start();
        while position < transaction.records_end() {
            if let Some(lost) = self.records.get(&position) {
                visit(scan, Part::Lost(lost))?;
                position = lost.end;
                continue;
            }
            let record = scan.record(position, transaction)?;
            scan.verify_record(&record)?;
            visit(scan, Part::Sound(&record))?;
            position += record.header.record_bytes();
        }
        Ok(())
    }
}

/// What stands in a transaction.
pub(super) enum Part<'a> {
    Sound(&'a DataEntry),
    Lost(&'a LostRecord),
}

impl LostRecord {
    /// The deletion that takes its place where the object has an older record in the packed file,
    /// or the lost one was current. Elsewhere nothing is needed.
    pub(super) fn deletion(&self, has_older: bool) -> Option<DataEntry> {
        let oid = self.told.oid.filter(|_| has_older || self.told.is_current)?;
        let header = DataHeader {
            oid,
            tid: self.told.tid,
            previous: 0,
            transaction: 0,
            version_length: 0,
            data_length: 0,
        };
        Some(DataEntry { position: self.told.position, header })
    }
}
