//! What a server tells of its storage, and of commits that a client missed.

use std::time::Duration;

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::{InProcess, REMEMBERED, Setup};
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// Commits a new object.
fn commit(client: &mut Client, number: u64, oid: Oid) -> Tid {
    must(client.begin(number));
    must(client.store(number, oid, Tid::ZERO, b"data"));
    must(client.commit(number))
}

#[test]
fn undo_is_offered_and_writers_are_refused_where_no_commits_are_taken() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    commit(&mut must(Client::register(server.socket())), 1, Oid(1));
    let data = Some(server.data());
    must(server.close());
    for read_only in [false, true] {
        let setup = Setup { data: data.clone(), read_only, ..Setup::default() };
        let server = must(InProcess::start_with(Encoding::Msgpack, setup));
        let mut client = must(Client::connect(server.socket()));
        must(client.ask("register", ["1".into(), true.into()]));
        let Answer::Value(info) = must(client.ask("get_info", [])) else { panic!("no info") };
        assert_eq!(info.entry("supportsUndo"), Some(&Value::Bool(true)));
        assert_eq!(info.entry("length").and_then(Value::as_u64), Some(1));
        let mut writer = must(Client::connect(server.socket()));
        let answer = must(writer.ask("register", ["1".into(), false.into()]));
        let refusal = Answer::Error("ZODB.POSException.ReadOnlyError".to_owned());
        assert_eq!(answer == refusal, read_only, "{answer:?}");
    }
}

#[test]
fn a_client_on_python_2_writes_in_msgpack_only() {
    for (encoding, read_only, is_taken) in [
        (Encoding::Pickle, false, false),
        (Encoding::Pickle, true, true),
        (Encoding::Msgpack, false, true),
    ] {
        let server = must(InProcess::start(encoding, None));
        let mut client = must(Client::connect(server.socket()));
        let name = Value::Bytes(b"1".to_vec().into());
        let answer = must(client.ask("register", [name, read_only.into()]));
        assert_eq!(matches!(answer, Answer::Value(_)), is_taken, "{answer:?}");
        must(server.close());
    }
}

#[test]
fn a_client_that_missed_more_commits_than_are_remembered_is_told_from_the_log_if_at_all() {
    let count = REMEMBERED as u64 + 50;
    for (invalidation_age, is_told) in
        [(None, false), (Some(Duration::from_secs(3600)), true), (Some(Duration::ZERO), false)]
    {
        let setup = Setup { invalidation_age, ..Setup::default() };
        let server = must(InProcess::start_with(Encoding::Msgpack, setup));
        let mut client = must(Client::register(server.socket()));
        let tids: Vec<_> = (1..=count).map(|n| commit(&mut client, n, Oid(n))).collect();
        let mut missed = |since: Tid| {
            let Answer::Value(value) = must(client.ask("getInvalidations", [since.into()])) else {
                panic!("an answer without an error");
            };
            let [last, oids] = value.as_sequence()? else { panic!("{value:?}") };
            let mut oids: Vec<_> = oids.as_sequence()?.iter().filter_map(Value::as_oid).collect();
            oids.sort();
            assert_eq!(last.as_tid(), tids.last().copied());
            Some(oids)
        };
        let later = |place: usize| Some((place as u64 + 2..=count).map(Oid).collect::<Vec<_>>());
        let near = tids.len() - 10;
        assert_eq!(missed(tids[near]), later(near));
        assert_eq!(missed(tids[20]), later(20).filter(|_| is_told));
        must(server.close());
    }
}

#[test]
fn a_client_that_registered_for_reading_only_reads_and_is_refused_all_that_writes() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let tid = commit(&mut must(Client::register(server.socket())), 1, Oid(1));
    let mut client = must(Client::connect(server.socket()));
    must(client.ask("register", ["1".into(), true.into()]));
    let refusal = Answer::Error("ZODB.POSException.ReadOnlyError".to_owned());
    let (empty, none) = (|| Value::from(b""), || Value::None);
    let begin = [1.into(), empty(), empty(), none(), none(), " ".into()];
    assert_eq!(must(client.ask("tpc_begin", begin)), refusal);
    assert_eq!(must(client.ask("new_oids", [])), refusal);
    assert_eq!(must(client.ask("getTid", [Oid(1).into()])), Answer::Value(tid.into()));
    assert_eq!(must(client.ask("vote", [1.into()])), refusal);
    must(server.close());
}
