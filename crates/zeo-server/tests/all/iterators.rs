//! Iterators of a client that has gone, and of one that opens too many.

use std::time::{Duration, Instant};

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_disk::Operation;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{Encoding, MessageId};

const TRANSACTIONS: u64 = 100;
/// Most iterators that a client may have open.
const OPEN_MAX: usize = 1000;

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

#[test]
fn a_client_may_open_another_iterator_only_when_it_has_closed_one_of_too_many() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    let mut client = must(Client::register(server.socket()));
    let open = |client: &mut Client, count: usize| {
        let ask = |_| must(client.call("iterator_start", [Value::None, Value::None]));
        let asked: Vec<_> = (0..count).map(ask).collect();
        must(client.send());
        asked.into_iter().map(|id| must(client.answer(&id))).collect::<Vec<_>>()
    };
    let opened = open(&mut client, OPEN_MAX);
    assert!(opened.iter().all(|answer| matches!(answer, Answer::Value(_))), "{opened:?}");
    let refused = [Answer::Error("builtins.ValueError".to_owned())];
    assert_eq!(open(&mut client, 1), refused);
    let Some(Answer::Value(first)) = opened.into_iter().next() else { unreachable!() };
    must(client.ask("iterator_gc", [Value::list([first])]));
    assert!(matches!(open(&mut client, 1)[..], [Answer::Value(_)]));
    assert_eq!(open(&mut client, 1), refused);
    must(server.close());
}
