//! What a server tells of its sessions.

use std::time::{Duration, Instant};

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::{InProcess, Setup};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// Stores an object and votes.
fn vote(client: &mut Client, number: u64, data: &[u8]) {
    must(client.begin(number));
    must(client.store(number, Oid(1), Tid::ZERO, data));
    must(client.ask("vote", [number.into()]));
}

#[test]
fn sessions_with_a_transaction_are_described_first_and_all_are_counted() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let register = |_| must(Client::register(server.socket()));
    let mut clients: Vec<_> = (0..6).map(register).collect();
    // Each worker has idle sessions that are older than the others.
    for client in &mut clients[2..] {
        must(client.begin(1));
        must(client.ask("ping", []));
    }
    for (listed_max, listed) in [(0, 0), (1, 1), (100, usize::MAX)] {
        let inspection = server.inspect(listed_max);
        assert_eq!((inspection.workers.len(), inspection.silent), (2, 0));
        let connections = inspection.workers.iter().map(|worker| worker.connections);
        assert_eq!(connections.clone().sum::<usize>(), 6);
        for worker in &inspection.workers {
            assert_eq!(worker.sessions.len(), listed.min(worker.connections));
            assert!(worker.sessions.iter().all(|session| session.unsent_bytes == 0));
            let busy: Vec<_> =
                worker.sessions.iter().map(|session| session.transaction.is_some()).collect();
            assert!(busy.is_sorted_by(|one, next| one >= next), "{busy:?}");
            assert!(listed_max != 1 || busy.iter().all(|is_busy| *is_busy), "{busy:?}");
        }
    }
    assert_eq!(server.metrics().connections, 6);
    assert_eq!(server.metrics().active_transactions, 4);
    drop(clients);
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.inspect(0).workers.iter().any(|worker| worker.connections > 0) {
        assert!(Instant::now() < deadline, "clients that have gone are counted");
    }
    must(server.close());
}

#[test]
fn a_session_is_described_with_the_beginning_of_its_label_and_what_it_has_open() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut client = must(Client::connect(server.socket()));
    must(client.ask("register", ["1".into(), true.into()]));
    let label = "ä".repeat(300);
    must(client.ask("set_client_label", [label.as_str().into()]));
    must(client.ask("iterator_start", [Value::None, Value::None]));
    let inspection = server.inspect(1);
    let mut sessions = inspection.workers.iter().flat_map(|worker| &worker.sessions);
    let session = sessions.next().unwrap();
    assert_eq!(session.label, "ä".repeat(200));
    assert_eq!((session.storage.as_deref(), session.read_only), (Some("1"), true));
    assert_eq!((session.iterators, session.jobs), (1, 0));
    assert!(sessions.next().is_none());
    must(server.close());
}

#[test]
fn bytes_that_a_client_does_not_read_are_told_as_unsent() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = must(Client::register(server.socket()));
    vote(&mut client, 1, &[7; 500_000]);
    must(client.ask("tpc_finish", [1.into()]));
    let unsent = |inspection: &zodium_zeo_server::Inspection| {
        let sessions = inspection.workers.iter().flat_map(|worker| &worker.sessions);
        sessions.map(|session| session.unsent_bytes).sum::<u64>()
    };
    // More than the system keeps for the connection.
    let asked: Vec<_> = (0..40)
        .map(|_| must(client.call("loadBefore", [Oid(1).into(), Tid::MAX.into()])))
        .collect();
    must(client.send());
    let deadline = Instant::now() + Duration::from_secs(20);
    let sessions = loop {
        let unsent = unsent(&server.inspect(100));
        if unsent > 0 {
            break unsent;
        }
        assert!(Instant::now() < deadline, "all was sent");
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(sessions > 1);
    for id in asked {
        assert!(matches!(must(client.answer(&id)), Answer::Value(_)));
    }
    must(client.ask("ping", []));
    assert_eq!(unsent(&server.inspect(100)), 0);
    must(server.close());
}

#[test]
fn commits_and_errors_of_all_workers_are_counted_together() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut clients = [(); 2].map(|()| must(Client::register(server.socket())));
    vote(&mut clients[0], 1, &[1]);
    must(clients[0].ask("tpc_finish", [1.into()]));
    for client in &mut clients {
        for _ in 0..3 {
            let missing = must(client.ask("loadSerial", [Oid(9).into(), Tid(1).into()]));
            assert!(matches!(missing, Answer::Error(_)));
        }
    }
    // One load of what is in memory, and one of what is not there.
    for oid in [Oid(1), Oid(9)] {
        let load = clients[0].load(oid, Tid::MAX);
        must(clients[0].send());
        must(clients[0].answer(&load));
    }
    must(clients[1].begin(2));
    must(clients[1].ask("tpc_abort", [2.into()]));
    let metrics = server.metrics();
    assert_eq!((metrics.connections, metrics.commits, metrics.aborts), (2, 1, 1));
    assert_eq!(metrics.errors, [("ZODB.POSException.POSKeyError", 7)]);
    let count = |name| {
        let mut requests = metrics.requests.iter();
        requests.find(|(found, _)| *found == name).map(|(_, durations)| durations.count())
    };
    assert_eq!(count("loadBefore"), Some(2));
    assert_eq!((count("loadSerial"), count("tpc_finish"), count("pack")), (Some(6), Some(1), None));
    let storages: Vec<_> = server.server().storages().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(storages, ["1"]);
    must(server.close());
}

#[test]
fn a_worker_that_has_stopped_is_silent() {
    let mut server = must(InProcess::start(Encoding::Msgpack, None));
    server.stop();
    let inspection = server.inspect(1);
    assert_eq!((inspection.workers.len(), inspection.silent), (0, 2));
}

#[test]
fn a_transaction_that_holds_its_locks_for_too_long_costs_its_client_the_connection() {
    // The second client, which finishes at once, is allowed it too on a busy machine.
    let timeout = Duration::from_secs(1);
    let setup = Setup { transaction_timeout: Some(timeout), ..Setup::default() };
    let server = must(InProcess::start_with(Encoding::Pickle, setup));
    let mut clients = [(); 2].map(|()| must(Client::register(server.socket())));
    vote(&mut clients[0], 1, &[1]);
    must(clients[0].wait_closed());
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while server.metrics().expired == 0 && std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    assert_eq!(server.metrics().expired, 1);
    vote(&mut clients[1], 2, &[2]);
    assert!(matches!(must(clients[1].ask("tpc_finish", [2.into()])), Answer::Value(_)));
    must(server.close());
}

#[test]
fn a_client_that_does_not_read_loses_its_locks_too() {
    let timeout = Duration::from_secs(1);
    let setup = Setup { transaction_timeout: Some(timeout), ..Setup::default() };
    let server = must(InProcess::start_with(Encoding::Pickle, setup));
    let [mut silent, mut other] = [(); 2].map(|()| must(Client::register(server.socket())));
    must(other.begin(1));
    must(other.store(1, Oid(2), Tid::ZERO, &vec![b'd'; 900_000]));
    must(other.commit(1));
    vote(&mut silent, 1, b"data");
    for _ in 0..20 {
        silent.load(Oid(2), Tid::MAX);
    }
    must(silent.send());
    vote(&mut other, 2, b"other data");
    // It is counted right after its locks are free.
    while server.metrics().expired == 0 {
        std::thread::yield_now();
    }
    assert_eq!(server.metrics().expired, 1);
    assert!(matches!(must(other.ask("tpc_finish", [2.into()])), Answer::Value(_)));
    drop(silent);
    must(server.close());
}

/// The states of the transactions, and whether they have a number in the commit machine.
fn states(server: &InProcess) -> Vec<(&'static str, bool)> {
    let inspection = server.inspect(100);
    let sessions = inspection.workers.iter().flat_map(|worker| &worker.sessions);
    let transactions = sessions.filter_map(|session| session.transaction.as_ref());
    let mut states: Vec<_> = transactions.map(|one| (one.state, one.number.is_some())).collect();
    states.sort_unstable();
    states
}

#[test]
fn the_state_of_each_transaction_is_told_and_its_number_from_the_vote_on() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut clients = [(); 4].map(|()| must(Client::register(server.socket())));
    let [holder, waiter, opener, refused] = &mut clients;
    vote(holder, 1, b"data");
    assert_eq!(states(&server), [("voted", true)]);
    must(waiter.begin(1));
    must(waiter.store(1, Oid(1), Tid::ZERO, b"other data"));
    let voted = must(waiter.call("vote", [1.into()]));
    must(waiter.send());
    must(opener.begin(1));
    must(opener.ask("ping", []));
    must(refused.begin(1));
    // This server takes no blobs.
    must(refused.ask("storeBlobStart", []));
    let deadline = Instant::now() + Duration::from_secs(20);
    let all = [("open", false), ("refused", false), ("voted", true), ("waiting", true)];
    while states(&server) != all {
        assert!(Instant::now() < deadline, "{:?}", states(&server));
    }
    must(holder.ask("tpc_finish", [1.into()]));
    // The other one has a conflict now, which its client may resolve.
    assert!(matches!(must(waiter.answer(&voted)), Answer::Value(_)));
    assert_eq!(states(&server), [("open", false), ("refused", false), ("resolving", true)]);
    must(server.close());
}
