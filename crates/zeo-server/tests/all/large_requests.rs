//! Requests that are too large for the buffer that small ones are read into.

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_disk::Operation;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::Encoding;

/// A request from this size on has a buffer of its own.
const LARGE_BYTES: usize = 64 << 10;

#[test]
fn large_requests_are_read_whole_among_small_ones_in_whatever_pieces_they_come() {
    let sizes = [10, LARGE_BYTES - 200, LARGE_BYTES, LARGE_BYTES + 1, 10, 900_000, 200_000, 10];
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let server = must(InProcess::start(encoding, None));
        let mut client = must(Client::register(server.socket()));
        // Whole, cut within headers and data, and cut in the middle of everything.
        for (number, pieces) in (1..).zip([vec![], vec![3, 100, 70_000, 70_001], vec![500_000]]) {
            must(client.begin(number));
            let data = |oid: usize| vec![(oid + number as usize) as u8; sizes[oid]];
            for oid in 0..sizes.len() {
                let serial = match must(client.ask("getTid", [Oid(oid as u64).into()])) {
                    Answer::Value(serial) => serial.as_tid().unwrap(),
                    _ => Tid::ZERO,
                };
                must(client.store(number, Oid(oid as u64), serial, &data(oid)));
                let pings: Vec<_> = (0..2).map(|_| must(client.call("ping", []))).collect();
                let ends = pieces.iter().copied().filter(|end| *end < client.gathered_bytes());
                let ends: Vec<_> = ends.collect();
                must(client.send_pieces(&ends));
                for ping in pings {
                    assert_eq!(must(client.answer(&ping)), Answer::Value(Value::None));
                }
            }
            must(client.commit(number));
            for oid in 0..sizes.len() {
                let load = client.load(Oid(oid as u64), Tid::MAX);
                must(client.send());
                let Answer::Value(found) = must(client.answer(&load)) else { panic!("{oid}") };
                assert!(found.as_sequence().unwrap()[0].as_bytes() == Some(&data(oid)[..]));
            }
        }
        must(server.close());
    }
}

#[test]
fn data_of_a_large_transaction_are_on_disk_before_its_vote() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut client = must(Client::register(server.socket()));
    let data = |oid: u64| vec![oid as u8; 900_000];
    let before = server.disk().count(Operation::Write);
    must(client.begin(1));
    for oid in 1..=20 {
        must(client.store(1, Oid(oid), Tid::ZERO, &data(oid)));
    }
    must(client.ask("ping", []));
    assert!(server.disk().count(Operation::Write) > before);
    assert!(server.held_bytes() < 8 << 20, "{} bytes in memory", server.held_bytes());
    let tid = must(client.commit(1));
    for oid in 1..=20 {
        let loaded = must(client.ask("loadSerial", [Oid(oid).into(), tid.into()]));
        assert!(loaded == Answer::Value(data(oid).into()), "object {oid}");
    }
    must(server.close());
}
