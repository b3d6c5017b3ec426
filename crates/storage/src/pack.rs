//! Packing: dropping revisions and objects that no reader needs any more.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use zodium_types::Tid;

use crate::StorageError;

/// How to pack.
#[derive(Clone, Copy)]
pub struct PackOptions<'a> {
    /// Drop objects that cannot be reached from the root, not only old revisions.
    pub gc: bool,
    /// Keep the storage as it was before, where it can (FileStorage: as `Data.fs.old`).
    pub keep_old: bool,
    /// Give up when an object in use refers to one that is not there.
    pub abort_on_dangling: bool,
    /// Called now and then with the step, what is done of it, and how much it is in all.
    pub progress: &'a dyn Fn(PackStep, u64, u64),
    /// Called once when the packed storage has taken the place of the old one. What is left to do,
    /// such as saving an index, follows.
    pub packed: &'a dyn Fn(&Packed),
    /// Set to have the pack given up, at any time until its last step.
    pub cancelled: &'a Arc<AtomicBool>,
}

impl PackOptions<'_> {
    /// Drops old revisions only, and reports nothing.
    pub fn new(cancelled: &Arc<AtomicBool>) -> PackOptions<'_> {
        PackOptions {
            gc: false,
            keep_old: false,
            abort_on_dangling: false,
            progress: &|_, _, _| (),
            packed: &|_| (),
            cancelled,
        }
    }
}

/// What a pack spends its time with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackStep {
    /// Looking for damaged records, where they are to be left out; counted in bytes.
    Checking,
    /// Finding the objects that are in use; counted in objects.
    Marking,
    /// Copying them; counted in bytes of the storage.
    Copying,
    /// Waiting for transactions that undo or restore, between their vote and their finish; counted
    /// in transactions.
    Waiting,
}

/// What a pack has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packed {
    /// Bytes of the storage when the pack began.
    pub size_before: u64,
    /// Bytes of the packed storage.
    pub size_after: u64,
    /// Objects when the pack began, deleted ones included.
    pub objects_before: u64,
    /// Objects in the packed storage.
    pub objects_after: u64,
    /// References that lead to no object; they were logged.
    pub dangling: u64,
    /// Records that were left out since they cannot be read.
    pub dropped: u64,
    /// Objects that are gone with them.
    pub objects_dropped: u64,
    /// Objects that cannot be reached were kept after all: what the records that were left out
    /// refer to is not known.
    pub garbage_kept: bool,
}

/// A storage that can be packed.
pub trait Pack: Send + Sync {
    /// Drops the revisions that no reader sees at `until` and later, and the objects that cannot
    /// be reached from the root, while commits and loads go on. `None`: there was nothing to free.
    ///
    /// Blocking, for as long as it takes to read and write the storage.
    ///
    /// # Errors
    /// The storage is as it was then. `AlreadyPacking`, `PackCancelled`, `ReadOnly`, and what the
    /// storage cannot pack.
    fn pack(&self, until: Tid, options: &PackOptions<'_>) -> Result<Option<Packed>, StorageError>;
}
