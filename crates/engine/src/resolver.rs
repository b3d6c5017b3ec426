//! The interface to conflict resolution.

use std::fmt;

use zodium_storage::Access;

/// Merges conflicting changes of one object.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Merges the changes from `old` to `new` and from `old` to `committed`, all data records.
    fn resolve(&self, old: &[u8], committed: &[u8], new: &[u8], access: Access) -> Merge;
}

/// The result of a [`Resolver`] for a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The data record to write.
    Resolved(Vec<u8>),
    /// The resolver does not merge these changes.
    Unresolved,
    /// Not in memory: ask again with [`Access::Blocking`], off the worker.
    WouldBlock,
}
