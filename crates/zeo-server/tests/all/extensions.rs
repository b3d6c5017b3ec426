//! Extensions of transactions that are not what a client of today sends.

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_pickle::{Construction, Global, Object, Value};
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

const ENCODINGS: [Encoding; 2] = [Encoding::Pickle, Encoding::Msgpack];

/// `{"username": "joe", "n": 1}` of Python 2.
const PYTHON_2: &[u8] = b"\x80\x02}(U\x08usernameU\x03joeU\x01nK\x01u.";
/// `{"token": b"\xff"}` of Python 3 in protocol 2.
const CALL_OF_ENCODE: &[u8] = b"\x80\x02}X\x05\0\0\0tokenc_codecs\nencode\n\
    X\x02\0\0\0\xc3\xbfX\x06\0\0\0latin1\x86Rs.";
/// `{"n": {17: None}}`, and `{"n": 2 ** 70}`.
const INTEGER_KEY: &[u8] = b"\x80\x03}X\x01\0\0\0n}K\x11Nss.";
const LONG_INTEGER: &[u8] = b"\x80\x03}X\x01\0\0\0n\x8a\x09\0\0\0\0\0\0\0\0\x40s.";
/// `{"n": {1}}`.
const SET: &[u8] = b"\x80\x03}X\x01\0\0\0ncbuiltins\nset\n]K\x01a\x85Rs.";

/// A server and a client of it that has committed transactions with these extensions.
fn served(encoding: Encoding, extensions: &[Value<'_>]) -> (InProcess, Client) {
    let server = must(InProcess::start(encoding, None));
    let mut client = must(Client::register(server.socket()));
    let mut serial = Tid::ZERO;
    for (number, extension) in (1..).zip(extensions) {
        begin(&mut client, number, extension.clone());
        must(client.store(number, Oid(1), serial, b"data"));
        serial = must(client.commit(number));
    }
    (server, client)
}

fn begin(client: &mut Client, number: u64, extension: Value<'_>) {
    let empty = || Value::from(b"");
    let arguments = [number.into(), empty(), empty(), extension, Value::None, " ".into()];
    must(client.tell("tpc_begin", arguments));
}

fn values<const N: usize>(
    client: &mut Client,
    name: &str,
    arguments: [Value<'_>; N],
) -> Vec<Value<'static>> {
    match must(client.ask(name, arguments)) {
        Answer::Value(value) => value.into_sequence().unwrap(),
        other => panic!("{name}: {other:?}"),
    }
}

/// The entries of a name in the answers of `undoLog` and `history`, newest first.
fn listed(client: &mut Client, name: &str) -> [Vec<Option<Value<'static>>>; 2] {
    let log = values(client, "undoLog", [0.into(), 9.into()]);
    let history = values(client, "history", [Oid(1).into(), 9.into()]);
    [log, history].map(|entries| entries.iter().map(|one| one.entry(name).cloned()).collect())
}

/// The extension of the first transaction, as an iterator gives it.
fn iterated(client: &mut Client) -> Result<Value<'static>, String> {
    let number = match must(client.ask("iterator_start", [Value::None, Value::None])) {
        Answer::Value(number) => number,
        other => panic!("{other:?}"),
    };
    match must(client.ask("iterator_next", [number])) {
        Answer::Value(value) => Ok(value.into_sequence().unwrap().pop().unwrap()),
        Answer::Error(name) => Err(name),
        Answer::Closed => panic!("closed"),
    }
}

#[test]
fn text_of_python_2_and_bytes_of_old_protocols_are_what_zodb_reads() {
    for encoding in ENCODINGS {
        let (server, mut client) = served(encoding, &[PYTHON_2.into(), CALL_OF_ENCODE.into()]);
        for entries in listed(&mut client, "username") {
            assert_eq!(entries, [None, Some("joe".into())]);
        }
        for entries in listed(&mut client, "token") {
            assert_eq!(entries, [Some(b"\xff".into()), None]);
        }
        let wanted = Value::dict([("username", "joe".into())]);
        assert_eq!(values(&mut client, "undoInfo", [0.into(), 9.into(), wanted]).len(), 1);
        let dict = Value::dict([("username", "joe".into()), ("n", 1.into())]);
        assert_eq!(iterated(&mut client), Ok(dict));
        must(server.close());
    }
    let (server, mut client) = served(Encoding::Pickle, &[CALL_OF_ENCODE.into()]);
    assert_eq!(iterated(&mut client), Ok(Value::dict([("token", b"\xff".into())])));
    must(server.close());
}

#[test]
fn lists_leave_out_an_extension_that_the_encoding_of_the_client_lacks() {
    for extension in [INTEGER_KEY, LONG_INTEGER] {
        let around = || Value::dict([("n", 1.into())]);
        let extensions = [around(), extension.into(), around()];
        let (server, mut client) = served(Encoding::Msgpack, &extensions);
        for entries in listed(&mut client, "n") {
            assert_eq!(entries, [Some(1.into()), None, Some(1.into())]);
        }
        must(server.close());
        let (server, mut client) = served(Encoding::Pickle, &extensions);
        for entries in listed(&mut client, "n") {
            assert!(entries[1].is_some(), "pickles have it");
        }
        must(server.close());
    }
}

/// A stock client that gets an instance never ends its call.
#[test]
fn an_extension_with_an_instance_is_an_error_of_iterators_and_left_out_of_lists() {
    for encoding in ENCODINGS {
        let (server, mut client) = served(encoding, &[SET.into()]);
        assert_eq!(listed(&mut client, "n"), [[None], [None]]);
        assert_eq!(iterated(&mut client), Err("builtins.ValueError".to_owned()));
        must(server.close());
    }
}

fn instance(module: &'static str, name: &'static str, argument: Value<'static>) -> Value<'static> {
    let instance = Value::Object(Box::new(Object {
        construction: Construction::Call,
        callable: Value::Global(Global::new(module, name).unwrap()),
        arguments: Value::tuple([argument]),
        items: Vec::new(),
        entries: Vec::new(),
        state: None,
    }));
    Value::dict([("n", instance)])
}

#[test]
fn sets_and_their_like_are_kept_in_an_extension() {
    let set = instance("builtins", "set", Value::list([1.into()]));
    let bytes = instance("builtins", "bytearray", Value::from(b"a"));
    let (server, _client) = served(Encoding::Pickle, &[set, bytes]);
    let mut log = server.storage().reader().iterate(None, None).unwrap();
    assert_eq!(log.step().unwrap().unwrap().metadata.extension.as_slice(), SET);
    assert!(log.step().unwrap().is_some());
    must(server.close());
}

/// A client whose connection ended would begin it again and again.
#[test]
fn the_vote_fails_of_a_transaction_whose_extension_cannot_be_taken() {
    let (server, mut client) = served(Encoding::Pickle, &[]);
    begin(&mut client, 7, instance("datetime", "datetime", Value::from(b"\x07\xe4")));
    must(client.store(7, Oid(1), Tid::ZERO, b"data"));
    let refused = Answer::Error("builtins.TypeError".to_owned());
    assert_eq!(must(client.ask("vote", [7.into()])), refused);
    assert_eq!(must(client.ask("tpc_abort", [7.into()])), Answer::Value(Value::None));
    begin(&mut client, 8, Value::dict([("n", 1.into())]));
    must(client.store(8, Oid(1), Tid::ZERO, b"data"));
    must(client.commit(8));
    must(server.close());
}
