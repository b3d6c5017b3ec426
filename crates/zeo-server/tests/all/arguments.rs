//! Calls with arguments that their methods do not take.

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

#[test]
fn a_call_with_arguments_too_few_or_too_many_or_of_another_kind_is_a_type_error() {
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let server = must(InProcess::start(encoding, None));
        let mut client = must(Client::register(server.socket()));
        let refusal = Answer::Error("builtins.TypeError".to_owned());
        let (oid, tid) = (|| Oid(1).into(), || Tid(1).into());
        assert_eq!(must(client.ask("getTid", [])), refusal);
        assert_eq!(must(client.ask("getTid", [oid(), oid()])), refusal);
        assert_eq!(must(client.ask("getTid", [b"short".into()])), refusal);
        assert_eq!(must(client.ask("loadSerial", [oid()])), refusal);
        assert_eq!(must(client.ask("loadSerial", [oid(), Value::None])), refusal);
        assert_eq!(must(client.ask("loadBefore", [oid(), 1.into()])), refusal);
        assert_eq!(must(client.ask("ping", [Value::None])), refusal);
        assert_eq!(must(client.ask("history", [oid(), "many".into()])), refusal);
        assert_eq!(must(client.ask("iterator_start", [Value::None, "last".into()])), refusal);
        assert_eq!(must(client.ask("iterator_gc", [1.into()])), refusal);
        assert_eq!(must(client.ask("set_client_label", [1.into()])), refusal);
        // The connection is still of use.
        assert_eq!(must(client.ask("ping", [])), Answer::Value(Value::None));
        must(client.begin(1));
        for store in
            [[oid(), tid(), Value::None, 1.into()], [oid(), tid(), "text".into(), 1.into()]]
        {
            must(client.tell("storea", store));
        }
        assert_eq!(must(client.ask("vote", [1.into()])), refusal);
        must(server.close());
    }
}

#[test]
fn a_label_may_be_as_long_as_a_frame_and_plain_arguments_are_short() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut client = must(Client::register(server.socket()));
    let long = "a".repeat(900_000);
    let answer = must(client.ask("set_client_label", [long.as_str().into()]));
    assert_eq!(answer, Answer::Value(Value::None));
    // What would be too long for a file is refused at the vote.
    let begin = [1.into(), b"".into(), long.as_str().into(), Value::None, Value::None, " ".into()];
    must(client.tell("tpc_begin", begin));
    let refusal = Answer::Error("ZODB.FileStorage.FileStorage.FileStorageError".to_owned());
    assert_eq!(must(client.ask("vote", [1.into()])), refusal);
    assert_eq!(must(client.ask("getTid", [long.as_str().into()])), Answer::Closed);
    must(server.close());
}

#[test]
fn a_message_without_data_has_64_kib_at_most() {
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let server = must(InProcess::start(encoding, None));
        let mut client = must(Client::register(server.socket()));
        // A header of 4 bytes is not a part of the message.
        let given = "a".repeat(65_000);
        let first = must(client.call("getTid", [given.as_str().into()]));
        let longest = given.len() + (4 + (64 << 10)) - client.gathered_bytes();
        must(client.send());
        assert!(matches!(must(client.answer(&first)), Answer::Error(_)));
        for (length, is_taken) in [(longest, true), (longest + 1, false)] {
            let answer = must(client.ask("getTid", ["a".repeat(length).as_str().into()]));
            assert_eq!(answer != Answer::Closed, is_taken, "{length} characters");
        }
        must(server.close());
    }
}

#[test]
fn the_serial_that_a_store_replaces_may_be_text() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = must(Client::register(server.socket()));
    must(client.begin(1));
    must(client.store(1, Oid(1), Tid::ZERO, b"data"));
    let tid = must(client.commit(1));
    // Each byte as the character of that number.
    let text: String = tid.to_bytes().into_iter().map(char::from).collect();
    must(client.begin(2));
    let store = [Oid(1).into(), text.as_str().into(), b"new data".into(), 2.into()];
    must(client.tell("storea", store));
    must(client.commit(2));
    must(client.begin(3));
    let store = [Oid(1).into(), "no serial".into(), b"new data".into(), 3.into()];
    must(client.tell("storea", store));
    let refusal = Answer::Error("builtins.TypeError".to_owned());
    assert_eq!(must(client.ask("vote", [3.into()])), refusal);
    must(server.close());
}

#[test]
fn a_heartbeat_is_taken_without_an_answer() {
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let server = must(InProcess::start(encoding, None));
        let mut client = must(Client::register(server.socket()));
        must(client.beat());
        assert_eq!(must(client.ask("ping", [])), Answer::Value(Value::None));
        must(server.close());
    }
}
