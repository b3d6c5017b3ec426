//! Conflicts as they are reported to clients.

use std::ops::Deref;

use bytes::Bytes;
use zodium_types::Held;

use crate::commit::{Conflict, ConflictKind};
use crate::conflict_room::ConflictRoom;

/// A conflict, with the data that the client sent.
#[derive(Debug)]
pub struct FoundConflict {
    /// The conflict.
    pub conflict: Conflict,
    /// The data to store, of a store or an undo; otherwise empty.
    pub data: Bytes,
}

impl FoundConflict {
    /// Whether the commit protocol lets the client resolve it.
    pub fn is_resolvable(&self) -> bool {
        matches!(self.conflict.kind, ConflictKind::Store | ConflictKind::Undo)
    }
}

/// The conflicts of a transaction, and the memory that their data hold.
#[derive(Debug, Default)]
pub struct FoundConflicts {
    found: Vec<FoundConflict>,
    _held: Option<Held>,
}

impl FoundConflicts {
    pub(crate) fn new(found: Vec<FoundConflict>, room: ConflictRoom<'_>) -> FoundConflicts {
        FoundConflicts { found, _held: room.into_held() }
    }

    /// The conflicts alone. Their memory is not counted any more.
    pub fn into_vec(self) -> Vec<FoundConflict> {
        self.found
    }
}

impl Deref for FoundConflicts {
    type Target = [FoundConflict];

    fn deref(&self) -> &[FoundConflict] {
        &self.found
    }
}
