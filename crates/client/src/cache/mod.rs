//! A bounded cache of the revisions that a client has loaded and written.
//!
//! A revision answers loads before any transaction after its own, up to the one that ended it. A
//! revision without an end is *current*: as of the last message applied from the server's stream of
//! replies and invalidations. So [`Cache::lookup`] is exact for views as of [`Cache::last_tid`] or
//! earlier; for later views it returns what was current then.
//!
//! Key decision: the cache changes in the order of one connection's stream, under one lock. That
//! makes "current" correct by construction. Late messages of an older connection are recognised by
//! their [`Stream`] and dropped. Lookups do not take that lock: objects lie in shards with
//! read-write locks. S3-FIFO decides evictions, so that a scan does not evict what is in use.

mod cache_file;
mod history;
#[cfg(test)]
mod model_tests;
mod objects;
mod saved;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use zodium_types::{Oid, Tid};

use crate::Revision;

pub use cache_file::{CacheFile, CacheFileError};
use history::History;
pub use objects::CacheMetrics;
use saved::Snapshot;
pub(crate) use saved::is_other_version;

use objects::Objects;

/// The revisions of one storage, shared by all threads of a client.
#[derive(Debug)]
pub struct Cache {
    objects: Objects,
    /// The last transaction whose invalidations are all applied. Written with `order` locked;
    /// Release pairs with Acquire in `last_tid`: a reader of it sees the changes applied before.
    last_tid: AtomicU64,
    /// Locked while the cache changes; holds the stream that may change it.
    order: Mutex<Stream>,
}

/// The replies and invalidations of one connection, in the order in which they arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(u64);

impl Cache {
    /// Creates a cache that uses at most `bytes_max` of memory, overhead included.
    ///
    /// It is split into shards of some MB; a revision that takes nearly a whole shard is not kept.
    pub fn new(bytes_max: usize) -> Cache {
        Cache {
            objects: Objects::new(bytes_max),
            last_tid: AtomicU64::new(Tid::ZERO.0),
            order: Mutex::new(Stream(0)),
        }
    }

    /// The cached answer to `loadBefore(oid, before)`.
    pub fn lookup(&self, oid: Oid, before: Tid) -> Option<Revision> {
        self.objects.lookup(oid, |history| history.into_revision_before(before))
    }

    /// The cached revision that a transaction wrote for an object.
    pub fn lookup_serial(&self, oid: Oid, serial: Tid) -> Option<Revision> {
        self.objects.lookup(oid, |history| history.revision_of(serial).cloned())
    }

    /// Whether [`Cache::lookup`] would find a revision. Counts neither as a hit nor as a use.
    pub fn knows(&self, oid: Oid, before: Tid) -> bool {
        let history = self.objects.look_at(oid);
        history.is_some_and(|history| history.into_revision_before(before).is_some())
    }

    /// The last transaction that the cache is up to date with; [`Tid::ZERO`] before the first
    /// connection.
    pub fn last_tid(&self) -> Tid {
        Tid(self.last_tid.load(Ordering::Acquire))
    }

    /// Whether the cache holds no revisions.
    pub fn is_empty(&self) -> bool {
        self.objects.metrics().objects == 0
    }

    /// Counters of lookups and evictions, and the current size.
    pub fn metrics(&self) -> CacheMetrics {
        self.objects.metrics()
    }

    /// Begins the stream of a new connection; messages of older streams are dropped from now on.
    ///
    /// Current revisions stay current as of the end of the old connection, until
    /// [`Cache::verified`] or [`Cache::clear`] reports what has changed since [`Cache::last_tid`].
    pub fn begin_stream(&self) -> Stream {
        let mut order = self.order.lock();
        order.0 += 1;
        *order
    }

    /// Applies the answer to `getInvalidations`: between [`Cache::last_tid`] and `tid` only
    /// `changed` was written.
    pub fn verified(&self, stream: Stream, tid: Tid, changed: impl IntoIterator<Item = Oid>) {
        self.in_order(stream, || {
            for oid in changed {
                self.change(oid, |history| history.without_current());
            }
            self.advance(tid);
        });
    }

    /// Drops everything; the storage's last transaction is `tid`.
    pub fn clear(&self, stream: Stream, tid: Tid) {
        self.in_order(stream, || {
            self.objects.clear();
            self.last_tid.store(tid.0, Ordering::Release);
        });
    }

    /// Drops all revisions, as evictions would.
    pub fn forget_revisions(&self) {
        self.objects.clear();
    }

    /// Applies the reply to a load, at its place in the stream.
    ///
    /// The data are copied, because they mostly lie inside a larger input buffer.
    pub fn insert(&self, stream: Stream, oid: Oid, serial: Tid, end: Option<Tid>, data: &[u8]) {
        if self.objects.has_room_for(data.len()) {
            let data = Bytes::copy_from_slice(data);
            self.insert_revision(stream, oid, Revision { serial, end, data });
        }
    }

    /// Like [`Cache::insert`], for data with a buffer of their own, which is kept.
    pub fn insert_revision(&self, stream: Stream, oid: Oid, revision: Revision) {
        let is_possible = revision.end.is_none_or(|end| end > revision.serial);
        if is_possible && self.objects.has_room_for(revision.data.len()) {
            self.in_order(stream, || self.remember(oid, revision));
        }
    }

    /// Applies the invalidation by another client's transaction `tid`, which wrote `oids`.
    pub fn invalidate(&self, stream: Stream, tid: Tid, oids: impl IntoIterator<Item = Oid>) {
        self.in_order(stream, || {
            oids.into_iter().for_each(|oid| self.end(oid, tid));
            self.advance(tid);
        });
    }

    /// Applies the reply to `tpc_finish`: our own transaction `tid` wrote these objects. The data
    /// are `None` where the server stored something else, for example a resolved conflict.
    pub fn finish<'data>(
        &self,
        stream: Stream,
        tid: Tid,
        written: impl IntoIterator<Item = (Oid, Option<&'data [u8]>)>,
    ) {
        self.in_order(stream, || {
            for (oid, data) in written {
                self.end(oid, tid);
                if let Some(data) = data.filter(|data| self.objects.has_room_for(data.len())) {
                    let data = Bytes::copy_from_slice(data);
                    self.remember(oid, Revision { serial: tid, end: None, data });
                }
            }
            self.advance(tid);
        });
    }

    /// A consistent copy of all cached revisions.
    fn snapshot(&self) -> Snapshot {
        let _order = self.order.lock();
        Snapshot { last_tid: self.last_tid(), histories: self.objects.all() }
    }

    /// Runs `change` unless a newer stream has begun.
    fn in_order(&self, stream: Stream, change: impl FnOnce()) {
        let order = self.order.lock();
        if *order == stream {
            change();
        }
    }

    /// Ends the current revision of an object. `order` must be locked, also for the methods below.
    fn end(&self, oid: Oid, tid: Tid) {
        self.change(oid, |history| history.ended_at(tid).map(Some));
    }

    fn remember(&self, oid: Oid, revision: Revision) {
        match self.objects.look_at(oid) {
            None => self.objects.put(oid, History::of(revision)),
            Some(history) => {
                if let Some(changed) = history.with(revision, self.objects.history_bytes_max()) {
                    self.objects.replace(oid, changed);
                }
            }
        }
    }

    /// Replaces the history of a cached object by what `change` makes of it.
    fn change(&self, oid: Oid, change: impl FnOnce(&History) -> Option<Option<History>>) {
        match self.objects.look_at(oid).and_then(|history| change(&history)) {
            None => {}
            Some(None) => self.objects.remove(oid),
            Some(Some(changed)) => self.objects.replace(oid, changed),
        }
    }

    fn advance(&self, tid: Tid) {
        self.last_tid.fetch_max(tid.0, Ordering::Release);
    }
}
