//! The client: loads, calls, and the state of its storage.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use zodium_pickle::Value;
use zodium_tls::ClientTls;
use zodium_transport::TlsSide;
use zodium_types::{Address, Oid, Tid};

use crate::cache::CacheMetrics;
use crate::connection::{Connection, Started};
use crate::connector;
use crate::options::{Access, Options, TlsOptions, WarmUpList};
use crate::reading::{NO_OBJECT, oids_of};
use crate::shared::Shared;
use crate::table::{LoadKey, Loaded};
use crate::{ClientError, Revision};

/// Loads in flight above which a prefetch is skipped.
const PREFETCHED_MAX: usize = 4096;
/// Loads sent with one write.
const BATCH_LOADS: usize = 1000;
/// Longest wait of a close for the connector thread.
const CLOSE_PATIENCE: Duration = Duration::from_secs(5);
/// The same while it is connecting.
const CLOSE_PATIENCE_CONNECTING: Duration = Duration::from_millis(500);
const CLOSE_POLL: Duration = Duration::from_micros(200);
/// How often a load is retried on another connection.
const ATTEMPTS: usize = 3;

/// A storage on a server, shared by all threads of a program.
///
/// A thread that waits for a reply reads the connection itself, so a reply is handed to another
/// thread only if several wait at once. After a lost connection the client reconnects and fetches
/// the invalidations that it missed. Loads wait for the new connection; any other pending request
/// fails with [`ClientError::Disconnected`].
pub struct Client {
    /// Replaced in a forked child: the parent's connection and threads do not belong to it.
    shared: ArcSwap<Shared>,
    connector: Mutex<Option<JoinHandle<()>>>,
}

impl Client {
    /// Connects, and waits for the connection unless [`Options::wait`] says otherwise.
    pub fn connect(options: Options) -> Result<Client, ClientError> {
        if options.addresses.is_empty() {
            return Err(ClientError::options("there is no address of a server"));
        }
        let wait = options.wait;
        let tls = options.tls.as_ref().map(tls_side).transpose()?;
        let shared = Arc::new(Shared::new(options, tls));
        let connector = Mutex::new(Some(start_connector(&shared)?));
        let client = Client { shared: ArcSwap::new(shared), connector };
        if wait {
            client.wait()?;
        }
        Ok(client)
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.shared.load_full()
    }

    /// Waits until there is a connection, at most as long as a call would.
    pub fn wait(&self) -> Result<(), ClientError> {
        self.shared.load().established().map(drop)
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        self.shared.load().standing.usable().is_some()
    }

    /// The server's address as the system reports it, or a Unix socket's configured path. `None`
    /// without a connection.
    pub fn peer(&self) -> Option<String> {
        let shared = self.shared.load();
        let current = shared.standing.current();
        let peer = current.as_ref().and_then(|current| current.connection.transport.peer());
        peer.map(str::to_owned)
    }

    /// Whether commits are refused, as far as the client knows now.
    pub fn is_read_only(&self) -> bool {
        self.shared.load().is_read_only()
    }

    /// The server's answer to `get_info`: a dict with `length`, `size`, `name`, `supportsUndo` and
    /// `interfaces`. Empty before the first connection.
    pub fn info(&self) -> Value<'static> {
        self.shared.load().info()
    }

    /// Hits, misses, evictions and size of the cache.
    pub fn cache_metrics(&self) -> CacheMetrics {
        self.shared.load().cache.metrics()
    }

    /// The last transaction whose invalidations the client has received. A load before
    /// [`Tid::next`] of it is repeatable: later commits do not change the answer.
    ///
    /// Waits while the watcher is being told of another one, except in the watcher. So a part of
    /// the application that the watcher knows before this call misses no later transaction.
    /// [`Tid::ZERO`] before the first connection.
    pub fn last_tid(&self) -> Tid {
        self.shared.load().told.wait()
    }

    /// Like [`Client::last_tid`], but `None` instead of waiting, and before the first connection.
    pub fn last_tid_at_once(&self) -> Option<Tid> {
        self.shared.load().told.at_once()
    }

    /// Like [`Client::last_tid`], but waits for the first connection, as loads do.
    ///
    /// # Errors
    /// There was no connection yet, and none comes in time.
    pub fn last_tid_of_server(&self) -> Result<Tid, ClientError> {
        let shared = self.shared.load();
        if !shared.told.has_begun() {
            shared.established()?;
        }
        Ok(shared.told.wait())
    }

    /// Waits until the client has received the invalidations of everything that the server has
    /// committed by now. Takes one round trip; a lost connection is waited for.
    pub fn sync(&self) -> Result<(), ClientError> {
        retried(|| self.call("ping", &Value::tuple([]))).map(drop)
    }

    /// Loads the newest revision of an object written before transaction `before`; `None` if the
    /// object did not exist yet. Fails with [`ClientError::NoObject`] if it does not exist or is
    /// deleted.
    pub fn load_before(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        match self.load_cached(oid, before) {
            Some(revision) => Ok(Some(revision)),
            None => self.load_uncached(oid, before),
        }
    }

    /// Answers [`Client::load_before`] from the cache only, without blocking: a thread that holds a
    /// lock of the cache never waits.
    pub fn load_cached(&self, oid: Oid, before: Tid) -> Option<Revision> {
        self.shared.load().cached(oid, before)
    }

    /// Loads from the server, for callers that [`Client::load_cached`] gave nothing. What the cache
    /// has got meanwhile is not loaded again.
    pub fn load_uncached(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        load(&self.shared.load(), oid, before)
    }

    /// Loads the current revision of an object.
    pub fn load_current(&self, oid: Oid) -> Result<Revision, ClientError> {
        self.load_before(oid, Tid::MAX)?.ok_or(ClientError::NoObject(oid))
    }

    /// Loads the data that a transaction wrote for an object. Fails with [`ClientError::NoObject`]
    /// if it wrote none.
    pub fn load_serial(&self, oid: Oid, serial: Tid) -> Result<Vec<u8>, ClientError> {
        let shared = self.shared.load();
        let is_open = !shared.standing.is_closed();
        if is_open && let Some(revision) = shared.cache.lookup_serial(oid, serial) {
            return Ok(revision.data.to_vec());
        }
        let arguments = Value::tuple([oid.into(), serial.into()]);
        match retried(|| shared.connection()?.call("loadSerial", &arguments)) {
            Ok(Value::Bytes(data)) => Ok(data.into_owned()),
            Ok(_) => Err(ClientError::Unexpected { method: "loadSerial", expected: "data" }),
            Err(error) if error.is_exception(NO_OBJECT) => Err(ClientError::NoObject(oid)),
            Err(error) => Err(error),
        }
    }

    /// Loads many objects at once, as [`Client::load_before`] does. All cache misses are requested
    /// with one write. The answers are in the order of `oids`.
    pub fn load_many(
        &self,
        oids: &[Oid],
        before: Tid,
    ) -> Result<Vec<Result<Loaded, ClientError>>, ClientError> {
        let shared = self.shared.load();
        let mut answers: Vec<Option<Result<Loaded, ClientError>>> = oids
            .iter()
            .map(|oid| shared.cached(*oid, before).map(|known| Ok(Some(known))))
            .collect();
        let unknown = oids.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
        let keys: Vec<LoadKey> = unknown.map(|(oid, _)| (*oid, before)).collect();
        let mut loaded = retried(|| load_all(&shared, &keys))?.into_iter();
        for (oid, answer) in oids.iter().zip(&mut answers) {
            if answer.is_none() {
                *answer = match loaded.next() {
                    // The connection was lost meanwhile: load the missing ones one by one.
                    Some(Err(error)) if error.is_disconnection() => {
                        Some(load(&shared, *oid, before))
                    }
                    loaded => loaded,
                };
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Starts loading the objects that are not in the cache, and does not wait for them. A later
    /// load finds them in the cache or joins the pending request.
    ///
    /// This is a hint: it does nothing without a connection, or while too many loads are pending.
    pub fn prefetch(&self, oids: &[Oid], before: Tid) {
        let shared = self.shared.load();
        let current = shared.standing.current();
        let Some(connection) = current.as_ref().map(|current| &current.connection) else { return };
        let room = PREFETCHED_MAX.saturating_sub(connection.load_count());
        let is_known = |(oid, before): &LoadKey| shared.cache.knows(*oid, *before);
        let keys = oids.iter().map(|oid| (*oid, before)).filter(|key| !is_known(key));
        let keys: Vec<LoadKey> = keys.take(room).collect();
        for batch in keys.chunks(BATCH_LOADS) {
            if connection.start_loads(batch, is_known).is_err() {
                return;
            }
        }
    }

    /// Returns an oid for a new object. The client requests a hundred at once.
    pub fn new_oid(&self) -> Result<Oid, ClientError> {
        let shared = self.shared.load();
        // A fallback client may find a writable server later; a read-only client stays read-only.
        let stays = self.is_connected() || shared.options.access == Access::ReadOnly;
        if shared.is_read_only() && stays {
            return Err(ClientError::ReadOnly);
        }
        loop {
            if let Some(oid) = shared.oids.lock().pop() {
                return Ok(oid);
            }
            let answer = shared.connection()?.call("new_oids", &Value::tuple([]))?;
            let wrong = ClientError::Unexpected { method: "new_oids", expected: "oids" };
            let mut oids = oids_of(&answer).filter(|oids| !oids.is_empty()).ok_or(wrong)?;
            oids.reverse();
            shared.oids.lock().splice(0..0, oids);
        }
    }

    /// Calls any method of the server. `arguments` is a tuple.
    pub fn call(&self, method: &str, arguments: &Value<'_>) -> Result<Value<'static>, ClientError> {
        self.shared.load().connection()?.call(method, arguments)
    }

    /// Calls a method without a reply. A server that rejects the call closes the connection.
    pub fn cast(&self, method: &str, arguments: &Value<'_>) -> Result<(), ClientError> {
        self.shared.load().connection()?.cast(method, arguments)
    }

    /// Drops all revisions from the cache, so that the next loads go to the server.
    pub fn clear_cache(&self) {
        self.shared.load().cache.forget_revisions();
    }

    /// Reconnects to one of these servers, which must serve the same storage. The cache is kept and
    /// brought up to date, as after a lost connection.
    pub fn set_addresses(&self, addresses: Vec<Address>) -> Result<(), ClientError> {
        if addresses.is_empty() {
            return Err(ClientError::options("there is no address of a server"));
        }
        let shared = self.shared.load();
        // Set before the check below, which then also sees a connection that the connector makes
        // meanwhile.
        shared.use_addresses(addresses);
        if let Some(current) = &*shared.standing.current() {
            let reason = "it was left for another server";
            current.connection.end(ClientError::disconnected(reason));
        }
        if let Some(connector) = &*self.connector.lock() {
            connector.thread().unpark();
        }
        Ok(())
    }

    /// Closes the connection and fails all pending requests. Dropping the client does so too.
    ///
    /// Waits until the watcher has returned, if it is being called by another thread, but 5 seconds
    /// at most: the caller may hold a lock that the watcher takes.
    pub fn close(&self) {
        let shared = self.shared();
        shared.close();
        let mut is_read_here = false;
        if let Some(current) = &*shared.standing.current() {
            current.connection.end(ClientError::Closed);
            is_read_here = current.connection.is_read_here();
        }
        let connector = self.connector.lock().take();
        if is_read_here {
            // The connector waits until this thread has read, and ends by itself.
            return;
        }
        let Some(connector) = connector.filter(|one| one.thread().id() != thread::current().id())
        else {
            return;
        };
        connector.thread().unpark();
        let begun = Instant::now();
        while !connector.is_finished() {
            let patience = match shared.standing.is_handshaking() {
                true => CLOSE_PATIENCE_CONNECTING,
                false => CLOSE_PATIENCE,
            };
            if begun.elapsed() >= patience {
                // The connector is waiting for an unresponsive server, and will end after its
                // timeout; or for a lock that this thread holds. The next client may use the files
                // now.
                return shared.close_files();
            }
            thread::sleep(CLOSE_POLL);
        }
        // The connector returns nothing.
        let _ = connector.join();
    }

    /// Reinitializes the client in a forked child; call it before any other method. The child gets
    /// a connection of its own and an empty cache; the parent's connection is left alone.
    ///
    /// The parent's other threads do not exist in the child, so locks that they held stay locked
    /// for ever. Therefore nothing of the parent's state is used, and it is not even freed.
    pub fn after_fork_in_child(&self) -> Result<(), ClientError> {
        let parents = self.shared.load_full();
        // The parent keeps using the files.
        let addresses = parents.addresses.load_full().to_vec();
        let (cache_path, warm_up) = (None, WarmUpList::Off);
        let options = Options { addresses, cache_path, warm_up, ..parents.options.clone() };
        let mut shared = Shared::new(options, parents.tls.clone());
        shared.is_forked = true;
        let shared = Arc::new(shared);
        let connector = start_connector(&shared)?;
        std::mem::forget(self.shared.swap(shared));
        std::mem::forget(parents);
        // A thread that no longer exists may hold the lock.
        if let Some(mut place) = self.connector.try_lock_for(Duration::ZERO) {
            std::mem::forget(place.replace(connector));
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

fn start_connector(shared: &Arc<Shared>) -> Result<JoinHandle<()>, ClientError> {
    let shared = Arc::clone(shared);
    let builder = thread::Builder::new().name("zodium-connector".to_owned());
    let started = builder.spawn(move || connector::run(&shared));
    started.map_err(|error| ClientError::options(format!("cannot start a thread: {error}")))
}

fn tls_side(options: &TlsOptions) -> Result<TlsSide, ClientError> {
    let tls = ClientTls::load(&options.files).map_err(ClientError::options)?;
    let name = options.server_name.clone().map(ServerName::try_from).transpose();
    Ok(TlsSide { config: tls.config(), name: name.map_err(ClientError::options)? })
}

/// Loads from the server, and retries on a new connection if the connection is lost.
fn load(shared: &Shared, oid: Oid, before: Tid) -> Result<Loaded, ClientError> {
    retried(|| load_once(shared, (oid, before)))
}

/// Repeats what changes nothing, as long as the connection is lost meanwhile.
fn retried<T>(attempt: impl Fn() -> Result<T, ClientError>) -> Result<T, ClientError> {
    for _ in 1..ATTEMPTS {
        let answer = attempt();
        // Without a connection the attempt has waited as long as a call may.
        if !matches!(&answer, Err(ClientError::Disconnected(_))) {
            return answer;
        }
    }
    attempt()
}

fn load_once(shared: &Shared, key: LoadKey) -> Result<Loaded, ClientError> {
    let connection = &*shared.connection()?;
    // A load of the current revision must be sent now: the reply to an earlier one may be older.
    if key.1 == Tid::MAX && connection.loads(&key) {
        return load_apart(connection, key);
    }
    let promise = match connection.start_load(key, || shared.cached(key.0, key.1))? {
        Started::UnderWay(promise) => promise,
        Started::Known(revision) => return Ok(Some(revision)),
    };
    connection.wait(&promise)?;
    promise.answer().unwrap_or_else(|| Err(ClientError::disconnected("it was not answered")))
}

fn load_apart(connection: &Connection, (oid, before): LoadKey) -> Result<Loaded, ClientError> {
    let answer = connection.call("loadBefore", &Value::tuple([oid.into(), before.into()]));
    match answer {
        Err(error) if error.is_exception(NO_OBJECT) => Err(ClientError::NoObject(oid)),
        Ok(Value::None) => Ok(None),
        answer => Revision::from_answer(answer?).map(Some),
    }
}

fn load_all(
    shared: &Shared,
    keys: &[LoadKey],
) -> Result<Vec<Result<Loaded, ClientError>>, ClientError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let connection = shared.connection()?;
    let mut promises = Vec::with_capacity(keys.len());
    for batch in keys.chunks(BATCH_LOADS) {
        promises.extend(connection.start_loads(batch, |_| false)?);
    }
    let mut answers = Vec::with_capacity(promises.len());
    for promise in promises {
        connection.wait(&promise)?;
        let unanswered = || Err(ClientError::disconnected("it was not answered"));
        answers.push(promise.answer().unwrap_or_else(unanswered));
    }
    Ok(answers)
}
