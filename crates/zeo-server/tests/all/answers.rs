//! Answers to callers of the same process, which have no session.

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;
use zodium_zeo_server::answer;

/// Calls a method both ways; the answers must be the same.
fn both<const N: usize>(
    server: &InProcess,
    client: &mut Client,
    name: &str,
    arguments: [Value<'static>; N],
) -> Answer {
    let here = match answer(server.storage(), name, arguments.to_vec()) {
        Ok(value) => Answer::Value(value),
        Err(exception) => Answer::Error(exception.name.to_owned()),
    };
    assert_eq!(must(client.ask(name, arguments)), here, "{name}");
    here
}

#[test]
fn a_caller_of_the_same_process_is_answered_as_a_client_is() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = must(Client::register(server.socket()));
    let mut serial = Tid::ZERO;
    for number in 1..=3 {
        must(client.begin(number));
        must(client.store(number, Oid(1), serial, b"data"));
        must(client.store(number, Oid(number + 1), Tid::ZERO, b"more data"));
        serial = must(client.commit(number));
    }
    let ask = &mut client;
    let (one, missing) = (|| Oid(1).into(), || Oid(99).into());
    both(&server, ask, "get_info", []);
    let key_error = Answer::Error("ZODB.POSException.POSKeyError".to_owned());
    assert_ne!(both(&server, ask, "loadSerial", [one(), serial.into()]), key_error);
    assert_eq!(both(&server, ask, "loadSerial", [missing(), serial.into()]), key_error);
    assert_eq!(both(&server, ask, "getTid", [one()]), Answer::Value(serial.into()));
    assert_eq!(both(&server, ask, "getTid", [missing()]), key_error);
    let length = |answer: Answer| match answer {
        Answer::Value(value) => value.as_sequence().unwrap().len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(length(both(&server, ask, "history", [one(), 2.into()])), 2);
    assert_eq!(length(both(&server, ask, "history", [one()])), 1);
    for none in [0, -1] {
        assert_eq!(length(both(&server, ask, "history", [one(), none.into()])), 0);
        assert_eq!(both(&server, ask, "history", [missing(), none.into()]), key_error);
    }
    assert_eq!(length(both(&server, ask, "record_iternext", [Value::None])), 4);
    let Answer::Value(third) = both(&server, ask, "record_iternext", [Oid(3).into()]) else {
        panic!("no object")
    };
    let (data, end) = (b"more data".into(), Value::from(Oid(4)));
    let Some([oid, _, found, following]) = third.as_sequence() else { panic!("{third:?}") };
    assert_eq!((oid, found, following), (&Oid(3).into(), &data, &end));
    let value_error = Answer::Error("builtins.ValueError".to_owned());
    assert_eq!(both(&server, ask, "record_iternext", [1.into()]), value_error);
    assert_eq!(length(both(&server, ask, "undoLog", [1.into(), 3.into()])), 2);
    assert_eq!(length(both(&server, ask, "undoInfo", [])), 3);
    for name in ["vote", "iterator_start", "no_such_method"] {
        let refused = answer(server.storage(), name, vec![]).unwrap_err();
        assert_eq!(refused.name, "builtins.TypeError", "{name}");
    }
    let packed = answer(server.storage(), "pack", vec![Value::Float(1e11), Value::Bool(true)]);
    assert!(packed.is_ok(), "{packed:?}");
    assert_eq!(length(both(&server, ask, "history", [one(), 9.into()])), 1);
    must(server.close());
}

/// Begins a transaction with metadata, stores a new object, and commits.
fn commit_as(client: &mut Client, number: u64, user: &[u8], extension: Value<'static>) -> Tid {
    let arguments = [number.into(), user.into(), b"why".into(), extension, Value::None, " ".into()];
    must(client.tell("tpc_begin", arguments));
    must(client.store(number, Oid(number), Tid::ZERO, b"data"));
    must(client.commit(number))
}

fn listed(answer: Answer) -> Vec<Value<'static>> {
    let Answer::Value(Value::List(listed)) = answer else { panic!("{answer:?}") };
    listed
}

#[test]
fn what_a_transaction_was_begun_with_is_in_logs_and_histories() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = must(Client::register(server.socket()));
    let extension = Value::dict([("note", 7.into()), ("time", "never".into())]);
    let tid = commit_as(&mut client, 1, b"joe", extension.clone());
    let history = listed(both(&server, &mut client, "history", [Oid(1).into()]));
    let log = listed(both(&server, &mut client, "undoLog", [0.into(), 1.into()]));
    for entries in [&history[0], &log[0]] {
        assert_eq!(entries.entry("user_name"), Some(&b"joe".into()));
        assert_eq!(entries.entry("description"), Some(&b"why".into()));
        assert_eq!(entries.entry("note"), Some(&7.into()));
    }
    // An entry of the application does not stand for one of the history's own.
    assert_eq!(history[0].entry("time"), Some(&Value::Float(tid.to_unix_seconds())));
    let Answer::Value(iterator) = must(client.ask("iterator_start", [Value::None, Value::None]))
    else {
        panic!("no iterator")
    };
    let metadata = [tid.into(), " ".into(), b"joe".into(), b"why".into(), extension];
    let first = must(client.ask("iterator_next", [iterator]));
    assert_eq!(first, Answer::Value(Value::tuple(metadata)));
    must(server.close());
}

#[test]
fn an_undo_log_has_the_transactions_that_were_asked_for() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = must(Client::register(server.socket()));
    for number in 1..=25 {
        let user = if number == 2 { &b"joe"[..] } else { b"" };
        commit_as(&mut client, number, user, Value::None);
    }
    let ask = &mut client;
    assert_eq!(listed(both(&server, ask, "undoInfo", [])).len(), 20);
    assert_eq!(listed(both(&server, ask, "undoInfo", [5.into()])).len(), 20);
    let of_joe = || Value::dict([("user_name", b"joe".into())]);
    let found = listed(both(&server, ask, "undoInfo", [0.into(), 20.into(), of_joe()]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].entry("user_name"), Some(&b"joe".into()));
    assert_eq!(listed(both(&server, ask, "undoLog", [0.into(), 0.into()])), []);
    assert_eq!(listed(both(&server, ask, "undoLog", [24.into(), 99.into()])).len(), 1);
    must(server.close());
}
