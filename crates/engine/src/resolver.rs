//! The seam to conflict resolution.

use std::fmt;

use zodium_storage::Access;

/// Merges conflicting changes of one object.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// Merges what `new` made of `old` with what `committed` did, all data records.
    fn resolve(&self, old: &[u8], committed: &[u8], new: &[u8], access: Access) -> Merge;
}

/// What a [`Resolver`] makes of a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The data record to write.
    Resolved(Vec<u8>),
    /// The changes are not merged here.
    Unresolved,
    /// The answer takes a while: ask again with [`Access::Blocking`], off the worker.
    Cold,
}
