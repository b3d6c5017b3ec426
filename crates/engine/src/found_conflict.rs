//! Conflicts as they are reported to clients.

use bytes::Bytes;

use crate::commit::{Conflict, ConflictKind};

/// A conflict, with what the client sent.
#[derive(Debug)]
pub struct FoundConflict {
    /// What does not fit.
    pub conflict: Conflict,
    /// The data that were to be stored; empty when it is not a store.
    pub data: Bytes,
}

impl FoundConflict {
    /// Whether the client may resolve it, as far as the protocol of commits goes.
    pub fn is_resolvable(&self) -> bool {
        matches!(self.conflict.kind, ConflictKind::Store | ConflictKind::Undo)
    }
}
