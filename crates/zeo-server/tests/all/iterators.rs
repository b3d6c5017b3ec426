//! Iterators of a client that has gone.

use std::time::{Duration, Instant};

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_disk::Operation;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{Encoding, MessageId};

const TRANSACTIONS: u64 = 100;

/// Opens an iterator, and asks for all transactions and the end at once.
fn ask_for_all(client: &mut Client) -> Vec<MessageId> {
    let started = must(client.ask("iterator_start", [Value::None, Value::None]));
    let Answer::Value(number) = started else { panic!("{started:?}") };
    let ask = |_| must(client.call("iterator_next", [number.clone()]));
    let asked = (0..=TRANSACTIONS).map(ask).collect();
    must(client.send());
    asked
}

#[test]
fn nothing_more_is_read_for_a_client_that_has_gone() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let [mut leaver, mut stayer] = [(); 2].map(|()| must(Client::register(server.socket())));
    for number in 1..=TRANSACTIONS {
        must(stayer.begin(number));
        must(stayer.store(number, Oid(number), Tid::ZERO, b"data"));
        must(stayer.commit(number));
    }
    let reads = || server.disk().count(Operation::Read);
    let mut read_all = || {
        let before = reads();
        for id in ask_for_all(&mut stayer) {
            assert!(matches!(must(stayer.answer(&id)), Answer::Value(_)));
        }
        reads() - before
    };
    let alone = read_all();
    let held_up = server.hold_up(Operation::Read);
    ask_for_all(&mut leaver);
    held_up.wait();
    drop(leaver);
    let deadline = Instant::now() + Duration::from_secs(20);
    while server.metrics().connections > 1 {
        assert!(Instant::now() < deadline, "it is still connected");
    }
    held_up.go_on();
    // The step that was held up still ends.
    let beside = read_all();
    assert!(beside < alone + alone / 2, "{beside} reads, but {alone} alone");
    must(server.close());
}
