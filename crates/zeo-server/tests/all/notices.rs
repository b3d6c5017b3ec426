//! When a client hears of a commit, where its invalidations may wait for an answer.

use std::time::{Duration, Instant};

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::{InProcess, Setup};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);

fn start(notice_interval: Duration) -> (InProcess, [Client; 2]) {
    let setup = Setup { notice_interval, ..Setup::default() };
    let server = must(InProcess::start_with(Encoding::Msgpack, setup));
    let clients = [(); 2].map(|()| must(Client::register(server.socket())));
    (server, clients)
}

/// Commits so many new objects.
fn commit(client: &mut Client, oids: std::ops::Range<u64>) -> Tid {
    must(client.begin(1));
    oids.for_each(|oid| must(client.store(1, Oid(oid), Tid::ZERO, b"data")));
    must(client.commit(1))
}

#[test]
fn invalidations_wait_for_the_next_answer_and_precede_it() {
    let (server, [mut writer, mut reader]) = start(NEVER);
    let tids = [commit(&mut writer, 1..2), commit(&mut writer, 2..3)];
    let unsent = || {
        let inspection = server.inspect(100);
        let sessions = inspection.workers.iter().flat_map(|worker| &worker.sessions);
        sessions.map(|session| session.unsent_bytes).sum::<u64>()
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while unsent() == 0 {
        assert!(Instant::now() < deadline, "they were sent without an answer");
    }
    assert_eq!(must(reader.ask("lastTransaction", [])), Answer::Value(tids[1].into()));
    assert!(reader.invalidations.iter().map(|(tid, _)| *tid).eq(tids));
    must(server.close());
}

#[test]
fn many_invalidations_do_not_wait() {
    let (server, [mut writer, mut reader]) = start(NEVER);
    let tid = commit(&mut writer, 1..2001);
    assert_eq!(must(reader.wait_told()), tid);
    must(server.close());
}

#[test]
fn a_client_that_asks_nothing_is_told_of_commits_after_the_interval() {
    let (server, [mut writer, mut reader]) = start(Duration::from_millis(5));
    for oid in 1..10 {
        let tid = commit(&mut writer, oid..oid + 1);
        assert_eq!(must(reader.wait_told()), tid);
    }
    must(server.close());
}

#[test]
fn a_client_learns_the_size_of_the_storage_with_its_commits_and_after_a_pack() {
    let (server, [mut writer, mut other]) = start(Duration::ZERO);
    let size = |client: &mut Client| {
        let (name, arguments) = client.notices.pop().unwrap();
        assert_eq!((name.as_str(), client.notices.len()), ("info", 0));
        let entry = |name| arguments[0].entry(name).and_then(Value::as_u64).unwrap();
        (entry("length"), entry("size"))
    };
    let tid = commit(&mut writer, 1..3);
    assert_eq!(size(&mut writer), (2, server.data().len() as u64));
    must(writer.begin(2));
    must(writer.store(2, Oid(1), tid, &[7; 1000]));
    must(writer.commit(2));
    let before = size(&mut writer).1;
    // Removes the first revision.
    let packed = must(other.ask("pack", [Value::Float(1e11), Value::Bool(true)]));
    assert_eq!(packed, Answer::Value(Value::None));
    let after = size(&mut other).1;
    assert_eq!(after, server.data().len() as u64);
    assert!(after < before);
    must(server.close());
}
