//! Walks through a file that may be damaged. Every byte of it is in one piece, a transaction or a
//! gap, which has a list of its damage.
//!
//! Key decision: the redundancy of the format decides. A transaction is one if its two lengths
//! agree, whatever is wrong inside. Otherwise the walk continues at the next whole transaction, and
//! the bytes between are a gap.

use std::path::Path;
use std::sync::Arc;

use zodium_disk::DiskFile;
use zodium_types::{Tid, TransactionStatus};

use super::entries::{DataEntry, TransactionEntry};
use super::resync::{Resync, next_record};
use super::tail::Tail;
use super::window::{WALK_BYTES, Window};
use crate::format::{
    DATA_HEADER_BYTES, Damage, DamageKind, DataHeader, MAGIC_BYTES, POINTER_BYTES,
    STATUS_CHECKPOINT, TRANSACTION_HEADER_BYTES, TransactionHeader,
};

/// A piece of the file.
pub(crate) struct Piece {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// `None` for a gap.
    pub(crate) transaction: Option<TransactionEntry>,
    /// The tid of the piece: that of its records if all have the same one and the header another,
    /// else the header's.
    pub(crate) tid: Option<Tid>,
    /// The records that were recognised.
    pub(crate) records: Vec<SeenRecord>,
    pub(crate) damage: Vec<Damage>,
}

/// A record of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenRecord {
    pub(crate) entry: DataEntry,
    /// Its back pointer, 0 for a deletion; `None` if it has data.
    pub(crate) back: Option<u64>,
}

impl Piece {
    /// Whether the piece is a transaction without losses.
    pub(crate) fn is_whole(&self) -> bool {
        self.transaction.is_some() && self.damage.iter().all(|damage| damage.kind.is_mendable())
    }

    pub(crate) fn status(&self) -> Option<TransactionStatus> {
        self.transaction.and_then(|entry| entry.status())
    }
}

/// Iterates over the pieces of a file.
pub(crate) struct Walk {
    pub(crate) window: Window,
    resync: Resync,
    position: u64,
    last_tid: Tid,
}

impl Walk {
    /// A walk through the first bytes of a file, up to `end`.
    pub(crate) fn new(path: &Path, file: &Arc<dyn DiskFile>, end: u64) -> Walk {
        Walk::starting_at(path, file, end, MAGIC_BYTES)
    }

    /// A walk that begins at the transaction at `position`.
    pub(crate) fn starting_at(
        path: &Path,
        file: &Arc<dyn DiskFile>,
        end: u64,
        position: u64,
    ) -> Walk {
        let window = Window::new(path, file, end, WALK_BYTES);
        let resync = Resync::new(&window);
        Walk { window, resync, position, last_tid: Tid::ZERO }
    }

    /// The next piece; `None` at the end.
    pub(crate) fn step(&mut self) -> Option<Piece> {
        if self.position >= self.window.end() {
            return None;
        }
        let piece = match self.framed(self.position) {
            Ok(entry) if self.is_left_by_a_vote(&entry) => {
                self.gap("a transaction that was voted and not finished")
            }
            Ok(entry) => self.examine(entry),
            Err(why) => self.gap(&why),
        };
        self.position = piece.end;
        if piece.is_whole() {
            self.last_tid = piece.tid.unwrap_or(self.last_tid);
        }
        Some(piece)
    }

    /// The transaction at a position, or why there is none.
    fn framed(&mut self, position: u64) -> Result<TransactionEntry, String> {
        let not = |what: &str| Err(what.to_owned());
        let Some(bytes) = self.window.chunk::<TRANSACTION_HEADER_BYTES>(position) else {
            return not("the file ends within a transaction header");
        };
        let header = TransactionHeader::parse(&bytes);
        let next = position.checked_add(header.length).and_then(|n| n.checked_add(POINTER_BYTES));
        if next.is_none_or(|next| next > self.window.end()) {
            return not("a transaction that reaches past the end of the file");
        }
        let entry = TransactionEntry { position, header };
        if header.length < header.records_offset() {
            // Both lengths may be right, and another one in the header wrong.
            let copy = self.window.number(entry.records_end());
            if header.length < TRANSACTION_HEADER_BYTES as u64 || copy != Some(header.length) {
                return Err(format!("a transaction of {} bytes", header.length));
            }
        }
        match self.window.number(entry.records_end()) {
            Some(copy) if copy == header.length => Ok(entry),
            _ => not("a transaction whose two lengths differ"),
        }
    }

    /// Whether this is what a vote leaves when no finish comes: the last thing in the file.
    fn is_left_by_a_vote(&mut self, entry: &TransactionEntry) -> bool {
        entry.header.status == STATUS_CHECKPOINT
            && self.resync.find(entry.next_position()).is_none()
    }

    fn gap(&mut self, why: &str) -> Piece {
        let start = self.position;
        let next = self.resync.find(start + 1);
        let end = next.unwrap_or(self.window.end());
        let is_tail = next.is_none() && self.is_tail(start);
        let kind = if is_tail { DamageKind::Tail } else { DamageKind::Transaction };
        let bytes = end - start;
        let what = match (is_tail, self.window.is_unreadable(start..end)) {
            (_, true) => format!("{bytes} bytes of which some cannot be read"),
            (true, _) => format!("an unfinished tail of {bytes} bytes: {why}"),
            _ => format!("{why}; {bytes} bytes up to the next whole transaction"),
        };
        let tid = self.tid_of_gap(start, next);
        let damage = Damage { kind, position: start, what, oid: None, tid };
        let (records, damage) = (Vec::new(), vec![damage]);
        Piece { start, end, transaction: None, tid, records, damage }
    }

    /// The tid of the transaction that a gap begins with, if it lies between those around.
    fn tid_of_gap(&mut self, start: u64, next: Option<u64>) -> Option<Tid> {
        let tid = Tid(self.window.number(start)?);
        let next = next.and_then(|next| self.window.number(next));
        let before = next.map_or(Tid::MAX, Tid);
        (self.last_tid < tid && tid < before).then_some(tid)
    }

    /// Whether a crash can have left what is behind the last whole transaction.
    fn is_tail(&self, start: u64) -> bool {
        let (path, file) = (self.window.path(), self.window.file());
        let end = self.window.end();
        let tail = Tail { path, file, start, end, last_tid: self.last_tid };
        tail.check(None).is_ok()
    }

    fn examine(&mut self, entry: TransactionEntry) -> Piece {
        let (start, end) = (entry.position, entry.next_position());
        let tid = Some(entry.tid());
        let (records, damage) = (Vec::new(), Vec::new());
        let mut piece = Piece { start, end, transaction: Some(entry), tid, records, damage };
        let whole = |kind, what| Damage { kind, position: start, what, oid: None, tid };
        // First, so that a transaction that fits the window is read in one go.
        self.window.probe(start..end);
        if entry.status().is_none() {
            let what = format!("transaction status {:?}", char::from(entry.header.status));
            piece.damage.push(whole(DamageKind::Transaction, what));
        }
        self.examine_records(&entry, &mut piece);
        if self.window.is_unreadable(start..end) {
            let what = "a transaction of which some cannot be read".to_owned();
            piece.damage.push(whole(DamageKind::Transaction, what));
        }
        self.examine_tid(&entry, &mut piece);
        piece
    }

    fn examine_records(&mut self, entry: &TransactionEntry, piece: &mut Piece) {
        let mut position = entry.records_start();
        if position > entry.records_end() {
            let what = "user, description and extension longer than their transaction";
            piece.damage.push(of_transaction(entry, DamageKind::Transaction, what));
            position = entry.position + TRANSACTION_HEADER_BYTES as u64;
            position = next_record(&mut self.window, entry, position).unwrap_or(piece.end);
        }
        while position < entry.records_end() {
            match self.record(entry, position, piece) {
                Some(record) => {
                    piece.records.push(record);
                    position += record.entry.header.record_bytes();
                }
                None => {
                    let next = next_record(&mut self.window, entry, position + 1);
                    position = next.unwrap_or(entry.records_end());
                }
            }
        }
    }

    /// The record at a position, after adding its damage to `piece`; `None` if its length is not
    /// plausible.
    fn record(
        &mut self,
        entry: &TransactionEntry,
        position: u64,
        piece: &mut Piece,
    ) -> Option<SeenRecord> {
        let mut note = |kind, oid, what: String| {
            piece.damage.push(Damage { kind, position, what, oid, tid: Some(entry.tid()) });
        };
        let room = entry.records_end() - position;
        let bytes = self.window.chunk::<DATA_HEADER_BYTES>(position);
        let Some(bytes) = bytes.filter(|_| room >= DATA_HEADER_BYTES as u64) else {
            note(DamageKind::Record, None, "the transaction ends inside a record".to_owned());
            return None;
        };
        let header = DataHeader::parse(&bytes);
        let (other_tid, elsewhere) =
            (header.tid != entry.tid(), header.transaction != entry.position);
        let oid = (!(other_tid && elsewhere)).then_some(header.oid);
        let what = if header.record_bytes() > room {
            Some("a record that reaches past its transaction")
        } else if other_tid && elsewhere {
            Some("a record that names another transaction")
        } else if header.version_length != 0 {
            Some("a record with a version (written by ZODB 3.8 or older)")
        } else {
            None
        };
        if let Some(what) = what {
            note(DamageKind::Record, oid, what.to_owned());
            return None;
        }
        if other_tid {
            note(DamageKind::RecordField, oid, format!("a record with the tid {}", header.tid));
        }
        if elsewhere {
            let what = format!("a record of a transaction at {}", header.transaction);
            note(DamageKind::RecordField, oid, what);
        }
        if header.previous >= position {
            let what = format!("previous record at {}, which is not before it", header.previous);
            note(DamageKind::Previous, oid, what);
        }
        let back = match header.data_length {
            0 => self.window.number(position + DATA_HEADER_BYTES as u64),
            _ => None,
        };
        if let Some(back) = back.filter(|back| *back >= position) {
            let what = format!("data at {back}, which is not before it");
            note(DamageKind::BackPointer, oid, what);
        }
        Some(SeenRecord { entry: DataEntry { position, header }, back })
    }

    fn examine_tid(&mut self, entry: &TransactionEntry, piece: &mut Piece) {
        let next = self.window.chunk::<TRANSACTION_HEADER_BYTES>(piece.end);
        let next = next.map(|bytes| TransactionHeader::parse(&bytes).tid);
        let last = self.last_tid;
        // Where what follows does not follow the last either, it says nothing.
        let next = next.filter(|next| *next > last);
        let in_order = |tid: Tid| tid > last && next.is_none_or(|next| tid < next);
        let tid = entry.tid();
        if let Some(theirs) = common_tid(piece)
            && theirs != tid
            && (piece.records.len() > 1 || !in_order(tid))
        {
            piece.tid = Some(theirs);
            piece.damage.retain(|damage| damage.kind != DamageKind::RecordField);
            let what = format!("a transaction whose records have the tid {theirs}");
            piece.damage.push(of_transaction(entry, DamageKind::Tid, &what));
        }
        let tid = piece.tid.unwrap_or(tid);
        if tid <= last {
            let what = format!("a tid that is not later than {last}, the one before");
            piece.damage.push(of_transaction(entry, DamageKind::Tid, &what));
        } else if piece.records.is_empty() && !in_order(tid) && self.framed(piece.end).is_ok() {
            // No record confirms it.
            let what = "a tid that is later than the next";
            piece.damage.push(of_transaction(entry, DamageKind::Transaction, what));
        }
    }
}

/// The tid that all records have.
fn common_tid(piece: &Piece) -> Option<Tid> {
    let first = piece.records.first()?.entry.header.tid;
    piece.records.iter().all(|record| record.entry.header.tid == first).then_some(first)
}

fn of_transaction(entry: &TransactionEntry, kind: DamageKind, what: &str) -> Damage {
    let (position, what, tid) = (entry.position, what.to_owned(), Some(entry.tid()));
    Damage { kind, position, what, oid: None, tid }
}

#[cfg(test)]
mod tests;
