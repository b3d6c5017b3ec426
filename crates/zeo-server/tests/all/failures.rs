//! Commits that a failing disk refuses.

use std::io::ErrorKind;

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_disk::Operation;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

#[test]
fn a_commit_that_cannot_be_written_is_an_error_and_so_are_those_that_follow() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = must(Client::register(server.socket()));
    let vote = |client: &mut Client, number: u64| {
        must(client.begin(number));
        must(client.store(number, Oid(number), Tid::ZERO, b"data"));
        must(client.ask("vote", [number.into()]))
    };
    let failed = Answer::Error("ZODB.POSException.StorageSystemError".to_owned());
    assert!(matches!(vote(&mut client, 1), Answer::Value(_)));
    server.disk().fail(Operation::Sync, 1, ErrorKind::Other);
    assert_eq!(must(client.ask("tpc_finish", [1.into()])), failed);
    let metrics = server.metrics();
    assert_eq!((metrics.commits, metrics.active_transactions), (0, 0));
    assert_eq!(vote(&mut client, 2), failed);
}
