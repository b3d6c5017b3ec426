//! Current revisions in memory: the answer to nearly every load.

use std::ops::ControlFlow;

use bytes::Bytes;
use zodium_types::{Oid, Tid};

/// So many objects at most are looked up at once.
pub const LOOKED_UP_TOGETHER: usize = 6;

/// A current revision that is in memory, lent for as long as it is copied or sent.
pub struct ResidentRevision<'a> {
    /// The data record's pickles.
    pub data: &'a [u8],
    /// The transaction that wrote it.
    pub serial: Tid,
    /// The same data, to keep, without a copy.
    pub share: &'a dyn Fn() -> Bytes,
}

/// Finds current revisions in memory, for one batch of loads on one thread.
pub trait ResidentRevisions {
    /// Shows the current revisions of these objects in their order, with their number among
    /// `oids`, until `visit` breaks. `None` stands for one that is not in memory, or has no data.
    /// Of more than [`LOOKED_UP_TOGETHER`] objects only the first ones are looked up.
    fn look_up(
        &self,
        oids: &[Oid],
        visit: &mut dyn FnMut(usize, Option<ResidentRevision<'_>>) -> ControlFlow<()>,
    );
}
