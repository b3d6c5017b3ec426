//! The pending requests of a connection.

use std::fs::File;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};

use crate::Revision;
use crate::promise::Promise;

/// The reply to a load: a revision, or `None` if the object did not exist then.
pub(crate) type Loaded = Option<Revision>;
/// An object, and the transaction before which its revision is requested.
pub(crate) type LoadKey = (Oid, Tid);

/// A pending call.
pub(crate) struct Call {
    pub(crate) promise: Arc<Promise<Value<'static>>>,
    /// Runs on the reading thread, before any later message is handled.
    pub(crate) then: Option<Then>,
}

pub(crate) type Then = Box<dyn FnOnce(&Value<'_>) + Send>;

#[derive(Default)]
pub(crate) struct Table {
    pub(crate) calls: FxHashMap<u64, Call>,
    pub(crate) loads: FxHashMap<LoadKey, Arc<Promise<Loaded>>>,
    /// Destinations of blobs that are being fetched.
    pub(crate) blobs: FxHashMap<(Oid, Tid), File>,
    /// Fetches whose callers have stopped waiting. Their chunks may still come, and name only the
    /// blob: it is fetched again when the answer is here.
    pub(crate) abandoned_blobs: FxHashMap<(Oid, Tid), Arc<Promise<Value<'static>>>>,
    /// No more requests are accepted.
    pub(crate) is_over: bool,
    last_id: u64,
}

impl Table {
    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}
