//! Checks the pointers of records: to the object's previous record, and to its data.
//!
//! Nearly always the previous record is the one that was current, which is known without a read.
//! Otherwise, and for back pointers, the target is looked up: many together, in the order of the
//! file.

use zodium_types::TransactionStatus;

use crate::format::{Damage, DamageKind};
use crate::read::Positions;
use crate::scan::{DataEntry, Piece, RecordLookup, SeenRecord};

/// Targets that are looked up together.
const BATCH: usize = 1 << 16;

/// Pointers that are still to be looked up.
pub(crate) struct Pointers {
    lookup: RecordLookup,
    pending: Vec<Pointer>,
}

struct Pointer {
    kind: DamageKind,
    target: u64,
    from: DataEntry,
    /// The record that a pointer to the previous one should lead to, where that is known.
    expected: u64,
}

impl Pointers {
    pub(crate) fn new(lookup: RecordLookup) -> Pointers {
        Pointers { lookup, pending: Vec::new() }
    }

    /// Takes the pointers of a piece, and makes its records the current ones.
    pub(crate) fn add(
        &mut self,
        piece: &Piece,
        current: &Positions,
        report: &mut dyn FnMut(Damage),
    ) {
        let status = piece.status();
        for record in &piece.records {
            self.add_previous(record, status, current, report);
            if let Some(target) =
                record.back.filter(|back| (1..record.entry.position).contains(back))
            {
                let (kind, from) = (DamageKind::BackPointer, record.entry);
                self.pending.push(Pointer { kind, target, from, expected: 0 });
            }
        }
        if status != Some(TransactionStatus::Undone) {
            // Only now: two records of an object in one transaction have the same before them.
            for record in &piece.records {
                current.publish(record.entry.header.oid, record.entry.position);
            }
        }
        if self.pending.len() >= BATCH {
            self.look_up(report);
        }
    }

    /// Looks up what is pending.
    pub(crate) fn look_up(&mut self, report: &mut dyn FnMut(Damage)) {
        let mut pending = std::mem::take(&mut self.pending);
        pending.sort_unstable_by_key(|pointer| pointer.target);
        let mut found = Vec::new();
        for pointer in pending {
            let target = self.lookup.record(pointer.target, pointer.from.header.oid);
            if let Some(what) = pointer.judge(target.is_some()) {
                found.push(damage(pointer.kind, &pointer.from, what));
            }
        }
        found.sort_unstable_by_key(|damage| damage.position);
        found.into_iter().for_each(report);
    }

    fn add_previous(
        &mut self,
        record: &SeenRecord,
        status: Option<TransactionStatus>,
        current: &Positions,
        report: &mut dyn FnMut(Damage),
    ) {
        let DataEntry { position, header } = record.entry;
        let (kind, from, target) = (DamageKind::Previous, record.entry, header.previous);
        let counts = status != Some(TransactionStatus::Undone);
        let expected = current.position(header.oid).filter(|_| counts).unwrap_or(0);
        if target == expected || target >= position {
            // Right, or reported already.
        } else if target != 0 {
            self.pending.push(Pointer { kind, target, from, expected });
        } else if status != Some(TransactionStatus::Packed) {
            let what = format!("no previous record, though there is one at {expected}");
            report(damage(kind, &from, what));
        }
    }
}

impl Pointer {
    /// What is wrong with it, given whether it leads to a record of its object.
    fn judge(&self, leads_to_record: bool) -> Option<String> {
        let target = self.target;
        match self.kind {
            DamageKind::BackPointer if leads_to_record => None,
            DamageKind::BackPointer => {
                Some(format!("data at {target}, where no record of the object is"))
            }
            _ if !leads_to_record => {
                Some(format!("previous record at {target}, where none of the object is"))
            }
            _ if target < self.expected => {
                Some(format!("previous record at {target}, past the one at {}", self.expected))
            }
            _ => None,
        }
    }
}

fn damage(kind: DamageKind, record: &DataEntry, what: String) -> Damage {
    let (oid, tid) = (Some(record.header.oid), Some(record.header.tid));
    Damage { kind, position: record.position, what, oid, tid }
}
