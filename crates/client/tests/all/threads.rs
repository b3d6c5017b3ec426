//! Many threads on one connection: each reply reaches its caller, and invalidations keep their
//! order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Server, commit, record};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use zodium_client::{Client, ClientError, Options, Watcher};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

const OBJECTS: u64 = 20;
const THREADS: u64 = 8;

/// Runs `work` in many threads until it is done; fails if they hang.
fn in_threads(work: impl Fn(u64) + Sync) {
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (work, done) = (&work, &done);
            scope.spawn(move || {
                work(number);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while done.load(Ordering::Relaxed) < THREADS && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        if done.load(Ordering::Relaxed) < THREADS {
            eprintln!("threads hang, or have failed");
            std::process::exit(1);
        }
    });
}

#[test]
fn every_answer_reaches_its_caller_whichever_thread_reads() {
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let server = Server::start(encoding);
        // Without a cache, so that each load is sent.
        let client = Client::connect(Options { cache_bytes: 0, ..server.options() }).unwrap();
        let mut history: BTreeMap<u64, Vec<(Tid, String)>> = BTreeMap::new();
        for round in 0..5 {
            let texts: Vec<_> = (0..OBJECTS).map(|oid| format!("{oid} of {round}")).collect();
            let objects: Vec<_> = (0..).zip(texts.iter().map(String::as_str)).collect();
            let tid = commit(&client, &objects);
            for (oid, text) in objects {
                history.entry(oid).or_default().push((tid, text.to_owned()));
            }
        }
        in_threads(|number| {
            let mut random = StdRng::seed_from_u64(number);
            for turn in 0..400 {
                let oid = random.random_range(0..OBJECTS);
                let round = random.random_range(0..5);
                let (tid, text) = &history[&oid][round];
                if turn % 10 == 0 {
                    client.prefetch(&(0..OBJECTS).map(Oid).collect::<Vec<_>>(), tid.next());
                }
                let loaded = client.load_before(Oid(oid), tid.next()).unwrap().unwrap();
                assert_eq!((&loaded.data, loaded.serial), (&record(text), *tid));
                let end = history[&oid].get(round + 1).map(|(next, _)| *next);
                assert_eq!(loaded.end, end);
                let data = client.load_serial(Oid(oid), *tid).unwrap();
                assert_eq!(data, record(text));
            }
        });
    }
}

/// Compares each invalidation with what can be loaded at that moment.
struct Order {
    last: Mutex<Tid>,
    count: AtomicU64,
}

impl Watcher for Order {
    fn invalidated(&self, tid: Tid, oids: &[Oid]) -> Result<(), ClientError> {
        let last = std::mem::replace(&mut *self.last.lock(), tid);
        assert!(last < tid, "{last} came before {tid}");
        assert!(!oids.is_empty());
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn views_stay_whole_while_others_commit() {
    const COMMITS: u64 = 150;
    let server = Server::start(Encoding::Msgpack);
    let writer = server.client();
    let order = Arc::new(Order { last: Mutex::default(), count: AtomicU64::new(0) });
    let watcher = Arc::clone(&order) as Arc<dyn Watcher>;
    let client = Client::connect(Options { watcher: Some(watcher), ..server.options() }).unwrap();
    commit(&writer, &[(1, "0"), (2, "0"), (3, "0")]);
    client.sync().unwrap();
    let is_over = AtomicBool::new(false);
    in_threads(|number| {
        if number == 0 {
            for round in 1..=COMMITS {
                let text = round.to_string();
                commit(&writer, &[(1, &text), (2, &text), (3, &text)]);
            }
            is_over.store(true, Ordering::Relaxed);
            return;
        }
        while !is_over.load(Ordering::Relaxed) {
            // Each commit writes the same value to all three objects.
            let before = client.last_tid().next();
            let [one, two, three] =
                [1, 2, 3].map(|oid| client.load_before(Oid(oid), before).unwrap().unwrap());
            assert_eq!((&one.data, one.serial), (&two.data, two.serial));
            assert_eq!((&one.data, one.serial), (&three.data, three.serial));
            assert!(one.serial < before);
            let current = client.load_current(Oid(1)).unwrap();
            assert!(current.serial >= one.serial);
        }
    });
    client.sync().unwrap();
    assert_eq!(order.count.load(Ordering::Relaxed), COMMITS + 1);
    let last = client.load_current(Oid(2)).unwrap();
    assert_eq!(last.data, record(&COMMITS.to_string()));
}

#[test]
fn threads_that_commit_with_one_client_take_turns() {
    let server = Server::start(Encoding::Pickle);
    let client = server.client();
    in_threads(|number| {
        for round in 0..20 {
            commit(&client, &[(number, &format!("{round}"))]);
        }
    });
    for oid in 0..THREADS {
        assert_eq!(client.load_current(Oid(oid)).unwrap().data, record("19"));
    }
}

#[test]
fn waiting_threads_fail_when_the_server_goes_and_continue_when_it_returns() {
    let server = Server::start(Encoding::Pickle);
    // Without a cache, so that each load is sent.
    let client = Client::connect(Options { cache_bytes: 0, ..server.options() }).unwrap();
    commit(&client, &[(1, "one")]);
    let server = Mutex::new(server);
    let is_over = AtomicBool::new(false);
    let lost = AtomicU64::new(0);
    in_threads(|number| {
        if number == 0 {
            for _ in 0..4 {
                std::thread::sleep(Duration::from_millis(60));
                server.lock().restart();
                client.wait().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
            return;
        }
        while !is_over.load(Ordering::Relaxed) {
            // Loads succeed, and other calls report a lost connection.
            client.load_current(Oid(1)).unwrap();
            match client.call("ping", &Value::tuple([])) {
                Ok(_) => {}
                Err(ClientError::Disconnected(_)) => {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    assert_eq!(client.load_current(Oid(1)).unwrap().data, record("one"));
    assert!(client.is_connected());
}
