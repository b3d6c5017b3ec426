//! Loads that wait for the disk.

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::{InProcess, Setup};
use zodium_disk::Operation;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// Commits a revision of object 1.
fn commit(client: &mut Client, number: u64, serial: Tid, data: &[u8]) -> Tid {
    must(client.begin(number));
    must(client.store(number, Oid(1), serial, data));
    must(client.commit(number))
}

#[test]
fn a_load_that_waited_during_a_commit_gives_the_revision_that_the_client_was_told_of() {
    check_wait_during_commit(b"new", false);
}

/// It has to wait a second time: memory does not keep such large data.
#[test]
fn a_load_that_waited_during_a_commit_of_large_data_gives_that_revision_too() {
    check_wait_during_commit(&[7; 900_000], true);
}

fn check_wait_during_commit(new_data: &'static [u8], waits_again: bool) {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let old = commit(&mut must(Client::register(server.socket())), 1, Tid::ZERO, b"old");
    let data = Some(server.data());
    must(server.close());
    let setup = Setup { data, ..Setup::default() };
    let server = must(InProcess::start_with(Encoding::Msgpack, setup));
    let [mut reader, mut writer] = [(); 2].map(|()| must(Client::register(server.socket())));
    server.disk().forget_every(1);
    let held_up = server.hold_up(Operation::Read);
    let load = reader.load(Oid(1), Tid::MAX);
    must(reader.send());
    held_up.wait();
    server.disk().forget_every(u64::from(waits_again));
    let new = commit(&mut writer, 1, old, new_data);
    assert_eq!(must(reader.ask("lastTransaction", [])), Answer::Value(new.into()));
    held_up.go_on();
    let revision = [new_data.into(), new.into(), Value::None];
    assert!(must(reader.answer(&load)) == Answer::Value(Value::tuple(revision)));
    assert_eq!(server.metrics().cold_loads.count(), 1);
    must(server.close());
}
