//! Which objects are deleted, as far as the records say.

use rustc_hash::FxHashSet;
use zodium_types::{Oid, TransactionStatus};

use crate::scan::{Piece, SeenRecord};

/// Objects whose current record has no data.
///
/// A deletion may be current again after two undos. Then the current record has no data of its own,
/// but a back pointer to the deletion.
#[derive(Default)]
pub(super) struct Deleted {
    oids: FxHashSet<Oid>,
    /// Positions of all records without data, those that lead to one included.
    positions: FxHashSet<u64>,
}

impl Deleted {
    pub(super) fn add(&mut self, piece: &Piece) {
        if piece.status() == Some(TransactionStatus::Undone) {
            return;
        }
        for SeenRecord { entry, back } in &piece.records {
            let is_deleted = back.is_some_and(|to| to == 0 || self.positions.contains(&to));
            if is_deleted {
                self.positions.insert(entry.position);
            }
            let _changed = match is_deleted {
                true => self.oids.insert(entry.header.oid),
                false => self.oids.remove(&entry.header.oid),
            };
        }
    }

    pub(super) fn has(&self, oid: Oid) -> bool {
        self.oids.contains(&oid)
    }
}
