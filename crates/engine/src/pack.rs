//! Packs a storage while it is served.

use std::sync::atomic::Ordering;

use zodium_storage::{Pack, PackOptions, Packed, StorageError};
use zodium_types::Tid;

use crate::{Database, Notice};

impl Database {
    /// Drops the revisions that no reader sees at `pack_tid` and later. If so configured, also
    /// drops the objects that cannot be reached from the root. `None`: there was nothing to free.
    ///
    /// Blocking: reads and writes the whole storage. Before it returns successfully,
    /// [`Notice::Packed`] is posted to all mailboxes.
    ///
    /// # Errors
    /// As [`Pack::pack`]. The storage is unchanged.
    pub fn pack(&self, pack_tid: Tid) -> Result<Option<Packed>, StorageError> {
        let Some(_alone) = self.packs.begin() else {
            let name = self.store.name();
            return Err(StorageError::AlreadyPacking(format!("{name}: already packing").into()));
        };
        let packed = self.pack_alone(pack_tid);
        if let Err(error) = &packed {
            self.note_pack_failure(error);
        }
        self.packs.note_end(&packed);
        packed
    }

    /// Cancels a pack in progress and refuses later ones: the storage is about to be closed.
    pub fn cancel_pack(&self) {
        self.packs.cancelled().store(true, Ordering::Relaxed);
    }

    fn pack_alone(&self, pack_tid: Tid) -> Result<Option<Packed>, StorageError> {
        let options = PackOptions {
            gc: self.config.pack_gc,
            keep_old: self.config.pack_keep_old,
            abort_on_dangling: self.config.pack_abort_on_dangling,
            progress: &|step, done, total| self.packs.note_progress(step, done, total),
            packed: &|_| self.subscribers.post_to_all(&Notice::Packed),
            cancelled: self.packs.cancelled(),
        };
        let side = self.pack_side()?;
        if let Some(companion) = self.subscribers.companion() {
            companion.make_durable().map_err(|why| {
                StorageError::Io(format!("{}: nothing is packed: {why}", self.store.name()).into())
            })?;
        }
        side.pack(pack_tid, &options)
    }

    fn pack_side(&self) -> Result<&dyn Pack, StorageError> {
        self.store.packing().ok_or_else(|| StorageError::Unsupported {
            what: format!("{}: this kind of storage has nothing to pack", self.store.name()),
        })
    }
}
