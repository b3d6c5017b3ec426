//! Requests that are not read before others have been done.

use std::time::Duration;

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::{HeldUp, InProcess};
use zodium_disk::Operation;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// Most requests of a client that are under way.
const REQUESTS_MAX: usize = 1000;
/// Long enough for a server to read what it has been sent.
const A_WHILE: Duration = Duration::from_millis(100);

/// Lets an operation go on after a while.
fn go_on_later(held_up: HeldUp) -> impl FnOnce() + Send {
    move || {
        held_up.wait();
        std::thread::sleep(A_WHILE);
        held_up.go_on();
    }
}

#[test]
fn nothing_more_is_read_while_too_many_requests_wait_for_an_iterator() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut client = must(Client::register(server.socket()));
    must(client.begin(1));
    must(client.store(1, Oid(1), Tid::ZERO, b"data"));
    must(client.commit(1));
    let started = must(client.ask("iterator_start", [Value::None, Value::None]));
    let Answer::Value(number) = started else { panic!("{started:?}") };
    let held_up = server.hold_up(Operation::Read);
    let ask = |_| must(client.call("iterator_next", [number.clone()]));
    let asked: Vec<_> = (0..REQUESTS_MAX).map(ask).collect();
    let ping = must(client.call("ping", []));
    must(client.send());
    std::thread::scope(|scope| {
        scope.spawn(go_on_later(held_up));
        assert_eq!(must(client.answer(&ping)), Answer::Value(Value::None));
        assert!(client.has_answer(&asked[0]), "the ping was answered first");
    });
    for id in &asked {
        must(client.answer(id));
    }
    must(server.close());
}

#[test]
fn a_large_transaction_is_voted_on_when_its_data_are_on_disk() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = must(Client::register(server.socket()));
    let data = |oid: u64| vec![oid as u8; 900_000];
    let held_up = server.hold_up(Operation::Write);
    let tid = std::thread::scope(|scope| {
        scope.spawn(go_on_later(held_up));
        must(client.begin(1));
        (1..=20).for_each(|oid| must(client.store(1, Oid(oid), Tid::ZERO, &data(oid))));
        must(client.commit(1))
    });
    for oid in 1..=20 {
        let loaded = must(client.ask("loadSerial", [Oid(oid).into(), tid.into()]));
        assert!(loaded == Answer::Value(data(oid).into()), "object {oid}");
    }
    must(server.close());
}
