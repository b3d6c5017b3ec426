//! Conflicts as they are reported to clients.

use bytes::Bytes;

use crate::commit::{Conflict, ConflictKind};

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
