//! The state that all threads of a client share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use bytes::Bytes;
use parking_lot::Mutex;
use tracing::warn;
use zodium_disk::RealDisk;
use zodium_pickle::Value;
use zodium_transport::{Patience, TlsSide};
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::LoadReply;

use crate::cache::{Cache, CacheFile, Stream};
use crate::commit_turns::{CommitTurn, CommitTurns};
use crate::connection::{Connection, Receiver};
use crate::keyed_mutex::KeyedMutex;
use crate::objects::ObjectsAhead;
use crate::options::{Access, Options, SILENCE_LIMIT, TIMEOUT_MAX};
use crate::standing::{Established, Phase, Standing};
use crate::warm_up::WarmUp;
use crate::{ClientError, LastTold, Revision};

pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) tls: Option<TlsSide>,
    /// Whether this is a forked child.
    pub(crate) is_forked: bool,
    /// Whether waiting threads are interrupted.
    pub(crate) patience: Patience,
    /// Addresses of servers: those of the options until they are replaced.
    pub(crate) addresses: ArcSwap<Vec<Address>>,
    pub(crate) cache: Cache,
    /// The file that keeps the cache, if any; `None` once it is closed.
    cache_file: Mutex<Option<CacheFile>>,
    /// The objects that are loaded first, for the next run.
    pub(crate) warm_up: WarmUp,
    pub(crate) standing: Standing,
    /// The last transaction that the watcher was told of. A reader of it sees the cache as of that
    /// transaction.
    pub(crate) told: LastTold,
    /// Whether a server was refused because it lacks transactions that the application has seen:
    /// they may be lost. Set with Release, loaded with Acquire.
    pub(crate) has_met_older: AtomicBool,
    /// The server's answer to `get_info`: a dict.
    info: Mutex<Value<'static>>,
    /// Unused oids from the server, the next one last.
    pub(crate) oids: Mutex<Vec<Oid>>,
    /// Read-ahead of the iteration over all objects.
    pub(crate) objects_ahead: Mutex<ObjectsAhead>,
    commits: Arc<CommitTurns>,
    /// Locks blobs that are being fetched.
    pub(crate) blob_locks: KeyedMutex<(Oid, Tid)>,
}

/// Delivers the messages of one connection to cache and watcher.
pub(crate) struct Delivery {
    pub(crate) shared: Arc<Shared>,
    /// Set before the first delivery.
    pub(crate) stream: OnceLock<Stream>,
}

impl Shared {
    pub(crate) fn new(mut options: Options, tls: Option<TlsSide>) -> Shared {
        options.wait_timeout = options.wait_timeout.min(TIMEOUT_MAX);
        options.silence_max = options.silence_max.min(SILENCE_LIMIT);
        let cache = Cache::new(options.cache_bytes);
        let source = source(&options.storage, &options.addresses);
        Shared {
            warm_up: WarmUp::open(&options, &source),
            cache_file: Mutex::new(open_cache_file(&options, source, &cache)),
            cache,
            patience: Patience::new(options.interrupt.clone()),
            addresses: ArcSwap::from_pointee(options.addresses.clone()),
            options,
            tls,
            is_forked: false,
            standing: Standing::default(),
            told: LastTold::default(),
            has_met_older: AtomicBool::new(false),
            info: Mutex::new(Value::Dict(Vec::new())),
            oids: Mutex::default(),
            objects_ahead: Mutex::default(),
            commits: Arc::default(),
            blob_locks: KeyedMutex::new(),
        }
    }

    /// The connection; waits for one as long as calls may.
    pub(crate) fn established(&self) -> Result<Arc<Established>, ClientError> {
        self.standing.established(self.options.wait_timeout, &self.patience)
    }

    pub(crate) fn connection(&self) -> Result<Arc<Connection>, ClientError> {
        self.established().map(|current| Arc::clone(&current.connection))
    }

    /// The cached answer to a load, if it is certainly correct. `None` once the client is closed:
    /// it hears of no further commits.
    pub(crate) fn cached(&self, oid: Oid, before: Tid) -> Option<Revision> {
        if self.standing.is_closed() {
            return None;
        }
        self.warm_up.note(oid);
        // Read before the lookup: a commit that is applied after it may have ended the revision.
        let cached_until = self.cache.last_tid();
        let revision = self.cache.lookup(oid, before)?;
        let is_sure = if before == Tid::MAX {
            // A revision whose invalidation is being delivered becomes visible after the delivery.
            revision.serial <= self.told.so_far()
        } else {
            // Only the server knows about the time after the last transaction heard of.
            revision.end.is_some() || before <= cached_until.next()
        };
        is_sure.then_some(revision)
    }

    /// Saves the cache and the warm-up list to their files if a save is due.
    pub(crate) fn save_if_due(&self) {
        self.warm_up.save_if_due(&self.source(), Instant::now());
        let file = self.cache_file.lock();
        let saved = file.as_ref().map_or(Ok(()), |file| file.save_if_due(&self.cache));
        // A logger may wait for a lock of the thread that closes the client, which waits for this.
        drop(file);
        saved.unwrap_or_else(|error| warn!(%error, "cannot save the cache"));
    }

    /// Saves the warm-up list and the cache, and releases the cache's file.
    pub(crate) fn close_files(&self) {
        self.warm_up.save(&self.source());
        let file = self.cache_file.lock().take();
        let saved = file.map_or(Ok(()), |file| file.save(&self.cache));
        saved.unwrap_or_else(|error| warn!(%error, "cannot save the cache"));
    }

    /// Identifies the storage and its servers of now.
    fn source(&self) -> String {
        source(&self.options.storage, &self.addresses.load())
    }

    pub(crate) fn info(&self) -> Value<'static> {
        self.info.lock().clone()
    }

    /// Merges a full or partial answer of the server to `get_info`.
    pub(crate) fn take_info(&self, news: &Value<'_>) {
        let mut info = self.info.lock();
        let Value::Dict(entries) = &mut *info else { return };
        for (key, value) in news.as_dict().unwrap_or_default() {
            entries.retain(|(known, _)| known != key);
            entries.push((key.clone().into_owned(), value.clone().into_owned()));
        }
    }

    /// Whether commits are refused, as far as the client knows now.
    pub(crate) fn is_read_only(&self) -> bool {
        match (&*self.standing.current(), self.options.access) {
            (_, Access::ReadOnly) => true,
            (Some(current), _) => current.is_read_only,
            (None, access) => access != Access::ReadWrite,
        }
    }

    /// Sets the addresses for further connections.
    pub(crate) fn use_addresses(&self, addresses: Vec<Address>) {
        if let Some(file) = &mut *self.cache_file.lock() {
            file.set_source(source(&self.options.storage, &addresses));
        }
        self.addresses.store(Arc::new(addresses));
    }

    /// Waits until no other transaction is open.
    ///
    /// # Errors
    /// The client is closed, or the thread is interrupted.
    pub(crate) fn begin_commit(&self) -> Result<CommitTurn, ClientError> {
        self.commits.begin(&self.standing, &self.patience)
    }

    /// Fails all calls that wait, and those to come.
    pub(crate) fn close(&self) {
        self.standing.enter(Phase::Closed);
        self.commits.dismiss();
    }
}

/// Opens the file that keeps the cache. On failure the client works without one.
fn open_cache_file(options: &Options, source: String, cache: &Cache) -> Option<CacheFile> {
    let path = options.cache_path.as_ref()?;
    let opened = CacheFile::open(Arc::new(RealDisk), path, source, cache);
    opened.inspect_err(|error| warn!(%error, "the cache is not kept")).ok()
}

/// Identifies the storage and servers of a cache.
fn source(storage: &str, addresses: &[Address]) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    format!("storage {storage} of {}", addresses.join(" "))
}

impl Receiver for Delivery {
    fn loaded(&self, reply: &LoadReply<'_>, data: &Bytes) {
        if let Some(stream) = self.stream.get() {
            let data = data.clone();
            let revision = Revision { data, serial: reply.serial, end: reply.end };
            self.shared.cache.insert_revision(*stream, reply.oid, revision);
        }
    }

    fn invalidated(&self, tid: Tid, oids: &[Oid]) -> Result<(), ClientError> {
        if let Some(stream) = self.stream.get() {
            self.shared.cache.invalidate(*stream, tid, oids.iter().copied());
        }
        self.shared.told.tell(tid, || match &self.shared.options.watcher {
            Some(watcher) => watcher.invalidated(tid, oids),
            None => Ok(()),
        })
    }

    fn info(&self, info: &Value<'_>) {
        self.shared.take_info(info);
        if let Some(watcher) = &self.shared.options.watcher {
            watcher.info(info);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// The system refuses a longer silence for a connection over TCP.
    #[test]
    fn a_silence_beyond_what_the_system_counts_is_as_long_as_a_day() {
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        let options = Options { silence_max: Duration::MAX, ..Options::new(address) };
        assert_eq!(Shared::new(options, None).options.silence_max, Duration::from_secs(86_400));
    }

    #[test]
    fn a_wait_beyond_what_the_clock_counts_is_as_long_as_a_century() {
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        let options = Options { wait_timeout: Duration::MAX, ..Options::new(address) };
        let wait_timeout = Shared::new(options, None).options.wait_timeout;
        assert_eq!(wait_timeout, Duration::from_secs(100 * 365 * 86_400));
    }

    #[test]
    fn a_load_as_of_a_commit_that_is_being_applied_never_finds_what_it_replaces() {
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
        let shared = &Shared::new(Options::new(address), None);
        let (oid, stream) = (Oid(1), shared.cache.begin_stream());
        shared.cache.finish(stream, Tid(1), [(oid, Some(&b"data"[..]))]);
        thread::scope(|scope| {
            for tid in (2..20_000).map(Tid) {
                let reader = scope.spawn(move || {
                    // Until the commit is applied, only the server knows.
                    let found = || shared.cached(oid, tid.next());
                    let serial = std::iter::repeat_with(found).flatten().next().unwrap().serial;
                    assert_eq!(serial, tid);
                });
                shared.cache.finish(stream, tid, [(oid, Some(&b"data"[..]))]);
                reader.join().unwrap();
            }
        });
    }
}
