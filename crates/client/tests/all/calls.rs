//! What a client can ask a server for beside loads and commits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::common::peer::{Peer, play, play_with, wait_until};
use crate::common::switch::Switch;
use crate::common::{Server, commit, record};
use zodium_client::{Client, ClientError, Interrupt, Options, Watcher};
use zodium_pickle::Value;
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::{Encoding, MessageId};

#[test]
fn what_the_server_tells_of_itself_is_known_and_what_it_tells_later_is_added() {
    play(
        |listener| {
            let mut peer = Peer::accept(listener);
            let register = peer.expect("register");
            peer.reply(&register, Tid(10).into());
            let info = peer.expect("get_info");
            peer.reply(&info, Value::dict([("length", 1.into()), ("name", "main".into())]));
            peer.tell("info", &Value::tuple([Value::dict([("length", 2.into())])]));
            let ping = peer.expect("ping");
            peer.reply(&ping, Value::None);
        },
        |client, _| {
            client.sync().unwrap();
            let info = client.info();
            assert_eq!(info.entry("name").and_then(Value::as_str), Some("main"));
            assert_eq!(info.entry("length").and_then(Value::as_u64), Some(2));
            assert_eq!(info.as_dict().unwrap().len(), 2);
        },
    );
}

#[test]
fn a_call_without_a_reply_is_sent() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            peer.expect("set_client_label");
        },
        |client, _| client.cast("set_client_label", &Value::tuple(["label".into()])).unwrap(),
    );
}

#[test]
fn a_cleared_cache_has_no_revision_and_loads_go_to_the_server() {
    let server = Server::start(Encoding::Pickle);
    let client = server.client();
    let tid = commit(&client, &[(1, "one"), (2, "two")]);
    assert!(client.load_cached(Oid(1), tid.next()).is_some());
    client.clear_cache();
    assert!(client.load_cached(Oid(1), tid.next()).is_none());
    assert_eq!(client.cache_metrics().objects, 0);
    assert_eq!(client.load_current(Oid(1)).unwrap().data, record("one"));
}

#[test]
fn a_load_that_is_interrupted_leaves_the_connection_usable() {
    let stop = Arc::new(Switch::default());
    let interrupt = Some(Arc::clone(&stop) as Arc<dyn Interrupt>);
    play_with(
        |options| Options { interrupt, ..options },
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let load = peer.expect("loadBefore");
            let ping = peer.expect("ping");
            peer.reply_load(&load, b"late", Tid(5));
            peer.reply(&ping, Value::None);
        },
        |client, _| {
            stop.set(true);
            let error = client.load_before(Oid(1), Tid(11)).unwrap_err();
            assert!(matches!(error, ClientError::Interrupted), "{error:?}");
            stop.set(false);
            client.sync().unwrap();
            assert_eq!(client.load_cached(Oid(1), Tid(11)).unwrap().data, b"late".as_slice());
        },
    );
}

/// Does something with the client when it is told of a commit.
struct Caller<F> {
    client: OnceLock<Arc<Client>>,
    act: F,
    answers: Mutex<Vec<Result<(), ClientError>>>,
}

impl<F: Fn(&Client) -> Result<(), ClientError> + Send + Sync> Watcher for Caller<F> {
    fn invalidated(&self, _: Tid, _: &[Oid]) -> Result<(), ClientError> {
        self.answers.lock().push((self.act)(self.client.get().unwrap()));
        Ok(())
    }
}

/// The script of a commit that comes while the client waits, and what the client does in its
/// watcher.
fn told_while_it_waits(
    act: impl Fn(&Client) -> Result<(), ClientError> + Send + Sync + 'static,
    script: impl FnOnce(&mut Peer, &MessageId) + Send,
) -> (Result<(), ClientError>, Vec<Result<(), ClientError>>) {
    let (client, answers) = (OnceLock::new(), Mutex::default());
    let caller = Arc::new(Caller { client, act, answers });
    let watcher: Arc<dyn Watcher> = Arc::<Caller<_>>::clone(&caller) as _;
    let mut waited = Ok(());
    play_with(
        |options| Options { watcher: Some(watcher), ..options },
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let ping = peer.expect("ping");
            peer.invalidate(Tid(11), &[Oid(1)]);
            script(&mut peer, &ping);
        },
        |client, _| {
            let _ = caller.client.set(Arc::clone(client));
            waited = client.sync();
        },
    );
    let answers = std::mem::take(&mut *caller.answers.lock());
    (waited, answers)
}

#[test]
fn a_call_within_a_watcher_fails_and_harms_nothing() {
    let act = |client: &Client| client.sync();
    let (waited, answers) = told_while_it_waits(act, |peer, ping| {
        let nested = peer.expect("ping");
        peer.reply(&nested, Value::None);
        peer.reply(ping, Value::None);
    });
    assert!(waited.is_ok(), "{waited:?}");
    assert!(matches!(answers[..], [Err(ClientError::Nested)]), "{answers:?}");
}

/// Calls its client when it is told of connections.
#[derive(Default)]
struct Connections {
    client: OnceLock<Arc<Client>>,
    answers: Mutex<Vec<Result<(), ClientError>>>,
}

impl Connections {
    fn call(&self) {
        if let Some(client) = self.client.get() {
            self.answers.lock().push(client.sync());
        }
    }
}

impl Watcher for Connections {
    fn connected(&self, _: &Value<'_>) -> Result<(), ClientError> {
        self.call();
        Ok(())
    }

    fn disconnected(&self) {
        self.call();
    }
}

/// The thread that tells of connections is the one that makes them.
#[test]
fn a_call_of_who_is_told_of_connections_waits_for_none() {
    let told = Arc::new(Connections::default());
    let watcher: Arc<dyn Watcher> = Arc::<Connections>::clone(&told) as _;
    play_with(
        |options| Options { watcher: Some(watcher), ..options },
        |listener| {
            for _ in 0..2 {
                let mut peer = Peer::admitted(listener, Tid(10));
                let ping = peer.expect("ping");
                peer.reply(&ping, Value::None);
            }
        },
        |client, _| {
            let _ = told.client.set(Arc::clone(client));
            client.sync().unwrap();
            wait_until(|| told.answers.lock().len() == 2);
            client.sync().unwrap();
        },
    );
    let answers = std::mem::take(&mut *told.answers.lock());
    let is_nested = |answer: &Result<_, _>| matches!(answer, Err(ClientError::Nested));
    assert!(answers[..2].iter().all(is_nested), "{answers:?}");
}

#[test]
fn a_close_within_a_watcher_does_not_wait_for_its_own_thread() {
    let act = |client: &Client| {
        client.close();
        Ok(())
    };
    let (waited, answers) = told_while_it_waits(act, |peer, _| peer.expect_end());
    assert!(matches!(waited, Err(ClientError::Closed)), "{waited:?}");
    assert_eq!(answers.len(), 1);
}

/// Takes a lock whenever it is told something.
#[derive(Default)]
struct Locking {
    lock: Mutex<()>,
    told: Mutex<Vec<&'static str>>,
}

impl Locking {
    fn take(&self, told: &'static str) {
        self.told.lock().push(told);
        drop(self.lock.lock());
    }
}

impl Watcher for Locking {
    fn invalidated(&self, _: Tid, _: &[Oid]) -> Result<(), ClientError> {
        self.take("invalidated");
        Ok(())
    }

    fn disconnected(&self) {
        self.take("disconnected");
    }
}

/// What the watcher has been told by the end of a close, whose thread holds the watcher's lock: a
/// signal handler runs wherever its thread is.
fn told_when_closed_with_its_lock(
    script: impl FnOnce(&mut Peer) + Send,
    before: &[&str],
) -> Vec<&'static str> {
    let locking = Arc::new(Locking::default());
    let watcher: Arc<dyn Watcher> = Arc::<Locking>::clone(&locking) as _;
    let held = locking.lock.lock();
    play_with(
        |options| Options { watcher: Some(watcher), ..options },
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            // From now on its connector reads.
            peer.expect("ping");
            script(&mut peer);
            peer.expect_end();
        },
        |client, _| {
            client.cast("ping", &Value::tuple([])).unwrap();
            wait_until(|| *locking.told.lock() == before);
            client.close();
        },
    );
    drop(held);
    std::mem::take(&mut *locking.told.lock())
}

#[test]
fn a_close_tells_the_watcher_of_no_lost_connection() {
    assert!(told_when_closed_with_its_lock(|_| (), &[]).is_empty());
}

#[test]
fn a_close_does_not_wait_for_ever_for_a_watcher_that_waits_for_its_thread() {
    let commits = |peer: &mut Peer| peer.invalidate(Tid(11), &[Oid(1)]);
    let told = told_when_closed_with_its_lock(commits, &["invalidated"]);
    assert_eq!(told, ["invalidated"]);
}

/// Takes some time whenever it is told of a commit.
#[derive(Default)]
struct Slow {
    begun: AtomicBool,
    ended: AtomicBool,
}

impl Watcher for Slow {
    fn invalidated(&self, _: Tid, _: &[Oid]) -> Result<(), ClientError> {
        self.begun.store(true, Ordering::Release);
        // Longer than a close waits for a thread that is connecting.
        thread::sleep(Duration::from_millis(800));
        self.ended.store(true, Ordering::Release);
        Ok(())
    }
}

#[test]
fn a_close_waits_until_the_watcher_has_returned() {
    let slow = Arc::new(Slow::default());
    let watcher: Arc<dyn Watcher> = Arc::<Slow>::clone(&slow) as _;
    play_with(
        |options| Options { watcher: Some(watcher), ..options },
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            // From now on its connector reads.
            peer.expect("ping");
            peer.invalidate(Tid(11), &[Oid(1)]);
            peer.expect_end();
        },
        |client, _| {
            client.cast("ping", &Value::tuple([])).unwrap();
            wait_until(|| slow.begun.load(Ordering::Acquire));
            client.close();
            assert!(slow.ended.load(Ordering::Acquire));
        },
    );
}

#[test]
fn a_load_without_a_server_waits_as_long_as_any_call() {
    let address = Address::Unix("/no/such/server".into());
    // Longer than a busy machine adds.
    let wait_timeout = Duration::from_millis(1500);
    let options = Options { wait: false, wait_timeout, ..Options::new(address) };
    let client = Client::connect(options).unwrap();
    let begin = Instant::now();
    let error = client.load_current(Oid(1)).unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
    assert!(begin.elapsed() < 2 * wait_timeout, "{:?}", begin.elapsed());
}

#[test]
fn limits_beyond_what_the_clock_counts_are_as_long_as_it_counts() {
    let server = Server::start(Encoding::Pickle);
    let (wait_timeout, silence_max) = (Duration::MAX, Duration::MAX);
    let options = Options { wait_timeout, silence_max, ..server.options() };
    Client::connect(options).unwrap().sync().unwrap();
}

/// More loads than fit on their way while the server reads none.
#[test]
fn loads_of_many_objects_and_of_serials_outlive_a_connection() {
    const OBJECTS: u64 = 20_000;
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            peer.expect("loadSerial");
            drop(peer);
            let mut peer = Peer::admitted(listener, Tid(10));
            let load = peer.expect("loadSerial");
            peer.reply(&load, b"old".into());
            peer.expect("loadBefore");
            drop(peer);
            let mut peer = Peer::admitted(listener, Tid(10));
            let loads: Vec<_> = (0..OBJECTS).map(|_| peer.expect("loadBefore")).collect();
            loads.iter().for_each(|load| peer.reply_load(load, b"data", Tid(5)));
        },
        |client, _| {
            assert_eq!(client.load_serial(Oid(1), Tid(3)).unwrap(), b"old");
            let oids: Vec<_> = (0..OBJECTS).map(Oid).collect();
            let loaded = client.load_many(&oids, Tid(11)).unwrap();
            assert!(loaded.iter().all(|one| matches!(one, Ok(Some(_)))));
        },
    );
}

/// The connection ends in the middle of their answers.
#[test]
fn loads_that_a_lost_connection_has_not_answered_are_asked_for_again() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let loads = [(); 3].map(|()| peer.expect("loadBefore"));
            peer.reply_load(&loads[0], b"data", Tid(5));
            drop(peer);
            let mut peer = Peer::admitted(listener, Tid(10));
            for _ in 1..3 {
                let load = peer.expect("loadBefore");
                peer.reply_load(&load, b"data", Tid(5));
            }
        },
        |client, _| {
            let loaded = client.load_many(&[1, 2, 3].map(Oid), Tid(11)).unwrap();
            assert!(loaded.iter().all(|one| matches!(one, Ok(Some(_)))), "{loaded:?}");
        },
    );
}

#[test]
fn a_prefetch_requests_no_more_than_fit_beside_what_is_under_way() {
    const AT_ONCE: usize = 4096;
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let loads: Vec<_> = (0..AT_ONCE).map(|_| peer.expect("loadBefore")).collect();
            let ping = peer.expect("ping");
            loads[1..].iter().for_each(|load| peer.reply_load(load, b"data", Tid(5)));
            peer.reply(&ping, Value::None);
            // One is still under way.
            for _ in 1..AT_ONCE {
                peer.expect("loadBefore");
            }
            peer.expect("last");
        },
        |client, _| {
            let oids: Vec<_> = (0..10_000).map(Oid).collect();
            client.prefetch(&oids[..AT_ONCE + 1], Tid(11));
            client.prefetch(&oids[5000..], Tid(11));
            client.sync().unwrap();
            client.prefetch(&oids[1..], Tid(11));
            client.cast("last", &Value::tuple([])).unwrap();
        },
    );
}

/// A load of what is current is asked for anew, beside an earlier one that is not answered yet.
#[test]
fn an_object_that_two_threads_miss_is_missing_to_both() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let loads = [(); 2].map(|()| peer.expect("loadBefore"));
            loads.iter().for_each(|load| peer.fail(load, "ZODB.POSException.POSKeyError"));
        },
        |client, _| {
            let load = || client.load_current(Oid(1)).unwrap_err();
            let errors = thread::scope(|scope| {
                [(); 2].map(|()| scope.spawn(load)).map(|thread| thread.join().unwrap())
            });
            assert!(errors.iter().all(|error| matches!(error, ClientError::NoObject(Oid(1)))));
        },
    );
}

#[test]
fn two_threads_that_load_what_is_current_both_get_what_the_server_answers() {
    let revision = || Value::tuple([b"data".into(), Tid(5).into(), Value::None]);
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let mut both = |answer: &dyn Fn(&mut Peer, &MessageId)| {
                let loads = [(); 2].map(|()| peer.expect("loadBefore"));
                loads.iter().for_each(|load| answer(&mut peer, load));
            };
            both(&|peer, load| peer.fail(load, "builtins.OSError"));
            both(&|peer, load| peer.reply(load, Value::None));
            both(&|peer, load| peer.reply(load, revision()));
        },
        |client, _| {
            let both = || {
                let load = || client.load_before(Oid(1), Tid::MAX);
                thread::scope(|scope| {
                    [(); 2].map(|()| scope.spawn(load)).map(|thread| thread.join().unwrap())
                })
            };
            for failed in both() {
                assert!(failed.unwrap_err().is_exception("builtins.OSError"));
            }
            for absent in both() {
                assert_eq!(absent.unwrap(), None);
            }
            for found in both() {
                let found = found.unwrap().unwrap();
                assert_eq!((&found.data[..], found.serial), (&b"data"[..], Tid(5)));
            }
        },
    );
}

#[test]
fn an_object_that_is_missing_among_many_is_asked_for_once() {
    play(
        |listener| {
            let mut peer = Peer::admitted(listener, Tid(10));
            let [missing, there] = [(); 2].map(|()| peer.expect("loadBefore"));
            peer.fail(&missing, "ZODB.POSException.POSKeyError");
            peer.reply_load(&there, b"data", Tid(5));
            peer.expect("ping");
        },
        |client, _| {
            let loaded = client.load_many(&[Oid(1), Oid(2)], Tid(11)).unwrap();
            assert!(matches!(loaded[0], Err(ClientError::NoObject(Oid(1)))));
            assert!(matches!(loaded[1], Ok(Some(_))));
            client.cast("ping", &Value::tuple([])).unwrap();
        },
    );
}
