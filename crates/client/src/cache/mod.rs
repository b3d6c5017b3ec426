//! What a client remembers of the objects that it loaded and wrote: revisions, bounded in bytes.
//!
//! A revision answers loads before any transaction after its own, up to the one that ended it. One
//! without an end is *current*: as of the point of the server's stream of replies and notices that
//! was applied last. So [`Cache::lookup`] is exact for whoever looks at the database as of
//! [`Cache::last_tid`] or earlier, and for later it says what was current then.
//!
//! Key decision: what is known changes in the order of one connection's stream, under one lock.
//! That makes "current" right by construction, and what an older connection still delivers is told
//! by its [`Stream`] and dropped. Lookups take no part in that lock: objects lie in shards, each
//! with a lock that lookups share, and S3-FIFO decides who stays, so that reading everything once
//! does not throw out what is read all the time.

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

use objects::Objects;

/// Revisions of objects of one storage, shared by all threads of a client.
#[derive(Debug)]
pub struct Cache {
    objects: Objects,
    /// The last transaction all of whose notices were applied. Written with `order` held; Release
    /// pairs with Acquire in `last_tid`: who reads it finds what was applied before.
    last_tid: AtomicU64,
    /// Held by whoever changes what is known; the stream that may.
    order: Mutex<Stream>,
}

/// One connection's replies and notices, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(u64);

impl Cache {
    /// A cache that takes `bytes_max` of memory at most, with all that it takes to keep it.
    ///
    /// It is cut in shards of some MB, and a revision that takes nearly all of one is not kept.
    pub fn new(bytes_max: usize) -> Cache {
        Cache {
            objects: Objects::new(bytes_max),
            last_tid: AtomicU64::new(Tid::ZERO.0),
            order: Mutex::new(Stream(0)),
        }
    }

    /// The revision that `loadBefore(oid, before)` asks for, if it is known.
    pub fn lookup(&self, oid: Oid, before: Tid) -> Option<Revision> {
        self.objects.lookup(oid, |history| history.into_revision_before(before))
    }

    /// The revision of an object that a transaction wrote, if it is known.
    pub fn lookup_serial(&self, oid: Oid, serial: Tid) -> Option<Revision> {
        self.objects.lookup(oid, |history| history.revision_of(serial).cloned())
    }

    /// Whether [`Cache::lookup`] would find something. No hit, no miss, no sign of interest.
    pub fn knows(&self, oid: Oid, before: Tid) -> bool {
        let history = self.objects.look_at(oid);
        history.is_some_and(|history| history.into_revision_before(before).is_some())
    }

    /// The last transaction that was heard of, and whose changes are known; [`Tid::ZERO`] before
    /// the first connection.
    pub fn last_tid(&self) -> Tid {
        Tid(self.last_tid.load(Ordering::Acquire))
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.objects.metrics().objects == 0
    }

    /// What was found, and what is held.
    pub fn metrics(&self) -> CacheMetrics {
        self.objects.metrics()
    }

    /// Begins the stream of a new connection: what others still deliver is dropped from now on.
    ///
    /// What is current is so as of the old connection's end, until the new one has been asked what
    /// has changed since [`Cache::last_tid`]: see [`Cache::verified`] and [`Cache::clear`].
    pub fn begin_stream(&self) -> Stream {
        let mut order = self.order.lock();
        order.0 += 1;
        *order
    }

    /// Takes in the answer to `getInvalidations`: nothing but `changed` was written since
    /// [`Cache::last_tid`] and until `tid`.
    pub fn verified(&self, stream: Stream, tid: Tid, changed: impl IntoIterator<Item = Oid>) {
        self.in_order(stream, || {
            for oid in changed {
                self.change(oid, |history| history.without_current());
            }
            self.advance(tid);
        });
    }

    /// Forgets everything; the storage's last transaction is `tid`.
    pub fn clear(&self, stream: Stream, tid: Tid) {
        self.in_order(stream, || {
            self.objects.clear();
            self.last_tid.store(tid.0, Ordering::Release);
        });
    }

    /// Forgets all revisions, as if there had been no room for them.
    pub fn forget_revisions(&self) {
        self.objects.clear();
    }

    /// Takes in the answer to a load: at its place in the stream.
    ///
    /// The data are copied: they mostly lie in the midst of what was received at once.
    pub fn insert(&self, stream: Stream, oid: Oid, serial: Tid, end: Option<Tid>, data: &[u8]) {
        if self.objects.has_room_for(data.len()) {
            let data = Bytes::copy_from_slice(data);
            self.insert_revision(stream, oid, Revision { serial, end, data });
        }
    }

    /// As [`Cache::insert`], for data that are alone in their buffer: it is kept as it is.
    pub fn insert_revision(&self, stream: Stream, oid: Oid, revision: Revision) {
        let is_possible = revision.end.is_none_or(|end| end > revision.serial);
        if is_possible && self.objects.has_room_for(revision.data.len()) {
            self.in_order(stream, || self.remember(oid, revision));
        }
    }

    /// Takes in the notice that transaction `tid` of somebody else wrote `oids`.
    pub fn invalidate(&self, stream: Stream, tid: Tid, oids: impl IntoIterator<Item = Oid>) {
        self.in_order(stream, || {
            oids.into_iter().for_each(|oid| self.end(oid, tid));
            self.advance(tid);
        });
    }

    /// Takes in the reply to `tpc_finish`: our own transaction `tid` wrote these objects. The data
    /// are those that were stored, and `None` where the server has others (of a resolved conflict,
    /// say).
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

    /// All that is known, at one moment.
    fn snapshot(&self) -> Snapshot {
        let _order = self.order.lock();
        Snapshot { last_tid: self.last_tid(), histories: self.objects.all() }
    }

    /// Runs `change` unless the stream has been replaced by another.
    fn in_order(&self, stream: Stream, change: impl FnOnce()) {
        let order = self.order.lock();
        if *order == stream {
            change();
        }
    }

    /// The current revision of an object ends. With `order` held, like all below.
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

    /// Replaces what is known of an object, if anything is and `change` makes something else of it.
    fn change(&self, oid: Oid, change: impl FnOnce(&History) -> Option<Option<History>>) {
        match self.objects.look_at(oid).and_then(|history| change(&history)) {
            None => {}
            Some(None) => self.objects.remove(oid),
            Some(Some(changed)) => self.objects.replace(oid, changed),
        }
    }

    fn advance(&self, tid: Tid) {
        // Relaxed: written with `order` held only.
        if tid.0 > self.last_tid.load(Ordering::Relaxed) {
            self.last_tid.store(tid.0, Ordering::Release);
        }
    }
}
