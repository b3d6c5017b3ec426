//! What a client leaves behind when its connection ends.

use std::time::{Duration, Instant};

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// Waits until so many clients are connected.
fn wait_for(server: &InProcess, connections: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.metrics().connections != connections {
        assert!(Instant::now() < deadline, "{} clients", server.metrics().connections);
    }
}

#[test]
fn a_client_that_goes_keeps_no_locks() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut stayer = must(Client::register(server.socket()));
    must(stayer.begin(1));
    must(stayer.store(1, Oid(1), Tid::ZERO, b"data"));
    let mut tid = must(stayer.commit(1));
    let locking = || server.storage().commit_status().locking;
    for (is_current, has_aborted) in [(true, false), (false, false), (false, true)] {
        let mut leaver = must(Client::register(server.socket()));
        must(leaver.begin(1));
        must(leaver.store(1, Oid(1), if is_current { tid } else { Tid::ZERO }, b"new data"));
        assert!(matches!(must(leaver.ask("vote", [1.into()])), Answer::Value(_)));
        assert_eq!(locking(), 1);
        if has_aborted {
            // The longer it had them, the longer its locks are kept for it.
            std::thread::sleep(Duration::from_millis(20));
            must(leaver.ask("tpc_abort", [1.into()]));
        }
        drop(leaver);
        wait_for(&server, 1);
        assert_eq!(locking(), 0);
        must(stayer.begin(2));
        must(stayer.store(2, Oid(1), tid, b"newer data"));
        tid = must(stayer.commit(2));
    }
    must(server.close());
}

#[test]
fn the_clients_that_stay_are_told_of_commits() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    // Several for each worker.
    let mut stayers = [(); 4].map(|()| must(Client::register(server.socket())));
    drop([(); 2].map(|()| must(Client::register(server.socket()))));
    wait_for(&server, 4);
    let [writer, others @ ..] = &mut stayers;
    must(writer.begin(1));
    must(writer.store(1, Oid(1), Tid::ZERO, b"data"));
    let tid = must(writer.commit(1));
    for other in others {
        assert_eq!(must(other.wait_told()), tid);
    }
    must(server.close());
}
