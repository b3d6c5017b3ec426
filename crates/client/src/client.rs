//! The client: loads, calls, and what it knows of its storage.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use zodium_pickle::Value;
use zodium_tls::ClientTls;
use zodium_types::{Address, Oid, Tid};

use crate::cache::CacheMetrics;
use crate::connection::{Connection, Started};
use crate::connector;
use crate::options::{Access, Options, TlsOptions};
use crate::reading::oids_of;
use crate::shared::{Phase, Shared};
use crate::table::{LoadKey, Loaded};
use crate::transport::TlsSide;
use crate::{ClientError, Revision};

/// Loads that may be under way before another prefetch is passed over.
const PREFETCHED_MAX: usize = 4096;
/// Loads asked for with one write.
const BATCH_LOADS: usize = 1000;
/// A connector that is connecting is not waited for any longer.
const CLOSE_PATIENCE: Duration = Duration::from_millis(500);
const CLOSE_POLL: Duration = Duration::from_micros(200);
/// How often a load is asked for anew because its connection was lost.
const LOAD_ATTEMPTS: usize = 3;

/// A storage on a server, for all threads of a program.
///
/// A thread that waits for an answer reads the connection itself; nothing is handed from thread to
/// thread unless several wait at once. When the connection is lost another is made, and what was
/// committed meanwhile is learned; loads wait for that, everything else that was under way fails
/// with [`ClientError::Disconnected`].
pub struct Client {
    /// Replaced in a forked child, where the parent's connection and threads are not ours.
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

    /// Waits for a connection as long as calls do.
    pub fn wait(&self) -> Result<(), ClientError> {
        self.shared.load().established().map(drop)
    }

    /// Whether there is a connection now.
    pub fn is_connected(&self) -> bool {
        let shared = self.shared.load();
        let current = shared.connection.load();
        current.as_ref().is_some_and(|current| current.connection.end_reason().is_none())
    }

    /// The server's address as the system knows it, or a Unix socket's as it was given. `None`:
    /// there is no connection.
    pub fn peer(&self) -> Option<String> {
        let shared = self.shared.load();
        let current = shared.connection.load();
        let peer = current.as_ref().and_then(|current| current.connection.transport.peer());
        peer.map(str::to_owned)
    }

    /// Whether commits are refused, as far as is known now.
    pub fn is_read_only(&self) -> bool {
        self.shared.load().is_read_only()
    }

    /// What the server says of itself: a dict with `length`, `size`, `name`, `supportsUndo` and
    /// `interfaces`. Empty before the first connection.
    pub fn info(&self) -> Value<'static> {
        self.shared.load().info()
    }

    /// What the cache holds, and how often it knew.
    pub fn cache_metrics(&self) -> CacheMetrics {
        self.shared.load().cache.metrics()
    }

    /// The last transaction that the client was told of. Everything before [`Tid::next`] of it can
    /// be loaded as it was then, and changes that come later do not show.
    pub fn last_tid(&self) -> Tid {
        self.shared.load().last_tid()
    }

    /// Waits until everything has been told that the server had committed when it was asked: a
    /// round trip.
    pub fn sync(&self) -> Result<(), ClientError> {
        self.call("ping", &Value::tuple([])).map(drop)
    }

    /// The last revision of an object that a transaction before `before` wrote; `None`: it did not
    /// exist yet. [`ClientError::NoObject`]: it does not exist, or is deleted.
    pub fn load_before(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        match self.load_cached(oid, before) {
            Some(revision) => Ok(Some(revision)),
            None => self.load_uncached(oid, before),
        }
    }

    /// What [`Client::load_before`] answers from memory. Nobody is waited for: threads that hold a
    /// lock of the cache wait for nothing themselves.
    pub fn load_cached(&self, oid: Oid, before: Tid) -> Option<Revision> {
        self.shared.load().cached(oid, before)
    }

    /// What [`Client::load_before`] asks the server when [`Client::load_cached`] knows nothing.
    pub fn load_uncached(&self, oid: Oid, before: Tid) -> Result<Option<Revision>, ClientError> {
        load(&self.shared.load(), oid, before)
    }

    /// The revision of an object that is current.
    pub fn load_current(&self, oid: Oid) -> Result<Revision, ClientError> {
        self.load_before(oid, Tid::MAX)?.ok_or(ClientError::NoObject(oid))
    }

    /// The data that a transaction wrote for an object.
    pub fn load_serial(&self, oid: Oid, serial: Tid) -> Result<Vec<u8>, ClientError> {
        let shared = self.shared.load();
        if let Some(revision) = shared.cache.lookup_serial(oid, serial) {
            return Ok(revision.data.to_vec());
        }
        let arguments = Value::tuple([oid.into(), serial.into()]);
        match shared.connection()?.call("loadSerial", &arguments)? {
            Value::Bytes(data) => Ok(data.into_owned()),
            _ => Err(ClientError::Unexpected { method: "loadSerial", expected: "data" }),
        }
    }

    /// As [`Client::load_before`] for many objects at once: what is not in memory is asked for with
    /// one write. The answers come in the order of `oids`.
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
        let mut loaded = load_all(&shared, &keys)?.into_iter();
        for (oid, answer) in oids.iter().zip(&mut answers) {
            if answer.is_none() {
                *answer = match loaded.next() {
                    // The connection was lost meanwhile: those that are missing, one by one.
                    Some(Err(error)) if error.is_disconnection() => {
                        Some(load(&shared, *oid, before))
                    }
                    loaded => loaded,
                };
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Begins to load objects that are not in memory, and does not wait for them: a later load
    /// finds them there, or joins the one that is under way. It is a hint: nothing is begun when
    /// there is no connection, or so much is under way that more would only stand in the way.
    pub fn prefetch(&self, oids: &[Oid], before: Tid) {
        let shared = self.shared.load();
        let current = shared.connection.load();
        let Some(connection) = current.as_ref().map(|current| &current.connection) else { return };
        let room = PREFETCHED_MAX.saturating_sub(connection.load_count());
        let unknown = oids.iter().filter(|oid| !shared.cache.knows(**oid, before));
        let keys: Vec<LoadKey> = unknown.take(room).map(|oid| (*oid, before)).collect();
        for batch in keys.chunks(BATCH_LOADS) {
            if connection.start_loads(batch).is_err() {
                return;
            }
        }
    }

    /// An oid for a new object. The server is asked for a hundred at once.
    pub fn new_oid(&self) -> Result<Oid, ClientError> {
        let shared = self.shared.load();
        // A fallback may find a server that takes commits; what was asked to be read-only stays so.
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

    /// Calls a method that is not answered. When the server does not like it, it closes the
    /// connection.
    pub fn cast(&self, method: &str, arguments: &Value<'_>) -> Result<(), ClientError> {
        self.shared.load().connection()?.cast(method, arguments)
    }

    /// Forgets all revisions that the cache has: what is loaded next comes from the server.
    pub fn clear_cache(&self) {
        self.shared.load().cache.forget_revisions();
    }

    /// Leaves the server for one of these, which serve the same storage. What is in the cache
    /// stays: the new server is asked what has changed, as after a lost connection.
    pub fn set_addresses(&self, addresses: Vec<Address>) -> Result<(), ClientError> {
        if addresses.is_empty() {
            return Err(ClientError::options("there is no address of a server"));
        }
        let shared = self.shared.load();
        // First: a connection that the connector makes meanwhile is looked at again afterwards.
        shared.use_addresses(addresses);
        if let Some(current) = &*shared.connection.load() {
            let reason = "it was left for another server";
            current.connection.end(ClientError::disconnected(reason));
        }
        if let Some(connector) = &*self.connector.lock() {
            connector.thread().unpark();
        }
        Ok(())
    }

    /// Ends the connection and everything that waits for it.
    pub fn close(&self) {
        let shared = self.shared();
        shared.enter(Phase::Closed);
        shared.dismiss_commits();
        if let Some(current) = &*shared.connection.load() {
            current.connection.end(ClientError::Closed);
        }
        let connector = self.connector.lock().take();
        let Some(connector) = connector.filter(|one| one.thread().id() != thread::current().id())
        else {
            return;
        };
        connector.thread().unpark();
        let patience = Instant::now() + CLOSE_PATIENCE;
        while !connector.is_finished() {
            if shared.is_opening.load(Ordering::Relaxed) && Instant::now() >= patience {
                // It waits for a server that does not answer, and will see that it is over.
                return;
            }
            thread::sleep(CLOSE_POLL);
        }
        // It has nothing to say.
        let _ = connector.join();
    }

    /// For a forked child, before it does anything else with the client: leaves the parent's
    /// connection alone, and makes one of its own, with an empty cache.
    ///
    /// What other threads of the parent did at the moment of the fork stays undone for ever in the
    /// child, so nothing of it is touched, not even to be freed.
    pub fn after_fork_in_child(&self) -> Result<(), ClientError> {
        let parents = self.shared.load_full();
        // The parent keeps its cache in the file.
        let addresses = parents.addresses.load_full().to_vec();
        let options = Options { addresses, cache_path: None, ..parents.options.clone() };
        let shared = Arc::new(Shared::new(options, parents.tls.clone()));
        let connector = start_connector(&shared)?;
        std::mem::forget(self.shared.swap(shared));
        std::mem::forget(parents);
        // The lock may be held by a thread that is not there any more.
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

/// Loads from the server, from another one when the connection is lost.
fn load(shared: &Shared, oid: Oid, before: Tid) -> Result<Loaded, ClientError> {
    let mut answer = Err(ClientError::NoObject(oid));
    for _ in 0..LOAD_ATTEMPTS {
        answer = load_once(shared, (oid, before));
        if !matches!(&answer, Err(error) if error.is_disconnection()) {
            break;
        }
    }
    answer
}

fn load_once(shared: &Shared, key: LoadKey) -> Result<Loaded, ClientError> {
    let connection = &*shared.connection()?;
    // "Current" means as of now: not of when somebody else asked.
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
        Err(error) if error.is_exception("ZODB.POSException.POSKeyError") => {
            Err(ClientError::NoObject(oid))
        }
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
        promises.extend(connection.start_loads(batch)?);
    }
    let mut answers = Vec::with_capacity(promises.len());
    for promise in promises {
        connection.wait(&promise)?;
        let unanswered = || Err(ClientError::disconnected("it was not answered"));
        answers.push(promise.answer().unwrap_or_else(unanswered));
    }
    Ok(answers)
}
