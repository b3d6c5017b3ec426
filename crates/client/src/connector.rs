//! The connector thread: finds a server, catches up with missed invalidations, reads the connection
//! while no caller does, and reconnects when it is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use zodium_pickle::Value;
use zodium_types::{Address, Oid, Tid};

use crate::connection::Connection;
use crate::idle::LivenessCheck;
use crate::options::Access;
use crate::reading::oids_of;
use crate::shared::{Delivery, Shared};
use crate::standing::{Established, Phase};
use crate::{ClientError, chunk, warm_up};

/// Interval between heartbeats, as stock clients use it.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// Interval between connection attempts.
const RETRY: Duration = Duration::from_secs(1);
/// Interval between searches for a writable server while connected to a read-only one.
const UPGRADE: Duration = Duration::from_secs(5);
/// Longest time for a server to answer the handshake and registration, and for what follows them.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait for a better server than the second choice.
const SECOND_CHOICE_DELAY: Duration = Duration::from_secs(1);

const READ_ONLY_ERROR: &str = "ZODB.POSException.ReadOnlyError";

/// A connection that a server has accepted a registration on.
struct Candidate {
    connection: Connection,
    delivery: Arc<Delivery>,
    /// The server's last transaction.
    last_tid: Tid,
    is_read_only: bool,
}

/// Runs until the client is closed.
pub(crate) fn run(shared: &Arc<Shared>) {
    shared.standing.connect_here();
    let mut addresses = shared.addresses.load_full();
    let mut better = None;
    while !shared.standing.is_closed() {
        let started = Instant::now();
        shared.standing.set_handshaking(true);
        let found = match better.take() {
            Some(candidate) => Ok(candidate),
            None => {
                addresses = shared.addresses.load_full();
                find(shared, &addresses, false)
            }
        };
        let established = found.and_then(|candidate| {
            let panicked = || Err(ClientError::disconnected("a watcher panicked"));
            outlived(|| establish(shared, candidate)).unwrap_or_else(panicked)
        });
        shared.standing.set_handshaking(false);
        match established {
            Ok(current) => {
                let warm_up = warm_up::start(shared, &current);
                // The addresses may have changed while it connected.
                if Arc::ptr_eq(&addresses, &shared.addresses.load()) {
                    better = outlived(|| maintain(shared, &current, &addresses)).flatten();
                }
                end(shared, &current);
                // It may be telling the watcher of a commit, so it ends before the client does. The
                // thread returns nothing.
                let _ = warm_up.map(JoinHandle::join);
            }
            Err(error) => shared.standing.enter(Phase::Connecting(error.to_string().into())),
        }
        if better.is_none() {
            pause(shared, &addresses, started + RETRY);
        }
    }
    shared.close_files();
}

/// Waits for the next attempt, unless the client is closed or gets other addresses.
fn pause(shared: &Shared, addresses: &Arc<Vec<Address>>, next: Instant) {
    while !shared.standing.is_closed() && Arc::ptr_eq(addresses, &shared.addresses.load()) {
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left);
    }
}

/// Maintains a connection until it ends, and gives a better one that was found meanwhile.
fn maintain(
    shared: &Arc<Shared>,
    current: &Established,
    addresses: &Arc<Vec<Address>>,
) -> Option<Candidate> {
    let connection = &current.connection;
    let mut next_heartbeat = Instant::now() + HEARTBEAT;
    let mut liveness = LivenessCheck::new(shared.options.silence_max);
    let wants_better = current.is_read_only && shared.options.access == Access::Fallback;
    let patience = if wants_better { UPGRADE } else { HEARTBEAT };
    let (better, found) = mpsc::channel();
    let mut search: Option<JoinHandle<()>> = None;
    while connection.end_reason().is_none() && !shared.standing.is_closed() {
        connection.read_while_idle(
            next_heartbeat.min(liveness.next_check()).min(Instant::now() + patience),
        );
        liveness.check(connection);
        shared.save_if_due();
        if Instant::now() >= next_heartbeat {
            next_heartbeat += HEARTBEAT;
            // On failure the connection has ended, which the loop condition sees.
            let _ = connection.send_heartbeat();
        }
        let is_searching = search.as_ref().is_some_and(|search| !search.is_finished());
        if wants_better && !is_searching && connection.end_reason().is_none() {
            search = start_search(shared, addresses, connection, better.clone());
        }
    }
    found.try_recv().ok()
}

/// Searches for a writable server on a thread of its own: one that hangs must not keep the
/// connector from reading. The search ends the connection if it finds one.
fn start_search(
    shared: &Arc<Shared>,
    addresses: &Arc<Vec<Address>>,
    connection: &Arc<Connection>,
    better: mpsc::Sender<Candidate>,
) -> Option<JoinHandle<()>> {
    let (shared, addresses) = (Arc::clone(shared), Arc::clone(addresses));
    let connection = Arc::clone(connection);
    let search = move || {
        let Ok(candidate) = find(&shared, &addresses, true) else { return };
        info!("found a writable server, switching to it");
        // The connector takes it when the connection has ended, if it still waits for one.
        let _ = better.send(candidate);
        connection.end(ClientError::disconnected("switching to another server"));
    };
    // Without a thread it is tried again at the next look.
    thread::Builder::new().name("zodium-connect".to_owned()).spawn(search).ok()
}

/// Ends a connection, and waits until its last message has been handled.
fn end(shared: &Shared, current: &Established) {
    let reason = match shared.standing.is_closed() {
        true => ClientError::Closed,
        false => ClientError::disconnected("switching to another server"),
    };
    current.connection.end(reason);
    drop(current.connection.reading.lock());
    shared.standing.end();
    // Another server allocates other oids.
    shared.oids.lock().clear();
    if let Some(reason) = current.connection.end_reason() {
        shared.standing.enter(Phase::Connecting(reason.to_string().into()));
    }
    // The thread that closes the client waits for this one, and may hold a lock that the watcher
    // or a logger takes: a signal handler runs wherever its thread is.
    if shared.standing.is_closed() {
        return;
    }
    if let Some(reason) = current.connection.end_reason() {
        warn!(%reason, "disconnected");
    }
    if let Some(watcher) = &shared.options.watcher {
        outlived(|| watcher.disconnected());
    }
}

/// Calls what calls watchers; `None` if it panics. The client has no other thread that connects.
fn outlived<T>(call: impl FnOnce() -> T) -> Option<T> {
    let called = catch_unwind(AssertUnwindSafe(call));
    called.inspect_err(|_| error!("a watcher panicked; the client connects anew")).ok()
}

/// Tries all servers at once; the first acceptable one wins. A read-only server is the second
/// choice for a fallback client, unless only `writable` ones are wanted: it is taken when no other
/// answers soon.
fn find(
    shared: &Arc<Shared>,
    addresses: &[Address],
    writable: bool,
) -> Result<Candidate, ClientError> {
    if let [address] = addresses {
        return connect_to(shared, address, writable);
    }
    let (found, finds) = mpsc::channel();
    for address in addresses {
        let (shared, address, found) = (Arc::clone(shared), address.clone(), found.clone());
        let attempt = move || {
            // A connection that is no longer wanted is closed here.
            let _ = found.send(connect_to(&shared, &address, writable));
        };
        let started = thread::Builder::new().name("zodium-connect".to_owned()).spawn(attempt);
        started.map_err(ClientError::disconnected)?;
    }
    drop(found);
    let mut second_choice = Err(ClientError::options("there is no address of a server"));
    loop {
        let result = match &second_choice {
            Ok(_) => finds.recv_timeout(SECOND_CHOICE_DELAY).ok(),
            Err(_) => finds.recv().ok(),
        };
        let Some(result) = result else { return second_choice };
        match result {
            Ok(candidate) if is_wanted(shared, &candidate) => return Ok(candidate),
            Ok(candidate) => second_choice = Ok(candidate),
            Err(error) if second_choice.is_err() => second_choice = Err(error),
            Err(_) => {}
        }
    }
}

fn handshake_limit(shared: &Shared) -> Duration {
    HANDSHAKE_TIMEOUT.min(shared.options.silence_max)
}

fn is_wanted(shared: &Shared, candidate: &Candidate) -> bool {
    !(candidate.is_read_only && shared.options.access == Access::Fallback)
}

/// Connects to one server and registers.
fn connect_to(
    shared: &Arc<Shared>,
    address: &Address,
    writable: bool,
) -> Result<Candidate, ClientError> {
    let delivery = Arc::new(Delivery { shared: Arc::clone(shared), stream: OnceLock::new() });
    let receiver = Arc::clone(&delivery);
    let tls = shared.tls.as_ref();
    let limit = handshake_limit(shared);
    let patience = shared.patience.clone();
    shared.standing.note_attempt(address);
    let accepted = || shared.standing.note_silence(address, tls.is_some());
    let connection = Connection::open(address, tls, limit, receiver, patience, accepted)?;
    let register = |read_only: bool| {
        let storage = Value::from(shared.options.storage.as_str());
        connection.call("register", &Value::tuple([storage, read_only.into()]))
    };
    let access = shared.options.access;
    let mut is_read_only = access == Access::ReadOnly;
    let mut registered = register(is_read_only);
    if let Err(error) = &registered
        && error.is_exception(READ_ONLY_ERROR)
        && access == Access::Fallback
        && !writable
    {
        is_read_only = true;
        registered = register(true);
    }
    let mut last = registered?;
    if last.is_none() {
        last = connection.call("lastTransaction", &Value::tuple([]))?;
    }
    let wrong = ClientError::Unexpected { method: "register", expected: "a tid" };
    let last_tid = last.as_tid().ok_or(wrong)?;
    // Refused here, so that it does not keep the client from another server.
    refuse_older(shared, last_tid)?;
    Ok(Candidate { connection, delivery, last_tid, is_read_only })
}

/// Refuses a server that lacks transactions that the application has seen.
fn refuse_older(shared: &Shared, last_tid: Tid) -> Result<(), ClientError> {
    let told = shared.told.so_far();
    let newest = told.max(shared.cache.last_tid());
    // Without an application that has seen them, a cache that is ahead is dropped.
    if told == Tid::ZERO || newest <= last_tid {
        return Ok(());
    }
    shared.has_met_older.store(true, Ordering::Release);
    let text = format!(
        "the server's last transaction is {last_tid}, but we have seen {newest} already: it \
         serves another or an older database"
    );
    Err(ClientError::options(text))
}

/// Catches up with missed invalidations, and lets callers use the connection.
fn establish(shared: &Arc<Shared>, candidate: Candidate) -> Result<Arc<Established>, ClientError> {
    let Candidate { connection, delivery, last_tid, is_read_only } = candidate;
    connection.extend_handshake(handshake_limit(shared));
    let stream = shared.cache.begin_stream();
    let _ = delivery.stream.set(stream);
    let known = catch_up(shared, &connection, &delivery, last_tid)?;
    if let Some(label) = &shared.options.label {
        connection.cast("set_client_label", &Value::tuple([label.as_str().into()]))?;
    }
    // Handled as it comes, before the news of a later size that may follow it at once.
    let told = Arc::clone(shared);
    let then = move |info: &Value<'_>| {
        told.take_info(info);
        told.options.watcher.as_ref().map_or(Ok(()), |watcher| watcher.connected(info))
    };
    let promise = connection.request("get_info", &Value::tuple([]), Some(Box::new(then)))?;
    connection.wait(&promise)?;
    let has_chunks = chunk::are_offered(&connection.taken(&promise)?);
    connection.establish(known, shared.options.silence_max)?;
    let connection = Arc::new(connection);
    let current = Arc::new(Established { connection, stream, is_read_only, has_chunks });
    shared.standing.begin(Arc::clone(&current));
    info!(peer = current.connection.transport.peer(), is_read_only, "connected");
    Ok(current)
}

/// Brings the cache up to date with the server; returns the transaction that it is up to date with.
fn catch_up(
    shared: &Shared,
    connection: &Connection,
    delivery: &Delivery,
    last_tid: Tid,
) -> Result<Tid, ClientError> {
    let Some(stream) = delivery.stream.get() else { return Ok(last_tid) };
    let (told, cached) = (shared.told.so_far(), shared.cache.last_tid());
    // A commit that a watcher panicked at is in the cache already, and has to be told again.
    let known = if told == Tid::ZERO { cached } else { told };
    let newest = told.max(cached);
    if known == Tid::ZERO || known == last_tid && newest == last_tid {
        shared.cache.verified(*stream, last_tid, []);
        shared.told.tell(last_tid, || {
            // The application has objects of the parent, which may have missed commits.
            let watcher = shared.options.watcher.as_ref().filter(|_| told == Tid::ZERO);
            let watcher = watcher.filter(|_| shared.is_forked);
            watcher.map_or(Ok(()), |watcher| watcher.all_invalidated())
        })?;
        return Ok(last_tid);
    }
    if newest > last_tid && told == Tid::ZERO {
        warn!(%known, %last_tid, "the saved cache is ahead of the server; dropping it");
        shared.cache.clear(*stream, last_tid);
        shared.told.advance(last_tid);
        return Ok(last_tid);
    }
    // It may have been found before the last commits were heard.
    refuse_older(shared, last_tid)?;
    let missed = missed_since(shared, connection, known, newest)?;
    let tid = match &missed {
        Some((tid, oids)) => {
            shared.cache.verified(*stream, *tid, oids.iter().copied());
            *tid
        }
        None => {
            shared.cache.clear(*stream, last_tid);
            last_tid
        }
    };
    shared.told.tell(tid, || match (&shared.options.watcher, &missed) {
        (Some(watcher), Some((tid, oids))) => watcher.invalidated(*tid, oids),
        (Some(watcher), None) => watcher.all_invalidated(),
        (None, _) => Ok(()),
    })?;
    // What we hold is of this server now.
    shared.has_met_older.store(false, Ordering::Release);
    Ok(tid)
}

/// The transaction that the server is at, and what has changed since `known`. `None` if the cache
/// and the application's objects may hold more than that.
fn missed_since(
    shared: &Shared,
    connection: &Connection,
    known: Tid,
    newest: Tid,
) -> Result<Option<(Tid, Vec<Oid>)>, ClientError> {
    let answer = connection.call("getInvalidations", &Value::tuple([known.into()]))?;
    let missed = match answer.as_sequence() {
        Some([tid, oids]) => tid.as_tid().zip(oids_of(oids)),
        _ => None,
    };
    if missed.is_none() {
        warn!("the server no longer knows what has changed; dropping the cache");
        return Ok(None);
    }
    let is_kept = shared.told.so_far() == Tid::ZERO && !shared.cache.is_empty();
    let may_lack = is_kept || shared.has_met_older.load(Ordering::Acquire);
    if may_lack && !has_transaction(connection, newest)? {
        // It was put back to an earlier state, and has gone on from there, or is another database.
        // Or a pack has removed the transaction: that cannot be told apart.
        warn!(%newest, "the server lacks a transaction that we have seen; dropping the cache");
        return Ok(None);
    }
    Ok(missed)
}

/// Whether the server has this transaction. One that cannot tell counts as having lost it.
fn has_transaction(connection: &Connection, tid: Tid) -> Result<bool, ClientError> {
    let range = Value::tuple([tid.into(), tid.into()]);
    let iterator = match connection.call("iterator_start", &range) {
        Err(ClientError::Raised(_)) => return Ok(false),
        iterator => iterator?,
    };
    let found = connection.call("iterator_next", &Value::tuple([iterator.clone()]));
    connection.cast("iterator_gc", &Value::tuple([Value::list([iterator])]))?;
    match found {
        Err(ClientError::Raised(_)) => Ok(false),
        found => Ok(!found?.is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// The next attempt is due long after the end of the test.
    #[test]
    fn a_pause_ends_when_the_client_is_closed_or_has_other_addresses() {
        let address = |port| Address::Tcp { host: "127.0.0.1".to_owned(), port };
        let shared = Shared::new(Options::new(address(1)), None);
        let begun = Instant::now();
        let next = begun + Duration::from_secs(60);
        let addresses = shared.addresses.load_full();
        shared.use_addresses(vec![address(2)]);
        pause(&shared, &addresses, next);
        let addresses = shared.addresses.load_full();
        pause(&shared, &addresses, begun);
        shared.close();
        pause(&shared, &addresses, next);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
