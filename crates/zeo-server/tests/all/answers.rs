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
    assert_eq!(length(both(&server, ask, "record_iternext", [Value::None])), 4);
    assert_eq!(length(both(&server, ask, "record_iternext", [Oid(3).into()])), 4);
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
