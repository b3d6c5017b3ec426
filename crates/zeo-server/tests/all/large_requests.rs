//! Requests that are too large for the buffer that small ones are read into.

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
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
