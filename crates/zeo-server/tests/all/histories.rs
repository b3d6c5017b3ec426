//! Long histories, of which a few are made at a time.

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_disk::Operation;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// Places for searches.
const PLACES: usize = 4;

#[test]
fn long_histories_wait_for_a_place_and_short_ones_do_not() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut client = must(Client::register(server.socket()));
    must(client.begin(1));
    must(client.store(1, Oid(1), Tid::ZERO, b"data"));
    must(client.commit(1));
    let history = |count: u64| [Oid(1).into(), count.into()];
    let begun: Vec<_> = (0..PLACES)
        .map(|_| {
            let held_up = server.hold_up(Operation::Read);
            let call = must(client.call("history", history(101)));
            must(client.send());
            held_up.wait();
            (held_up, call)
        })
        .collect();
    let waiting = must(client.call("history", history(101)));
    // One that did not wait would be answered long before the last of these.
    for _ in 0..50 {
        assert!(matches!(must(client.ask("history", history(100))), Answer::Value(_)));
    }
    assert!(!client.has_answer(&waiting));
    for (held_up, call) in begun {
        held_up.go_on();
        assert!(matches!(must(client.answer(&call)), Answer::Value(_)));
    }
    assert!(matches!(must(client.answer(&waiting)), Answer::Value(_)));
    must(server.close());
}
