//! A cache that is kept in a file between two runs of a client.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Server, commit, record};
use zodium_client::{Client, ClientError, Options, WarmUpList, Watcher};
use zodium_pickle::Value;
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::Encoding;

/// A server, and options of clients that keep their cache in this folder.
fn keeping(folder: &tempfile::TempDir) -> (Server, Options) {
    let server = Server::start(Encoding::Pickle);
    let cache_path = Some(folder.path().join("c"));
    // What a warm-up loads would be counted with what was kept.
    let options = Options { cache_path, warm_up: WarmUpList::Off, ..server.options() };
    (server, options)
}

fn cached_objects(client: &Client) -> usize {
    client.cache_metrics().objects
}

#[test]
fn a_kept_cache_learns_what_changed_since_the_last_run() {
    let folder = tempfile::tempdir().unwrap();
    let (server, options) = keeping(&folder);
    commit(&server.client(), &[(1, "one"), (2, "two")]);
    let first = Client::connect(options.clone()).unwrap();
    first.load_many(&[Oid(1), Oid(2)], Tid::MAX).unwrap();
    // Two caches cannot share a file: the second client works without one.
    Client::connect(options.clone()).unwrap().close();
    first.close();
    commit(&server.client(), &[(1, "uno")]);
    let next = Client::connect(options).unwrap();
    assert_eq!(cached_objects(&next), 1);
    assert_eq!(next.load_current(Oid(2)).unwrap().data, record("two"));
    assert_eq!(next.cache_metrics().hits, 1);
    assert_eq!(next.load_current(Oid(1)).unwrap().data, record("uno"));
}

#[test]
fn a_client_that_is_dropped_keeps_its_cache_as_one_that_is_closed_does() {
    let folder = tempfile::tempdir().unwrap();
    let (server, options) = keeping(&folder);
    commit(&server.client(), &[(1, "one")]);
    let first = Client::connect(options.clone()).unwrap();
    first.load_current(Oid(1)).unwrap();
    drop(first);
    assert_eq!(cached_objects(&Client::connect(options).unwrap()), 1);
}

#[test]
fn a_kept_cache_that_is_ahead_of_its_server_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, options) = keeping(&folder);
    commit(&Client::connect(options.clone()).unwrap(), &[(1, "one")]);
    server.exchange_data(&mut Server::start(Encoding::Pickle));
    let watcher = Arc::<DroppedObjects>::default();
    let told = Arc::clone(&watcher);
    let client = Client::connect(Options { watcher: Some(watcher), ..options }).unwrap();
    assert_eq!(cached_objects(&client), 0);
    assert!(matches!(client.load_current(Oid(1)), Err(ClientError::NoObject(_))));
    assert!(!told.0.load(Ordering::Relaxed), "the application has no objects yet");
}

/// Notes whether the application was told to drop all its objects.
#[derive(Default)]
struct DroppedObjects(AtomicBool);

impl Watcher for DroppedObjects {
    fn all_invalidated(&self) -> Result<(), ClientError> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_kept_cache_of_another_database_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, options) = keeping(&folder);
    let mut other = Server::start(Encoding::Pickle);
    commit(&other.client(), &[(1, "theirs"), (2, "two")]);
    commit(&Client::connect(options.clone()).unwrap(), &[(1, "ours")]);
    // So that it has later transactions, and knows what has changed since ours.
    commit(&other.client(), &[(2, "dos")]);
    server.exchange_data(&mut other);
    let client = Client::connect(options).unwrap();
    assert_eq!(cached_objects(&client), 0);
    assert_eq!(client.load_current(Oid(1)).unwrap().data, record("theirs"));
}

#[test]
fn a_kept_cache_is_dropped_after_a_pack_of_its_last_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let (server, options) = keeping(&folder);
    let client = Client::connect(options.clone()).unwrap();
    let first = commit(&client, &[(1, "one")]);
    let last = commit(&client, &[(2, "two")]);
    client.close();
    let others = server.client();
    commit(&others, &[(2, "dos")]);
    let now = Value::Float(f64::from(u32::MAX));
    others.call("pack", &Value::tuple([now, true.into()])).unwrap();
    assert!(server.client().load_serial(Oid(2), last).is_err(), "not packed");
    let client = Client::connect(options).unwrap();
    assert_eq!(cached_objects(&client), 0);
    assert_eq!(client.load_current(Oid(1)).unwrap().serial, first);
}

#[test]
fn a_kept_cache_of_old_revisions_stays_while_its_last_transaction_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let (server, options) = keeping(&folder);
    let client = Client::connect(options.clone()).unwrap();
    commit(&client, &[(1, "one")]);
    let second = commit(&client, &[(1, "two")]);
    client.close();
    commit(&server.client(), &[(1, "three")]);
    let client = Client::connect(options).unwrap();
    assert_eq!(client.load_cached(Oid(1), second).unwrap().data, record("one"));
}

/// The thread that connects goes on to wait for the silent server for half a minute.
#[test]
fn a_client_that_is_closed_while_a_server_is_silent_leaves_the_file_to_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let (server, options) = keeping(&folder);
    commit(&server.client(), &[(1, "one")]);
    let silent = folder.path().join("silent");
    let listener = UnixListener::bind(&silent).unwrap();
    let addresses = vec![Address::Unix(silent)];
    let waiting = Options { addresses, wait: false, ..options.clone() };
    let waiting = Client::connect(waiting).unwrap();
    let _silent = listener.accept().unwrap();
    let begin = Instant::now();
    waiting.close();
    // A watcher would be waited for for five seconds.
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let next = Client::connect(options.clone()).unwrap();
    next.load_current(Oid(1)).unwrap();
    next.close();
    assert_eq!(cached_objects(&Client::connect(options).unwrap()), 1);
}
