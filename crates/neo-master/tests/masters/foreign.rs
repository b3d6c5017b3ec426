//! Messages that have no place: whatever a node says in whatever phase, the master goes on.

use proptest::collection::vec;
use proptest::prelude::*;
use zodium_neo::{Address, ConnectionId, NodeType};
use zodium_types::Tid;

use crate::backups::following;
use crate::support::*;

/// A message of each kind, as NEO/py has written it.
const MESSAGES: &str = include_str!("../../../neo/tests/messages.txt");

fn messages() -> Vec<Vec<u8>> {
    let digits = MESSAGES.lines().filter_map(|line| line.split(' ').next());
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).ok();
    let messages = digits.map(|digits| digits.as_bytes().chunks(2).map_while(byte).collect());
    messages.filter(|message: &Vec<u8>| !message.is_empty()).collect()
}

/// A master in some phase, with a node of each kind.
fn benches() -> Vec<(Bench, Vec<ConnectionId>)> {
    let recovering = Bench::new(settings(101));
    let mut verifying = Bench::new(settings(101));
    verifying.verifying(1);
    let (running, _) = Bench::running(2);
    let (backing_up, ..) = following(Tid(1000));
    let benches = [recovering, verifying, running, backing_up].into_iter();
    benches
        .map(|mut bench| {
            let mut nodes = vec![bench.master.accepted("a stranger".to_owned())];
            for (kind, port) in [(NodeType::Admin, 301), (NodeType::Master, 102)] {
                nodes.push(bench.node(kind, None, Some(address(port))));
            }
            nodes.push(bench.storage(9));
            nodes.push(bench.client());
            (bench, nodes)
        })
        .collect()
}

#[test]
fn any_message_of_any_node_is_handled() {
    let messages = messages();
    assert!(messages.len() > 100);
    for message in &messages {
        for (mut bench, nodes) in benches() {
            for node in nodes {
                bench.hand_in(node, message);
                bench.lose(node);
            }
        }
    }
}

#[test]
fn all_messages_of_one_connection_are_handled() {
    for (mut bench, nodes) in benches() {
        for node in nodes {
            for message in &messages() {
                bench.hand_in(node, message);
            }
        }
    }
}

proptest! {
    #[test]
    #[test]
    fn any_sequence_of_messages_is_handled(
        phase in 0..4_usize,
        steps in vec((0..8_usize, any::<prop::sample::Index>(), 0..20_u8), 1..60),
    ) {
        let messages = messages();
        let (mut bench, mut nodes) = benches().swap_remove(phase);
        let dialled = bench.dialled.clone();
        nodes.extend(dialled);
        for (node, message, what) in steps {
            let node = nodes[node % nodes.len()];
            match what {
                0 => bench.lose(node),
                1 => bench.connect(node),
                _ => bench.hand_in(node, &messages[message.index(messages.len())]),
            }
            bench.master.status();
        }
    }
}

#[test]
fn a_node_whose_address_no_other_could_dial_is_refused() {
    for kind in [NodeType::Master, NodeType::Storage, NodeType::Admin] {
        for (host, is_refused) in [("x".repeat(1 << 20), true), ("::1".to_owned(), false)] {
            let mut bench = Bench::new(settings(101));
            let node = bench.node(kind, None, Some(Address { host, port: 1 }));
            assert_eq!(bench.closed.contains(&node), is_refused, "{kind:?}");
        }
    }
}
