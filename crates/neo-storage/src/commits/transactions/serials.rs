//! The last serials of objects that were committed here lately.
//!
//! A store is compared with the last serial of its object. Objects that change often are compared
//! without the database: each of its commits makes the reading connection drop the pages it has.
//!
//! Key decision: deletions are left out, since a pack removes them, too. What else might change an
//! object without a commit of this node forgets all serials: a cell that gets its data from another
//! node, or that is taken away.

use rustc_hash::FxHashMap;
use zodium_types::{Oid, Tid};

/// Most objects that are remembered. When there are more, all are forgotten.
const OBJECTS_MAX: usize = 1 << 16;

/// Last serials, by object.
#[derive(Debug, Default)]
pub(super) struct Serials(FxHashMap<Oid, Tid>);

impl Serials {
    /// Notes a commit of an object.
    pub(super) fn note(&mut self, oid: Oid, serial: Tid, is_deletion: bool) {
        if is_deletion {
            self.0.remove(&oid);
            return;
        }
        if self.0.len() == OBJECTS_MAX {
            self.0.clear();
        }
        // Stores without a lock may end in another order.
        let last = self.0.entry(oid).or_insert(serial);
        *last = serial.max(*last);
    }

    /// The last serial of an object, if it is known.
    pub(super) fn get(&self, oid: Oid) -> Option<Tid> {
        self.0.get(&oid).copied()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_serial_is_known_unless_it_is_a_deletion() {
        let mut serials = Serials::default();
        serials.note(Oid(1), Tid(10), false);
        serials.note(Oid(1), Tid(20), false);
        assert_eq!(serials.get(Oid(1)), Some(Tid(20)));
        serials.note(Oid(1), Tid(30), true);
        assert_eq!(serials.get(Oid(1)), None);
        for oid in 0..=OBJECTS_MAX as u64 {
            serials.note(Oid(oid), Tid(40), false);
        }
        assert_eq!((serials.0.len(), serials.get(Oid(OBJECTS_MAX as u64))), (1, Some(Tid(40))));
    }
}
