//! Zodium's own methods, which answer with many transactions, records or objects at once.

use std::io::ErrorKind;

use crate::must;
use crate::support::client::{Answer, Client};
use crate::support::server::InProcess;
use zodium_disk::Operation;
use zodium_pickle::Value;
use zodium_types::{Oid, Tid};
use zodium_zeo::codec::{ChunkItem, Encoding, next_chunk_item};

/// Commits new objects.
fn commit(client: &mut Client, number: u64, oids: std::ops::Range<u64>) -> Tid {
    must(client.begin(number));
    oids.for_each(|oid| must(client.store(number, Oid(oid), Tid::ZERO, b"0123456789")));
    must(client.commit(number))
}

/// The items of one answer, as text.
fn items(answer: &Answer) -> Vec<String> {
    let Answer::Value(chunk) = answer else { panic!("{answer:?}") };
    let mut rest = chunk.as_bytes().unwrap();
    std::iter::from_fn(|| next_chunk_item(&mut rest).unwrap())
        .map(|item| match item {
            ChunkItem::Transaction { tid, .. } => format!("transaction {tid}"),
            ChunkItem::Record { oid, .. } => format!("record {}", oid.0),
            ChunkItem::Object { oid, .. } => format!("object {}", oid.0),
            ChunkItem::Following(oid) => format!("then {}", oid.0),
            ChunkItem::Skipped => "skipped".to_owned(),
            ChunkItem::End => "end".to_owned(),
        })
        .collect()
}

#[test]
fn an_answer_ends_with_the_first_item_that_fills_it_and_the_next_one_goes_on() {
    for encoding in [Encoding::Pickle, Encoding::Msgpack] {
        let server = must(InProcess::start(encoding, None));
        let mut client = must(Client::register(server.socket()));
        let tids = [commit(&mut client, 1, 0..3), commit(&mut client, 2, 3..5)];
        let all = [
            format!("transaction {}", tids[0]),
            "record 0".to_owned(),
            "record 1".to_owned(),
            "record 2".to_owned(),
            format!("transaction {}", tids[1]),
            "record 3".to_owned(),
            "record 4".to_owned(),
        ];
        let heads = [&all[0][..], "skipped", &all[4], "skipped"];
        // One item each; two, as a record has 24 bytes; all at once.
        for (bytes, with_records, most) in
            [(1, true, 1), (25, true, 2), (1 << 20, true, 8), (1, false, 1), (1 << 20, false, 5)]
        {
            let Answer::Value(number) =
                must(client.ask("iterator_start", [Value::None, Value::None]))
            else {
                panic!("there is room");
            };
            let mut found = Vec::new();
            while found.last().is_none_or(|last| last != "end") {
                let ask = [number.clone(), bytes.into(), with_records.into()];
                let items = items(&must(client.ask("zodium_iterator_read", ask)));
                assert!((1..=most).contains(&items.len()), "{items:?} with {bytes} bytes");
                found.extend(items);
            }
            assert_eq!(found.pop().as_deref(), Some("end"));
            match with_records {
                true => assert_eq!(found, all),
                false => assert_eq!(found, heads),
            }
            let numbers = Value::list([number]);
            must(client.tell("iterator_gc", [numbers]));
        }
        must(server.close());
    }
}

#[test]
fn a_log_before_a_record_that_cannot_be_read_is_given_and_then_the_error() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut client = must(Client::register(server.socket()));
    // More than is read at once.
    for number in 1..=5 {
        must(client.begin(number));
        must(client.store(number, Oid(number), Tid::ZERO, &[number as u8; 150_000]));
        must(client.commit(number));
    }
    let data = Some(server.data());
    must(server.close());
    let server = must(InProcess::start(Encoding::Msgpack, data));
    let mut client = must(Client::register(server.socket()));
    let failed = Answer::Error("ZODB.POSException.StorageSystemError".to_owned());
    // The number of reads that succeed until there is something to give, and not all.
    let has_given_some = (1..100).any(|reads| {
        let started = must(client.ask("iterator_start", [Value::None, Value::None]));
        let Answer::Value(number) = started else { panic!("{started:?}") };
        let mut read = || {
            let ask = [number.clone(), (1_u64 << 20).into(), true.into()];
            must(client.ask("zodium_iterator_read", ask))
        };
        server.disk().fail_from(Operation::Read, reads, ErrorKind::Other);
        let answer = read();
        let is_some = answer != failed && items(&answer).last().is_some_and(|last| last != "end");
        if is_some {
            assert_eq!(items(&answer)[1], "record 1");
            assert_eq!(read(), failed);
        }
        server.disk().mend();
        is_some
    });
    assert!(has_given_some);
    must(server.close());
}

#[test]
fn objects_come_in_their_order_with_the_place_where_to_go_on() {
    let server = must(InProcess::start(Encoding::Msgpack, None));
    let mut client = must(Client::register(server.socket()));
    commit(&mut client, 1, 2..5);
    commit(&mut client, 2, 7..8);
    let mut read = |from: Value<'static>, bytes: u64| {
        must(client.ask("zodium_objects_read", [from, bytes.into()]))
    };
    assert_eq!(items(&read(Value::None, 1)), ["object 2", "then 3"]);
    // An object has 31 bytes.
    assert_eq!(items(&read(Value::None, 31)), ["object 2", "then 3"]);
    assert_eq!(items(&read(Value::None, 32)), ["object 2", "object 3", "then 4"]);
    assert_eq!(items(&read(Oid(4).into(), 32)), ["object 4", "object 7", "end"]);
    assert_eq!(items(&read(Oid(5).into(), 1 << 20)), ["object 7", "end"]);
    assert_eq!(read(Oid(8).into(), 1), Answer::Error("builtins.ValueError".to_owned()));
    assert_eq!(read(1.into(), 1), Answer::Error("builtins.ValueError".to_owned()));
    must(server.close());
}

#[test]
fn objects_before_one_that_cannot_be_read_are_given_and_then_the_error() {
    let server = must(InProcess::start(Encoding::Pickle, None));
    commit(&mut must(Client::register(server.socket())), 1, 2..5);
    let data = Some(server.data());
    must(server.close());
    // None of the objects is in its memory.
    let server = must(InProcess::start(Encoding::Pickle, data));
    let mut client = must(Client::register(server.socket()));
    let mut read = |from: Value<'static>| {
        must(client.ask("zodium_objects_read", [from, (1_u64 << 20).into()]))
    };
    let disk = server.disk();
    let before = disk.count(Operation::Read);
    assert_eq!(items(&read(Oid(4).into())), ["object 4", "end"]);
    let reads_of_one = disk.count(Operation::Read) - before;
    disk.fail_from(Operation::Read, reads_of_one + 1, ErrorKind::Other);
    assert_eq!(items(&read(Value::None)), ["object 2", "then 3"]);
    let failed = Answer::Error("ZODB.POSException.StorageSystemError".to_owned());
    assert_eq!(read(Oid(3).into()), failed);
    disk.mend();
    assert_eq!(items(&read(Oid(3).into())), ["object 3", "object 4", "end"]);
    must(server.close());
}
