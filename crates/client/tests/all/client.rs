//! A client against a server in the same process: loads, commits and invalidations.

use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::common::peer::wait_until;
use crate::common::{Server, commit, record};
use parking_lot::Mutex;
use zodium_client::{
    Access, Client, ClientError, CommittedRecord, CommittedTransaction, Options,
    TransactionOptions, Watcher,
};
use zodium_pickle::Value;
use zodium_types::{Address, Oid, Tid};
use zodium_zeo::codec::Encoding;

const ENCODINGS: [Encoding; 2] = [Encoding::Pickle, Encoding::Msgpack];
const PATIENCE: Duration = Duration::from_secs(20);

/// Records the calls that it receives.
#[derive(Default)]
struct Log(Mutex<Vec<Told>>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Invalidated(Tid, Vec<Oid>),
    All,
    Connected,
    Disconnected,
}

impl Watcher for Log {
    fn invalidated(&self, tid: Tid, oids: &[Oid]) -> Result<(), ClientError> {
        self.0.lock().push(Told::Invalidated(tid, oids.to_vec()));
        Ok(())
    }

    fn all_invalidated(&self) -> Result<(), ClientError> {
        self.0.lock().push(Told::All);
        Ok(())
    }

    fn connected(&self, _: &Value<'_>) -> Result<(), ClientError> {
        self.0.lock().push(Told::Connected);
        Ok(())
    }

    fn disconnected(&self) {
        self.0.lock().push(Told::Disconnected);
    }
}

impl Log {
    fn wait_for(&self, told: &Told) {
        let deadline = Instant::now() + PATIENCE;
        while !self.0.lock().contains(told) {
            assert!(Instant::now() < deadline, "{told:?} is not in {:?}", self.0.lock());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn watched(server: &Server) -> (Client, Arc<Log>) {
    let log = Arc::new(Log::default());
    let watcher = Arc::clone(&log) as Arc<dyn Watcher>;
    let options = Options { watcher: Some(watcher), ..server.options() };
    (Client::connect(options).unwrap(), log)
}

#[test]
fn what_is_committed_is_loaded_from_memory_and_from_the_server() {
    for encoding in ENCODINGS {
        let server = Server::start(encoding);
        let (writer, reader) = (server.client(), server.client());
        let first = commit(&writer, &[(1, "one"), (2, "two")]);
        let second = commit(&writer, &[(1, "uno")]);
        assert_eq!(writer.last_tid(), second);
        for client in [&writer, &reader, &reader] {
            let current = client.load_current(Oid(1)).unwrap();
            assert_eq!(
                (&current.data, current.serial, current.end),
                (&record("uno"), second, None)
            );
            let old = client.load_before(Oid(1), second).unwrap().unwrap();
            assert_eq!((&old.data, old.serial, old.end), (&record("one"), first, Some(second)));
            assert_eq!(client.load_before(Oid(1), first).unwrap(), None);
            let missing = client.load_current(Oid(9));
            assert!(matches!(missing, Err(ClientError::NoObject(Oid(9)))), "{missing:?}");
            assert_eq!(client.load_serial(Oid(2), first).unwrap(), record("two"));
        }
        let hits = reader.cache_metrics().hits;
        reader.load_current(Oid(1)).unwrap();
        assert_eq!(reader.cache_metrics().hits, hits + 1);
    }
}

#[test]
fn many_are_loaded_at_once_in_their_order() {
    let server = Server::start(Encoding::Pickle);
    let (writer, reader) = (server.client(), server.client());
    let texts: Vec<_> = (0..2500).map(|n| format!("object {n}")).collect();
    let objects: Vec<_> = texts.iter().enumerate().map(|(n, t)| (n as u64, t.as_str())).collect();
    let tid = commit(&writer, &objects);
    let mut oids: Vec<_> = (0..2500).rev().map(Oid).collect();
    oids.push(Oid(1 << 40));
    for _ in 0..2 {
        let answers = reader.load_many(&oids, tid.next()).unwrap();
        assert_eq!(answers.len(), oids.len());
        for (oid, answer) in oids.iter().zip(answers) {
            match objects.get(oid.0 as usize) {
                Some((_, text)) => assert_eq!(answer.unwrap().unwrap().data, record(text)),
                None => assert!(matches!(answer, Err(ClientError::NoObject(_)))),
            }
        }
    }
}

#[test]
fn what_was_prefetched_is_in_memory_and_what_is_under_way_is_joined() {
    let server = Server::start(Encoding::Msgpack);
    let (writer, reader) = (server.client(), server.client());
    let tid = commit(&writer, &[(1, "one"), (2, "two"), (3, "three")]);
    reader.sync().unwrap();
    reader.prefetch(&[Oid(1), Oid(2), Oid(3)], tid.next());
    assert_eq!(reader.load_before(Oid(3), tid.next()).unwrap().unwrap().data, record("three"));
    let deadline = Instant::now() + PATIENCE;
    while reader.cache_metrics().objects < 3 {
        assert!(Instant::now() < deadline, "no thread reads the prefetched objects");
        std::thread::sleep(Duration::from_millis(1));
    }
    let hits = reader.cache_metrics().hits;
    reader.load_before(Oid(1), tid.next()).unwrap();
    assert_eq!(reader.cache_metrics().hits, hits + 1);
}

#[test]
fn others_are_told_of_commits_in_order_while_they_do_nothing() {
    let server = Server::start(Encoding::Pickle);
    let writer = server.client();
    let (reader, log) = watched(&server);
    let tids: Vec<_> = (0..50).map(|n| commit(&writer, &[(1, "x"), (n + 2, "y")])).collect();
    log.wait_for(&Told::Invalidated(tids[49], vec![Oid(1), Oid(51)]));
    let told: Vec<_> = log.0.lock().clone();
    let expected = tids
        .iter()
        .enumerate()
        .map(|(n, tid)| Told::Invalidated(*tid, vec![Oid(1), Oid(n as u64 + 2)]));
    assert_eq!(told[0], Told::Connected);
    assert_eq!(told[1..], expected.collect::<Vec<_>>());
    let deadline = Instant::now() + PATIENCE;
    while reader.last_tid() != tids[49] {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn a_sync_hears_of_all_that_was_committed_before_it() {
    let server = Server::start(Encoding::Msgpack);
    let (writer, reader) = (server.client(), server.client());
    for _ in 0..50 {
        let tid = commit(&writer, &[(1, "x")]);
        reader.sync().unwrap();
        assert_eq!(reader.last_tid(), tid);
        assert_eq!(reader.load_current(Oid(1)).unwrap().serial, tid);
    }
}

#[test]
fn the_tid_is_told_to_the_committer_before_anything_else_says_it() {
    let server = Server::start(Encoding::Pickle);
    let client = Arc::new(server.client());
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    transaction.store(Oid(1), Tid::ZERO, record("x")).unwrap();
    transaction.vote().unwrap();
    let before = client.last_tid();
    let told = Arc::new(Mutex::new(None));
    let (seen, asked) = (Arc::clone(&told), Arc::clone(&client));
    let tid = transaction.finish(move |tid| *seen.lock() = Some((tid, asked.last_tid()))).unwrap();
    assert_eq!(*told.lock(), Some((tid, before)));
    assert_eq!(client.last_tid(), tid);
}

#[test]
fn a_transaction_cannot_begin_while_the_committer_is_told_of_another_one() {
    let server = Server::start(Encoding::Msgpack);
    let client = Arc::new(server.client());
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    transaction.store(Oid(1), Tid::ZERO, record("x")).unwrap();
    transaction.vote().unwrap();
    let nested = Arc::new(Mutex::new(None));
    let (seen, asked) = (Arc::clone(&nested), Arc::clone(&client));
    let begin = move |_| *seen.lock() = asked.begin(&TransactionOptions::default()).err();
    transaction.finish(begin).unwrap();
    assert!(matches!(*nested.lock(), Some(ClientError::Nested)), "it would wait for itself");
    commit(&client, &[(2, "y")]);
}

#[test]
fn a_closed_client_answers_no_load_from_memory() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    let tid = commit(&client, &[(1, "one")]);
    assert!(client.load_cached(Oid(1), Tid::MAX).is_some());
    client.close();
    assert!(client.load_cached(Oid(1), tid.next()).is_none());
    let refused = [
        client.load_before(Oid(1), tid.next()).err(),
        client.load_current(Oid(1)).err(),
        client.load_serial(Oid(1), tid).err(),
        client.load_many(&[Oid(1)], tid.next()).err(),
    ];
    let are_closed = refused.iter().all(|error| matches!(error, Some(ClientError::Closed)));
    assert!(are_closed, "{refused:?}");
}

#[test]
fn a_conflict_is_handed_to_the_client_and_can_be_resolved() {
    let server = Server::start(Encoding::Pickle);
    let (ours, theirs) = (server.client(), server.client());
    let first = commit(&theirs, &[(1, "first")]);
    let mut transaction = ours.begin(&TransactionOptions::default()).unwrap();
    transaction.store(Oid(1), first, record("ours")).unwrap();
    let second = commit(&theirs, &[(1, "second")]);
    let voted = transaction.vote().unwrap();
    let [conflict] = &voted.conflicts[..] else { panic!("{voted:?}") };
    assert_eq!((conflict.oid, conflict.committed, conflict.stored_upon), (Oid(1), second, first));
    assert_eq!(conflict.data, record("ours"));
    transaction.store(Oid(1), second, record("both")).unwrap();
    assert!(transaction.vote().unwrap().conflicts.is_empty());
    let tid = transaction.finish(|_| ()).unwrap();
    theirs.sync().unwrap();
    assert_eq!(theirs.load_current(Oid(1)).unwrap().data, record("both"));
    assert_eq!(ours.load_current(Oid(1)).unwrap().serial, tid);
}

#[test]
fn what_is_aborted_or_dropped_leaves_nothing_and_lets_the_next_one_begin() {
    let server = Server::start(Encoding::Msgpack);
    let client = server.client();
    for drops in [false, true] {
        let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
        transaction.store(Oid(1), Tid::ZERO, record("x")).unwrap();
        transaction.vote().unwrap();
        if drops {
            drop(transaction);
        } else {
            transaction.abort().unwrap();
        }
    }
    assert!(matches!(client.load_current(Oid(1)), Err(ClientError::NoObject(_))));
    commit(&client, &[(1, "y")]);
}

#[test]
fn what_was_missed_while_the_server_was_away_is_learned() {
    let mut server = Server::start(Encoding::Pickle);
    let (reader, log) = watched(&server);
    let first = commit(&server.client(), &[(1, "one"), (2, "two")]);
    reader.sync().unwrap();
    reader.load_many(&[Oid(1), Oid(2)], Tid::MAX).unwrap();
    server.stop();
    log.wait_for(&Told::Disconnected);
    server.restart();
    let second = commit(&server.client(), &[(1, "uno")]);
    reader.sync().unwrap();
    log.wait_for(&Told::Invalidated(second, vec![Oid(1)]));
    assert_eq!(reader.load_current(Oid(1)).unwrap().data, record("uno"));
    let two = reader.load_current(Oid(2)).unwrap();
    assert_eq!((two.data, two.serial), (record("two"), first));
}

#[test]
fn loads_outlive_a_restart_and_a_transaction_does_not() {
    let mut server = Server::start(Encoding::Pickle);
    let client = Arc::new(server.client());
    let tid = commit(&server.client(), &[(1, "one")]);
    client.sync().unwrap();
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    transaction.store(Oid(1), tid, record("two")).unwrap();
    server.restart();
    assert_eq!(client.load_before(Oid(1), tid.next()).unwrap().unwrap().data, record("one"));
    let error = transaction.vote().unwrap_err();
    assert!(matches!(error, ClientError::Disconnected(_)), "{error:?}");
    drop(transaction);
    commit(&client, &[(1, "three")]);
}

#[test]
fn a_client_without_a_server_waits_as_long_as_it_was_told_and_says_why() {
    let mut server = Server::start(Encoding::Pickle);
    // Long enough for the first attempt, which tells why.
    let options = Options { wait_timeout: Duration::from_secs(1), ..server.options() };
    server.stop();
    let error = Client::connect(options.clone()).err().unwrap();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(error.to_string().contains("is the server running there?"), "{error}");
    let late = Client::connect(Options { wait: false, ..options }).unwrap();
    assert!(!late.is_connected() && late.peer().is_none());
    server.restart();
    let deadline = Instant::now() + PATIENCE;
    while late.wait().is_err() {
        assert!(Instant::now() < deadline);
    }
    assert!(late.is_connected());
    assert_eq!(late.peer(), Some(server.path().display().to_string()));
    server.stop();
    wait_until(|| late.peer().is_none());
    late.close();
    assert!(matches!(late.sync(), Err(ClientError::Closed)));
}

#[test]
fn a_server_that_takes_no_commits_is_second_choice() {
    let mut reading = Server::start(Encoding::Pickle);
    reading.read_only = true;
    reading.restart();
    let short = Duration::from_millis(100);
    let options = Options { wait_timeout: short, ..reading.options() };
    let refused = Client::connect(options.clone()).err().unwrap();
    assert!(matches!(refused, ClientError::Unreachable { .. }), "{refused}");
    let mut options = Options { access: Access::Fallback, wait_timeout: PATIENCE, ..options };
    let fallback = Client::connect(options.clone()).unwrap();
    assert!(fallback.is_read_only());
    let refused = fallback.begin(&TransactionOptions::default()).err();
    assert!(matches!(refused, Some(ClientError::ReadOnly)), "{refused:?}");
    let writing = Server::start(Encoding::Pickle);
    options.addresses.extend(writing.options().addresses);
    let client = Client::connect(options).unwrap();
    assert!(!client.is_read_only());
    commit(&client, &[(1, "x")]);
}

#[test]
fn new_oids_are_new_for_all_threads() {
    let server = Server::start(Encoding::Msgpack);
    let clients = [server.client(), server.client()];
    let mut oids: Vec<Oid> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter()
            .chain(&clients)
            .map(|client| scope.spawn(|| (0..250).map(|_| client.new_oid().unwrap()).collect()))
            .collect();
        threads.into_iter().flat_map(|thread| -> Vec<Oid> { thread.join().unwrap() }).collect()
    });
    oids.sort();
    oids.dedup();
    assert_eq!(oids.len(), 1000);
}

#[test]
fn transactions_are_walked_through_in_order_with_all_their_records() {
    for encoding in ENCODINGS {
        let server = Server::start(encoding);
        let (writer, reader) = (server.client(), server.client());
        let mut expected = Vec::new();
        for round in 0..150_u64 {
            let texts: Vec<_> = (0..round % 7 + 1).map(|n| format!("{n} of {round}")).collect();
            let objects: Vec<_> = (0..).zip(texts.iter().map(String::as_str)).collect();
            let tid = commit(&writer, &objects);
            let records: Vec<_> = objects.iter().map(|(n, text)| (Oid(*n), record(text))).collect();
            expected.push((tid, records));
        }
        let walk = |start, stop| -> Vec<_> {
            let transactions = reader.iterate(start, stop).unwrap().map(Result::unwrap);
            let whole = |transaction: CommittedTransaction| {
                let data = |record: CommittedRecord| (record.oid, record.data.unwrap());
                (transaction.tid, transaction.records.into_iter().map(data).collect::<Vec<_>>())
            };
            transactions.map(whole).collect()
        };
        assert_eq!(walk(None, None), expected);
        assert_eq!(walk(Some(expected[100].0), Some(expected[120].0)), expected[100..=120]);
        assert_eq!(walk(Some(expected[149].0.next()), None), []);
        // A transaction left unfinished does not stay open.
        for _ in 0..1100 {
            assert!(reader.iterate(None, None).unwrap().next().is_some());
        }
    }
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for_longer_than_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("silent");
    let _silent = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let short = Duration::from_millis(50);
    let options = Options { wait_timeout: short, ..Options::new(Address::Unix(path)) };
    let started = Instant::now();
    let error = Client::connect(options).err().unwrap();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

/// Looks at the client's cache while it handles an invalidation.
#[derive(Default)]
struct Witness {
    client: OnceLock<Weak<Client>>,
    seen: Mutex<Vec<Seen>>,
}

#[derive(Debug, PartialEq)]
struct Seen {
    tid: Tid,
    last_tid: Tid,
    /// The cached serials of object 1: the current one, and the one as of before the commit.
    current: Option<Tid>,
    before: Option<Tid>,
}

impl Watcher for Witness {
    fn invalidated(&self, tid: Tid, _: &[Oid]) -> Result<(), ClientError> {
        let Some(client) = self.client.get().and_then(Weak::upgrade) else { return Ok(()) };
        let serial = |before| client.load_cached(Oid(1), before).map(|revision| revision.serial);
        self.seen.lock().push(Seen {
            tid,
            last_tid: client.last_tid(),
            current: serial(Tid::MAX),
            before: serial(tid),
        });
        Ok(())
    }
}

#[test]
fn a_watcher_is_told_after_the_cache_knows_and_before_the_client_says_so() {
    let server = Server::start(Encoding::Msgpack);
    let writer = server.client();
    let first = commit(&writer, &[(1, "one")]);
    let witness = Arc::new(Witness::default());
    let watcher = Arc::clone(&witness) as Arc<dyn Watcher>;
    let options = Options { watcher: Some(watcher), ..server.options() };
    let reader = Arc::new(Client::connect(options).unwrap());
    witness.client.set(Arc::downgrade(&reader)).unwrap();
    assert_eq!(reader.load_current(Oid(1)).unwrap().serial, first);
    let second = commit(&writer, &[(1, "two")]);
    reader.sync().unwrap();
    let seen = Seen { tid: second, last_tid: first, current: None, before: Some(first) };
    assert_eq!(*witness.seen.lock(), [seen]);
    assert_eq!(reader.last_tid(), second);
}

#[test]
fn a_commit_that_its_caller_could_not_be_told_of_is_told_by_the_next_connection() {
    let server = Server::start(Encoding::Msgpack);
    let (client, log) = watched(&server);
    let first = commit(&client, &[(1, "one")]);
    log.0.lock().clear();
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    transaction.store(Oid(1), first, record("two")).unwrap();
    transaction.vote().unwrap();
    let second = transaction.finish_or_tell_again(|_| Err(ClientError::NotTold)).unwrap();
    log.wait_for(&Told::Connected);
    let told = [Told::Disconnected, Told::Invalidated(second, vec![Oid(1)]), Told::Connected];
    assert_eq!(*log.0.lock(), told);
    assert_eq!(client.last_tid(), second);
}

#[test]
fn a_revision_that_was_not_told_yet_is_not_answered_from_memory() {
    let server = Server::start(Encoding::Pickle);
    let client = Arc::new(server.client());
    let first = commit(&client, &[(1, "one")]);
    let cached = |client: &Client, before| {
        client.load_cached(Oid(1), before).map(|revision| revision.serial)
    };
    assert_eq!(cached(&client, Tid::MAX), Some(first));
    assert_eq!(cached(&client, first.next()), Some(first));
    // Only the server knows whether there is a later one.
    assert_eq!(cached(&client, first.next().next()), None);
    let mut transaction = client.begin(&TransactionOptions::default()).unwrap();
    transaction.store(Oid(1), first, record("two")).unwrap();
    transaction.vote().unwrap();
    let (told, asked) = (Arc::new(Mutex::new(None)), Arc::clone(&client));
    let seen = Arc::clone(&told);
    let second = transaction
        .finish(move |_| {
            *seen.lock() = Some(asked.load_cached(Oid(1), Tid::MAX).map(|found| found.serial));
        })
        .unwrap();
    assert_eq!(*told.lock(), Some(None), "the commit is being told, and not current yet");
    assert_eq!(cached(&client, Tid::MAX), Some(second));
}
