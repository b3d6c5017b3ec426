//! What a server waits for when it stops.

use std::time::Instant;

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::{InProcess, STOP_PATIENCE};
use zodium_disk::Operation;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// A client that has voted for transaction 1.
fn voted(server: &InProcess) -> Client {
    let mut client = must(Client::register(server.socket()));
    must(client.begin(1));
    must(client.store(1, Oid(1), Tid::ZERO, b"data"));
    assert!(matches!(must(client.ask("vote", [1.into()])), Answer::Value(_)));
    client
}

#[test]
fn a_server_stops_without_waiting_for_a_commit_that_its_client_has_not_finished() {
    let mut server = must(InProcess::start(Encoding::Msgpack, None));
    let mut client = voted(&server);
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < STOP_PATIENCE, "it has waited in vain");
    must(client.wait_closed());
}

#[test]
fn a_server_that_stops_answers_the_commit_that_is_being_written() {
    let mut server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = voted(&server);
    // Some for each worker: they are disconnected when it stops.
    let mut others = [(); 4].map(|()| must(Client::register(server.socket())));
    let held_up = server.hold_up(Operation::Sync);
    let finish = must(client.call("tpc_finish", [1.into()]));
    must(client.send());
    held_up.wait();
    std::thread::scope(|scope| {
        scope.spawn(|| server.stop());
        others.iter_mut().for_each(|other| must(other.wait_closed()));
        held_up.go_on();
    });
    assert!(matches!(must(client.answer(&finish)), Answer::Value(_)));
    must(server.close());
}
