//! The answers to loads.

use bytes::Bytes;
use zodium_types::Tid;

/// The answer to [`Read::load_before`](crate::Read::load_before).
#[derive(Debug)]
pub enum Load {
    /// The revision asked for.
    Revision(Revision),
    /// The object exists, but had no revision before that tid.
    NoRevision,
    /// No such object, or the revision is a deletion.
    Missing,
    /// The data are not in memory: ask again with [`Access::Blocking`](crate::Access::Blocking),
    /// off the worker.
    WouldBlock,
}

/// One revision of an object.
#[derive(Debug)]
pub struct Revision {
    /// The data record's pickles.
    pub data: Bytes,
    /// The transaction that wrote it.
    pub serial: Tid,
    /// The transaction that wrote the next one; `None` when this one is current.
    pub end: Option<Tid>,
    /// What "current" was judged by.
    pub stamp: Stamp,
}

/// The state of a storage's index that an answer was computed from, for
/// [`Read::is_still_current`](crate::Read::is_still_current). Only the storage that gave it knows
/// what the numbers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(pub u64, pub u64);

/// A record in the history of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// The data; `None` for a deletion.
    pub data: Option<Bytes>,
    /// The transaction whose record holds the data: an earlier one when this record only points
    /// back to it.
    pub data_tid: Tid,
}
