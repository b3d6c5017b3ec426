//! Memory for the data of a transaction's conflicts: those that its client is to resolve, and those
//! that the server has merged.
//!
//! Key decision: conflicts beyond the limit are not resolved. The data of a large transaction are
//! in a spool, and an answer with all of them would take more memory than the spool was to save.

use std::sync::Arc;

use zodium_types::{Held, Memory};

/// Most bytes of a transaction's conflicts. The limit falls to the second value while memory is
/// short.
const CONFLICT_BYTES_MAX: usize = 64 << 20;
const CONFLICT_BYTES_LOW: usize = 64 << 10;
/// Bytes of a conflict beside its data, here and in the answer to the client.
const ENTRY_BYTES: usize = 512;

/// The memory that the conflicts of a transaction have and may have.
pub(crate) struct ConflictRoom<'m> {
    /// Where it is counted; `None`: there is no limit.
    memory: Option<&'m Arc<Memory>>,
    /// Made for the first conflict, since most transactions have none.
    held: Option<Held>,
    bytes: usize,
    bytes_max: usize,
}

impl<'m> ConflictRoom<'m> {
    pub(crate) fn new(memory: Option<&'m Arc<Memory>>) -> ConflictRoom<'m> {
        ConflictRoom { memory, held: None, bytes: 0, bytes_max: 0 }
    }

    /// Counts the data of one more conflict; false if there is no room. The first conflict always
    /// has room: one record may have any size.
    pub(crate) fn take(&mut self, data_bytes: usize) -> bool {
        let Some(memory) = self.memory else { return true };
        let bytes = self.bytes + data_bytes + ENTRY_BYTES;
        let held = self.held.get_or_insert_with(|| {
            self.bytes_max = memory.share(CONFLICT_BYTES_LOW, CONFLICT_BYTES_MAX);
            memory.holder()
        });
        if self.bytes > 0 && bytes > self.bytes_max {
            return false;
        }
        held.set(bytes);
        self.bytes = bytes;
        true
    }

    /// What was counted, for as long as the data live; `None` if there were no conflicts.
    pub(crate) fn into_held(self) -> Option<Held> {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_conflict_has_room_and_others_up_to_the_limit() {
        let memory = Memory::new(8 << 20);
        let mut room = ConflictRoom::new(Some(&memory));
        assert!(room.take(3 << 20));
        assert!(!room.take(0));
        assert_eq!(memory.held_bytes(), 3 << 20);
        drop(room);
        let mut room = ConflictRoom::new(Some(&memory));
        assert!(room.take((512 << 10) - ENTRY_BYTES) && room.take((512 << 10) - ENTRY_BYTES));
        assert!(!room.take(0));
        let held = room.into_held();
        assert_eq!(memory.held_bytes(), 1 << 20);
        drop(held);
        assert_eq!(memory.held_bytes(), 0);
    }

    #[test]
    fn without_a_limit_there_is_room_for_all() {
        let mut room = ConflictRoom::new(None);
        assert!(room.take(usize::MAX) && room.take(usize::MAX));
        assert!(room.into_held().is_none());
    }
}
